//go:build !wasm

package kernel

// edgeRoom is how many numbers [packs].panel holds at the edges: a tile's.
const edgeRoom = panelRows * panelCols

// panelPart returns how many of n columns the next kernel computes, from column j on: a panel's, or
// half of those where the rest are few.
func panelPart(j, n int) int {
	w := min(panelCols-j%panelCols, n-j)
	if half := panelCols / 2; w > half && w <= half+fewColumns && half%panelUnit() == 0 {
		return half
	}
	return w
}

// panel adds the product of left, over d elements of the inner axis, and a panel of b, whose rows
// lie bs apart, to c, or sets c to it plus from. left holds panels of [d, panelRows], the last
// filled up. from has one start for each row, filled up likewise.
func (p *packs) panel(left, b []float32, bs, d int, c matrix[float32], from []float32) {
	v := c.cols
	if v <= fewColumns && stridedPanels && !p.steps {
		few(left, b, bs, d, c, from, p.more)
		return
	}
	whole := 0 // rows of panels that need no copy
	if high := c.rows / panelRows; high > 0 && stridedPanels && v%panelUnit() == 0 {
		panelStrided(p.manner, d, high, left, b, bs, c.data, c.stride, v, from)
		whole = high * panelRows
	}
	var start []float32
	for i := whole; i < c.rows; i += panelRows {
		h := min(panelRows, c.rows-i)
		to, stride := c.data[i*c.stride:], c.stride
		if from != nil {
			start = from[i : i+panelRows]
		}
		edge := h < panelRows || v%panelUnit() != 0
		// A tile at an edge is computed in p.c, whose rows lie panelCols apart. Its part within c
		// is copied out afterwards.
		if edge {
			for r := 0; r < h && (start == nil && p.row == nil || p.more); r++ {
				copy(p.c[r*panelCols:], to[r*stride:r*stride+v])
			}
			to, stride = p.c, panelCols
		}
		if a := left[i*d : (i+panelRows)*d]; bs == panelCols {
			panelKernel(p.manner, d, a, b, to, stride, v, start)
		} else {
			panelStrided(p.manner, d, 1, a, b, bs, to, stride, v, start)
		}
		if edge {
			for r := range h {
				copy(c.data[(i+r)*c.stride:(i+r)*c.stride+v], p.c[r*panelCols:])
			}
		}
	}
}
