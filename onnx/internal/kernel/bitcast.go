package kernel

import (
	little "encoding/binary"
	"fmt"

	"fmp/onnx"
	"fmp/onnx/internal/try"
)

// BitCast reads the bits of elements as those of another type of as many bits.
func init() {
	register(Def{Op: "BitCast", Since: 26, OutType: castType, New: newBitCast})
}

// newBitCast reads and writes little-endian bits, whatever the machine. Elements of less than 8
// bits are packed and unpacked again.
func newBitCast(s *Spec) (Kernel, error) {
	s.ignore("to")
	from, to := s.In[0], s.Out[0]
	// Strings are refused by name: their elements have no fixed number of bits.
	if from.Bits() != to.Bits() || from == onnx.String {
		return nil, fmt.Errorf("elements of %v have other bits than those of %v", from, to)
	}
	return func(c *Call) error {
		x := c.In[0]
		out := try.Get(c.New(0, to, x.Shape))
		if from.Bits() < 8 { // in memory Int4 and Int2 carry their sign on
			return onnx.UnpackData(out, onnx.PackedData(x))
		}
		// The tensor's bytes are held once more for the length of the call.
		raw, err := little.Append(nil, little.LittleEndian, x.Data)
		if err == nil {
			_, err = little.Decode(raw, little.LittleEndian, out.Data)
		}
		return err
	}, nil
}
