//go:build !unix || solaris || illumos || aix

package atomicfile

import "os"

// Lock lets everybody in: this system has no lock that ends with its process.
func Lock(*os.File) bool { return true }
