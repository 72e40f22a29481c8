package imagefile

import (
	"os/exec"

	"golang.org/x/sys/unix"
)

// start starts a decoder in a process group of its own, and bounds its memory and the bytes of a
// file that it writes.
func start(cmd *exec.Cmd, bytes uint64) error {
	group(cmd)
	if err := cmd.Start(); err != nil {
		return err
	}
	// It may have ended already, which is found by Wait.
	_ = unix.Prlimit(cmd.Process.Pid, unix.RLIMIT_AS,
		&unix.Rlimit{Cur: decoderMemory, Max: decoderMemory}, nil)
	_ = unix.Prlimit(cmd.Process.Pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: bytes, Max: bytes}, nil)
	return nil
}
