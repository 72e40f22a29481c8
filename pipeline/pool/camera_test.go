package pool

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"fmp/assets/assetstest"
	"fmp/featurize/digits"
	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/onnx/must"
	"fmp/pipeline/federate"
	"fmp/pipeline/point"
	"fmp/pipeline/posterior"
)

// owners are a round of drawn digits: uploads of clients of 100 images each behind the shipped
// client graph, and test images.
type owners struct {
	eng    engine.Engine
	graph  *onnx.Model
	client models.Manifest
	drawn  *digits.Set
}

func newOwners(t *testing.T, seed uint64) *owners {
	t.Helper()
	o := &owners{}
	o.graph, o.client = assetstest.Load(t, "digits", models.KindClient)
	o.drawn = must.Get(digits.Draw(t.Context(), digits.Config{Seed: seed, Train: 600, Test: 400}))(t)
	o.eng = must.Get(pure.New(engine.Options{Threads: 1}))(t)
	return o
}

// camera returns images of less contrast, with 30 grey levels more.
func camera(pix []uint8, contrast float64) []uint8 {
	out := make([]uint8, len(pix))
	for i, v := range pix {
		out[i] = uint8(min(math.Round(contrast*float64(v)+30), 255))
	}
	return out
}

func (o *owners) eval(t *testing.T, m *onnx.Model, feeds map[string]*onnx.Tensor,
	outputs ...string) map[string]*onnx.Tensor {
	t.Helper()
	s := must.Get(o.eng.Load(m))(t)
	return must.Get(engine.Eval(s, feeds, outputs...))(t)
}

func (o *owners) images(pix []uint8) *onnx.Tensor {
	return onnx.NewTensor(pix, len(pix)/(o.drawn.Side*o.drawn.Side), o.drawn.Side, o.drawn.Side, 1)
}

// upload is that of client m, whose images and labels change maps.
func (o *owners) upload(t *testing.T, m int,
	change func(pix []uint8, labels []int64) []uint8) Upload {
	t.Helper()
	const n = 100
	size := o.drawn.Side * o.drawn.Side
	labels := make([]int64, n)
	for i := range labels {
		labels[i] = int64(o.drawn.Train.Labels[m*n+i])
	}
	pix := change(o.drawn.Train.Pix[m*n*size:(m+1)*n*size], labels)
	out := o.eval(t, o.graph,
		map[string]*onnx.Tensor{"images": o.images(pix), "labels": onnx.NewTensor(labels, n)})
	set := (&point.Set{N: o.client.S, Dx: o.client.PointWidth(), C: o.client.C, Z: out["points"].F32(),
		W: out["masses"].F32()}).Held()
	return sent(t, &federate.Upload{Client: fmt.Sprint("owner ", m), Model: o.client.Digest, N: n,
		Points: set})
}

// pooled is the classifier of a round and what was found of its clients.
type pooledOwners struct {
	m      *onnx.Model
	honest []float64
	camera []bool
	open   bool
}

func (o *owners) posterior(t *testing.T, uploads []Upload, opt Options) (*Round, *posterior.Result) {
	t.Helper()
	opt.Threads = 1
	r, p, err := played(t.Context(), o.eng, uploads, o.graph, o.client, opt)
	must.Do(t, err)
	return r, p
}

func (o *owners) pool(t *testing.T, uploads []Upload, opt Options) pooledOwners {
	t.Helper()
	opt.Seed = 1
	r, p := o.posterior(t, uploads, opt)
	out := pooledOwners{camera: make([]bool, len(uploads))}
	out.m = must.Get(r.Classifier(t.Context(), p, false, false, ""))(t)
	if p.Judgement != nil {
		out.honest = p.Judgement.Honest
	}
	if p.Effects != nil {
		for m, b := range p.Effects.Shift {
			out.camera[m] = b != nil
		}
	}
	out.open, _ = Open(p)
	return out
}

// score returns accuracy and NLL of a classifier on the test images with another contrast (1: as
// they are).
func (o *owners) score(t *testing.T, m *onnx.Model,
	change func([]uint8) []uint8) (acc, nll float64) {
	t.Helper()
	labels := o.drawn.Test.Labels
	p := o.eval(t, m, map[string]*onnx.Tensor{"images": o.images(change(o.drawn.Test.Pix))},
		"probabilities")["probabilities"].F32()
	for i, y := range labels {
		row := p[i*10 : (i+1)*10]
		if slices.Max(row) == row[y] {
			acc += 1 / float64(len(labels))
		}
		nll -= math.Log(float64(row[y])) / float64(len(labels))
	}
	return acc, nll
}

