//go:build unix

package imagefile

import (
	"os/exec"
	"syscall"
)

// group puts a program and those that it starts in a process group of their own. A terminal's
// Ctrl-C then reaches them by way of the context alone, which kills them all.
func group(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
