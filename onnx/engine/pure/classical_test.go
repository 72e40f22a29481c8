//go:build cgo

package pure_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"fmp/onnx"
	_ "fmp/onnx/classical"
	"fmp/onnx/conformance"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/onnx/internal/modeltest"
	"fmp/onnx/must"
)

const ml = "ai.onnx.ml"

func strs(name string, v ...string) onnx.Attr {
	return onnx.Attr{Name: name, Kind: onnx.AttrStrings, Strs: v}
}

// classicalModel is a model of one node of ai.onnx.ml.
func classicalModel(version, opset int64, in []*onnx.Tensor, outputs int,
	n *onnx.Node) (*onnx.Model, map[string]*onnx.Tensor) {
	n.Domain = ml
	m, feeds := modeltest.OneNode(n, opset, in, outputs, onnx.Known, nil)
	m.IR, m.Opsets[ml] = 8, version
	return m, feeds
}

// drawnForest draws the attributes of trees of the given depth in the flat form, with every mode of
// modes.
func drawnForest(r *rand.Rand, kind string, depth, features, targets int,
	modes ...string) []onnx.Attr {
	var tree, id, feature, yes, no, track, leafTree, leafID, target []int
	var mode []string
	var split, weight []float32
	for t := range 5 {
		branches := 1<<depth - 1
		for i := range 2*branches + 1 {
			tree, id = append(tree, t), append(id, i)
			f, y, o, m, v, k := r.IntN(features), 2*i+1, 2*i+2, modes[r.IntN(len(modes))],
				float32(r.IntN(5)-2), r.IntN(2)
			if i >= branches {
				f, y, o, m, v, k = 0, 0, 0, "LEAF", 0, 0
				for c := range targets {
					if r.IntN(4) > 0 {
						leafTree, leafID, target = append(leafTree, t), append(leafID, i),
							append(target, c)
						weight = append(weight, float32(r.NormFloat64()))
					}
				}
			}
			feature, yes, no, mode = append(feature, f), append(yes, y), append(no, o), append(mode, m)
			split, track = append(split, v), append(track, k)
		}
	}
	return []onnx.Attr{onnx.IntsAttr("nodes_treeids", tree...), onnx.IntsAttr("nodes_nodeids", id...),
		onnx.IntsAttr("nodes_featureids", feature...), onnx.IntsAttr("nodes_truenodeids", yes...),
		onnx.IntsAttr("nodes_falsenodeids", no...), strs("nodes_modes", mode...),
		onnx.FloatsAttr("nodes_values", split...),
		onnx.IntsAttr("nodes_missing_value_tracks_true", track...),
		onnx.IntsAttr(kind+"_treeids", leafTree...), onnx.IntsAttr(kind+"_nodeids", leafID...),
		onnx.IntsAttr(kind+"_ids", target...), onnx.FloatsAttr(kind+"_weights", weight...)}
}

// small draws whole numbers from -3 to 3, so that comparisons meet equal values, and a NaN here and
// there where asked for.
func small(r *rand.Rand, nan bool, shape ...int) *onnx.Tensor {
	t := onnx.ZerosF32(shape...)
	for i := range t.F32() {
		t.F32()[i] = float32(r.IntN(7) - 3)
		if nan && r.IntN(6) == 0 {
			t.F32()[i] = float32(math.NaN())
		}
	}
	return t
}

