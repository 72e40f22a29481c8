package main

import (
	"archive/zip"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/onnx/must"
	"fmp/onnx/npy"
	"fmp/onnx/pass"
	"fmp/onnx/serde"
	"fmp/onnx/train"
)

// trainingFiles writes a model of two linear layers with 7 scores, and 60 rows of three classes
// that are told apart by their largest number.
func trainingFiles(t *testing.T) (model, data string) {
	t.Helper()
	weight := func(shape ...int) *onnx.Tensor {
		w := onnx.ZerosF32(shape...)
		for i := range w.F32() {
			w.F32()[i] = float32(i*7%11)/11 - 0.45
		}
		return w
	}
	b := build.New("rows")
	h := b.Relu(b.Op("Gemm",
		[]build.Ref{b.Input("x", onnx.Float32, "n", 3), b.Param("layer1.weight", weight(3, 16)),
			b.Param("layer1.bias", weight(16))}))
	b.Output("y", b.Op("Gemm", []build.Ref{h, b.Param("fc.weight", weight(16, 7)), b.Param("fc.bias", weight(7))}))
	model, data = saved(t)(b.Model()), filepath.Join(t.TempDir(), "rows.npz")
	x, y := onnx.ZerosF32(60, 3), onnx.Vector(make([]int64, 60)...)
	for i := range 60 {
		y.I64()[i] = int64(i % 3)
		for j := range 3 {
			x.F32()[i*3+j] = float32((i*5+j*3)%7) / 10
		}
		x.F32()[i*3+i%3] += 2
	}
	archive(t, data, x, y)
	return model, data
}

// archive writes rows and their targets, and the targets under further names.
func archive(t *testing.T, path string, x, target *onnx.Tensor, more ...string) {
	t.Helper()
	f := must.Get(os.Create(path))(t)
	defer f.Close()
	z := zip.NewWriter(f)
	arrays := map[string]*onnx.Tensor{"x.npy": x, "target.npy": target}
	for _, name := range more {
		arrays[name+".npy"] = target
	}
	for name, a := range arrays {
		w := must.Get(z.Create(name))(t)
		must.Do(t, npy.Write(w, a))
	}
	must.Do(t, z.Close())
}

// TestONNXTrain: rows of a file train a new head with the body frozen, the figures are printed, and
// the files are there.
func TestONNXTrain(t *testing.T) {
	t.Parallel()
	model, data := trainingFiles(t)
	out := filepath.Join(t.TempDir(), "out.onnx")
	stdout, stderr := ran(t, "onnx", "train", model, "--data", data, "-o", out, "--freeze",
		"layer1.*", "--rate-of", "layer1.*=0.5", "--engine", "pure", "--epochs", "20", "--batch", "6",
		"--parts", "2", "--rate", "0.05", "--json")
	var r tuningReport
	must.Do(t, json.Unmarshal([]byte(stdout), &r))
	if r.After["acc"] < 0.9 || r.Trained != 16*3+3 || r.Steps != 180 ||
		!strings.Contains(stderr, `"steps":180`) {
		t.Errorf("report %+v\n%s", r, stderr)
	}
	before := must.Get(serde.Load(model))(t)
	after := must.Get(serde.Load(out))(t)
	for name, same := range map[string]bool{"layer1.weight": true, "layer1.bias": true, "head.weight": false} {
		a, b := before.Graph.Initializers[name], after.Graph.Initializers[name]
		if (a != nil && b != nil && a.F32()[0] == b.F32()[0]) != same {
			t.Errorf("%s: the same is not %v", name, same)
		}
	}
	for file, want := range map[string]bool{out + ".jsonl": true, out + ".svg": true, out + ".checkpoint": false} {
		if _, err := os.Stat(file); (err == nil) != want {
			t.Errorf("%s is there: %v, want %v", file, err == nil, want)
		}
	}
}

