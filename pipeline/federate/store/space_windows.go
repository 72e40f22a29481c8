package store

import "golang.org/x/sys/windows"

// freeBytes returns the number of bytes that the user may still write to the volume of a folder; -1
// if the system does not tell.
func freeBytes(dir string) int64 {
	path, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return -1
	}
	var free uint64
	if windows.GetDiskFreeSpaceEx(path, &free, nil, nil) != nil {
		return -1
	}
	return int64(free)
}
