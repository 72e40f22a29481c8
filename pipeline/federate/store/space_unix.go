//go:build linux || darwin || freebsd

package store

import "golang.org/x/sys/unix"

// freeBytes returns the number of bytes that a process without privileges may still write to the
// file system of a folder; -1 if the system does not tell.
func freeBytes(dir string) int64 {
	var s unix.Statfs_t
	if unix.Statfs(dir, &s) != nil {
		return -1
	}
	return int64(s.Bavail) * int64(s.Bsize)
}
