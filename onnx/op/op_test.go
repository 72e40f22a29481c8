package op

import (
	"slices"
	"strings"
	"testing"
	"time"

	"fmp/onnx"
	"fmp/onnx/must"
)

func TestSchemasAreAsTheStandardHasThem(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		domain, name string
		opset, since int // since 0: not there
	}{
		{"", "Relu", 7, 6}, {"", "Relu", 13, 13}, {"", "Relu", 21, 14}, {"", "Conv", 7, 1},
		{"", "Conv", 17, 11}, {"", "Softmax", 12, 11},
		{"", "Softmax", 13, 13}, {"", "LayerNormalization", 16, 0}, {"", "LayerNormalization", 17, 17},
		{"", "Covn", 17, 0},
		{"com.microsoft", "FusedConv", 1, 1}, {"com.microsoft", "Conv", 1, 0},
	} {
		s := Lookup(tc.domain, tc.name, tc.opset)
		since := 0
		if s != nil {
			since = s.Since
		}
		if since != tc.since {
			t.Errorf("%s in operator set %d is of %d, want %d", tc.name, tc.opset, since, tc.since)
		}
	}
	if s := Lookup("", "Upsample", 10); !s.Deprecated {
		t.Error("Upsample is not deprecated in operator set 10")
	}
	conv := Lookup("", "Conv", 17)
	if len(conv.In) != 3 || conv.In[1].Optional || !conv.In[2].Optional || conv.In[2].Name != "B" {
		t.Errorf("Conv's inputs are %+v", conv.In)
	}
	if a := conv.Attr("group"); a == nil || a.Kind != onnx.AttrInt || a.Default.Int != 1 {
		t.Errorf("Conv's group is %+v", a)
	}
	if got := conv.In[0].Types.String(); got != "float32, float16 or float64" {
		t.Errorf("Conv takes %s", got)
	}
	concat := Lookup("", "Concat", 13)
	if p, ok := concat.Input(7); !ok || !p.Variadic || p.Least != 1 || p.Mixed {
		t.Errorf("Concat's input is %+v", p)
	}
	if !concat.Attr("axis").Required {
		t.Error("Concat's axis is not required")
	}
	if loop := Lookup("", "Loop", 16); !loop.In[2].Mixed || loop.In[2].Least != 0 ||
		loop.In[2].Types&others == 0 {
		t.Errorf("Loop's carried values are %+v", loop.In[2])
	}
}

func TestEverySchemaIsWhole(t *testing.T) {
	t.Parallel()
	operators, versions := 0, 0
	for _, domain := range []string{"", "com.microsoft"} {
		for _, name := range Names(domain) {
			operators++
			for _, s := range Versions(domain, name) {
				versions++
				if !s.Deprecated && len(s.Out) == 0 {
					t.Errorf("%s of %d has no output", name, s.Since)
				}
				for _, ps := range [][]Param{s.In, s.Out} {
					for i, p := range ps {
						if p.Types == 0 {
							t.Errorf("%s of %d: %s has no type", name, s.Since, p.Name)
						}
						if p.Variadic && i != len(ps)-1 {
							t.Errorf("%s of %d: %s is variadic and not the last", name, s.Since, p.Name)
						}
					}
				}
			}
		}
	}
	if operators < 200 || versions < 400 {
		t.Errorf("%d operators in %d versions; the standard alone has more", operators, versions)
	}
}

func TestParseIsQuick(t *testing.T) {
	t.Parallel()
	best := time.Hour
	for range 5 {
		start := time.Now()
		all := must.Get(text())(t)
		must.Get(parse(all))(t)
		best = min(best, time.Since(start))
	}
	t.Logf("the schemas are read in %v", best)
	if best > 500*time.Millisecond {
		t.Errorf("reading the schemas takes %v", best)
	}
}

func TestParseNamesTheLine(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ text, want string }{
		{"Relu", "schemas.txt:1: an operator without a version"},
		{"Relu x", "no version"},
		{"  in X:T", "no operator"},
		{"Relu 6\n  in X", "schemas.txt:2: a parameter that is not NAME:TYPE"},
		{"Relu 6\n  attr a number", "unknown kind"},
		{"Relu 6\n  attr a int = x", "invalid syntax"},
		{"Relu 6\nRelu 6", "not in order"},
		{"Relu 6\n  other", "not understood"},
	} {
		must.Fail(parse(tc.text))(t, tc.want, tc.text)
	}
}

