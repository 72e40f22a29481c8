package kernel

import (
	"fmt"
	"slices"

	"fmp/onnx"
	"fmp/onnx/internal/try"
	"fmp/onnx/op"
)

// Quantization is how a float32 value is held in bytes, all with one scale and zero point. A byte b
// stands for (b - Zero) Scale. Scale is finite and above 0.
type Quantization struct {
	DType onnx.DType // Int8 or Uint8
	Scale float32
	Zero  int32
}

func (q Quantization) saturation() saturation { return saturationOf(q.DType, float64(q.Zero)) }
func (q Quantization) quantum() quantum {
	return quantumOf(q.DType, float64(q.Scale), float64(q.Zero))
}

// Curves are the operators of one number for [NewTable].
var Curves = []string{"Relu", "Clip", "Sigmoid", "HardSigmoid", "HardSwish", "LeakyRelu", "Tanh",
	"Elu", "Selu", "Celu", "Softplus", "Softsign", "Gelu", "Erf", "Exp", "Sqrt", "Abs", "Neg",
	"Mish", "ThresholdedRelu"}

// NewProduct makes the kernel of a Conv, MatMul or Gemm of bytes: s has the operator's attributes,
// and inputs and constants as a QLinearConv has them, of which the last is the bias. The error says
// why there is none; the node is then run on float32.
func NewProduct(s *Spec) (run Kernel, err error) {
	defer try.Catch(&err)
	s.attrs, s.used = op.Attrs(s.Node, s.Opset), map[string]bool{}
	product := matMulOfBytes
	switch s.Node.Op {
	case "Conv":
		product = convOfBytes
	case "Gemm":
		if s.float("alpha") != 1 || s.float("beta") != 1 || s.bool("transA") {
			return nil, fmt.Errorf("a Gemm with factors or a transposed first matrix is no product of bytes")
		}
	}
	return try.Get(product(s, nil)), s.finish()
}

// Table is a function of a byte. It holds a byte for each of the 256 that may come in, and is only
// read once it is made.
type Table struct {
	out   onnx.DType
	bytes [256]uint8
}

// NewTable returns the results of a node of one number that is dequantised before and quantised
// after. It runs the float32 kernel on all 256 numbers, so that a look-up gives the same as the
// three nodes. Entry b is the quantum of f((b - in.Zero) in.Scale) by out. Other inputs of the node
// must be constants of s.
func NewTable(s *Spec, in, out Quantization) (*Table, error) {
	k, err := Prepare(s)
	if err != nil {
		return nil, err
	}
	x, every := onnx.ZerosF32(256), identity()
	dequantizeGo(x.F32(), every[:], in.quantum())
	c := NewCall(&Env{Pool: &Pool{}, Threads: 1, Reproducible: s.Reproducible}, len(s.In), 1)
	copy(c.In, s.Const)
	c.In[0], c.Want[0] = x, true
	if err := c.Do(k); err != nil {
		return nil, err
	}
	t := &Table{out: out.DType}
	quantizeGo(t.bytes[:], c.Out[0].F32(), out.Scale, out.saturation())
	return t, nil
}

// identity holds all bytes, each at its place.
func identity() (every [256]uint8) {
	for i := range every {
		every[i] = uint8(i)
	}
	return every
}

// NewPairTable returns the results of an Add or Mul of a value and of the table's result for it. a
// is the value's quantization and b that of the table's result: so x sigmoid(x) becomes one
// look-up.
func NewPairTable(s *Spec, a, b, out Quantization, of *Table) *Table {
	t, every := &Table{out: out.DType}, identity()
	pairedGo(t.bytes[:], every[:], of.bytes[:], pairingOf(s, a, b, out))
	return t
}

// Run is the table's kernel. It may run in several goroutines at once.
func (t *Table) Run(c *Call) error {
	y := try.Get(c.New(0, t.out, c.In[0].Shape))
	src, _ := bytesOf(c.In[0])
	dst, _ := bytesOf(y)
	c.Parallel(len(src), 1, func(lo, hi int) { lookUp(dst[lo:hi], src[lo:hi], &t.bytes) })
	return nil
}

// pairingOf is the pair of s, an Add or a Mul.
func pairingOf(s *Spec, a, b, out Quantization) *pairing {
	return &pairing{a: a.quantum(), b: b.quantum(), scale: out.Scale, product: s.Node.Op == "Mul",
		saturation: out.saturation()}
}

// NewPair makes the kernel of an Add or Mul, prepared from s, of two values that are dequantised
// before, whose result is quantised. A smaller operand whose numbers stand for runs of the larger
// is done on bytes, other broadcasting on float32. Calls share the pair and only read it.
func NewPair(s *Spec, a, b, out Quantization) (Kernel, error) {
	k, err := Prepare(s)
	if err != nil {
		return nil, err
	}
	p := pairingOf(s, a, b, out)
	return func(c *Call) error {
		x, y := c.In[0], c.In[1]
		p := p
		// Sums and products commute, so that the larger operand may stand first.
		if x.Len() < y.Len() {
			q := *p
			x, y, q.a, q.b, p = y, x, p.b, p.a, &q
		}
		run, ok := repeated(x.Shape, y.Shape)
		if !ok {
			return inFloats(c, k, a, b, out)
		}
		z := try.Get(c.New(0, out.DType, x.Shape))
		dst, _ := bytesOf(z)
		one, _ := bytesOf(x)
		two, _ := bytesOf(y)
		c.Parallel(y.Len(), run, func(lo, hi int) {
			if run == 1 {
				paired(dst[lo:hi], one[lo:hi], two[lo:hi], p)
				return
			}
			same := scratch[uint8](c, run)
			for i := lo; i < hi; i++ {
				fillRange(same, two[i])
				paired(dst[i*run:(i+1)*run], one[i*run:(i+1)*run], same, p)
			}
		})
		return nil
	}, nil
}

// repeated reports whether each element of a value of shape b stands for a run of one of shape a,
// and how long that is. For a of [n, c, h, w] and b of [n, c, 1, 1] the run is h w.
func repeated(a, b []int) (run int, ok bool) {
	if len(b) > len(a) {
		return 0, false
	}
	b = append(slices.Repeat([]int{1}, len(a)-len(b)), b...)
	k := len(b)
	run = 1
	for k > 0 && b[k-1] == 1 {
		k--
		run *= a[k]
	}
	return run, slices.Equal(a[:k], b[:k])
}

// inFloats computes a pair of whatever shapes by the float32 kernel.
func inFloats(c *Call, k Kernel, a, b, out Quantization) error {
	sub := NewCall(c.env, 2, 1)
	for i, q := range []Quantization{a, b} {
		from, _ := bytesOf(c.In[i])
		sub.In[i] = &onnx.Tensor{DType: onnx.Float32, Shape: c.In[i].Shape,
			Data: scratch[float32](c, len(from))}
		dequantizeRow(sub.In[i].F32(), from, q.quantum())
	}
	sub.Want[0] = true
	defer sub.free()
	try.Do(k(sub))
	y := try.Get(c.New(0, out.DType, sub.Out[0].Shape))
	dst, _ := bytesOf(y)
	quantizeRow(dst, sub.Out[0].F32(), out.Scale, out.saturation())
	c.env.Pool.Put(sub.Out[0].Data)
	return nil
}
