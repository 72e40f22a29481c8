package digits

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"fmp/onnx/must"
)

func TestTypefacesAreDisjoint(t *testing.T) {
	all := must.Get(faces())(t)
	split := map[string]string{}
	for _, f := range all {
		if s, ok := split[f.typeface]; ok && s != f.split {
			t.Errorf("typeface %s is in both splits", f.typeface)
		}
		split[f.typeface] = f.split
	}
}

func TestDrawIsTheSameOnAnyNumberOfThreads(t *testing.T) {
	for _, v := range []Variant{Grey, Color} {
		c := Config{Variant: v, Seed: 7, Train: 450, Test: 30}
		var sets []*Set
		for _, n := range []int{1, 4} {
			old := runtime.GOMAXPROCS(n)
			s, err := Draw(context.Background(), c)
			runtime.GOMAXPROCS(old)
			if err != nil {
				t.Fatal(err)
			}
			sets = append(sets, s)
		}
		if !bytes.Equal(sets[0].Train.Pix, sets[1].Train.Pix) ||
			!bytes.Equal(sets[0].Test.Pix, sets[1].Test.Pix) {
			t.Errorf("%s: 1 and 4 threads draw different images", v)
		}
		c.Seed = 8
		other := must.Get(Draw(context.Background(), c))(t)
		if bytes.Equal(sets[0].Train.Pix, other.Train.Pix) {
			t.Errorf("%s: two seeds draw the same images", v)
		}
	}
}

func TestEveryImageShowsSomething(t *testing.T) {
	s := must.Get(Draw(context.Background(), Config{Train: 2000, Test: 500}))(t)
	var seen [10]int
	for _, p := range []Labelled{s.Train, s.Test} {
		for i, y := range p.Labels {
			seen[y]++
			bright := 0
			for _, v := range p.Pix[i*28*28 : (i+1)*28*28] {
				if v > 80 {
					bright++
				}
			}
			if bright < 5 {
				t.Errorf("image %d of digit %d has only %d bright pixels", i, y, bright)
			}
		}
	}
	for d, n := range seen {
		if n < 150 {
			t.Errorf("digit %d appears %d times in 2500 images", d, n)
		}
	}
}

func TestConfigErrors(t *testing.T) {
	for _, c := range []Config{{Variant: "letters"}, {Train: -1}, {Test: MaxImages + 1}} {
		must.Fail(Draw(context.Background(), c))(t, "", c)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	must.Fail(Draw(ctx, Config{Train: 10, Test: 10}))(t, "", "a cancelled context draws on")
}

func TestCacheIsReadAndDamageIsNoticed(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", dir)
	t.Setenv("HOME", dir)
	c := Config{Train: 40, Test: 10, Seed: 3}
	want := must.Get(Cached(context.Background(), c))(t)
	root, err := os.UserCacheDir()
	if err != nil {
		t.Skip("no cache folder on this system")
	}
	files, _ := filepath.Glob(filepath.Join(root, "fmp", "drawn", "*.bin"))
	if len(files) != 1 {
		t.Fatalf("cache files: %v", files)
	}
	data := must.Get(os.ReadFile(files[0]))(t)
	full := must.Get(c.withDefaults())(t)
	if s, ok := readCache(files[0], full); !ok || !bytes.Equal(s.Train.Pix, want.Train.Pix) ||
		!bytes.Equal(s.Test.Labels, want.Test.Labels) {
		t.Error("the cache gives back something else")
	}
	for _, bad := range [][]byte{data[:len(data)-1], append([]byte{data[0] ^ 1}, data[1:]...), nil} {
		must.Do(t, os.WriteFile(files[0], bad, 0o644))
		if _, ok := readCache(files[0], full); ok {
			t.Errorf("a damaged cache of %d bytes is believed", len(bad))
		}
	}
	got, err := Cached(context.Background(), c)
	if err != nil || !bytes.Equal(got.Train.Pix, want.Train.Pix) {
		t.Errorf("after damage: %v", err)
	}
}