// TestAnotherCamera: of six owners of drawn digits two have less contrast and lighter images. They
// are taken for honest, the classes for the corpus's, their images have a lower NLL than by a
// classifier of these two alone, at its accuracy, and the others' are classified as well as without
// them. A lie in one class of such an owner is found all the same.
func TestAnotherCamera(t *testing.T) {
	plain := func(pix []uint8, _ []int64) []uint8 { return pix }
	dark := func(pix []uint8) []uint8 { return camera(pix, 0.8) }
	same := func(pix []uint8) []uint8 { return pix }
	for seed := range uint64(2) {
		o := newOwners(t, 11+seed)
		var uploads []Upload
		for m := range 6 {
			change := plain
			if m >= 4 {
				change = func(pix []uint8, _ []int64) []uint8 { return dark(pix) }
			}
			uploads = append(uploads, o.upload(t, m, change))
		}
		all := o.pool(t, uploads, Options{})
		if all.open || !slices.Equal(all.camera, []bool{false, false, false, false, true, true}) {
			t.Errorf("seed %d: open scope %v, other cameras at %v", seed, all.open, all.camera)
		}
		for m, p := range all.honest {
			if p < 0.9 {
				t.Errorf("seed %d: owner %d is honest with probability %.2f", seed, m, p)
			}
		}
		four, two := o.pool(t, uploads[:4], Options{}), o.pool(t, uploads[4:], Options{})
		_, nll := o.score(t, all.m, same)
		_, without := o.score(t, four.m, same)
		if nll > without+0.01 {
			t.Errorf("seed %d: NLL of the others' images is %.3f, and %.3f without the two",
				seed, nll, without)
		}
		acc, theirs := o.score(t, all.m, dark)
		alone, aloneNLL := o.score(t, two.m, dark)
		if acc < alone-0.01 || theirs > aloneNLL {
			t.Errorf("seed %d: accuracy and NLL of the two owners' images are %.3f, %.3f; from the two "+
				"alone %.3f, %.3f", seed, acc, theirs, alone, aloneNLL)
		}
		t.Logf("seed %d: others' NLL %.3f (%.3f without the two); theirs: accuracy %.3f, NLL %.3f "+
			"(alone %.3f, %.3f)", seed, nll, without, acc, theirs, alone, aloneNLL)
		// Predictions for one of the two know its shift, those for one of the others that it has
		// none.
		if acc, nll := o.score(t, o.pool(t, uploads, Options{For: "owner 4"}).m, dark); acc < alone-
			0.02 || nll > aloneNLL+0.02 {
			t.Errorf("seed %d: for owner 4 accuracy and NLL are %.3f, %.3f; from the two alone %.3f, %.3f",
				seed, acc, nll, alone, aloneNLL)
		}
		if _, nll := o.score(t, o.pool(t, uploads, Options{For: "owner 0"}).m, same); nll > without+
			0.01 {
			t.Errorf("seed %d: for owner 0 NLL is %.3f, and %.3f without the two", seed, nll, without)
		}
		// Who is honest does not depend on the client that predictions are for.
		come := o.pool(t, uploads, Options{Scope: posterior.ScopeOpen}).honest
		for m, p := range o.pool(t, uploads, Options{Scope: posterior.ScopeOpen, For: "owner 4"}).honest {
			if math.Abs(p-come[m]) > 1e-6 {
				t.Errorf("seed %d: owner %d is honest with probability %.3f, and %.3f in a classifier "+
					"for owner 4", seed, m, come[m], p)
			}
		}
		o.adapts(t, all.m, dark, theirs)
		// An owner with another camera who names threes fives.
		liar := slices.Clone(uploads)
		liar[5] = o.upload(t, 5, func(pix []uint8, labels []int64) []uint8 {
			for i, y := range labels {
				if y == 3 {
					labels[i] = 5
				} else if y == 5 {
					labels[i] = 3
				}
			}
			return dark(pix)
		})
		for m, p := range o.pool(t, liar, Options{}).honest {
			if (m == 5) != (p < 0.5) {
				t.Errorf("seed %d: with a lie of owner 5, owner %d is honest with probability %.2f",
					seed, m, p)
			}
		}
	}
}

// adapts: given sixty images without labels of the darker camera, half of them of one class, the
// classifier of a client to come has a lower NLL of that camera's images, nll before. Images of the
// others' cameras have a shift of next to nothing.
func (o *owners) adapts(t *testing.T, m *onnx.Model, dark func([]uint8) []uint8, nll float64) {
	t.Helper()
	size, labels := o.drawn.Side*o.drawn.Side, o.drawn.Train.Labels
	var pix []uint8
	// of owners of the round, whose labels are not used
	for i, of := 0, [2]int{}; len(pix) < 60*size; i++ {
		if side := min(1, int(labels[i])); of[side] < 30 {
			of[side]++
			pix = append(pix, o.drawn.Train.Pix[i*size:(i+1)*size]...)
		}
	}
	shift := func(pix []uint8) *onnx.Tensor {
		return o.eval(t, m, map[string]*onnx.Tensor{"images": o.images(pix)},
			models.ShiftOutput)[models.ShiftOutput]
	}
	b, none := shift(dark(pix)), shift(pix)
	if a, n := length(b), length(none); n > a/4 {
		t.Errorf("images of the others' cameras have a shift of length %.3f, those of the darker "+
			"one of %.3f", n, a)
	}
	acc, got := o.score(t, must.Get(models.Adapted(m, b))(t), dark)
	if got > nll {
		t.Errorf("adapted to sixty images without labels, NLL of their camera is %.3f, and %.3f before",
			got, nll)
	}
	t.Logf("adapted to sixty images: accuracy %.3f, NLL %.3f; before %.3f", acc, got, nll)
	must.Fail(models.Adapted(m, onnx.ZerosF32(3)))(t, "", "a shift of three numbers is taken")
}

func length(x *onnx.Tensor) (sum float64) {
	for _, v := range x.F32() {
		sum += float64(v) * float64(v)
	}
	return math.Sqrt(sum)
}
