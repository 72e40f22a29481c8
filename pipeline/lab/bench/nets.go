package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"fmp/models"
	"fmp/models/rng"
	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/onnx/serde"
	"fmp/pipeline/shipped"
)

// net is a model that the engines run, with its inputs. model builds or reads it anew at each call.
type net struct {
	name  string
	feeds map[string]*onnx.Tensor
	model func() (*onnx.Model, error)
}

// nets returns shipped graphs, and well-known architectures with random weights. Inputs are drawn
// from a seed. Graphs are built when a row is measured, as the largest hold a hundred megabytes of
// weights.
func nets() []net {
	ours := func(dataset, kind string) func() (*onnx.Model, error) {
		return func() (*onnx.Model, error) {
			m, _, err := shipped.Load(dataset, kind)
			return m, err
		}
	}
	image := func(name string, n, side int) map[string]*onnx.Tensor {
		x := onnx.ZerosF32(n, 3, side, side)
		rng.Normal(rng.New(1, "bench", "images", n, side), x.F32())
		return map[string]*onnx.Tensor{name: x}
	}
	// Client graphs take images as bytes, with their labels; extractors take pixels as floats.
	client := func(side, channels int) map[string]*onnx.Tensor {
		const n = 50
		r := rng.New(1, "bench", "client")
		x, y := make([]uint8, n*side*side*channels), make([]int64, n)
		for i := range x {
			x[i] = uint8(r.IntN(256))
		}
		for i := range y {
			y[i] = int64(r.IntN(classes))
		}
		return map[string]*onnx.Tensor{"images": onnx.NewTensor(x, n, side, side, channels),
			"labels": onnx.NewTensor(y, n)}
	}
	return []net{
		{"client graph of MNIST, 50 images", client(28, 1), ours("mnist", models.KindClient)},
		{"client graph of CIFAR-10, 50 images", client(32, 3), ours("cifar10", models.KindClient)},
		{"extractor of CIFAR-10, one image", image("image", 1, side),
			ours("cifar10", models.KindExtractor)},
		{"extractor of CIFAR-10, 64 images", image("image", 64, side),
			ours("cifar10", models.KindExtractor)},
		{"ResNet-18, one image of 224 x 224", image("images", 1, 224), resNet18},
		{"MobileNetV2, one image of 224 x 224", image("images", 1, 224), mobileNetV2},
		{"MobileNetV3 large, one image of 224 x 224", image("images", 1, 224), mobileNetV3},
		{"EfficientNet-B0, one image of 224 x 224", image("images", 1, 224), efficientNetB0},
		{"EfficientNet-Lite0 with paddings of PyTorch's, one image of 224 x 224",
			image("images", 1, 224), efficientNetLite0},
		{"EfficientNet-Lite0 with paddings of PyTorch's, 16 images of 224 x 224",
			image("images", 16, 224), efficientNetLite0},
		{"ResNet-50, one image of 224 x 224", image("images", 1, 224), resNet50},
		{"ViT (patches of 16, width 192, 12 blocks), one image of 224 x 224",
			image("images", 1, 224), tinyViT},
		{"ConvNeXt Atto, one image of 224 x 224", image("images", 1, 224), convNeXt},
	}
}

// ours is the model on the pure engine. It has one thread, as all contenders have.
func (n net) ours(name string, m *onnx.Model) (Contender, error) {
	e, err := pure.New(engine.Options{Threads: 1})
	if err != nil {
		return Contender{}, err
	}
	return n.on(e, name, m)
}

// on is the model on an engine of this process. A run evaluates the graph once; loading and
// planning it are not timed. Closing the contender closes the session, and not the engine.
func (n net) on(e engine.Engine, name string, m *onnx.Model) (Contender, error) {
	s, err := e.Load(m)
	if err != nil {
		return Contender{}, fmt.Errorf("%s: %w", e.Name(), err)
	}
	c := Timed(name, func() error {
		_, err := engine.Eval(s, n.feeds)
		return err
	})
	c.Close = s.Close
	return c, nil
}

