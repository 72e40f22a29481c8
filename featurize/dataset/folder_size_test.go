package dataset

import "testing"

// TestCommonSize: images of several sizes are brought to the median size, in its shape where that is
// too large.
func TestCommonSize(t *testing.T) {
	for name, x := range map[string]struct {
		sizes [][2]int
		h, w  int
		same  bool
	}{
		"one size":    {[][2]int{{300, 500}, {300, 500}}, 300, 500, true},
		"an odd one":  {[][2]int{{200, 300}, {200, 300}, {20, 20}}, 170, 256, false},
		"small":       {[][2]int{{20, 30}, {20, 30}, {40, 40}}, 20, 30, false},
		"a long line": {[][2]int{{1, 900}, {1, 900}, {2, 900}}, 1, 256, false},
		"none":        {nil, 1, 1, true},
	} {
		var files []imageFile
		for _, s := range x.sizes {
			files = append(files, imageFile{h: s[0], w: s[1]})
		}
		if h, w, _, same := commonSize(files); h != x.h || w != x.w || same != x.same {
			t.Errorf("%s: %dx%d, one size %v; want %dx%d, %v", name, h, w, same, x.h, x.w, x.same)
		}
	}
}
