package dataset

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"fmp/featurize/imagefile"
)

// TestLargeImagesAreNotDecodedAllAtOnce: four images of 49 megapixels, of 16 bits a channel, take what one takes and what
// the garbage collector has not yet come to.
func TestLargeImagesAreNotDecodedAllAtOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("decodes 4 images of 49 megapixels: some seconds")
	}
	im := image.NewNRGBA64(image.Rect(0, 0, 7000, 7000))
	for i := range im.Pix {
		im.Pix[i] = 0xff
	}
	im.Set(1, 1, color.NRGBA64{1, 2, 3, 0xffff})
	var b bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestSpeed}).Encode(&b, im); err != nil {
		t.Fatal(err)
	}
	im = nil
	dir := t.TempDir()
	for i := range 4 {
		path := filepath.Join(dir, fmt.Sprint("class", i%2), fmt.Sprintf("%d.png", i))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	runtime.GC()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(8)) // as many goroutines decode as there are threads
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
	_, err := openFolder(t.Context(), dir, imagefile.Fit{}, false, nil)
	close(stop)
	if got := <-peak; got > 1<<30 {
		t.Errorf("%d MB were in use", got>>20)
	} else {
		t.Logf("%d MB were in use", got>>20)
	}
	if err != nil {
		t.Error(err)
	}
}