// TestONNXTrainable: weights are trained however the file states them: in half precision, by nodes,
// or within a branch.
func TestONNXTrainable(t *testing.T) {
	t.Parallel()
	model, data := trainingFiles(t)
	constant := func(m *onnx.Model, name string) *onnx.Node {
		w := m.Graph.Initializers[name]
		delete(m.Graph.Initializers, name)
		return stating(name, w)
	}
	half := func(w *onnx.Tensor) *onnx.Tensor {
		bits := make([]uint16, w.Len())
		for i, v := range w.F32() {
			bits[i] = onnx.Float32ToFloat16(v)
		}
		return &onnx.Tensor{DType: onnx.Float16, Shape: w.Shape, Data: bits}
	}
	for name, change := range map[string]func(m *onnx.Model){
		"as it is": func(*onnx.Model) {},
		"halved":   func(m *onnx.Model) { pass.StoreHalf(m, 1) },
		"half constants": func(m *onnx.Model) {
			m.Graph.Inputs[0].DType, m.Graph.Outputs[0].DType, m.Graph.Values = onnx.Float16, onnx.Float16, nil
			for name, w := range m.Graph.Initializers {
				m.Graph.Initializers[name] = half(w)
			}
			m.Graph.Nodes = slices.Insert(m.Graph.Nodes, 0, constant(m, "layer1.weight"), constant(m, "fc.bias"))
		},
		"constants": func(m *onnx.Model) {
			m.Graph.Nodes = slices.Insert(m.Graph.Nodes, 0, constant(m, "layer1.weight"), constant(m, "fc.bias"))
		},
		"stored by others": func(m *onnx.Model) {
			g := m.Graph
			for _, name := range []string{"layer1.weight", "fc.weight", "fc.bias"} {
				g.Initializers[name+"16"] = half(g.Initializers[name])
				delete(g.Initializers, name)
				g.Nodes = slices.Insert(g.Nodes, 0,
					reader("Cast "+name+"16 > "+name, onnx.IntAttr("to", int(onnx.Float32))))
			}
			g.Nodes = slices.Insert(g.Nodes, 0, constant(m, "layer1.weight16"), constant(m, "fc.bias16"))
		},
		"within": func(m *onnx.Model) {
			g := m.Graph
			within := &onnx.Graph{Nodes: append([]*onnx.Node{constant(m, "fc.weight")}, g.Nodes[2:]...),
				Initializers: map[string]*onnx.Tensor{"fc.bias": g.Initializers["fc.bias"]}}
			delete(g.Initializers, "fc.bias")
			pass.Rename(within, map[string]string{"y": "scores"})
			other := onnx.CloneGraph(within)
			other.Nodes, other.Initializers["fc.weight"] = other.Nodes[1:], onnx.ZerosF32(16, 7)
			g.Initializers["yes"] = onnx.Scalar(true)
			g.Nodes = append(g.Nodes[:2], &onnx.Node{Name: "choice", Op: "If", Inputs: []string{"yes"},
				Outputs: []string{"y"},
				Attrs:   []onnx.Attr{branch("then_branch", "scores", within), branch("else_branch", "scores", other)}})
		},
	} {
		m := must.Get(serde.Load(model))(t)
		change(m)
		path, want := saved(t)(m, nil), 3*16+16+16*7+7
		if name == "within" {
			want += 16*7 + 7
		}
		out, said := ran(t, "onnx", "train", path, "--data", data, "-o", path+".out", "--engine",
			"pure", "--epochs", "1", "--head", "keep", "--classes", "7", "--json")
		var r tuningReport
		if must.Do(t, json.Unmarshal([]byte(out), &r)); r.Trained != want {
			t.Errorf("%s: %d numbers are trained, want %d", name, r.Trained, want)
		}
		if strings.Contains(said, "is of float32, and was of float16") != (name == "half constants") {
			t.Errorf("%s: said is %q", name, said)
		}
		after := must.Get(serde.Load(path + ".out"))(t)
		if name == "halved" && after.Graph.Initializers["fc.weight"] == nil {
			t.Errorf("%s: weights have other names", name)
		}
	}
}

