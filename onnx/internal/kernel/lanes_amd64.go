package kernel

// tileLanes says how vectors of sixteen tiles are read from a plane and written to one, wherever
// lines and planes end.
type tileLanes struct {
	first, last, n int // lines of tiles and images that it is for
	groups         []tileGroup
	sources        []*tileSources
	reads, writes  int // how far, from the beginning of the first image's plane
}

// tileGroup is some neighbouring tiles of a run, at most a vector of them, in pieces of their
// lines. Two vectors hold their inputs, each from two places, which are where the first lane of the
// first of four lines would lie: those of a piece, or of one in two lines of tiles. Masks keep the
// inputs of each line that are there.
type tileGroup struct {
	at      int // the first tile
	from    [4]int
	masks   [4][4]uint16
	sources *tileSources
	count   int
	pieces  [8]tilePiece // of two lines for each from
}

// tilePiece is where two lines of outputs of neighbouring tiles go: the tile's lane, the outputs
// that there are, and their places. Where there is no second line it has the place of the first,
// which is written after it.
type tilePiece struct {
	lane, mask uint32
	to         [2]int
}

// tileSources are, for each of four neighbouring inputs of a line, the lanes that tiles find it in,
// of two vectors, and the tiles that do.
type tileSources struct {
	lanes [4][16]uint32
	masks [4]uint16
}

const (
	laneTiles = 8  // of a piece
	lanesAll  = 16 // of a vector
)

// layTiles returns the lanes of an item's tiles, those of the item before where they are the same;
// nil without AVX-512. They depend on shapes alone, so that all channels of an item share them. The
// memory of l is used again.
func layTiles(i winogradItem, l *tileLanes) *tileLanes {
	if !haveAVX512 || l != nil && l.first == i.first && l.last == i.last && l.n == i.n {
		return l
	}
	if l == nil {
		l = &tileLanes{}
	}
	*l = tileLanes{first: i.first, last: i.last, n: i.n, groups: l.groups[:0], sources: l.sources}
	lay := laying{i: i, to: l}
	in, out, begin := i.v.xs[3], i.v.sp[1], i.v.window.begin[1]
	for n := range i.n {
		for line := i.first; line < i.last; line++ {
			for at, count := 0, 0; at < i.wide; at += count {
				left := min(in, max(0, 2*at-begin))
				if count = min(laneTiles, i.wide-at); in-left > lanesAll {
					count = min(count, (left+lanesAll-2+begin)/2-at)
				}
				right := max(left, min(in, 2*(at+count)-begin+2))
				lay.piece(n, line, at, count, left, right, min(2*count, out-2*at))
			}
		}
	}
	lay.end()
	return l
}

// laying is the work of layTiles on a group.
type laying struct {
	i                winogradItem
	to               *tileLanes
	group            tileGroup
	sources          tileSources
	tiles            int // of the group
	from, line, base int // of the piece before: its place, line and first lane
	span             int // lanes that a line of it has
}

// place returns the place and the first lane of count tiles of a line that span some lanes; they go
// on with the line before, or share a vector with another piece, where there is room. A group ends
// where it has sixteen tiles, or where none of its four places has room.
func (l *laying) place(line, count, span int) (from, base int) {
	wide := l.i.v.xs[3]
	if l.tiles+count > lanesAll {
		l.end()
	}
	switch next := l.base + l.span; {
	case l.tiles == 0:
		l.from, l.base = 0, 0
	case l.line == line-1 && count == l.i.wide && l.base+2*wide+span <= lanesAll:
		return l.from, l.base + 2*wide
	case l.from%2 == 0 && next+span <= lanesAll:
		l.from, l.base = l.from+1, next
	case l.from < 2:
		l.from, l.base = 2, 0
	default:
		l.end()
		l.from, l.base = 0, 0
	}
	l.line, l.span = line, span
	return l.from, l.base
}

// piece adds count tiles of a line, which see columns from left to right and have outs columns of
// outputs.
func (l *laying) piece(n, line, at, count, left, right, outs int) {
	v, g := l.i.v, l.i.winograd
	high, wide := v.xs[2], v.xs[3]
	f, base := l.place(line, count, right-left)
	top := 2*line - v.window.begin[0]
	if base == l.base {
		l.group.from[f] = n*g.group*g.cols*v.in + top*wide + left - base
	}
	for y := range 4 {
		if top+y >= 0 && top+y < high {
			l.group.masks[f][y] |= (1<<(right-left) - 1) << base
			l.to.reads = max(l.to.reads, n*g.group*g.cols*v.in+(top+y)*wide+right)
		}
	}
	for t := range count {
		for x := range 4 {
			if column := 2*(at+t) - v.window.begin[1] + x; column >= left && column < right {
				l.sources.lanes[x][l.tiles+t] = uint32(lanesAll*(f/2) + base + column - left)
				l.sources.masks[x] |= 1 << (l.tiles + t)
			}
		}
	}
	p := tilePiece{lane: uint32(l.tiles), mask: 1<<outs - 1}
	p.to[0] = n*g.group*g.rows*v.pos + 2*line*v.sp[1] + 2*at
	if p.to[1] = p.to[0]; 2*line+1 < v.sp[0] {
		p.to[1] += v.sp[1]
	}
	l.to.writes = max(l.to.writes, p.to[1]+outs)
	l.group.pieces[l.group.count] = p
	l.group.count++
	l.tiles += count
}

// end adds the group, if it has tiles, and begins the next. Sources that groups have in common are
// kept once.
func (l *laying) end() {
	if l.tiles == 0 {
		return
	}
	for _, s := range l.to.sources {
		if *s == l.sources {
			l.group.sources = s
		}
	}
	if l.group.sources == nil {
		s := l.sources
		l.group.sources = &s
		l.to.sources = append(l.to.sources, &s)
	}
	l.to.groups = append(l.to.groups, l.group)
	next := l.group.at + l.tiles
	l.group, l.sources, l.tiles = tileGroup{at: next}, tileSources{}, 0
}

// in sets v to Bᵀ d B of all tiles, for a channel whose plane of the first image is at the
// beginning of x. Rows of v get up to fifteen numbers more. apart is from one of the 16 elements of
// a tile to the next, in numbers; wide is the length of a line of x.
func (l *tileLanes) in(v []float32, apart int, x []float32, wide int) {
	last := &l.groups[len(l.groups)-1]
	_, _ = v[15*apart+last.at+lanesAll-1], x[:l.reads]
	tilesInZ(&l.groups[0], len(l.groups), &v[0], apart, &x[0], wide)
}

// out writes the outputs f of Aᵀ m A of all tiles, for a channel whose plane of the first image is
// at the beginning of dst.
func (l *tileLanes) out(dst, m []float32, apart int, f *finish) {
	last := &l.groups[len(l.groups)-1]
	_, _ = m[15*apart+last.at+lanesAll-1], dst[:l.writes]
	tilesOutZ(&l.groups[0], len(l.groups), &dst[0], &m[0], apart, f)
}

//go:noescape
func tilesInZ(groups *tileGroup, n int, v *float32, apart int, x *float32, wide int)

//go:noescape
func tilesOutZ(groups *tileGroup, n int, dst, m *float32, apart int, f *finish)
