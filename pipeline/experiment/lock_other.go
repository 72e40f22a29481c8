//go:build !unix || solaris || illumos || aix

package experiment

import "os"

// lock lets everybody in: this system has no lock that ends with its process.
func lock(*os.File) bool { return true }
