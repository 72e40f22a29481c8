package shape

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"fmp/onnx/sorting"
)

// expr is an integer polynomial over symbols with integer coefficients, in canonical form: the size
// of an axis ("2*batch*n + 1") or an element of a shape under computation. Two equal polynomials
// print alike, so equality of sizes is equality of text.
//
// Symbols are identifiers or quotients written "floor((H + 1)/2)". Three kinds of symbol never
// leave inference: "?k" is a size of which nothing else is known, "~k" an integer that may be
// negative, "$k" stands for a symbol of the file whose text is not an expression.
type expr []term

// term is coef times the product of the symbols in mono ("a*b", sorted; "" for the constant).
type term struct {
	mono string
	coef int
}

// Bounds of an expression: a larger one becomes an unknown size.
const (
	// The bounds keep a hostile graph from growing polynomials: a product has terms of e times
	// terms of f.
	maxExprTerms = 12
	maxExprText  = 96
	maxExprCoef  = math.MaxInt32
)

//go:noinline
func constant(n int) expr {
	if n == 0 {
		return expr{}
	}
	return expr{{"", n}}
}

// symbol is the polynomial of one symbol, with coefficient 1.
func symbol(s string) expr { return expr{{s, 1}} }

// value is the constant that e is, if it is one; nil is no expression at all.
func (e expr) value() (int, bool) {
	switch {
	case e == nil:
		return 0, false
	case len(e) == 0:
		return 0, true
	case len(e) == 1 && e[0].mono == "":
		return e[0].coef, true
	}
	return 0, false
}

// is reports whether e is the constant n.
func (e expr) is(n int) bool { v, ok := e.value(); return ok && v == n }

// equal compares terms, which the canonical form allows. An unknown expression, nil, equals the
// constant 0: ask for nil before.
func (e expr) equal(f expr) bool { return slices.Equal(e, f) }

// atLeast is a lower bound of e given that sizes are not negative, if there is one. A term of a
// positive coefficient is at least 0, if no symbol in it may be negative. A quotient may be
// negative where a sign is within it, as floor((-n)/2) is.
func (e expr) atLeast() (int, bool) {
	low := 0
	for _, t := range e {
		if t.mono == "" {
			low = t.coef
			continue
		}
		if t.coef < 0 || strings.ContainsAny(t.mono, "~-") {
			return 0, false
		}
	}
	return low, true
}

// canonical sorts terms by their symbols, adds up those of one product and drops those that cancel.
// It sorts in place, so that ts must be the caller's own; O(n log n).
func canonical(ts []term) expr {
	sorting.By(ts, func(a, b term) int { return strings.Compare(a.mono, b.mono) })
	out := expr{}
	for _, t := range ts {
		if n := len(out); n > 0 && out[n-1].mono == t.mono {
			out[n-1].coef = saturate(float64(out[n-1].coef)+float64(t.coef), out[n-1].coef+t.coef)
			if out[n-1].coef == 0 {
				out = out[:n-1]
			}
			continue
		}
		if t.coef != 0 {
			out = append(out, t)
		}
	}
	return out
}

// plus, minus, times, over and floorOver return new expressions and leave their operands alone.
func (e expr) plus(f expr) expr { return canonical(append(slices.Clone(e), f...)) }

func (e expr) minus(f expr) expr { return e.plus(f.times(constant(-1))) }

// times multiplies term by term, O(terms of e · terms of f).
func (e expr) times(f expr) expr {
	var out []term
	for _, a := range e {
		for _, b := range f {
			out = append(out, term{joinMono(a.mono, b.mono),
				saturate(float64(a.coef)*float64(b.coef), a.coef*b.coef)})
		}
	}
	return canonical(out)
}

// saturate is exact unless the result about which is near the limits of an int, so that an overflow
// ends out of bounds instead of wrapping round. The limit is at or beyond maxExprCoef, so that
// [expr.bounded] refuses a saturated expression.
func saturate(about float64, exact int) int {
	// of 32 bits, where float64 is exact, the largest
	const limit = max(math.MaxInt/2, math.MaxInt32)
	switch {
	case about >= limit:
		return limit
	case about <= -limit:
		return -limit
	}
	return exact
}

// joinMono is the product of two products of symbols, in canonical order.
func joinMono(a, b string) string {
	if a == "" {
		return b
	}
	if b == "" {
		return a
	}
	fs := append(splitTop(a, '*'), splitTop(b, '*')...)
	slices.Sort(fs)
	return strings.Join(fs, "*")
}

// over divides exactly by a product of symbols and a constant; it fails where the quotient is not a
// polynomial. A constant other than 1 must divide every coefficient, and each symbol must be in
// every term. A sum of several terms divides an equal sum alone.
func (e expr) over(d expr) (expr, bool) {
	if len(d) != 1 {
		if e.equal(d) && len(d) > 0 {
			return constant(1), true
		}
		return nil, false
	}
	var out []term
	for _, t := range e {
		if t.coef%d[0].coef != 0 {
			return nil, false
		}
		rest := splitTop(t.mono, '*')
		for _, f := range splitTop(d[0].mono, '*') {
			i := slices.Index(rest, f)
			if i < 0 {
				return nil, false
			}
			rest = slices.Delete(rest, i, i+1)
		}
		out = append(out, term{strings.Join(rest, "*"), t.coef / d[0].coef})
	}
	return canonical(out), true
}