// TestClassical compares linear models, trees and the steps around them with the ONNX Runtime.
func TestClassical(t *testing.T) {
	own, reference := engines(t, 1)
	r := rand.New(rand.NewPCG(1, 2))
	x, missing := small(r, false, 40, 4), small(r, true, 40, 4)
	wide := onnx.NewTensor(make([]float64, 160), 40, 4)
	ints := onnx.NewTensor(make([]int64, 160), 40, 4)
	for k, v := range x.F32() {
		wide.F64()[k], ints.I64()[k] = float64(v), int64(v)
	}
	words := onnx.Vector("a", "b", "z", "c")
	w := []float32{1, -2, .5, .25, -1, .5, 2, -.5, .1, .2, .3, .4}
	str2, int3 := strs("classlabels_strings", "no", "yes"),
		onnx.IntsAttr("classlabels_int64s", 7, 3, 5)
	post := func(name string) onnx.Attr { return onnx.StrAttr("post_transform", name) }
	linear := func(extra ...onnx.Attr) []onnx.Attr {
		return append([]onnx.Attr{onnx.FloatsAttr("coefficients", w...),
			onnx.FloatsAttr("intercepts", .1, -.2, .3)}, extra...)
	}
	forest := func(kind string, targets int, modes []string, extra ...onnx.Attr) []onnx.Attr {
		return append(drawnForest(r, kind, 4, 4, targets, modes...), extra...)
	}
	leq := []string{"BRANCH_LEQ"}
	all := []string{"BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"}
	type in = []*onnx.Tensor
	cases := []struct {
		name    string
		op      string
		version int64
		in      in
		outputs int
		attrs   []onnx.Attr
	}{
		{"regressor", "LinearRegressor", 1, in{x}, 1, linear(onnx.IntAttr("targets", 3))},
		{"classifier", "LinearClassifier", 1, in{x}, 2,
			linear(onnx.IntsAttr("classlabels_ints", 4, 2, 9), post("SOFTMAX"))},
		{"classifier of integers", "LinearClassifier", 1, in{ints}, 2,
			linear(onnx.IntsAttr("classlabels_ints", 4, 2, 9), post("LOGISTIC"))},
		{"softmax without zeros", "LinearClassifier", 1, in{x}, 2,
			linear(onnx.IntsAttr("classlabels_ints", 4, 2, 9), post("SOFTMAX_ZERO"))},
		{"two classes", "LinearClassifier", 1, in{x}, 2,
			[]onnx.Attr{onnx.FloatsAttr("coefficients", w[:8]...),
				onnx.FloatsAttr("intercepts", .5, -.5), str2, post("LOGISTIC")}},
		{"scaler", "Scaler", 1, in{x}, 1,
			[]onnx.Attr{onnx.FloatsAttr("offset", 1, 2, 3, 4), onnx.FloatsAttr("scale", .5, 2, 1, 3)}},
		{"scaler of one number", "Scaler", 1, in{wide}, 1,
			[]onnx.Attr{onnx.FloatsAttr("offset", 1), onnx.FloatsAttr("scale", .5)}},
		{"largest", "Normalizer", 1, in{x}, 1, []onnx.Attr{onnx.StrAttr("norm", "MAX")}},
		{"L1", "Normalizer", 1, in{ints}, 1, []onnx.Attr{onnx.StrAttr("norm", "L1")}},
		{"L2", "Normalizer", 1, in{wide}, 1, []onnx.Attr{onnx.StrAttr("norm", "L2")}},
		{"binarizer", "Binarizer", 1, in{x}, 1, []onnx.Attr{onnx.FloatAttr("threshold", 1)}},
		{"imputer", "Imputer", 1, in{missing}, 1,
			[]onnx.Attr{onnx.FloatsAttr("imputed_value_floats", 1, 2, 3, 4),
				onnx.FloatAttr("replaced_value_float", float32(math.NaN()))}},
		{"imputer of a number", "Imputer", 1, in{x}, 1,
			[]onnx.Attr{onnx.FloatsAttr("imputed_value_floats", 9),
				onnx.FloatAttr("replaced_value_float", 2)}},
		{"imputer of integers", "Imputer", 1, in{ints}, 1,
			[]onnx.Attr{onnx.IntsAttr("imputed_value_int64s", 9),
				onnx.IntAttr("replaced_value_int64", 2)}},
		{"features", "FeatureVectorizer", 1, in{x, x}, 1,
			[]onnx.Attr{onnx.IntsAttr("inputdimensions", 4, 4)}},
		{"columns", "ArrayFeatureExtractor", 1, in{x, onnx.Vector[int64](3, 0)}, 1, nil},
		{"places of a vector", "ArrayFeatureExtractor", 1, in{words, onnx.Vector[int64](3, 0)},
			1, nil},
		{"one-hot", "OneHotEncoder", 1, in{ints}, 1,
			[]onnx.Attr{onnx.IntsAttr("cats_int64s", 2, -1, 0)}},
		{"labels", "LabelEncoder", 2, in{words}, 1,
			[]onnx.Attr{strs("keys_strings", "a", "b", "c"), onnx.IntsAttr("values_int64s", 5, 6, 7),
				onnx.IntAttr("default_int64", 42)}},
		{"labels of the first version", "LabelEncoder", 1, in{words}, 1,
			[]onnx.Attr{strs("classes_strings", "c", "a"), onnx.IntAttr("default_int64", 9)}},
		{"names of the first version", "LabelEncoder", 1, in{ints}, 1,
			[]onnx.Attr{strs("classes_strings", "zero", "one"),
				onnx.StrAttr("default_string", "none")}},
		{"values of numbers that are missing", "LabelEncoder", 4, in{missing}, 1, []onnx.Attr{
			onnx.FloatsAttr("keys_floats", 1, float32(math.NaN()), -2),
			onnx.IntsAttr("values_int64s", 5, 6, 7)}},
		{"a table of tensors", "LabelEncoder", 4, in{ints}, 1, []onnx.Attr{
			onnx.TensorAttr("keys_tensor", onnx.Vector[int64](1, 2)),
			onnx.TensorAttr("values_tensor", onnx.Vector(.5, .25)),
			onnx.TensorAttr("default_tensor", onnx.Vector(-1.0))}},
		{"names", "LabelEncoder", 2, in{ints}, 1, []onnx.Attr{strs("values_strings", "p", "q"),
			onnx.IntsAttr("keys_int64s", 1, -2), onnx.StrAttr("default_string", "none")}},
		{"trees", "TreeEnsembleRegressor", 1, in{x}, 1,
			forest("target", 3, leq, onnx.IntAttr("n_targets", 3),
				onnx.FloatsAttr("base_values", 1, 2, 3))},
		{"trees of every mode", "TreeEnsembleRegressor", 1, in{x}, 1,
			forest("target", 1, all, onnx.IntAttr("n_targets", 1))},
		{"trees of missing values", "TreeEnsembleRegressor", 1, in{missing}, 1,
			forest("target", 1, leq, onnx.IntAttr("n_targets", 1))},
		{"trees of float64", "TreeEnsembleRegressor", 1, in{wide}, 1,
			forest("target", 2, leq, onnx.IntAttr("n_targets", 2),
				onnx.StrAttr("aggregate_function", "AVERAGE"))},
		{"smallest leaf", "TreeEnsembleRegressor", 1, in{x}, 1,
			forest("target", 2, leq, onnx.IntAttr("n_targets", 2),
				onnx.StrAttr("aggregate_function", "MIN"))},
		{"largest leaf", "TreeEnsembleRegressor", 1, in{x}, 1,
			forest("target", 2, leq, onnx.IntAttr("n_targets", 2),
				onnx.StrAttr("aggregate_function", "MAX"))},
		{"forest of classes", "TreeEnsembleClassifier", 3, in{x}, 2,
			forest("class", 3, leq, int3, post("SOFTMAX"))},
		{"forest of one class's weights", "TreeEnsembleClassifier", 3, in{x}, 2,
			forest("class", 1, leq, str2, post("LOGISTIC"), onnx.FloatsAttr("base_values", .25))},
	}
	tolerance := conformance.Tolerance{Absolute: 2e-6, Relative: 2e-6}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			m, feeds := classicalModel(c.version, 13, c.in, c.outputs, &onnx.Node{Op: c.op, Attrs: c.attrs})
			want := modeltest.Eval(t, reference, m, feeds)
			// Files of this domain name early operator sets.
			for _, opset := range []int64{8, 13, 21} {
				m.Opsets[""] = opset
				got := modeltest.Eval(t, own, m, feeds)
				for name, w := range want {
					if err := conformance.Compare(got[name], w, tolerance); err != nil {
						t.Fatalf("%s, operator set %d: %v", name, opset, err)
					}
				}
			}
		})
	}
}

