//go:build unix

package crash

import "syscall"

func noCore() {
	var l syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_CORE, &l) == nil {
		l.Cur = 0
		_ = syscall.Setrlimit(syscall.RLIMIT_CORE, &l) // lowering one's own limit is allowed
	}
}
