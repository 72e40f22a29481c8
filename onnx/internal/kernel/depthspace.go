package kernel

import (
	"fmt"

	"fmp/onnx/internal/try"
)

// DepthToSpace and SpaceToDepth move blocks of b x b positions from channels to space and back:
//
//	DepthToSpace: [n, c, h, w] -> [n, c / b², h b, w b], mode DCR (depth-column-row) or CRD
//	SpaceToDepth: [n, c, h, w] -> [n, c b², h / b, w / b], the same modes
func init() {
	register(
		Def{Op: "DepthToSpace", Since: 1, New: newDepthToSpace},
		Def{Op: "SpaceToDepth", Since: 1, New: newSpaceToDepth},
	)
}

// maxBlock bounds the side of a block, whose square is an int on every machine.
const maxBlock = 1 << 15

// blocks returns the side of a node's blocks and whether their places come before the channel
// (DCR), which an attribute says from an operator set on.
func blocks(s *Spec, since int) (b int, before bool, err error) {
	b, mode := s.int("blocksize"), "DCR"
	if s.Opset >= since {
		mode = s.str("mode")
	}
	if b < 1 || b > maxBlock {
		err = fmt.Errorf("blocksize is %d; allowed are 1 to %d", b, maxBlock)
	}
	return b, mode == "DCR", err
}

// newDepthToSpace reads the input once, by strides of the output seen as six axes.
func newDepthToSpace(s *Spec) (Kernel, error) {
	b, before, err := blocks(s, 11)
	return func(c *Call) error {
		in := c.In[0].Shape
		if len(in) != 4 || in[1]%(b*b) != 0 {
			return fmt.Errorf("input of shape %v: [n, channels, h, w] with channels a multiple of %d", in,
				b*b)
		}
		n, d, h, w := in[0], in[1]/(b*b), in[2], in[3]
		out := try.Get(c.New(0, c.In[0].DType, []int{n, d, h * b, w * b}))
		// as [n, d, h, row, w, column]
		plane := h * w
		sd, sr, sc := plane, b*d*plane, d*plane // DCR: channel = (row b + column) d + depth
		if !before {
			sd, sr, sc = b*b*plane, b*plane, plane
		}
		wide := try.Get(out.Reshape(n, d, h, b, w, b))
		gather(c, wide, c.In[0], 0, []int{in[1] * plane, sd, w, sr, 1, sc})
		return nil
	}, err
}

// newSpaceToDepth is the other way round. Strides walk the input in the order of the output, seen
// as six axes.
func newSpaceToDepth(s *Spec) (Kernel, error) {
	b, before, err := blocks(s, 28)
	return func(c *Call) error {
		in := c.In[0].Shape
		if len(in) != 4 || in[2]%b != 0 || in[3]%b != 0 {
			return fmt.Errorf("input of shape %v: [n, channels, h, w] with h and w multiples of %d",
				in, b)
		}
		n, d, h, w := in[0], in[1], in[2]/b, in[3]/b
		out := try.Get(c.New(0, c.In[0].DType, []int{n, d * b * b, h, w}))
		plane := in[2] * in[3]
		// Axes are [n, row, column, d, h, w] for DCR, and [n, d, row, column, h, w] for CRD.
		shape, stride := []int{n, b, b, d, h, w}, []int{d * plane, in[3], 1, plane, b * in[3], b}
		if !before {
			shape, stride = []int{n, d, b, b, h, w}, []int{d * plane, plane, in[3], 1, b * in[3], b}
		}
		gather(c, try.Get(out.Reshape(shape...)), c.In[0], 0, stride)
		return nil
	}, err
}