// TestONNXTrainLowRank: factors are trained with the head kept; vectors are not listed as trained.
func TestONNXTrainLowRank(t *testing.T) {
	t.Parallel()
	model, data := trainingFiles(t)
	args := []string{"onnx", "train", model, "--data", data, "--engine", "pure", "--epochs", "1",
		"--head", "keep", "--classes", "7", "--lora", "2"}
	r := answer[tuningReport](t, append(args, "--json", "-o", filepath.Join(t.TempDir(), "out.onnx"))...)
	if want := 3*2 + 2*16 + 16*2 + 2*7; r.Trained != want || r.Before["loss"] == 0 {
		t.Errorf("%d numbers are trained, want %d; before %v", r.Trained, want, r.Before)
	}
	list, _ := ran(t, append(args, "--list")...)
	if strings.Count(list, "low rank") != 2 || strings.Count(list, " no ") != 2 {
		t.Errorf("listed are\n%s", list)
	}
	none := []string{"onnx", "train", model, "--data", data, "--engine", "pure", "-o",
		filepath.Join(t.TempDir(), "none.onnx")}
	refused(t, exitFailed, "no weight is a matrix", append(none, "--lora", "64")...)
	refused(t, exitUsage, "cosine and constant", append(none, "--schedule", "linear")...)
	absent(t, none[len(none)-1])
}

// TestONNXTrainSteps: a step of fewer examples or parts than asked for is said.
func TestONNXTrainSteps(t *testing.T) {
	t.Parallel()
	model, data := trainingFiles(t)
	for _, c := range []struct{ batch, parts, want string }{
		{"100", "4", "54 examples in 3 parts, not 100 in 4"}, {"6", "4", "6 examples in 3 parts, not 6 in 4"},
		{"6", "3", ""},
	} {
		_, stderr := ran(t, "onnx", "train", model, "--data", data, "-o", filepath.Join(t.TempDir(), "o.onnx"),
			"--engine", "pure", "--epochs", "1", "--batch", c.batch, "--parts", c.parts)
		if said := strings.Contains(stderr, "a step takes"); said != (c.want != "") ||
			!strings.Contains(stderr, c.want) {
			t.Errorf("--batch %s --parts %s: %s", c.batch, c.parts, stderr)
		}
	}
}

// TestONNXTrainDropout: that a Dropout in training form drops nothing is said.
func TestONNXTrainDropout(t *testing.T) {
	t.Parallel()
	model, data := trainingFiles(t)
	m := must.Get(serde.Load(model))(t)
	m.Graph.Initializers["ratio"], m.Graph.Initializers["yes"] = onnx.Scalar[float32](.5), onnx.Scalar(true)
	last := m.Graph.Nodes[len(m.Graph.Nodes)-1]
	out := last.Outputs[0]
	last.Outputs[0] = "kept"
	m.Graph.Nodes = append(m.Graph.Nodes, &onnx.Node{Op: "Dropout", Inputs: []string{"kept", "ratio", "yes"},
		Outputs: []string{out}})
	must.Do(t, serde.Save(model, m))
	_, stderr := ran(t, "onnx", "train", model, "--data", data, "-o", filepath.Join(t.TempDir(), "o.onnx"),
		"--engine", "pure", "--epochs", "1", "--head", "add")
	if !strings.Contains(stderr, "nothing is dropped") {
		t.Error(stderr)
	}
}

// TestExamplesDigest: other examples under the same path are another training, which does not go on
// from the first one's checkpoint.
func TestExamplesDigest(t *testing.T) {
	t.Parallel()
	model, data := trainingFiles(t)
	m, _ := must.Get2(models.Load(model))(t)
	o := &tuning{data: data, heldOut: 0.2}
	o.t.Loss.Name = train.CrossEntropy
	first := must.Get(o.arrays(m))(t)
	b := must.Get(os.ReadFile(data))(t)
	// an archive may have something before it
	must.Do(t, os.WriteFile(data, append([]byte("x"), b...), 0o600))
	second, err := o.arrays(m)
	if err != nil || first.digest == second.digest {
		t.Errorf("digests %q and %q, %v", first.digest, second.digest, err)
	}
	archive(t, data, onnx.ZerosF32(20, 3), onnx.Vector(make([]int64, 20)...), "ids")
	if third := must.Get(o.arrays(m))(t); len(second.notes) != 0 || len(third.notes) != 1 ||
		!strings.Contains(third.notes[0], `"ids" is of no input`) {
		t.Errorf("notes are %q and %q", second.notes, third.notes)
	}
}

