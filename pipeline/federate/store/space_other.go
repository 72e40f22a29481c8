//go:build !linux && !darwin && !freebsd && !windows

package store

// freeBytes returns -1: the system does not tell.
func freeBytes(string) int64 { return -1 }
