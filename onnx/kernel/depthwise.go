package kernel

// depthwise convolves every channel of x with its own window, on one or two axes: a tap of the window is one multiple of one run of
// the channel's phases.
func depthwise[T floating](c *Call, o, x, weights, bias []T, xs, sp []int, w window, then *after) error {
	q := product(w.size)
	p, err := newPhases(w, xs[2:], sp)
	if err != nil {
		return err
	}
	eachPlane(c, o, x, xs[0]*xs[1], p, 0, func(run, split []T, plane int) {
		channel := plane % xs[1]
		var start T
		if bias != nil {
			start = bias[channel]
		}
		taps := weights[channel*q : (channel+1)*q]
		switch run := any(run).(type) {
		case []float32:
			tapSums(run, any(split).([]float32), p.offsets, any(taps).([]float32), float32(start))
		case []T:
			tapSumsGo(run, split, p.offsets, taps, start)
		}
	}, func(dst []T, plane int) {
		if then != nil {
			row := any(dst).([]float32)
			then.run(row, row, plane%xs[1])
		}
	})
	return nil
}

// eachPlane goes from planes of x to planes of o: taps fills a run over all outputs from the plane's phases, in which pad is outside
// the plane, and done finishes the outputs.
func eachPlane[T floating](c *Call, o, x []T, planes int, p *phases, pad T, taps func(run, split []T, plane int), done func(dst []T, plane int)) {
	in, pos := p.in[0]*p.in[1], p.out[0]*p.out[1]
	c.Parallel(planes, work(pos, len(p.offsets))/4, func(lo, hi int) {
		split, run := Scratch[T](c, p.len()), Scratch[T](c, p.run())
		fillRange(split, pad)
		for plane := lo; plane < hi; plane++ {
			splitInto(p, split, x[plane*in:(plane+1)*in], 0, p.high)
			taps(run, split, plane)
			dst := o[plane*pos : (plane+1)*pos]
			for y := range p.out[0] {
				copy(dst[y*p.out[1]:(y+1)*p.out[1]], run[y*p.wide:])
			}
			done(dst, plane)
		}
	})
}
