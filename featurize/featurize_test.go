package featurize

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fmp/featurize/dataset"
	"fmp/featurize/extractor"
	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/engine/ort/orttest"
	"fmp/onnx/must"
)

func TestStats(t *testing.T) {
	rows := []float32{1, 5, 3, 5, 5, 5}
	s := newStats(rows, 2)
	if s.Mean[0] != 3 || s.Mean[1] != 5 || math.Abs(float64(s.Std[0])-math.Sqrt(8.0/3)) > 1e-6 ||
		s.Std[1] != 1 {
		t.Errorf("%+v", s)
	}
	s.Apply(rows)
	if rows[1] != 0 || rows[3] != 0 || rows[0] != -rows[4] {
		t.Errorf("standardised: %v", rows)
	}
	if s := newStats(make([]float32, 6), 2); s.Std[0] != 1 || s.Std[1] != 1 {
		t.Errorf("all zero: %+v", s)
	}
}

func testData() *dataset.Dataset {
	part := func(n, seed int) dataset.Labelled {
		p := dataset.Labelled{Images: dataset.Images{N: n, H: 6, W: 6, Ch: 1, Pix: make([]uint8, n*36)}}
		for i := range p.Pix {
			p.Pix[i] = uint8((i*i + seed) % 251)
		}
		for i := range n {
			p.Labels = append(p.Labels, i%2)
		}
		return p
	}
	return &dataset.Dataset{Name: "t", Classes: []string{"a", "b"}, Train: part(80, 1),
		Test: part(20, 2), Digest: "test"}
}

func openTest(t *testing.T, threads int, kind string) *extractor.Extractor {
	t.Helper()
	eng := orttest.New(t)
	b := build.New("conv")
	k := make([]float32, 3*9)
	for i := range k {
		k[i] = float32(i%7) - 3
	}
	v := b.Op("Conv", []build.Ref{b.Input("image", onnx.Float32, "n", 1, 6, 6),
		b.Param("k", onnx.NewTensor(k, 3, 1, 3, 3))})
	b.Output("features", b.Relu(v))
	m := must.Get(b.Model())(t)
	x := must.Get(extractor.New(eng, m, models.Manifest{Kind: kind},
		extractor.Options{Batch: 7, Threads: threads}, testData().Train.Images))(t)
	t.Cleanup(func() { x.Close(); eng.Close() })
	return x
}

func TestRunStandardisesOverTheExtractorPartAndCaches(t *testing.T) {
	ds := testData()
	cache := t.TempDir()
	first := must.Get(Run(context.Background(), ds, openTest(t, 1, ""), Config{Cache: cache}))(t)
	part := first.Select(first.Splits.Extractor)
	if part.N != 40 {
		t.Fatalf("extractor part of %d images; want 40", part.N)
	}
	s := newStats(part.Features, first.Dx)
	for k := range first.Dx {
		if math.Abs(float64(s.Mean[k])) > 1e-5 || math.Abs(float64(s.Std[k])-1) > 1e-5 {
			t.Errorf("feature %d of the extractor part has mean %v and deviation %v", k, s.Mean[k], s.Std[k])
		}
	}
	again, err := Run(context.Background(), ds, openTest(t, 3, ""), Config{Cache: cache})
	if err != nil || !again.Cached || !slices.Equal(again.Train.Features, first.Train.Features) ||
		again.Digest != first.Digest {
		t.Errorf("from the cache: cached %v, %v", again.Cached, err)
	}
	fresh, err := Run(context.Background(), ds, openTest(t, 3, ""), Config{Cache: "none"})
	if err != nil || fresh.Cached || !slices.Equal(fresh.Test.Features, first.Test.Features) {
		t.Errorf("with 3 threads: %v", err)
	}
	own, err := Run(context.Background(), ds, openTest(t, 1, models.KindExtractor),
		Config{Cache: "none"})
	if err != nil || own.Stats != nil || slices.Equal(own.Test.Features, first.Test.Features) {
		t.Errorf("an extractor of ours is standardised again (%v)", err)
	}
}

