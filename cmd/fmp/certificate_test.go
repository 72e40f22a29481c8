package main

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"fmp/onnx/must"
	"fmp/pipeline/federate/selfsigned"
)

// TestCertificateFaults: a certificate that clients refuse by its times, or will while the round is open, is
// told of.
func TestCertificateFaults(t *testing.T) {
	now := time.Now()
	day := 24 * time.Hour
	for name, c := range map[string]struct {
		made, deadline time.Time // it begins an hour before, and ends a year later
		want           string
	}{
		"begins later":             {now.Add(day), now, "it begins at"},
		"has ended":                {now.AddDate(-1, 0, -1), now, "it ended at"},
		"ends before the deadline": {now.AddDate(0, 0, -1), now.AddDate(1, 0, 0), "before the round's deadline"},
		"ends after the deadline":  {now.AddDate(0, 0, -1), now.AddDate(0, 11, 0), ""},
	} {
		path := filepath.Join(t.TempDir(), "server")
		must.Do(t, selfsigned.Ensure(path+".crt", path+".key", c.made))
		s := &certificate{cert: path + ".crt", key: path + ".key", deadline: c.deadline}
		must.Do(t, s.read())
		if got := s.fault(now); !strings.Contains(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%s: %q; want %q", name, got, c.want)
		}
	}
}

// TestCertificateReadAgain: the end of a certificate is said once while the server serves, as is that its
// files are no pair, and that others may read its key; a renewed pair is given to connections from then on.
func TestCertificateReadAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	synctest.Test(t, func(t *testing.T) {
		must.Do(t, selfsigned.Ensure(at("is.crt"), at("is.key"), time.Now()))
		renewed := time.Now().AddDate(1, 0, 0)
		must.Do(t, selfsigned.Ensure(at("next.crt"), at("next.key"), renewed))
		var log bytes.Buffer
		c := &certificate{cert: at("is.crt"), key: at("is.key"),
			log: slog.New(slog.NewTextHandler(&log, nil))}
		must.Do(t, c.read())
		first := must.Get(c.config().GetCertificate(nil))(t)
		go c.watch(t.Context(), time.Hour)
		time.Sleep(367 * 24 * time.Hour)
		must.Do(t, os.Rename(at("next.crt"), at("is.crt")))
		time.Sleep(24 * time.Hour)
		if !must.Get(c.config().GetCertificate(nil))(t).Leaf.Equal(first.Leaf) {
			t.Error("half of a pair is taken")
		}
		if runtime.GOOS != "windows" { // which has no such rights
			must.Do(t, os.Chmod(at("next.key"), 0o644))
		}
		must.Do(t, os.Rename(at("next.key"), at("is.key")))
		time.Sleep(3*time.Hour + time.Minute)
		if runtime.GOOS != "windows" {
			if !must.Get(c.config().GetCertificate(nil))(t).Leaf.Equal(first.Leaf) {
				t.Error("a key is taken that others may read")
			}
			must.Do(t, os.Chmod(at("is.key"), 0o600)) // which changes neither its time nor its size
			time.Sleep(3 * time.Hour)
		}
		if is := must.Get(c.config().GetCertificate(nil))(t); !is.Leaf.NotAfter.After(time.Now()) {
			t.Errorf("the renewed one is not taken; it ends at %v", is.Leaf.NotAfter)
		}
		wants := []string{"it ended at", "private key does not match", "certificate read again"}
		if runtime.GOOS != "windows" {
			wants = append(wants, "lets other users read")
		}
		for _, want := range wants {
			if n := strings.Count(log.String(), want); n != 1 {
				t.Errorf("%q is in the log %d times:\n%s", want, n, &log)
			}
		}
	})
}