// quantised returns the contenders for a net in bytes, as quantise.py makes it, and for the net as
// it is. Where the script fails, its last line stands in the name of a contender that is missing.
// Names end in the type of the numbers. The script's files are removed at the end, when
// both models are in memory.
func (n net) quantised(ctx context.Context, b *Bench) ([]Contender, error) {
	m, err := n.model()
	if err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp("", "fmp-bench-*")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	// quantise.py reads the one and writes the other.
	from, to := filepath.Join(folder, "model.onnx"), filepath.Join(folder, "quantised.onnx")
	if err := serde.Save(from, m); err != nil {
		return nil, err
	}
	script := filepath.Join(string(b.Peers), "quantise.py")
	if said, err := exec.CommandContext(ctx, b.Peers.python(), script, from,
		to).CombinedOutput(); err != nil {
		c, e := n.ours("fmp, pure engine, float32", m)
		return []Contender{c, {Name: "onnxruntime's quantisation (" +
			cmp.Or(lastLine(string(said)), err.Error()) + ")"}}, errors.Join(e, ctx.Err())
	}
	q, err := serde.Load(to)
	if err != nil {
		return nil, err
	}
	var all []Contender
	for _, of := range []struct {
		in string
		m  *onnx.Model
	}{{"in bytes", q}, {"float32", m}} {
		c, err := n.ours("fmp, pure engine, "+of.in, of.m)
		if err != nil {
			return all, err
		}
		more, err := n.others(ctx, b, of.m, peer{"net:onnxruntime", "onnxruntime from Python"})
		for i := range more {
			more[i].Name += ", " + of.in
		}
		if all = append(append(all, c), more...); err != nil {
			return all, err
		}
	}
	return all, nil
}

// engines returns the contenders for a net: the pure engine, and peers in processes of their own.
// Ours is first, and is returned with the error of the others, for the caller to close.
func (n net) engines(ctx context.Context, b *Bench) ([]Contender, error) {
	m, err := n.model()
	if err != nil {
		return nil, err
	}
	ours, err := n.ours("fmp, pure engine", m)
	if err != nil {
		return nil, err
	}
	others, err := n.others(ctx, b, m, peer{"net:onnxruntime", "onnxruntime from Python"},
		peer{"net:openvino", "OpenVINO"}, peer{"net:tract", "tract"})
	return append([]Contender{ours}, others...), err
}

// others are peers with the model, in processes of their own, as their users run them. Where there
// are none, it is the ONNX Runtime in this one, and each of them is not at hand. Peers read a graph
// that states the sizes of its inputs, and nothing of other shapes.
func (n net) others(ctx context.Context, b *Bench, m *onnx.Model,
	peers ...peer) ([]Contender, error) {
	if !b.Peers.Ready() {
		c, err := n.on(b.Engine, b.Engine.Name(), m)
		all := []Contender{c}
		for _, p := range peers {
			all = append(all, Contender{Name: p.name})
		}
		return all, err
	}
	files, fixed := map[string]*onnx.Tensor{}, onnx.Clone(m)
	// The clone alone is changed: ours runs the graph with its free sizes.
	for i, v := range fixed.Graph.Inputs { // tract wants sizes
		t := n.feeds[v.Name]
		for k, size := range t.Shape {
			v.Shape[k] = onnx.Known(size)
		}
		files[fmt.Sprint("in", i)] = t
	}
	for i := range fixed.Graph.Outputs {
		fixed.Graph.Outputs[i].Shape = nil
	}
	// Shapes of inner values would contradict the sizes that inputs state.
	fixed.Graph.Values = nil
	data, err := serde.Marshal(fixed)
	if err != nil {
		return nil, err
	}
	files["model"] = onnx.NewTensor(data, len(data))
	return b.with(ctx, nil, files, peers...)
}