// TestONNXTrainOfAnother: a checkpoint of another output, or of images that a side-car feeds otherwise,
// is not gone on from. A folder in the place of the drawn log keeps the checkpoint.
func TestONNXTrainOfAnother(t *testing.T) {
	t.Parallel()
	rows, data := trainingFiles(t)
	m := must.Get(serde.Load(rows))(t)
	m.Graph.Nodes = append(m.Graph.Nodes, reader("Identity y > z"))
	m.Graph.Outputs = append(m.Graph.Outputs, onnx.ValueInfo{Name: "z",
		DType: onnx.Float32, Shape: m.Graph.Outputs[0].Shape})
	must.Do(t, serde.Save(rows, m))
	weights := onnx.ZerosF32(192, 10)
	for i := range weights.F32() {
		weights.F32()[i] = float32(i%7) / 80
	}
	net := saveNet(t, weights)
	for _, c := range []struct {
		model, side   string
		first, second []string
	}{
		{rows, "", []string{"--data", data, "--classes", "7"}, []string{"--data", data, "--classes", "7", "--output", "z"}},
		{net, "mean: [0.5]\nstd: [0.25]\n", []string{"--images", "digits"}, []string{"--images", "digits"}},
	} {
		out := c.model + ".out"
		train := []string{"onnx", "train", c.model, "-o", out, "--engine", "pure", "--epochs", "1"}
		must.Do(t, os.Mkdir(out+".svg", 0o700))
		fails(t, "out.svg", append(train, c.first...)...)
		if c.side != "" {
			must.Do(t, os.WriteFile(c.model+".yaml", []byte(c.side), 0o600))
		}
		fails(t, "is of another run", append(train, c.second...)...)
	}
}

// reader is a node of the inputs and the output that a line names, as in "Add h c > y".
func reader(line string, attrs ...onnx.Attr) *onnx.Node {
	of, out, _ := strings.Cut(line, " > ")
	f := strings.Fields(of)
	return &onnx.Node{Name: line, Op: f[0], Inputs: f[1:], Outputs: []string{out}, Attrs: attrs}
}

// stating is a node that states a tensor.
func stating(name string, t *onnx.Tensor) *onnx.Node {
	return reader("Constant > "+name, onnx.Attr{Name: "value", Kind: onnx.AttrTensor, Tensor: t})
}

// branch is a graph within a node, with one output.
func branch(name, output string, g *onnx.Graph) onnx.Attr {
	g.Name, g.Outputs = name, []onnx.ValueInfo{{Name: output, DType: onnx.Float32}}
	return onnx.Attr{Name: name, Kind: onnx.AttrGraph, Graph: g}
}

// behindLayer is a model of a linear layer x w > h and of nodes behind it.
func behindLayer(nodes ...*onnx.Node) *onnx.Model {
	rows := onnx.ZerosF32(3, 6)
	for i := range rows.F32() {
		rows.F32()[i] = float32(i)
	}
	return &onnx.Model{Opsets: map[string]int64{"": 17}, Graph: &onnx.Graph{
		Inputs:       []onnx.ValueInfo{{Name: "x", DType: onnx.Float32}},
		Outputs:      []onnx.ValueInfo{{Name: "y", DType: onnx.Float32}},
		Initializers: map[string]*onnx.Tensor{"w": rows, "yes": onnx.Scalar(true)},
		Nodes:        append([]*onnx.Node{reader("MatMul x w > h")}, nodes...),
	}}
}

