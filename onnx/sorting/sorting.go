// Package sorting sorts where the time does not count: by one copy of the algorithm for all types,
// where slices.SortFunc compiles a copy of 12 KB for each.
package sorting

import "sort"

// By sorts s by compare, which is negative where a comes before b. Equal elements end as
// slices.SortFunc leaves them.
func By[T any](s []T, compare func(a, b T) int) {
	sort.Slice(s, func(i, j int) bool { return compare(s[i], s[j]) < 0 })
}

// Stably sorts s by compare, and keeps the order of equal elements.
func Stably[T any](s []T, compare func(a, b T) int) {
	sort.SliceStable(s, func(i, j int) bool { return compare(s[i], s[j]) < 0 })
}
