package kernel

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"fmp/onnx"
	"fmp/onnx/internal/try"
)

// EnableText makes [Prepare] know the operators on strings. Package text calls it, once and before
// anything runs; programs that do not import that package do not hold their code.
func EnableText() {
	register(
		Def{Op: "StringConcat", Since: 20, New: newStringConcat},
		Def{Op: "StringSplit", Since: 20, New: newStringSplit},
		Def{Op: "StringNormalizer", Since: 10, New: newStringNormalizer},
		Def{Op: "RegexFullMatch", Since: 20, New: newRegexFullMatch},
		Def{Op: "TfIdfVectorizer", Since: 9, New: newTfIdf},
	)
}

// maxString bounds the bytes of a string that is put together: 2^26, and [maxTensorBytes] those of
// a tensor of such.
const maxString = 1 << 26

// StringConcat: out = a b, with broadcasting. Go's strings do not share the pool's limit, so the
// bytes are counted here, before each is made.
func newStringConcat(*Spec) (Kernel, error) {
	return func(c *Call) error {
		shape := try.Get(broadcast(c.In[0].Shape, c.In[1].Shape))
		out := try.Get(c.New(0, onnx.String, shape))
		a, b, o := data[string](c.In[0]), data[string](c.In[1]), data[string](out)
		pair := newOdometer(shape,
			[][]int{broadcastStrides(c.In[0].Shape, shape), broadcastStrides(c.In[1].Shape, shape)},
			0)
		var total int64
		for i := range o {
			x, y := a[pair.off[0]], b[pair.off[1]]
			if total += int64(len(x) + len(y)); len(x)+len(y) > maxString ||
				total > maxTensorBytes {
				return fmt.Errorf(
					"a string of %d bytes, in a tensor of %d so far, is over the bounds of %d and %d",
					len(x)+len(y), total, maxString, int64(maxTensorBytes))
			}
			o[i] = x + y
			pair.next()
		}
		return nil
	}, nil
}

// StringSplit: x [...] at a delimiter, at most maxsplit times; without one, at runs of white space,
// of which none leads or trails. y [..., n] holds the parts, and "" behind the last where another
// string has more; z [...] counts them. The width n is that of the string with most parts in this
// call.
func newStringSplit(s *Spec) (Kernel, error) {
	delimiter, most := s.str("delimiter"), -1
	if s.hasAttr("maxsplit") {
		if most = s.int("maxsplit"); most < 0 {
			return nil, fmt.Errorf("maxsplit is %d; it must be at least 0", most)
		}
		// Bounded so that one more is an int everywhere.
		most = min(most, 1<<30) + 1 // parts
	}
	return func(c *Call) error {
		x := data[string](c.In[0])
		parts, longest := make([][]string, len(x)), 0
		for i, v := range x {
			if delimiter == "" {
				parts[i] = fields(v, most)
			} else {
				parts[i] = strings.SplitN(v, delimiter, most)
			}
			longest = max(longest, len(parts[i]))
		}
		y := try.Get(c.New(0, onnx.String, append(slices.Clone(c.In[0].Shape), longest)))
		z := try.Get(c.New(1, onnx.Int64, c.In[0].Shape))
		clearData(y)
		for i, p := range parts {
			copy(data[string](y)[i*longest:], p)
			z.I64()[i] = int64(len(p))
		}
		return nil
	}, nil
}

// fields splits at runs of white space into at most n parts, any number where n is below 0.
func fields(v string, n int) []string {
	var parts []string
	for v = strings.TrimSpace(v); v != ""; v = strings.TrimLeftFunc(v, unicode.IsSpace) {
		end := strings.IndexFunc(v, unicode.IsSpace)
		if end < 0 || len(parts) == n-1 {
			end = len(v)
		}
		parts, v = append(parts, v[:end]), v[end:]
	}
	return parts
}

// StringNormalizer: x [c] or [1, c] without its stop words, in upper or lower case. Where nothing
// is left, y is one "". A locale in which i or ı change their case otherwise is refused. Stop words
// are compared after case folding unless is_case_sensitive is 1, and before the case is changed.
func newStringNormalizer(s *Spec) (Kernel, error) {
	sensitive, stops, locale := s.bool("is_case_sensitive"), map[string]bool{}, s.str("locale")
	// Turkish, Azerbaijani and Lithuanian; strings.ToLower and ToUpper do not know their rules.
	for _, l := range []string{"tr", "az", "lt"} {
		if strings.HasPrefix(strings.ToLower(locale), l) {
			return nil, fmt.Errorf("locale %q is not supported; its letters change their case by rules of "+
				"their own", locale)
		}
	}
	change := map[string]func(string) string{"NONE": strings.Clone, "LOWER": strings.ToLower,
		"UPPER": strings.ToUpper}[s.str("case_change_action")]
	fold := strings.ToLower
	if sensitive {
		fold = strings.Clone
	}
	for _, w := range s.strs("stopwords") {
		stops[fold(w)] = true
	}
	return func(c *Call) error {
		in := c.In[0].Shape
		if len(in) != 1 && (len(in) != 2 || in[0] != 1) {
			return fmt.Errorf("strings of shape %v; allowed are [c] and [1, c]", in)
		}
		var kept []string
		for _, w := range data[string](c.In[0]) {
			if !stops[fold(w)] {
				kept = append(kept, change(w))
			}
		}
		if kept == nil {
			kept = []string{""}
		}
		shape := slices.Clone(in)
		shape[len(shape)-1] = len(kept)
		out := try.Get(c.New(0, onnx.String, shape))
		copy(data[string](out), kept)
		return nil
	}, nil
}

// RegexFullMatch: whether the whole of a string matches a pattern in the syntax of RE2, which is
// that of package regexp. RE2 takes time linear in the string, so a hostile pattern cannot stall a
// run as backtracking would.
func newRegexFullMatch(s *Spec) (Kernel, error) {
	pattern := s.str("pattern")
	// The pattern must stand alone: one like `a)(?:b` closes the group below and would be accepted.
	if _, err := regexp.Compile(pattern); err != nil {
		return nil, fmt.Errorf("pattern: %w", err)
	}
	whole, err := regexp.Compile(`\A(?:` + pattern + `)\z`)
	if err != nil {
		return nil, fmt.Errorf("pattern: %w", err)
	}
	return func(c *Call) error {
		out := try.Get(c.New(0, onnx.Bool, c.In[0].Shape))
		for i, v := range data[string](c.In[0]) {
			data[bool](out)[i] = whole.MatchString(v)
		}
		return nil
	}, nil
}
