package kernel

import "fmp/onnx/internal/try"

// depthwise convolves every channel of x with its own window, on one or two axes: a tap of the
// window is one multiple of one run of the channel's phases.
func (v *convolution[T]) depthwise() {
	channels := v.xs[1]
	planes := newPlanes(v.Call, v.out, v.x, v.xs, v.sp, v.window)
	planes.each(0, func(run, split []T, plane int) {
		channel := plane % channels
		var start T
		if v.bias != nil {
			start = v.bias[channel]
		}
		taps := v.weights[channel*v.taps : (channel+1)*v.taps]
		switch run := any(run).(type) {
		case []float32:
			tapSums(run, any(split).([]float32), planes.offsets, any(taps).([]float32),
				float32(start), v.env.Reproducible)
		case []T:
			tapSumsGo(run, split, planes.offsets, taps, start)
		}
	}, func(dst []T, plane int) {
		if v.then != nil {
			row := any(dst).([]float32)
			v.then.run(row, row, plane%channels)
		}
	})
}

// planes are the planes of an input and of an output, of one or two axes, and the phases in
// between.
type planes[T number] struct {
	c *Call
	*phases
	n        int
	to, from []T
}

// newPlanes: x has shape xs, [n, channels, axes...], and o has planes of shape sp for as many
// channels.
func newPlanes[T number](c *Call, o, x []T, xs, sp []int, w window) *planes[T] {
	p := try.Get(newPhases(w, xs[2:], sp))
	return &planes[T]{c: c, phases: p, n: xs[0] * xs[1], to: o, from: x}
}

// each goes from plane to plane: taps fills a run over all outputs from the plane's phases, in
// which pad is outside the plane, and done finishes the outputs. Threads divide the planes; each
// has phases and a run of its own. The padding is written once, as all planes have it at the same
// places.
func (p *planes[T]) each(pad T, taps func(run, split []T, plane int),
	done func(dst []T, plane int)) {
	in, pos := p.in[0]*p.in[1], p.out[0]*p.out[1]
	p.c.Parallel(p.n, work(pos, len(p.offsets))/4, func(lo, hi int) {
		split, run := scratch[T](p.c, p.len()), scratch[T](p.c, p.run())
		fillRange(split, pad)
		for plane := lo; plane < hi; plane++ {
			splitInto(p.phases, split, p.from[plane*in:(plane+1)*in], 0, p.high)
			taps(run, split, plane)
			dst := p.to[plane*pos : (plane+1)*pos]
			for y := range p.out[0] {
				copy(dst[y*p.out[1]:(y+1)*p.out[1]], run[y*p.wide:])
			}
			done(dst, plane)
		}
	})
}
