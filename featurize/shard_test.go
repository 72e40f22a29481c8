package featurize

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fmp/featurize/dataset"
	"fmp/onnx/must"
)

// stored returns the files of a cache folder by name.
func stored(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	entries := must.Get(os.ReadDir(dir))(t)
	for _, e := range entries {
		out[e.Name()] = must.Get(os.ReadFile(filepath.Join(dir, e.Name())))(t)
	}
	return out
}

// TestShards: shards in any number, computed in any order by any number of threads, one of them
// stopped and resumed, merge to the file of a run without shards, byte for byte; runs read it.
func TestShards(t *testing.T) {
	ds := testData()
	whole := t.TempDir()
	first := must.Get(Run(t.Context(), ds, openTest(t, 1, ""), Config{Cache: whole}))(t)
	want := stored(t, whole)
	for n := 1; n <= 5; n++ { // of three chunks: 56 and 24 training images, 20 test images
		cache := t.TempDir()
		ctx, cancel := context.WithCancel(t.Context())
		c := Config{Cache: cache, Progress: func(done, _ int) {
			if done >= 30 {
				cancel()
			}
		}}
		if _, err := RunShard(ctx, ds, openTest(t, 1, ""), n-1, n, c); n == 2 &&
			!errors.Is(err, context.Canceled) {
			t.Fatalf("not stopped: %v", err)
		}
		begun := -1
		c.Progress = func(done, _ int) {
			if begun < 0 {
				begun = done
			}
		}
		images := 0
		for i := n - 1; i >= 0; i-- {
			s := must.Get(RunShard(t.Context(), ds, openTest(t, 1+i%2, ""), i, n, c))(t)
			if g := newGrid(ds, openTest(t, 1, "")); !g.begins(s.From) || !g.begins(s.To) {
				t.Errorf("shard %d of %d is images %d to %d, which are no whole chunks", i, n, s.From, s.To-1)
			}
			if images += s.To - s.From; i == n-1 && n == 2 && begun <= 24 {
				t.Errorf("a shard that was stopped began again with its image %d", begun)
			}
			if again, err := RunShard(t.Context(), ds, openTest(t, 1, ""), i, n, c); err != nil ||
				!again.Cached && s.From < s.To {
				t.Errorf("shard %d of %d is computed again: %v", i, n, err)
			}
		}
		if images != 100 {
			t.Errorf("%d shards have %d images; want 100", n, images)
		}
		list, err := Merge(t.Context(), cache)
		if err != nil || n > 1 && (len(list) != 1 || list[0].Images != 100 || list[0].Dx != first.Dx) {
			t.Errorf("%d shards: merged %+v, %v", n, list, err)
		}
		got := stored(t, cache)
		if len(got) != len(want) {
			t.Errorf("%d shards leave %d files; want %d", n, len(got), len(want))
		}
		for name := range want {
			if !bytes.Equal(got[name], want[name]) {
				t.Errorf("%d shards: %s differs from that of a run without shards", n, name)
			}
		}
		read, err := Run(t.Context(), ds, openTest(t, 1, ""), Config{Cache: cache})
		if err != nil || !read.Cached || read.Digest != first.Digest ||
			!slices.Equal(read.Train.Features, first.Train.Features) {
			t.Errorf("%d shards: a run does not read them: %v", n, err)
		}
	}
}

// TestMergeRefuses: shards that are missing, damaged or of two divisions make no file, and are
// kept; other data sets are merged.
func TestMergeRefuses(t *testing.T) {
	ds := testData()
	other := testData()
	other.Digest = "other"
	x := openTest(t, 1, "")
	for _, c := range []struct {
		name, want string
		change     func(t *testing.T, paths []string)
	}{
		{"missing", "images 56 to 79 of 100 are missing",
			func(t *testing.T, p []string) { must.Do(t, os.Remove(p[1])) }},
		{"missing last", "images 80 to 99 of 100 are missing",
			func(t *testing.T, p []string) { must.Do(t, os.Remove(p[2])) }},
		{"damaged", "does not match its digest", func(t *testing.T, p []string) { flip(t, p[1], -1) }},
		{"another size", "rows; want 24",
			func(t *testing.T, p []string) { must.Do(t, os.Rename(p[0], p[1])); copyShard(t, p[1], p[0]) }},
		{"two divisions", "overlaps", func(t *testing.T, p []string) {
			copyShard(t, p[1], strings.Replace(p[1], ".0000000056-", ".0000000070-", 1))
		}},
	} {
		cache := t.TempDir()
		var paths []string
		for i := range 3 {
			for _, d := range []*dataset.Dataset{other, ds} {
				s := must.Get(RunShard(t.Context(), d, x, i, 3, Config{Cache: cache}))(t)
				if d == ds {
					paths = append(paths, s.Path)
				}
			}
		}
		c.change(t, paths)
		before := len(stored(t, cache))
		list, err := Merge(t.Context(), cache)
		if err == nil || !strings.Contains(err.Error(), c.want) || len(list) != 1 {
			t.Errorf("%s: merged %v, %v; want the other alone, and %q", c.name, list, err, c.want)
		}
		if _, err := os.Stat(cachePath(cache, ds, x)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: the file is there (%v)", c.name, err)
		}
		if left := len(stored(t, cache)); left != before-4 { // six files of the other became two
			t.Errorf("%s: %d of %d files are left", c.name, left, before)
		}
	}
}

// TestMergeStopped: a merging that was stopped while it removed the shards ends at the next call.
func TestMergeStopped(t *testing.T) {
	ds, x, cache := testData(), openTest(t, 1, ""), t.TempDir()
	for i := range 2 {
		must.Get(RunShard(t.Context(), ds, x, i, 2, Config{Cache: cache}))(t)
	}
	left := stored(t, cache)
	must.Get(Merge(t.Context(), cache))(t)
	want := stored(t, cache)
	for name, data := range left {
		if strings.Contains(name, ".0000000056-0000000100-") {
			must.Do(t, os.WriteFile(filepath.Join(cache, name), data, 0o600))
		}
	}
	if _, err := Merge(t.Context(), cache); err != nil || len(stored(t, cache)) != len(want) {
		t.Errorf("%v; files %d, want %d", err, len(stored(t, cache)), len(want))
	}
}

func TestRunShardErrors(t *testing.T) {
	x := openTest(t, 1, "")
	for _, s := range [][2]int{{0, 0}, {-1, 2}, {2, 2}, {0, MaxShards + 1}} {
		must.Fail(RunShard(t.Context(), testData(), x, s[0], s[1], Config{Cache: t.TempDir()}))(t, "", s)
	}
	must.Fail(RunShard(t.Context(), testData(), x, 0, 1, Config{Cache: "none"}))(t, "", "no cache")
	if _, err := Merge(t.Context(), filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no folder: %v", err)
	}
}

func copyShard(t *testing.T, from, to string) {
	t.Helper()
	must.Do(t, os.WriteFile(to, must.Get(os.ReadFile(from))(t), 0o600))
}

// flip changes a bit of a byte, counted from the end.
func flip(t *testing.T, path string, at int) {
	t.Helper()
	data := must.Get(os.ReadFile(path))(t)
	data[len(data)+at] ^= 1
	must.Do(t, os.WriteFile(path, data, 0o600))
}
