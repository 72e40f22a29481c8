//go:build cgo

package pure_test

import (
	"slices"
	"strings"
	"testing"

	"fmp/onnx"
	_ "fmp/onnx/rare"
	_ "fmp/onnx/text"
)

// What operators on strings give where the standard's tests do not look, and what they refuse.
func TestText(t *testing.T) {
	S, I, Is := onnx.StrAttr, onnx.IntAttr, onnx.IntsAttr
	type ts = []*onnx.Tensor
	type as = []onnx.Attr
	words := func(v ...string) onnx.Attr { return strs("stopwords", v...) }
	pool := strs("pool_strings", "a", "b", "a", "b")
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
		{"StringConcat", ts{onnx.NewTensor([]string{"a", "b"}, 2, 1),
			onnx.Vector("x", "y", "z")}, nil, "[2 3] [ax ay az bx by bz]"},
		{"StringConcat", ts{onnx.Vector("a", "b"), onnx.Vector("x", "y", "z")}, nil,
			"cannot be broadcast"},
		{"StringConcat", ts{onnx.Vector(strings.Repeat("a", 1<<25+1)),
			onnx.Vector(strings.Repeat("a", 1<<25))}, nil, "over the bounds"},
		{"StringSplit", ts{onnx.Vector(" a  b c ", "", "d")}, as{I("maxsplit", 1)}, "[3 2] [a b c   d ]"},
		{"StringSplit", ts{onnx.Vector("a,,b")},
			as{S("delimiter", ","), I("maxsplit", 1)}, "[1 2] [a ,b]"},
		{"StringSplit", ts{onnx.Vector("a")}, as{I("maxsplit", -1)}, "maxsplit is -1"},
		{"RegexFullMatch", ts{onnx.Vector("ab", "xab", "abx", "cd")},
			as{S("pattern", "ab|cd")}, "[4] [true false false true]"},
		{"RegexFullMatch", ts{onnx.Vector("a\n")}, as{S("pattern", "a$")}, "[1] [false]"},
		{"RegexFullMatch", ts{onnx.Vector("ab")}, as{S("pattern", "a)(b")}, "unexpected )"},
		{"StringNormalizer", ts{onnx.Vector("The", "cat")},
			as{words("the"), S("case_change_action", "UPPER")}, "[1] [CAT]"},
		{"StringNormalizer", ts{onnx.Vector("The", "the")},
			as{words("the"), I("is_case_sensitive", 1)}, "[1] [The]"},
		{"StringNormalizer", ts{onnx.NewTensor([]string{"the"}, 1, 1)}, as{words("the")}, "[1 1] []"},
		{"StringNormalizer", ts{onnx.NewTensor([]string{"a", "b"}, 2, 1)}, nil,
			"allowed are [c] and [1, c]"},
		{"StringNormalizer", ts{onnx.Vector("i")}, as{S("locale", "tr_TR")}, "rules of their own"},
		{"StringNormalizer", ts{onnx.Vector("i")},
			as{S("case_change_action", "TITLE")}, "case_change_action is"},
		// One word at every distance counts once, two of them at distances 1 and 2.
		{"TfIdfVectorizer", ts{onnx.Vector("a", "b", "c", "b")},
			grams(S("mode", "TF"), I("max_skip_count", 1), Is("ngram_indexes", 0, 3, 1)), "[4] [1 1 0 2]"},
		{"TfIdfVectorizer", ts{onnx.Vector("a", "x", "b")},
			grams(S("mode", "TF"), I("max_skip_count", 1), Is("ngram_indexes", 0, 1, 2)), "[3] [1 1 1]"},
		{"TfIdfVectorizer", ts{onnx.Vector("b", "b")},
			grams(S("mode", "TFIDF"), I("max_skip_count", 0), Is("ngram_indexes", 0, 1, 2),
				onnx.FloatsAttr("weights", 2, 3, 4)), "[3] [0 6 0]"},
		{"TfIdfVectorizer", ts{onnx.Vector("b", "b")},
			grams(S("mode", "IDF"), I("max_skip_count", 0), Is("ngram_indexes", 0, 1, 2),
				onnx.FloatsAttr("weights", 2, 3, 4)), "[3] [0 3 0]"},
		{"TfIdfVectorizer", ts{onnx.Vector("b")},
			grams(S("mode", "TFIDF"), I("max_skip_count", 0), Is("ngram_indexes", 1, 0, 2),
				onnx.FloatsAttr("weights", 2, 3, 4)), "takes that of the column"},
		{"TfIdfVectorizer", ts{onnx.Vector("b")},
			grams(S("mode", "TF"), I("max_skip_count", 0), Is("ngram_indexes", 0, 1)), "3 n-grams for 2"},
		{"TfIdfVectorizer", ts{onnx.Vector("b")},
			grams(S("mode", "TF"), I("max_skip_count", 1<<60), Is("ngram_indexes", 0, 1, 2)), "[3] [0 1 0]"},
	} {
		if got := outcome(t, c.op, 20, c.in, c.attrs...); !strings.Contains(got, c.want) {
			t.Errorf("%s: %s, want %s", c.op, got, c.want)
		}
	}
}

// Operators whose shapes come from a model's values refuse what does not fit.
func TestHostileShapes(t *testing.T) {
	Is := onnx.IntsAttr
	type ts = []*onnx.Tensor
	type as = []onnx.Attr
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
		{"Col2Im", ts{one, ints(3, 3), ints(2, 1<<40)}, nil, "out of range"},
		{"Col2Im", ts{one, ints(3, 3), ints(2, 0)}, nil, "out of range"},
		{"Col2Im", ts{one, ints(1<<28, 1<<28), ints(2, 2)}, nil, "is expected"},
		{"Col2Im", ts{one, ints(3, 3), ints(2, 4)}, nil, "does not fit"},
		{"Col2Im", ts{onnx.ZerosF32(1, 5, 4), ints(3, 3), ints(2, 2)}, nil, "a multiple of 4"},
		{"Col2Im", ts{onnx.ZerosF32(1, 4, 5), ints(3, 3), ints(2, 2)}, nil,
			"blocks [2 2] at [2 2] positions"},
		{"MaxUnpool", ts{pooled, at(0, 1, 2, 9)}, as{two}, "index 9 is outside"},
		{"MaxUnpool", ts{pooled, at(0, 1, 2, -1)}, as{two}, "index -1 is outside"},
		{"MaxUnpool", ts{pooled, at(0, 1, 2, 3), ints(1, 1, 3, 2)}, as{two}, "or more is expected"},
		{"MaxUnpool", ts{pooled, at(0, 1, 2, 3)}, as{two, Is("pads", 9, 9, 9, 9)}, "would have the size"},
		{"MaxUnpool", ts{pooled, at(0, 1, 2, 3)}, as{two, Is("pads", 0, 0)}, "do not belong together"},
		{"Det", ts{onnx.ZerosF32(2, 3)}, nil, "square"},
		{"Unique", ts{onnx.ZerosF32(2, 0)}, as{onnx.IntAttr("axis", 0)}, "no elements to tell apart"},
		{"GridSample", ts{onnx.ZerosF32(1, 1, 2, 2, 2), onnx.ZerosF32(1, 2, 2, 2, 2)},
			nil, "number of d"},
	} {
		if got := outcome(t, c.op, 20, c.in, c.attrs...); !strings.Contains(got, c.says) {
			t.Errorf("%s: %s, want %s", c.op, got, c.says)
		}
	}
}
