package jpeg

// The inverse DCT computes with 13 fractional bits and keeps two of them between columns and rows,
// as the transform of Loeffler, Ligtenberg and Moschytz (ICASSP 1989) in libjpeg does, whose
// samples it has where all eight points are computed. Fewer points are the same sum of cosines, of
// the lower frequencies alone, at the middles of larger samples.
const (
	fraction = 13
	between  = 2
	// eighth are the bits of the factor 8 by which two passes enlarge.
	eighth = 3
	// beyond bounds reduced samples, less 128.
	beyond = 255
)

// Factors with fraction bits.
const (
	c0298 = 2446  // sqrt 2 (-cos 1 + cos 3 + cos 5 - cos 7), of angles in units of pi/16
	c0390 = 3196  // sqrt 2 (cos 3 - cos 5)
	c0541 = 4433  // sqrt 2 cos 6
	c0765 = 6270  // sqrt 2 (cos 2 - cos 6)
	c0899 = 7373  // sqrt 2 (cos 3 - cos 7)
	c1175 = 9633  // sqrt 2 cos 3
	c1306 = 10703 // sqrt 2 cos 2
	c1501 = 12299 // sqrt 2 (cos 1 + cos 3 - cos 5 - cos 7)
	c1847 = 15137 // sqrt 2 (cos 2 + cos 6)
	c1961 = 16069 // sqrt 2 (cos 3 + cos 5)
	c2053 = 16819 // sqrt 2 (cos 1 + cos 3 - cos 5 + cos 7)
	c2562 = 20995 // sqrt 2 (cos 1 + cos 3)
	c3072 = 25172 // sqrt 2 (cos 1 + cos 3 + cos 5 - cos 7)
)

// line is eight coefficients, or the samples of their sum times sqrt 8, with fraction bits more.
// The factor sqrt 8 of two passes is 8 together: eighth takes it off at the end.
type line [8]int32

// eight computes all points. Coefficients 0, 2, 4 and 6 make the even part, the others the odd
// part: samples k and 7-k are their sum and their difference. It takes 12 multiplications.
func (l *line) eight() {
	z := (l[2] + l[6]) * c0541
	even2, even3 := z-l[6]*c1847, z+l[2]*c0765
	even0, even1 := (l[0]+l[4])<<fraction, (l[0]-l[4])<<fraction
	a, b, c, d := even0+even3, even1+even2, even1-even2, even0-even3

	o0, o1, o2, o3 := l[7], l[5], l[3], l[1]
	z1, z2, z3, z4 := o0+o3, o1+o2, o0+o2, o1+o3
	z5 := (z3 + z4) * c1175
	z1, z2 = -z1*c0899, -z2*c2562
	z3, z4 = z5-z3*c1961, z5-z4*c0390
	o0 = o0*c0298 + z1 + z3
	o1 = o1*c2053 + z2 + z4
	o2 = o2*c3072 + z2 + z3
	o3 = o3*c1501 + z1 + z4
	*l = line{a + o3, b + o2, c + o1, d + o0, d - o0, c - o1, b - o2, a - o3}
}

// four computes four points of the first four coefficients. Its factors are sqrt 2 cos(pi/8) and
// sqrt 2 cos(3 pi/8).
func (l *line) four() {
	even0, even1 := (l[0]+l[2])<<fraction, (l[0]-l[2])<<fraction
	o0, o1 := l[1]*c1306+l[3]*c0541, l[1]*c0541-l[3]*c1306
	l[0], l[1], l[2], l[3] = even0+o0, even1+o1, even1-o1, even0-o0
}

// points computes n points. With l the coefficients it is, for k = 0 to n-1 and times 2^fraction,
//
//	x_k = l_0 + sqrt 2 sum_{u=1..n-1} l_u cos((2k+1) u pi/(2n))
func (l *line) points(n int) {
	switch n {
	case 8:
		l.eight()
	case 4:
		l.four()
	case 2:
		l[0], l[1] = (l[0]+l[1])<<fraction, (l[0]-l[1])<<fraction
	default:
		l[0] <<= fraction
	}
}

