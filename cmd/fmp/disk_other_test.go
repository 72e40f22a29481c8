//go:build !linux

package main

import "testing"

// tinyDisk is only made on Linux.
func tinyDisk(t *testing.T, _ int) string {
	t.Helper()
	t.Skip("needs a small file system, which this test makes on Linux only")
	return ""
}

// memoryDir returns a folder on disk.
func memoryDir(t *testing.T) string { return t.TempDir() }
