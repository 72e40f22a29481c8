// Package tex names the boxes of a formula.
package tex

// Tree is a laid-out formula.
type Tree interface {
	Width() float64
	Height() float64
	Depth() float64
}

// Ship places a formula on its canvas.
type Ship struct{}

// Call does nothing: no formula is ever laid out.
func (*Ship) Call(_, _ float64, _ Tree) {}
