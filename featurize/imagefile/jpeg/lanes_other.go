//go:build !amd64

package jpeg

// eightByEight reports that there are no lanes.
func (*decoder) eightByEight(*Plane, int) bool { return false }
