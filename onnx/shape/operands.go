package shape

import (
	"fmp/onnx/internal/try"
)

// single are the operands of one element, a scalar or a vector of one, by their place. The ONNX
// Runtime takes Pad's of any rank. A wrong number of elements there would go unseen by the rules,
// which read elements only where known.
var single = map[string][]int{
	"Clip": {1, 2}, "Pad": {2}, "CumSum": {1}, "Trilu": {1}, "OneHot": {1}, "TopK": {1},
	"Range": {0, 1, 2},
}

// count is the number of elements of a shape where that is known. A size of 0 makes it known,
// whatever the other sizes are.
func count(s []expr) (n int, known bool) {
	p := product(s)
	if s == nil || p == nil {
		return 0, false
	}
	return p.value()
}

// operands holds the shapes of operands against the operator, where runtimes refuse others. It runs
// before the rule, whose own errors would name a symptom of the same fault.
func (c *call) operands() {
	for _, i := range single[c.node.Op] {
		s, form := c.arg(i).shape, ", a scalar or a vector"
		if c.node.Op == "Pad" {
			form = ""
		}
		if n, known := count(s); s != nil && (len(s) > 1 && form != "" || known && n != 1) {
			try.Fail("input %d is of shape %s; one element is needed%s", i, c.inf.shapeText(s),
				form)
		}
	}
	if s := c.arg(2).shape; c.node.Op == "OneHot" && s != nil {
		if n, known := count(s); len(s) != 1 || known && n != 2 {
			try.Fail("the values are of shape %s; two are needed, off and on", c.inf.shapeText(s))
		}
	}
}
