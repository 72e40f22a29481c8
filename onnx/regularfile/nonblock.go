//go:build !js && !wasip1

package regularfile

import "syscall"

const nonblock = syscall.O_NONBLOCK
