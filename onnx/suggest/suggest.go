// Package suggest words the names that were allowed where another was given: all of them, or the
// one that was probably meant.
package suggest

import (
	"sort"
	"strings"
)

// Nearest returns the candidate closest to name by edit distance, whatever the case of letters; ""
// where none is close: more than two edits, or more than a third of the name's length for long
// names. Ties go to the first in alphabetical order.
func Nearest(name string, candidates []string) string {
	best, bestDist := "", max(2, len(name)/3)+1
	sorted := append([]string{}, candidates...)
	sort.Strings(sorted)
	for _, c := range sorted {
		d := editDistance(strings.ToLower(name), strings.ToLower(c))
		if d < bestDist && d < len(c) {
			best, bestDist = c, d
		}
	}
	return best
}

// editDistance counts the insertions, deletions, substitutions and swaps of neighbours that turn a
// into b (optimal string alignment).
func editDistance(a, b string) int {
	x, y := []rune(a), []rune(b)
	d := make([][]int, len(x)+1)
	for i := range d {
		d[i] = make([]int, len(y)+1)
		d[i][0] = i
	}
	for j := range d[0] {
		d[0][j] = j
	}
	for i := 1; i <= len(x); i++ {
		for j := 1; j <= len(y); j++ {
			cost := 1
			if x[i-1] == y[j-1] {
				cost = 0
			}
			d[i][j] = min(d[i-1][j]+1, d[i][j-1]+1, d[i-1][j-1]+cost)
			if i > 1 && j > 1 && x[i-1] == y[j-2] && x[i-2] == y[j-1] {
				d[i][j] = min(d[i][j], d[i-2][j-2]+1)
			}
		}
	}
	return d[len(x)][len(y)]
}

// DidYouMean returns the clause "; did you mean NAME?" for the end of an error message, and ""
// where no candidate is close to name.
func DidYouMean(name string, candidates []string) string {
	if near := Nearest(name, candidates); near != "" {
		return "; did you mean " + near + "?"
	}
	return ""
}

// Or lists names: "a, b or c".
func Or(names ...string) string {
	if n := len(names); n > 1 {
		return strings.Join(names[:n-1], ", ") + " or " + names[n-1]
	}
	return strings.Join(names, "")
}