// TestMembershipTree compares a tree of lists of values with its own arithmetic, and one of a
// single leaf.
func TestMembershipTree(t *testing.T) {
	own := must.Get(pure.New(engine.Options{Threads: 1}))(t)
	nan := float32(math.NaN())
	x := onnx.NewTensor([]float32{1, 2, 3, 4, 5, nan}, 6, 1)
	// The first tree: 10 where x is 1 or 4, else 20 where x is 2, else 30. The second one: 100 for
	// all.
	m, feeds := classicalModel(5, 21, []*onnx.Tensor{x}, 1,
		&onnx.Node{Op: "TreeEnsemble", Attrs: []onnx.Attr{
			onnx.IntAttr("n_targets", 1), onnx.IntAttr("aggregate_function", 1),
			onnx.IntsAttr("tree_roots", 0, 2),
			onnx.TensorAttr("nodes_modes", onnx.Vector[uint8](6, 6, 0)),
			onnx.TensorAttr("nodes_splits", onnx.Vector[float32](0, 0, 0)),
			onnx.TensorAttr("membership_values", onnx.Vector(1, 4, nan, 2, nan)),
			onnx.IntsAttr("nodes_featureids", 0, 0, 0),
			onnx.IntsAttr("nodes_truenodeids", 0, 1, 3), onnx.IntsAttr("nodes_trueleafs", 1, 1, 1),
			onnx.IntsAttr("nodes_falsenodeids", 1, 2, 3), onnx.IntsAttr("nodes_falseleafs", 0, 1, 1),
			onnx.IntsAttr("leaf_targetids", 0, 0, 0, 0),
			onnx.TensorAttr("leaf_weights", onnx.Vector[float32](10, 20, 30, 100))}})
	got := modeltest.Eval(t, own, m, feeds)["y0"].F32()
	if want := []float32{110, 120, 130, 110, 130, 130}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestHostileForest: trees that would walk for ever, or outside of their tables, are refused.
func TestHostileForest(t *testing.T) {
	own := must.Get(pure.New(engine.Options{Threads: 1}))(t)
	for _, c := range []struct {
		name   string
		change func(attrs map[string]*onnx.Attr)
	}{
		{"a cycle", func(a map[string]*onnx.Attr) { a["nodes_truenodeids"].Ints[1] = 0 }},
		{"two parents", func(a map[string]*onnx.Attr) { a["nodes_truenodeids"].Ints[0] = 2 }},
		{"no such child", func(a map[string]*onnx.Attr) { a["nodes_falsenodeids"].Ints[0] = 99 }},
		{"a negative feature", func(a map[string]*onnx.Attr) { a["nodes_featureids"].Ints[0] = -1 }},
		{"a target too many", func(a map[string]*onnx.Attr) { a["target_ids"].Ints[0] = 1 }},
		{"lists of two lengths",
			func(a map[string]*onnx.Attr) { a["nodes_values"].Floats = a["nodes_values"].Floats[1:] }},
		{"an unknown mode", func(a map[string]*onnx.Attr) { a["nodes_modes"].Strs[0] = "BRANCH_MAYBE" }},
		{"no targets", func(a map[string]*onnx.Attr) { a["n_targets"].Int = 0 }},
		{"too many targets", func(a map[string]*onnx.Attr) { a["n_targets"].Int = 1 << 40 }},
		{"more targets than its lists can fill", func(a map[string]*onnx.Attr) { a["n_targets"].Int = 1 << 18 }},
	} {
		attrs := append(drawnForest(rand.New(rand.NewPCG(3, 4)), "target", 3, 2, 1, "BRANCH_LEQ"),
			onnx.IntAttr("n_targets", 1))
		named := map[string]*onnx.Attr{}
		for i := range attrs {
			named[attrs[i].Name] = &attrs[i]
		}
		c.change(named)
		m, _ := classicalModel(1, 13, []*onnx.Tensor{onnx.ZerosF32(2, 2)}, 1,
			&onnx.Node{Op: "TreeEnsembleRegressor", Attrs: attrs})
		if s, err := own.Load(m); err == nil {
			s.Close()
			t.Errorf("%s: loaded", c.name)
		}
	}
}