func TestDamagedCacheIsNotBelieved(t *testing.T) {
	ds := testData()
	cache := t.TempDir()
	x := openTest(t, 1, "")
	want := must.Get(Run(context.Background(), ds, x, Config{Cache: cache}))(t)
	files, _ := filepath.Glob(filepath.Join(cache, "*.npy"))
	if len(files) != 1 {
		t.Fatalf("cache holds %v", files)
	}
	good := must.Get(os.ReadFile(files[0]))(t)
	nan := slices.Clone(good)
	copy(nan[len(nan)-4:], []byte{0, 0, 0xc0, 0x7f})
	flipped := slices.Clone(good)
	for i := len(flipped) - 4*10; i < len(flipped); i += 4 {
		flipped[i] ^= 1 // the last bit of ten values
	}
	for name, bad := range map[string][]byte{"truncated": good[:len(good)-3], "NaN": nan, "empty": nil,
		"text":         []byte("hello"),
		"flipped bits": flipped} {
		must.Do(t, os.WriteFile(files[0], bad, 0o644))
		got, err := Run(context.Background(), ds, x, Config{Cache: cache})
		if err != nil || got.Cached || !slices.Equal(got.Train.Features, want.Train.Features) ||
			!slices.Equal(got.Test.Features, want.Test.Features) {
			t.Errorf("%s: cached %v, %v", name, got != nil && got.Cached, err)
		} else if notes := strings.Join(got.Notes, " "); !strings.Contains(notes,
			"do not match their digest") || strings.Contains(notes, cache) {
			t.Errorf("%s: notes are %q", name, notes)
		}
		if got, err = Run(context.Background(), ds, x, Config{Cache: cache}); err != nil ||
			!got.Cached ||
			strings.Contains(strings.Join(got.Notes, " "), "digest") {
			t.Errorf("%s: the cache is not mended: %v, %v", name, got, err)
		}
	}
}

func TestUnwritableCacheIsANote(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	must.Do(t, os.WriteFile(file, nil, 0o644))
	f, err := Run(context.Background(), testData(), openTest(t, 1, ""),
		Config{Cache: filepath.Join(file, "x")})
	if err != nil || !strings.Contains(strings.Join(f.Notes, " "), "could not be cached") {
		t.Errorf("%v", err)
	}
}

func TestRunErrors(t *testing.T) {
	x := openTest(t, 1, "")
	must.Fail(Run(context.Background(), testData(), x,
		Config{Cache: "none", Fractions: dataset.Fractions{Clients: 1}}))(t, "", "nothing to standardise over")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Run(ctx, testData(), x, Config{Cache: "none"}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestInterruptedRunGoesOn(t *testing.T) {
	ds := testData()
	want := must.Get(Run(context.Background(), ds, openTest(t, 1, ""), Config{Cache: "none"}))(t)
	for _, stop := range []int{7, 60, 84} { // within the training images, and within the test images
		cache := t.TempDir()
		ctx, cancel := context.WithCancel(context.Background())
		_, err := Run(ctx, ds, openTest(t, 1, ""), Config{Cache: cache, Progress: func(done, _ int) {
			if done >= stop {
				cancel()
			}
		}})
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("stopped at %d: %v", stop, err)
		}
		first := -1
		got, err := Run(context.Background(), ds, openTest(t, 2, ""),
			Config{Cache: cache, Progress: func(done, _ int) {
				if first < 0 {
					first = done
				}
			}})
		if err != nil || !slices.Equal(got.Train.Features, want.Train.Features) ||
			!slices.Equal(got.Test.Features, want.Test.Features) {
			t.Errorf("after a stop at %d: %v, or other features", stop, err)
		}
		if chunk := 56; stop > chunk && first <= chunk {
			t.Errorf("after a stop at %d it began again with image %d", stop, first)
		}
		if left, _ := filepath.Glob(filepath.Join(cache, "*.partial")); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	}
}

// TestFewTestImages: where few test images are wanted no more features are computed, and they are
// those of a run that wants all.
func TestFewTestImages(t *testing.T) {
	ds := testData()
	x := openTest(t, 1, "")
	want := must.Get(Run(t.Context(), ds, x, Config{Cache: "none"}))(t)
	cache := t.TempDir()
	for _, cached := range []bool{false, true} {
		computed := 0
		got := must.Get(Run(t.Context(), ds, x,
			Config{Cache: cache, Test: 6, Progress: func(_, total int) { computed = total }}))(t)
		if got.Cached != cached || !cached && computed != 86 || got.Test.N != 6 ||
			len(got.Test.Labels) != 6 || got.Digest != want.Digest ||
			!slices.Equal(got.Train.Features, want.Train.Features) ||
			!slices.Equal(got.Test.Features, want.Test.Features[:6*want.Dx]) {
			t.Errorf("cached %v, %d features computed for %d test images; want cached %v, 86 and 6",
				got.Cached, computed, got.Test.N, cached)
		}
	}
	all, err := Run(t.Context(), ds, x, Config{Cache: cache})
	if err != nil || !slices.Equal(all.Test.Features, want.Test.Features) {
		t.Errorf("all test images after a few: %v", err)
	}
	few, err := Run(t.Context(), ds, x, Config{Cache: cache, Test: 3})
	if err != nil || !few.Cached || !slices.Equal(few.Test.Features, want.Test.Features[:3*want.Dx]) {
		t.Errorf("a few test images after all: cached %v, %v", few.Cached, err)
	}
}
