//go:build race

package alloctest

const raced = true