// floorOver is floor(e/k) for k > 0: multiples of k leave the quotient, the rest stays inside.
// floor((k a + b)/k) = a + floor(b/k) for whole a, which makes equal quotients print alike.
func (e expr) floorOver(k int) expr {
	var whole, rest []term
	for _, t := range e {
		switch {
		case t.coef%k == 0:
			whole = append(whole, term{t.mono, t.coef / k})
		case t.mono == "":
			q := floorDiv(t.coef, k)
			whole = append(whole, term{"", q})
			rest = append(rest, term{"", t.coef - q*k})
		default:
			rest = append(rest, t)
		}
	}
	r := canonical(rest)
	if v, ok := r.value(); ok {
		return canonical(append(whole, term{"", floorDiv(v, k)}))
	}
	return canonical(append(whole, term{"floor((" + r.String() + ")/" + strconv.Itoa(k) + ")", 1}))
}

// floorDiv rounds down, where Go's division rounds towards 0.
func floorDiv(a, b int) int {
	q := a / b
	if a%b != 0 && (a < 0) != (b < 0) {
		q--
	}
	return q
}

// bounded reports whether e is within the limits of an expression. The text counts symbols alone,
// and not signs, coefficients or spaces.
func (e expr) bounded() bool {
	if len(e) > maxExprTerms {
		return false
	}
	n := 0
	for _, t := range e {
		if t.coef >= maxExprCoef || t.coef <= -maxExprCoef {
			return false
		}
		n += len(t.mono)
	}
	return n <= maxExprText
}

// String writes e with its constant last: "2*n + 1".
func (e expr) String() string {
	if len(e) == 0 {
		return "0"
	}
	ts := slices.Clone(e)
	if ts[0].mono == "" {
		ts = append(ts[1:], ts[0])
	}
	var b strings.Builder
	for i, t := range ts {
		c := t.coef
		switch {
		case i > 0 && c < 0:
			b.WriteString(" - ")
			c = -c
		case i > 0:
			b.WriteString(" + ")
		case c < 0:
			b.WriteString("-")
			c = -c
		}
		switch {
		case t.mono == "":
			b.WriteString(strconv.Itoa(c))
		case c == 1:
			b.WriteString(t.mono)
		default:
			b.WriteString(strconv.Itoa(c) + "*" + t.mono)
		}
	}
	return b.String()
}

// parseExpr reads the form that String writes, and sums and products of identifiers as exporters
// write them. A text in another form, such as "(a + b)*2", is no expression: false. Numbers are
// from 0 to maxExprCoef - 1 and products stay within the same bound.
func parseExpr(s string) (expr, bool) {
	if len(s) > maxExprText {
		return nil, false
	}
	var ts []term
	sign, start, depth := 1, 0, 0
	flush := func(end int) bool {
		part := strings.TrimSpace(s[start:end])
		if part == "" {
			return start == 0 && end < len(s) && len(ts) == 0
		}
		t := term{"", sign}
		for _, f := range splitTop(part, '*') {
			f = strings.TrimSpace(f)
			if n, err := strconv.Atoi(f); err == nil && n >= 0 && n < maxExprCoef {
				t.coef = saturate(float64(t.coef)*float64(n), t.coef*n)
			} else if isAtom(f) {
				t.mono = joinMono(t.mono, f)
			} else {
				return false
			}
			if t.coef >= maxExprCoef || t.coef <= -maxExprCoef {
				return false
			}
		}
		ts = append(ts, t)
		return true
	}
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '(':
			depth++
		case c == ')':
			depth--
		case (c == '+' || c == '-') && depth == 0:
			if !flush(i) {
				return nil, false
			}
			start, sign = i+1, 1
			if c == '-' {
				sign = -1
			}
		}
	}
	if depth != 0 || !flush(len(s)) || len(ts) == 0 {
		return nil, false
	}
	e := canonical(ts)
	return e, e.bounded()
}

// isAtom reports whether s is one symbol: an identifier, or a quotient as [expr.floorOver] writes
// it. Letters are those of ASCII; digits, '.' and ':' may follow the first character. "?", "~" and
// "$" are in no atom, so that a file cannot name a symbol of inference.
func isAtom(s string) bool {
	if inner, ok := strings.CutPrefix(s, "floor(("); ok {
		i := strings.LastIndex(inner, ")/")
		if i < 0 || !strings.HasSuffix(inner, ")") {
			return false
		}
		_, good := parseExpr(inner[:i])
		k, err := strconv.Atoi(inner[i+2 : len(inner)-1])
		return good && err == nil && k > 0
	}
	for i, c := range s {
		switch {
		case c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z':
		case i > 0 && (c >= '0' && c <= '9' || c == '.' || c == ':'):
		default:
			return false
		}
	}
	return s != ""
}

// splitTop splits at sep outside parentheses; "" has no parts.
func splitTop(s string, sep byte) []string {
	if s == "" {
		return nil
	}
	var out []string
	depth, start := 0, 0
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '(':
			depth++
		case ')':
			depth--
		case sep:
			if depth == 0 {
				out = append(out, s[start:i])
				start = i + 1
			}
		}
	}
	return append(out, s[start:])
}

// product multiplies sizes. nil stands for a product beyond the bounds; that of no sizes is 1, as a
// scalar has one element.
func product(es []expr) expr {
	p := constant(1)
	for _, e := range es {
		p = p.times(e)
		if !p.bounded() {
			return nil
		}
	}
	return p
}
