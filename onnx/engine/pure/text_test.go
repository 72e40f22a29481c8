//go:build cgo

package pure_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/must"
	_ "fmp/onnx/rare"
	_ "fmp/onnx/text"
)

// What operators on strings give where the standard's tests do not look, and what they refuse.
func TestText(t *testing.T) {
	S, I, Is := onnx.StrAttr, onnx.IntAttr, onnx.IntsAttr
	words := func(v ...string) onnx.Attr {
		return onnx.Attr{Name: "stopwords", Kind: onnx.AttrStrings, Strs: v}
	}
	pool := onnx.Attr{Name: "pool_strings", Kind: onnx.AttrStrings, Strs: []string{"a", "b", "a", "b"}}
	grams := func(more ...onnx.Attr) []onnx.Attr {
		return append([]onnx.Attr{pool, I("min_gram_length", 1), I("max_gram_length", 2),
			Is("ngram_counts", 0, 2)}, more...)
	}
	for _, c := range []struct {
		op    string
		in    []*onnx.Tensor
		attrs []onnx.Attr
		want  string // of the first output, or a part of the error
	}{
		{"StringConcat", []*onnx.Tensor{onnx.NewTensor([]string{"a", "b"}, 2, 1),
			onnx.Vector("x", "y", "z")}, nil, "[2 3] [ax ay az bx by bz]"},
		{"StringConcat", []*onnx.Tensor{onnx.Vector("a", "b"), onnx.Vector("x", "y", "z")}, nil,
			"cannot be broadcast"},
		{"StringConcat", []*onnx.Tensor{onnx.Vector(strings.Repeat("a", 1<<25+1)),
			onnx.Vector(strings.Repeat("a", 1<<25))}, nil, "over the bounds"},
		{"StringSplit", []*onnx.Tensor{onnx.Vector(" a  b c ", "", "d")}, []onnx.Attr{I("maxsplit", 1)},
			"[3 2] [a b c   d ]"},
		{"StringSplit", []*onnx.Tensor{onnx.Vector("a,,b")},
			[]onnx.Attr{S("delimiter", ","), I("maxsplit", 1)}, "[1 2] [a ,b]"},
		{"StringSplit", []*onnx.Tensor{onnx.Vector("a")}, []onnx.Attr{I("maxsplit", -1)},
			"maxsplit is -1"},
		{"RegexFullMatch", []*onnx.Tensor{onnx.Vector("ab", "xab", "abx", "cd")},
			[]onnx.Attr{S("pattern", "ab|cd")}, "[4] [true false false true]"},
		{"RegexFullMatch", []*onnx.Tensor{onnx.Vector("a\n")},
			[]onnx.Attr{S("pattern", "a$")}, "[1] [false]"},
		{"RegexFullMatch", []*onnx.Tensor{onnx.Vector("ab")}, []onnx.Attr{S("pattern", "a)(b")},
			"unexpected )"},
		{"StringNormalizer", []*onnx.Tensor{onnx.Vector("The", "cat")},
			[]onnx.Attr{words("the"), S("case_change_action", "UPPER")}, "[1] [CAT]"},
		{"StringNormalizer", []*onnx.Tensor{onnx.Vector("The", "the")},
			[]onnx.Attr{words("the"), I("is_case_sensitive", 1)}, "[1] [The]"},
		{"StringNormalizer", []*onnx.Tensor{onnx.NewTensor([]string{"the"}, 1, 1)},
			[]onnx.Attr{words("the")}, "[1 1] []"},
		{"StringNormalizer", []*onnx.Tensor{onnx.NewTensor([]string{"a", "b"}, 2, 1)}, nil,
			"allowed are [c] and [1, c]"},
		{"StringNormalizer", []*onnx.Tensor{onnx.Vector("i")}, []onnx.Attr{S("locale", "tr_TR")},
			"rules of their own"},
		{"StringNormalizer", []*onnx.Tensor{onnx.Vector("i")},
			[]onnx.Attr{S("case_change_action", "TITLE")}, "case_change_action is"},
		// One word at every distance counts once, two of them at distances 1 and 2.
		{"TfIdfVectorizer", []*onnx.Tensor{onnx.Vector("a", "b", "c", "b")},
			grams(S("mode", "TF"), I("max_skip_count", 1), Is("ngram_indexes", 0, 3, 1)),
			"[4] [1 1 0 2]"},
		{"TfIdfVectorizer", []*onnx.Tensor{onnx.Vector("a", "x", "b")},
			grams(S("mode", "TF"), I("max_skip_count", 1), Is("ngram_indexes", 0, 1, 2)),
			"[3] [1 1 1]"},
		{"TfIdfVectorizer", []*onnx.Tensor{onnx.Vector("b", "b")},
			grams(S("mode", "TFIDF"), I("max_skip_count", 0), Is("ngram_indexes", 0, 1, 2),
				onnx.FloatsAttr("weights", 2, 3, 4)), "[3] [0 6 0]"},
		{"TfIdfVectorizer", []*onnx.Tensor{onnx.Vector("b", "b")},
			grams(S("mode", "IDF"), I("max_skip_count", 0), Is("ngram_indexes", 0, 1, 2),
				onnx.FloatsAttr("weights", 2, 3, 4)), "[3] [0 3 0]"},
		{"TfIdfVectorizer", []*onnx.Tensor{onnx.Vector("b")},
			grams(S("mode", "TFIDF"), I("max_skip_count", 0), Is("ngram_indexes", 1, 0, 2),
				onnx.FloatsAttr("weights", 2, 3, 4)), "takes that of the column"},
		{"TfIdfVectorizer", []*onnx.Tensor{onnx.Vector("b")},
			grams(S("mode", "TF"), I("max_skip_count", 0), Is("ngram_indexes", 0, 1)),
			"3 n-grams for 2"},
		{"TfIdfVectorizer", []*onnx.Tensor{onnx.Vector("b")},
			grams(S("mode", "TF"), I("max_skip_count", 1<<60), Is("ngram_indexes", 0, 1, 2)),
			"[3] [0 1 0]"},
	} {
		t.Run(c.op, func(t *testing.T) {
			outputs := 1
			if c.op == "StringSplit" {
				outputs = 2
			}
			m, feeds := opModel(c.op, 20, c.in, outputs, c.attrs...)
			got := ""
			s, err := newPure(t, 1).Load(m)
			if err == nil {
				defer s.Close()
				var out map[string]*onnx.Tensor
				if out, err = engine.Eval(s, feeds); err == nil {
					y := out[m.Graph.Outputs[0].Name]
					got = fmt.Sprint(y.Shape, " ", y.Data)
				}
			}
			if err != nil {
				if got = err.Error(); !strings.Contains(got, c.want) {
					t.Errorf("%v, want %q", err, c.want)
				}
				return
			}
			if got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

// Operators whose shapes come from a model's values refuse what does not fit.
func TestHostileShapes(t *testing.T) {
	Is := onnx.IntsAttr
	one, ints := onnx.ZerosF32(1, 4, 4),
		func(v ...int64) *onnx.Tensor { return onnx.NewTensor(slices.Clone(v), len(v)) }
	pooled, at := onnx.ZerosF32(1, 1, 2, 2),
		func(v ...int64) *onnx.Tensor { return onnx.NewTensor(v, 1, 1, 2, 2) }
	two := Is("kernel_shape", 2, 2)
	for _, c := range []struct {
		op    string
		in    []*onnx.Tensor
		attrs []onnx.Attr
		says  string
	}{
		{"Col2Im", []*onnx.Tensor{one, ints(3, 3), ints(2, 1<<40)}, nil, "out of range"},
		{"Col2Im", []*onnx.Tensor{one, ints(3, 3), ints(2, 0)}, nil, "out of range"},
		{"Col2Im", []*onnx.Tensor{one, ints(1<<28, 1<<28), ints(2, 2)}, nil, "is expected"},
		{"Col2Im", []*onnx.Tensor{one, ints(3, 3), ints(2, 4)}, nil, "does not fit"},
		{"Col2Im", []*onnx.Tensor{onnx.ZerosF32(1, 5, 4), ints(3, 3), ints(2, 2)}, nil,
			"a multiple of 4"},
		{"Col2Im", []*onnx.Tensor{onnx.ZerosF32(1, 4, 5), ints(3, 3), ints(2, 2)}, nil,
			"blocks [2 2] at [2 2] positions"},
		{"MaxUnpool", []*onnx.Tensor{pooled, at(0, 1, 2, 9)}, []onnx.Attr{two}, "index 9 is outside"},
		{"MaxUnpool", []*onnx.Tensor{pooled, at(0, 1, 2, -1)}, []onnx.Attr{two}, "index -1 is outside"},
		{"MaxUnpool", []*onnx.Tensor{pooled, at(0, 1, 2, 3), ints(1, 1, 3, 2)}, []onnx.Attr{two},
			"or more is expected"},
		{"MaxUnpool", []*onnx.Tensor{pooled, at(0, 1, 2, 3)}, []onnx.Attr{two, Is("pads", 9, 9, 9, 9)},
			"would have the size"},
		{"MaxUnpool", []*onnx.Tensor{pooled, at(0, 1, 2, 3)}, []onnx.Attr{two, Is("pads", 0, 0)},
			"do not belong together"},
		{"Det", []*onnx.Tensor{onnx.ZerosF32(2, 3)}, nil, "square"},
		{"Unique", []*onnx.Tensor{onnx.ZerosF32(2, 0)}, []onnx.Attr{onnx.IntAttr("axis", 0)},
			"no elements to tell apart"},
		{"GridSample", []*onnx.Tensor{onnx.ZerosF32(1, 1, 2, 2, 2), onnx.ZerosF32(1, 2, 2, 2, 2)},
			nil, "number of d"},
	} {
		m, feeds := opModel(c.op, 20, c.in, 1, c.attrs...)
		s, err := newPure(t, 1).Load(m)
		if err == nil {
			_, err = engine.Eval(s, feeds)
			s.Close()
		}
		must.Fail(err)(t, c.says, c.op)
	}
}
