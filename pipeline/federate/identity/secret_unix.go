//go:build unix

package identity

import (
	"io/fs"
	"syscall"
)

// exposed returns the permissions of a file by which users other than its owner reach it, where
// they should not.
func exposed(info fs.FileInfo) fs.FileMode {
	open := info.Mode().Perm() & 0o077
	if s, ok := info.Sys().(*syscall.Stat_t); ok && s.Uid == 0 {
		open &^= 0o040
	}
	return open
}