// TestONNXTrainConstants: a constant is a weight where it is read as one is. Bounds, masks, tables
// of one number a row and values of other operators stay as they are.
func TestONNXTrainConstants(t *testing.T) {
	t.Parallel()
	vector := func(v ...float32) *onnx.Tensor { return onnx.NewTensor(v, 1, len(v)) }
	bias, square := vector(.5, 1, 0, 2, 1, -3), onnx.ZerosF32(6, 6)
	for _, c := range []struct {
		nodes  string
		t      *onnx.Tensor
		weight bool
	}{
		{"Add h c > y", bias, true},
		{"Mul c h > y", bias, true},
		{"Reshape h s > a, Add a c > y", bias, true},
		{"Sub h h > a, Sqrt h > b, Div a b > d, Mul d c > y", bias, true},
		{"Sqrt h > b, Div h b > d, Mul d c > y", bias, false},
		{"Mul h c > a, Add a c > y", bias, true},
		{"Mul h w > b, Add b c > y", bias, false},
		{"Relu h > a, Add a c > y", bias, false},
		{"Gather w i > a, Add a c > y", bias, false},
		{"Add h c > y", square, false},
		{"Add h c > y", vector(0, 0, 0, -1e4, 0, 0), false},
		{"Add h c > y", vector(0, 1, 0, -1e4, 0, 0), true},
		{"Mul h c > y", vector(1, 0, 1, 1, 0, 0), false},
		{"Mul h c > y", vector(0, 0, 0, 0, 0, 0), true},
		{"MatMul h c > y", square, true},
		{"MatMul c h > y", square, false},
		{"MatMul h c > y", onnx.NewTensor(make([]float32, 6), 6), false},
		{"Transpose c > a, MatMul h a > y", square, true},
		{"Gemm h w c > y", bias, true},
		{"Conv h c > y", square, true},
		{"PRelu h c > y", bias, true},
		{"LayerNormalization h c > y", bias, true},
		{"Gather c i > y", square, true},
		{"Gather c i > y", onnx.NewTensor(make([]float32, 6), 6), false},
		{"OneHot h d c > y", vector(0, 1), false},
		{"Greater h c > a, Where a h h > y", bias, false},
		{"Cast c > a, Where a h h > y", bias, false},
	} {
		m := behindLayer(stating("c", c.t))
		for _, n := range strings.Split(c.nodes, ", ") {
			m.Graph.Nodes = append(m.Graph.Nodes, reader(n))
		}
		must.Do(t, trainable(m))
		got := slices.ContainsFunc(train.Weights(m.Graph, "y"), func(w train.Weight) bool { return w.Name == "c" })
		if got != c.weight {
			t.Errorf("%s of %v: trained is %v", c.nodes, c.t.F32(), got)
		}
	}
}

// TestONNXTrainChosen: weights that branches have as their outputs are trained, and the model
// computes the same.
func TestONNXTrainChosen(t *testing.T) {
	t.Parallel()
	matrix := func(v float32) *onnx.Tensor {
		return onnx.NewTensor(slices.Repeat([]float32{v}, 12), 6, 2)
	}
	choice := func(out string) *onnx.Node {
		return reader("If yes > "+out,
			branch("then_branch", "c", &onnx.Graph{Nodes: []*onnx.Node{stating("c", matrix(1))}}),
			branch("else_branch", "c", &onnx.Graph{Initializers: map[string]*onnx.Tensor{"c": matrix(2)}}))
	}
	e := must.Get(pure.New(engine.Options{Threads: 1}))(t)
	scores := func(m *onnx.Model) []float32 {
		s := must.Get(e.Load(m))(t)
		defer s.Close()
		return must.Get(engine.Eval(s, map[string]*onnx.Tensor{"x": onnx.NewTensor([]float32{1, 2, 3}, 1, 3)}))(t)["y"].F32()
	}
	m := behindLayer(choice("k"), reader("MatMul h k > y"))
	want := scores(m)
	must.Do(t, trainable(m))
	var names []string
	for _, w := range train.Weights(m.Graph, "y") {
		names = append(names, w.Name)
	}
	if diff := cmp.Diff([]string{"w", "c_1", "c_2"}, names); diff != "" || !slices.Equal(scores(m), want) {
		t.Errorf("weights -want +got:\n%s%v, want %v", diff, scores(m), want)
	}
	m = behindLayer(choice("k"), reader("Greater k k > y"))
	must.Do(t, trainable(m))
	if w := train.Weights(m.Graph, "y"); len(w) != 0 || !slices.Equal(m.Graph.InitializerNames(), []string{"w", "yes"}) {
		t.Errorf("of a bound %+v are trained", w)
	}
}
