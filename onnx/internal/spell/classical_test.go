package spell

import (
	"maps"
	"testing"

	"fmp/onnx"
	"fmp/onnx/must"
)

// Layer names the operators that the import adds, and no others.
func TestLayer(t *testing.T) {
	plain := maps.Clone(spellings)
	defer func() { spellings = plain }()
	EnableClassical()
	for name := range spellings {
		want := ""
		if _, is := plain[name]; !is {
			want = "fmp/onnx/classical"
		}
		if got := Layer(&onnx.Node{Domain: name.Domain, Op: name.Name}); got != want {
			t.Errorf("%v is in %q, Layer says %q", name, want, got)
		}
	}
	if len(plain) == len(spellings) {
		t.Error("the import adds none")
	}
}

// TestRoom: boosted trees of 1,000 classes, each leaf with the weight of one, have room for a table
// of all nodes and classes; a short list has none for a huge number of targets.
func TestRoom(t *testing.T) {
	forest := func(trees, leaves int) *speller {
		nodes := trees * (2*leaves - 1)
		ints, floats := make([]int64, nodes), make([]float32, nodes)
		n := &onnx.Node{Attrs: []onnx.Attr{{Name: "nodes_modes", Strs: make([]string, nodes)}}}
		for _, name := range []string{"nodes_treeids", "nodes_nodeids", "nodes_featureids",
			"nodes_truenodeids", "nodes_falsenodeids", "nodes_missing_value_tracks_true"} {
			n.Attrs = append(n.Attrs, onnx.Attr{Name: name, Ints: ints})
		}
		for _, name := range []string{"nodes_values", "nodes_hitrates"} {
			n.Attrs = append(n.Attrs, onnx.Attr{Name: name, Floats: floats})
		}
		for _, name := range []string{"class_treeids", "class_nodeids", "class_ids"} {
			n.Attrs = append(n.Attrs, onnx.Attr{Name: name, Ints: ints[:trees*leaves]})
		}
		n.Attrs = append(n.Attrs, onnx.Attr{Name: "class_weights", Floats: floats[:trees*leaves]})
		return &speller{node: n}
	}
	must.Do(t, forest(1000, 32).room(63000, 1000))
	must.Do(t, forest(3, 4).room(21, 1000))
	must.Fail(forest(3, 4).room(21, 1<<18))(t, "a table of 21 by 262144", "targets")
}
