package planes

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/klauspost/compress/zstd"

	"fmp/onnx/must"
)

// pack compresses bytes for Unpack.
func pack(t testing.TB, b []byte) []byte {
	t.Helper()
	enc := must.Get(zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBestCompression),
		zstd.WithEncoderConcurrency(1)))(t)
	defer enc.Close()
	return enc.EncodeAll(Sorted(b), nil)
}

// TestRoundTrip: any number of bytes comes back, and weights lose an eighth at least.
func TestRoundTrip(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var weights []byte
	for range 50_000 {
		weights = binary.LittleEndian.AppendUint32(weights,
			math.Float32bits(float32(0.1*rng.NormFloat64())))
	}
	for _, n := range []int{0, 1, 2, 3, 4, 5, 1001, len(weights)} {
		packed := pack(t, weights[:n])
		if n == len(weights) && len(packed) > n*7/8 {
			t.Errorf("%d bytes of weights are %d when packed", n, len(packed))
		}
		got, err := Unpack(packed, len(weights))
		if err != nil || !bytes.Equal(got, weights[:n]) {
			t.Fatalf("%d bytes: %v, equal %v", n, err, bytes.Equal(got, weights[:n]))
		}
		if n > 1000 {
			if _, err := Unpack(packed, n-1); err == nil {
				t.Error("more than the limit was unpacked")
			}
			packed[n/3] ^= 1
			if got, err := Unpack(packed, len(weights)); err == nil {
				t.Errorf("a changed byte went unseen, equal %v", bytes.Equal(got, weights[:n]))
			}
		}
	}
}

func FuzzUnpack(f *testing.F) {
	f.Add(pack(f, []byte("what was packed")))
	f.Fuzz(func(t *testing.T, b []byte) {
		const limit = 1 << 16
		if out, err := Unpack(b, limit); err == nil && len(out) > limit {
			t.Fatalf("%d bytes", len(out))
		}
	})
}