// transform writes the samples of a block, whose last coefficient is the top-th in zigzag order,
// and clears it.
func (d *decoder) transform(p *part, top, x, y int) {
	px, py := p.points.X, p.points.Y
	at := (y*py-p.plane.Y)*p.plane.Stride + x*px - p.plane.X
	b := &d.block
	if top == 0 {
		// All samples are one: both passes are exact.
		p.plane.fill(at, px, py, (b[0]+1<<(eighth-1))>>eighth)
		b[0] = 0
		return
	}
	switch {
	case px == 2 && py == 2 && p.plane.Whole == nil: // both passes are exact
		const half = 1 << (eighth - 1)
		s, t, u, v := b[0]+b[8]+half, b[1]+b[9], b[0]-b[8]+half, b[1]-b[9]
		upper, lower := p.plane.Reduced[at:][:2], p.plane.Reduced[at+p.plane.Stride:][:2]
		upper[0], upper[1] = within((s+t)>>eighth), within((s-t)>>eighth)
		lower[0], lower[1] = within((u+v)>>eighth), within((u-v)>>eighth)
	case px == 4 && py == 4 && p.plane.Whole == nil:
		d.fourByFour(p.plane.Reduced[at:], p.plane.Stride)
	case px == 8 && py == 8 && d.eightByEight(&p.plane, at):
	default:
		d.passes(px, py)
		for v := range py {
			p.plane.put(at, d.rows[v][:px], eighth+fraction+between)
			at += p.plane.Stride
		}
	}
	d.clear(top)
}

// fourByFour is passes for 4 x 4 points, and writes them. The constants are the bits that are
// rounded off behind the columns and behind the rows.
func (d *decoder) fourByFour(to []int16, stride int) {
	const first, second = fraction - between, eighth + fraction + between
	var m [16]int32
	for u := range 4 {
		c0, c1, c2, c3 := d.block[u], d.block[8+u], d.block[16+u], d.block[24+u]
		if c1|c2|c3 == 0 {
			c0 <<= between
			m[u], m[4+u], m[8+u], m[12+u] = c0, c0, c0, c0
			continue
		}
		even0, even1 := (c0+c2)<<fraction+1<<(first-1), (c0-c2)<<fraction+1<<(first-1)
		o0, o1 := c1*c1306+c3*c0541, c1*c0541-c3*c1306
		m[u], m[4+u], m[8+u], m[12+u] = (even0+o0)>>first, (even1+o1)>>first, (even1-o1)>>first,
			(even0-o0)>>first
	}
	for v := range 4 {
		row, out := m[4*v:][:4], to[v*stride:][:4]
		even0, even1 := (row[0]+row[2])<<fraction+1<<(second-1),
			(row[0]-row[2])<<fraction+1<<(second-1)
		o0, o1 := row[1]*c1306+row[3]*c0541, row[1]*c0541-row[3]*c1306
		out[0], out[1] = within((even0+o0)>>second), within((even1+o1)>>second)
		out[2], out[3] = within((even1-o1)>>second), within((even0-o0)>>second)
	}
}

// within returns a reduced sample. Sums of coefficients of a corrupt file may lie far off.
func within(v int32) int16 { return int16(min(beyond, max(-beyond, v))) }

// passes computes px x py points, of the columns and then of the rows.
func (d *decoder) passes(px, py int) {
	const shift = fraction - between
	for u := range px {
		column := d.block[u:]
		// A column of one coefficient has equal samples.
		if column[8]|column[16]|column[24]|column[32]|column[40]|column[48]|column[56] == 0 {
			for v := range py {
				d.rows[v][u] = (column[0]<<fraction + 1<<(shift-1)) >> shift
			}
			continue
		}
		l := line{column[0], column[8], column[16], column[24], column[32], column[40],
			column[48], column[56]}
		l.points(py)
		for v := range py {
			d.rows[v][u] = (l[v] + 1<<(shift-1)) >> shift
		}
	}
	for v := range py {
		d.rows[v].points(px)
	}
}

// clear clears the block, whose last coefficient is the top-th in zigzag order. A few single zeros
// cost less than the whole block.
func (d *decoder) clear(top int) {
	b := &d.block
	if top >= 16 {
		*b = [64]int32{}
		return
	}
	for k := range top + 1 {
		b[zigzag[k]&63] = 0
	}
}

// put writes a row of samples, which have shift fractional bits. at is the place of the first in
// the plane. They are rounded, half up, and cut off at the ends of the range.
func (p *Plane) put(at int, row []int32, shift uint) {
	half := int32(1) << (shift - 1)
	if p.Whole != nil {
		to := p.Whole[at:][:len(row)]
		for i, v := range row {
			v = (v+half)>>(shift&31) + 128
			if uint32(v) > 255 {
				// The lower byte is 0 where v is negative, and 255 where it is larger.
				v = ^(v >> 31)
			}
			to[i] = uint8(v)
		}
		return
	}
	to := p.Reduced[at:][:len(row)]
	for i, v := range row {
		to[i] = within((v + half) >> (shift & 31))
	}
}

// fill writes equal samples. v is less 128, as reduced samples are.
func (p *Plane) fill(at, across, down int, v int32) {
	for range down {
		if p.Whole != nil {
			w := uint8(min(255, max(0, v+128)))
			for i := range p.Whole[at:][:across] {
				p.Whole[at+i] = w
			}
		} else {
			w := within(v)
			for i := range p.Reduced[at:][:across] {
				p.Reduced[at+i] = w
			}
		}
		at += p.Stride
	}
}
