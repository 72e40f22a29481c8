package main

import (
	"fmt"
	"os"
	"syscall"
	"testing"
)

// tinyDisk mounts a file system of the given size. It skips where that is not allowed.
func tinyDisk(t *testing.T, bytes int) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", bytes)); err != nil {
		t.Skipf("needs the right to mount a small file system: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// memoryDir returns a folder in memory where the system has one with a GiB free, or a folder on disk.
func memoryDir(t *testing.T) string {
	t.Helper()
	const memory = "/dev/shm"
	var s syscall.Statfs_t
	if syscall.Statfs(memory, &s) != nil || s.Bavail*uint64(s.Bsize) < 1<<30 {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp(memory, "fmp-test")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}