func TestAttrsFillInDefaults(t *testing.T) {
	t.Parallel()
	n := &onnx.Node{Op: "Conv",
		Attrs: []onnx.Attr{onnx.IntsAttr("strides", 2, 3), onnx.StrAttr("group", "wrong kind")}}
	a := Attrs(n, 17)
	if got := a.Ints("strides"); len(got) != 2 || got[1] != 3 || !a.Has("strides") {
		t.Errorf("strides are %v", got)
	}
	if got := a.Int("group"); got != 1 {
		t.Errorf("group is %d, want the default", got)
	}
	if got := a.Str("auto_pad"); got != "NOTSET" || a.Has("auto_pad") {
		t.Errorf("auto_pad is %q, want the default", got)
	}
	if a.Ints("pads") != nil || a.Tensor("none") != nil || a.Floats("none") != nil ||
		a.Strs("none") != nil {
		t.Error("what has no default has a value")
	}
	// A default that changed from one version to the next.
	soft := &onnx.Node{Op: "Softmax"}
	if before, after := Attrs(soft, 12).Int("axis"),
		Attrs(soft, 13).Int("axis"); before != 1 || after != -1 {
		t.Errorf("Softmax's axis is %d and %d, want 1 and -1", before, after)
	}
	// A default that the standard gives in prose alone.
	if got := Attrs(&onnx.Node{Op: "Concat"}, 3).Int("axis"); got != 1 {
		t.Errorf("Concat's axis is %d, want 1", got)
	}
	if got := Attrs(&onnx.Node{Op: "BatchNormalization"}, 15).Float("epsilon"); got != 1e-5 {
		t.Errorf("epsilon is %v", got)
	}
	if got := Attrs(&onnx.Node{Op: "Multinomial"}, 15).DType("dtype"); got != onnx.Int32 {
		t.Errorf("dtype is %v", got)
	}
	if !Attrs(&onnx.Node{Op: "ReduceSum"}, 15).Bool("keepdims") {
		t.Error("keepdims is off")
	}
}

func TestBind(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		op    string
		opset int
		in    []onnx.DType
		outs  int
		want  []onnx.DType
		err   string
	}{
		{"Add", 14, []onnx.DType{onnx.Float32, onnx.Float32}, 1, []onnx.DType{onnx.Float32}, ""},
		{"Add", 14, []onnx.DType{onnx.Float32, onnx.Int64}, 1, nil,
			"input 1 (B) is of int64 and input 0 of float32; they must have one type"},
		{"Add", 14, []onnx.DType{onnx.Undefined, onnx.Int64}, 1, []onnx.DType{onnx.Int64}, ""},
		{"Relu", 13, []onnx.DType{onnx.Int64}, 1, nil, "input 0 (X) is of int64; allowed are"},
		{"Equal", 13, []onnx.DType{onnx.Int64, onnx.Int64}, 1, []onnx.DType{onnx.Bool}, ""},
		{"Cast", 13, []onnx.DType{onnx.Int64}, 1, []onnx.DType{onnx.Undefined}, ""},
		{"TopK", 13, []onnx.DType{onnx.Float32, onnx.Int64}, 2,
			[]onnx.DType{onnx.Float32, onnx.Int64}, ""},
		{"Loop", 13, []onnx.DType{onnx.Int64, onnx.Bool, onnx.Float32, onnx.Int64}, 2,
			[]onnx.DType{onnx.Undefined, onnx.Undefined}, ""},
	} {
		got, err := Lookup("", tc.op, tc.opset).Bind(tc.in, tc.outs)
		if tc.err != "" {
			must.Fail(err)(t, tc.err, tc.op, tc.in)
			continue
		}
		if err != nil || !slices.Equal(got, tc.want) {
			t.Errorf("%s of %v gives %v, %v, want %v", tc.op, tc.in, got, err, tc.want)
		}
	}
}

// TestWords: an operator takes the words that it has, its default first of them, and no other; where a node
// is a function's it may refer to one. Ranges says so of a graph.
func TestWords(t *testing.T) {
	t.Parallel()
	attrs := 0
	for k, versions := range schemas() {
		for _, s := range versions {
			for _, a := range s.Attrs {
				if a.Words == nil || s.Since < onnx.MinOpset && k.domain == "" {
					continue
				}
				attrs++
				n := &onnx.Node{Op: k.name, Domain: k.domain, Attrs: []onnx.Attr{{Name: a.Name, Kind: a.Kind}}}
				words := slices.Clone(a.Words)
				if a.Default != nil {
					words = append(words, a.Default.Str)
				}
				of := &n.Attrs[0]
				give := func(word string) { of.Str, of.Strs = word, []string{word} }
				for _, word := range words {
					give(strings.Trim(word, `"`))
					must.Do(t, s.words(n))
				}
				give("nonsense")
				g := &onnx.Graph{Nodes: []*onnx.Node{n}}
				must.Fail(Ranges(g, map[string]int64{k.domain: int64(s.Since)}))(t, a.Name+` is "nonsense"; allowed are`)
				of.Ref = "a function's"
				must.Do(t, s.words(n))
			}
		}
	}
	if attrs < 50 {
		t.Errorf("words of %d attributes were looked at", attrs)
	}
}
