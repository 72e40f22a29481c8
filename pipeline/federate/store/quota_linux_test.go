package store

import (
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"fmp/onnx/must"
)

// TestQuota: while a limit that free space does not tell of keeps uploads from being stored, the store
// is not ready and says that it is full, each time; it takes uploads once the limit is lifted.
func TestQuota(t *testing.T) {
	// The limit is the process's, and counts for the log of "go test" too: the test has its own.
	const own = "STORE_TEST_LIMITED"
	if os.Getenv(own) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestQuota$")
		cmd.Env = append(os.Environ(), own+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	log := &lines{}
	s := opened(t, Options{Dir: t.TempDir(), Largest: 64 << 10,
		Log: slog.New(slog.NewTextHandler(log, nil))})
	put := func(name string) error {
		r := record(name, name)
		r.Data = make([]byte, 40_000)
		return s.Put(t.Context(), r, 0)
	}
	must.Do(t, put("before"))
	var was syscall.Rlimit
	must.Do(t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &was))
	lift := func() { must.Do(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &was)) }
	must.Do(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 64 << 10, Max: was.Max}))
	defer lift()
	var first error
	for i := 0; first == nil && i < 4; i++ {
		first = put(string(rune('a' + i)))
	}
	if first == nil {
		t.Fatal("uploads beyond the limit are stored")
	}
	log.has(t, "can be written to")
	for end := time.Now().Add(2 * reopenAfter); time.Now().Before(end); {
		if err := s.Ready(t.Context()); !errors.Is(err, ErrFull) || !s.Space().Full {
			t.Fatalf("ready %v, %+v", err, s.Space())
		}
	}
	if err := put("limited"); !errors.Is(err, ErrFull) {
		t.Errorf("an upload: %v", err)
	}
	lift()
	log.has(t, "open again")
	err := put("after")
	for end := time.Now().Add(10 * time.Second); err != nil && time.Now().Before(end); {
		err = put("after") // until the connection is back
	}
	if now := s.Space(); err != nil || now.Full || s.Ready(t.Context()) != nil {
		t.Errorf("%v, %+v, ready %v", err, now, s.Ready(t.Context()))
	}
}
