package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"fmp/models"
	"fmp/onnx/must"
	"fmp/pipeline/federate/identity"
)

// TestPaidForStays: no command writes over a private upload or a report with noise of something
// else; the same release again does, and one that is drawn again takes its own place.
func TestPaidForStays(t *testing.T) {
	private, plain, c, dir := privateGraph(t), model(t, models.KindClient), classifier(t), t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	with := func(args []string, more ...string) []string { return slices.Concat(args, more) }
	first, second := photosOf(t, 13), photosOf(t, 11)
	must.Do(t, must.Get(identity.New("a"))(t).Save(path("a.key")))
	compress := []string{"compress", "--model", private, "--client", "a", "--ledger", path("spent"), "--epsilon", "1"}
	shares := with(compress, "--noise", "two-servers", "--points", "20")
	public := []string{"compress", "--model", plain, "--client", "a"}
	counts := []string{"evaluate", "--model", c, "--key", path("a.key")}
	noisy := with(counts, "--ledger", path("spent"), "--epsilon", "1")
	for _, r := range []struct {
		args          []string
		flag, at, out string
	}{{compress, "-o", first, "one"}, {compress, "-o", second, "two"}, {shares, "-o", first, "shares"},
		{shares, "-o", second, "other.helper"}, {noisy, "--output", first, "one.json"},
		{noisy, "--output", second, "two.json"}} {
		run(t, with(r.args, r.flag, path(r.out), r.at)...)
	}
	paid := []string{"one", "two", "shares", "shares.helper", "other.helper", "other.helper.helper", "one.json",
		"two.json"}
	for name, r := range map[string]struct {
		args          []string
		flag, at, out string
		says          string
	}{
		"another, made before":       {compress, "-o", first, "two", "an upload of a private round already"},
		"another, drawn again":       {with(compress, "--redraw"), "-o", first, "two", "an upload of a private"},
		"another, fresh":             {with(compress, "--round", "2"), "-o", first, "two", "an upload of a private"},
		"a plain upload":             {public, "-o", second, "two", "an upload of a private round already"},
		"a helper's, made before":    {shares, "-o", first, "other", "other.helper is an upload of a private"},
		"a helper's, drawn again":    {with(shares, "--redraw"), "-o", first, "other", "other.helper is an upload"},
		"a helper's, fresh":          {with(shares, "--round", "2"), "-o", first, "other", "other.helper is an"},
		"an upload over a report":    {public, "-o", second, "two.json", "a report with noise already"},
		"a report, made before":      {noisy, "--output", first, "two.json", "a report with noise already"},
		"a report, drawn again":      {with(noisy, "--redraw"), "--output", first, "two.json", "a report with noise"},
		"a plain report":             {counts, "--output", second, "two.json", "a report with noise already"},
		"a report over an upload":    {counts, "--output", second, "two", "an upload of a private round already"},
		"the same upload":            {compress, "-o", first, "one", ""},
		"the same shares":            {shares, "-o", first, "shares", ""},
		"the same report":            {noisy, "--output", first, "one.json", ""},
		"the same upload, elsewhere": {compress, "-o", first, "copy", ""},
	} {
		before := map[string][]byte{}
		for _, f := range paid {
			before[f] = must.Get(os.ReadFile(path(f)))(t)
		}
		args := with(r.args, r.flag, path(r.out), r.at)
		if r.says == "" {
			run(t, args...)
		} else {
			refuses(t, exitUsage, r.says, args...)
		}
		for f, want := range before {
			if got, err := os.ReadFile(path(f)); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s: %s was written over: %v", name, f, err)
			}
		}
	}
	for _, r := range [][]string{with(compress, "--redraw", "-o", path("one"), first),
		with(shares, "--redraw", "-o", path("shares"), first),
		with(noisy, "--redraw", "--output", path("one.json"), first)} {
		run(t, r...)
	}
}
