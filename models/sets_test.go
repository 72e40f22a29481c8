package models

import (
	"maps"
	"math"
	"slices"
	"testing"

	"fmp/onnx"
	"fmp/onnx/must"
	"fmp/onnx/serde"
)

// waves are rows of k numbers up to 2 and down to -2.
func waves(n, k int) *onnx.Tensor {
	rows := onnx.ZerosF32(n, k)
	for i := range rows.F32() {
		rows.F32()[i] = float32(2 * math.Sin(float64(i)))
	}
	return rows
}

// TestSets: the output set is that of the threshold for both scores, probabilities stay as they
// were, and a second calibration replaces the first. The classifier that is given stays as it is.
func TestSets(t *testing.T) {
	const n, k, classes = 40, 5, 6
	heads := someHeads(3, k, classes, 1)
	plain := must.Get(NewClassifier(ClassifierParts{Heads: heads}, Manifest{Dx: k}))(t)
	before := maps.Clone(plain.Metadata)
	feeds := map[string]*onnx.Tensor{"features": waves(n, k)}
	want := eval(t, plain, feeds, "probabilities")["probabilities"].F32()
	m := plain
	for _, c := range []struct {
		adaptive  bool
		threshold float32
	}{{false, 0.2}, {true, 0.3}, {false, 0.3}} {
		m = must.Get(WithSets(m, OriginSets{Level: 0.9, Table: &SetTable{Columns: 1, Levels: []float32{0.8, 0.92},
			Thresholds: []float32{c.threshold + 0.1, c.threshold}}, Images: 9},
			c.adaptive))(t)
		out := eval(t, m, feeds, "probabilities", SetOutput)
		for i, v := range evalPure(t, m, feeds, SetOutput)[SetOutput].Data.([]bool) {
			if v != out[SetOutput].Data.([]bool)[i] {
				t.Errorf("the engines disagree about element %d of the sets", i)
			}
		}
		in := 0
		for i := range n {
			p := out["probabilities"].F32()[i*classes : (i+1)*classes]
			for y, v := range p {
				if v != want[i*classes+y] {
					t.Fatalf("probability %v became %v", want[i*classes+y], v)
				}
				score := v
				if c.adaptive {
					score = 1
					for _, u := range p {
						if u >= v {
							score -= u
						}
					}
				}
				got := out[SetOutput].Data.([]bool)[i*classes+y]
				if math.Abs(float64(score-c.threshold)) > 1e-5 &&
					got != (score >= c.threshold || v == slices.Max(p)) {
					t.Errorf("adaptive %v: class %d of row %d with score %v is in the set: %v",
						c.adaptive, y, i, score, got)
				}
				if got {
					in++
				}
			}
		}
		if in == 0 || in == n*classes {
			t.Errorf("%+v: %d of %d classes are in sets; the test wants some in and some out",
				c, in, n*classes)
		}
		f := must.Get(ReadManifest(m))(t)
		if o, err := ReadOrigin(f); err != nil || o.Sets == nil || o.Sets.Level != 0.9 {
			t.Errorf("the provenance has %+v, %v; want the level .9", o.Sets, err)
		}
	}
	if !maps.Equal(plain.Metadata, before) {
		t.Errorf("the classifier without sets has the metadata %v; before %v", plain.Metadata, before)
	}
	for _, v := range slices.Concat(m.Graph.Inputs, m.Graph.Optional, m.Graph.Outputs) {
		if v.Doc == "" {
			t.Errorf("%s has no doc string", v.Name)
		}
	}
	if len(m.Graph.Outputs) != len(plain.Graph.Outputs)+1 || len(m.Graph.Optional) != 1 {
		t.Errorf("after three calibrations the outputs are %v, the optional inputs %v", m.Graph.Outputs,
			m.Graph.Optional)
	}
}

// TestSetLevels: the level that is set chooses the thresholds of its row, of one class or of all,
// through the file; a level that no row reaches and one that is no number have all classes. The file
// has the classes of points where the level depends on them.
func TestSetLevels(t *testing.T) {
	const n, k, classes = 30, 5, 3
	m := must.Get(NewClassifier(ClassifierParts{Heads: someHeads(3, k, classes, 1)}, Manifest{Dx: k}))(t)
	feeds := map[string]*onnx.Tensor{"features": waves(n, k)}
	p := eval(t, m, feeds, "probabilities")["probabilities"].F32()
	f := must.Get(ReadManifest(m))(t)
	must.Fail(AtLevel(m, f, 0.9))(t, "no prediction sets", "a level of a classifier without sets")
	for _, table := range []*SetTable{
		{Columns: 1, Levels: []float32{0.5, 0.9, 0.95}, Thresholds: []float32{0.6, 0.3, 0.1}},
		{Columns: 3, Levels: []float32{0.6, 0.8, NoLevel, 0.9, 0.95, NoLevel},
			Thresholds: []float32{0.5, 0.4, NoThreshold, 0.2, 0.1, NoThreshold}},
	} {
		with := must.Get(WithSets(m, OriginSets{Level: 0.9, Table: table, Images: 9}, false))(t)
		with = must.Get(serde.Unmarshal(must.Get(serde.Marshal(with))(t)))(t)
		f = must.Get(ReadManifest(with))(t)
		for _, level := range []float64{0, 0.5, 0.85, 0.9, 0.93, 0.99, math.NaN()} {
			at, stated := with, level
			var err error
			if level == 0 {
				stated = 0.9 // as stored
			} else if at, _, err = AtLevel(with, f, level); err != nil {
				if math.IsNaN(level) {
					continue // no JSON number
				}
				t.Fatal(err)
			}
			thresholds := table.At(stated)
			for i, in := range eval(t, at, feeds, SetOutput)[SetOutput].Data.([]bool) {
				row := p[i/classes*classes : (i/classes+1)*classes]
				if want := p[i] >= thresholds[min(i%classes, len(thresholds)-1)] ||
					p[i] == slices.Max(row); in != want {
					t.Fatalf("%d columns, level %v: class %d with probability %v is in the set: "+
						"%v, thresholds %v", table.Columns, level, i%classes, p[i], in, thresholds)
				}
			}
		}
		none := onnx.Clone(with)
		must.Do(t, none.Graph.SetDefault(LevelInput, onnx.Vector(float32(math.NaN()))))
		if sets := eval(t, none, feeds, SetOutput)[SetOutput].Data.([]bool); slices.Contains(sets, false) {
			t.Error("a level that is no number leaves classes out")
		}
	}
	for name, c := range map[string]struct {
		sets OriginSets
		kept bool
	}{
		"all classes alike": {OriginSets{}, false},
		"by class":          {OriginSets{ByClass: true}, true},
		"shares":            {OriginSets{Proportions: []float64{0.5, 0.25, 0.25}}, true},
	} {
		c.sets.Table = &SetTable{Columns: 1, Levels: []float32{0.9}, Thresholds: []float32{0.5}}
		c.sets.Class = []int{1, 2}
		with := must.Get(WithSets(m, c.sets, false))(t)
		o := must.Get(ReadOrigin(must.Get(ReadManifest(with))(t)))(t)
		if (o.Sets.Class != nil) != c.kept {
			t.Errorf("%s: the file has the points' classes %v; want them kept: %v", name, o.Sets.Class, c.kept)
		}
	}
	two := &SetTable{Columns: 2, Levels: []float32{1, 1}, Thresholds: []float32{1, 1}}
	must.Fail(WithSets(m, OriginSets{Level: 0.9, Table: two}, false))(t, "", "two columns for three classes")
}
