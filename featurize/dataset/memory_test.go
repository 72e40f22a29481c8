package dataset

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"fmp/featurize/imagefile/imagefiletest"
	"fmp/onnx/must"
)

// TestLargeImagesAreNotDecodedAllAtOnce: six images of 49 megapixels, of 16 bits a channel, take
// what one takes and what the garbage collector has not yet come to, whether they are decoded at
// once or when they are asked for.
func TestLargeImagesAreNotDecodedAllAtOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("decodes images of 49 megapixels: some seconds")
	}
	im := image.NewNRGBA64(image.Rect(0, 0, 7000, 7000))
	for i := range im.Pix {
		im.Pix[i] = 0xff
	}
	im.Set(1, 1, color.NRGBA64{1, 2, 3, 0xffff})
	var b bytes.Buffer
	must.Do(t, (&png.Encoder{CompressionLevel: png.BestSpeed}).Encode(&b, im))
	im = nil
	dir := t.TempDir()
	for i := range 6 {
		imagefiletest.WriteApart(t, filepath.Join(dir, fmt.Sprint("class", i%2), fmt.Sprintf("%d.png", i)), b.Bytes())
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(8)) // as many goroutines decode as there are threads
	for _, hold := range []int64{0, 1} {
		got := peakHeap(func() {
			ds := must.Get(openFolder(t.Context(), dir, Options{Hold: hold}))(t)
			if _, err := ds.Train.Load(t.Context()); err != nil || ds.Train.Lazy() != (hold > 0) {
				t.Error(err)
			}
		})
		if got > 1<<30 {
			t.Errorf("hold %d: %d MB were in use", hold, got>>20)
		} else {
			t.Logf("hold %d: %d MB were in use", hold, got>>20)
		}
	}
}

// TestLazyMemory: a set of 192 MB of pixels, read in batches of four, takes a few images' memory.
func TestLazyMemory(t *testing.T) {
	dir := t.TempDir()
	data := imagefiletest.PNG(t, plain(1000, 1000, color.NRGBA{9, 200, 30, 255}))
	for i := range 64 {
		imagefiletest.WriteApart(t, filepath.Join(dir, fmt.Sprint("class", i%2), fmt.Sprintf("%d.png", i)), data)
	}
	defer debug.SetGCPercent(debug.SetGCPercent(20)) // what is in use is near what is needed
	read := func(hold int64) uint64 {
		return peakHeap(func() {
			ds := must.Get(Load(t.Context(), Options{Name: dir, Hold: hold}))(t)
			for from := 0; from < ds.Train.N; from += 4 {
				some, bad, err := ds.Train.Images.Load(t.Context(), from, min(from+4, ds.Train.N))
				if err != nil || len(bad) > 0 || some.At(0)[1] != 200 {
					t.Fatal(bad, err)
				}
			}
		})
	}
	if got := read(1 << 20); got > 100<<20 {
		t.Errorf("%d MB were in use", got>>20)
	}
	if got := read(1 << 30); got < 192<<20 { // what is measured is what is held
		t.Errorf("held in memory, %d MB were in use", got>>20)
	}
}

// peakHeap returns the most bytes of the heap that are in use while do runs.
func peakHeap(do func()) uint64 {
	runtime.GC()
	stop, peak := make(chan struct{}), make(chan uint64)
	go func() {
		var m runtime.MemStats
		most := uint64(0)
		for {
			runtime.ReadMemStats(&m)
			most = max(most, m.HeapInuse)
			select {
			case <-stop:
				peak <- most
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	do()
	close(stop)
	return <-peak
}
