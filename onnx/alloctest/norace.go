//go:build !race

package alloctest

const raced = false
