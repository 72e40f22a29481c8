package grad

import "fmp/onnx"

// unbroadcast sums v, a tensor of the shape of from, over the axes along which to was broadcast to
// reach that shape, and gives it the shape of to. Where the known sizes do not say which axes these
// are, the graph finds them when it runs. Broadcasting copies, and the adjoint of a copy is a sum:
// v̄ = sum over the copies of their cotangents.
func (e *emitter) unbroadcast(v, from, to string) string {
	sf, st := e.shape(from), e.shape(to)
	if sf != nil && st != nil && len(st) <= len(sf) {
		// Shapes are aligned at their last axes: to lacks the first `lead`, which are all summed
		// over.
		lead := len(sf) - len(st)
		axes := span(0, lead)
		settled, narrow := true, false
		for i, d := range st {
			f := sf[lead+i]
			switch {
			case d.IsKnown() && d.Size != 1: // not broadcast
			case d.IsKnown() && f.IsKnown() && f.Size == 1: // 1 on both sides
			case d.IsKnown(): // 1 against what may be more
				axes = append(axes, lead+i)
				narrow = true
			case f.IsKnown() && f.Size == 1: // to must be 1 too
			// Equal symbols are one size in every run, so that nothing was broadcast there.
			case d.Symbol != "" && d.Symbol == f.Symbol:
			default:
				settled = false
			}
		}
		if settled {
			switch {
			case len(axes) == 0:
				return v
			case !narrow:
				return e.as(e.sum(v, false, axes...), to)
			case lead == 0:
				return e.as(e.sum(v, true, axes...), to)
			}
			return e.reshapeLike(e.sum(v, true, axes...), to)
		}
	}
	return e.unbroadcastAtRun(v, from, to)
}

// unbroadcastAtRun pads the shape of to with ones on the left and sums over the axes where it then
// differs. No axis to sum over is an empty vector, for which noop_with_empty_axes leaves v as it
// is.
func (e *emitter) unbroadcastAtRun(v, from, to string) string {
	sf, st := e.shapeOf(from), e.shapeOf(to)
	var padded string
	if f, t := e.shape(from), e.shape(to); f != nil && t != nil {
		ones := make([]int, len(f)-len(t))
		for i := range ones {
			ones[i] = 1
		}
		padded = st
		if len(ones) > 0 {
			padded = e.vec(e.ints(ones...), st)
		}
	} else {
		missing := e.op("Sub", []string{e.un("Shape", sf), e.un("Shape", st)})
		ones := e.op("ConstantOfShape", []string{missing},
			onnx.TensorAttr("value", onnx.Vector(int64(1))))
		padded = e.concat(0, ones, st)
	}
	differ := e.un("Not", e.op("Equal", []string{padded, sf}))
	axes := e.reshape(e.un("NonZero", differ), e.ints(-1))
	sum := e.op("ReduceSum", []string{v, axes}, onnx.IntAttr("keepdims", 1),
		onnx.IntAttr("noop_with_empty_axes", 1))
	return e.as(e.reshape(sum, st), to)
}
