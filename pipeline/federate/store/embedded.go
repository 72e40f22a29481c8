package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"

	"fmp/onnx/atomicfile"
)

const (
	// maxPayload is the maximum size of one message of the embedded server: 8 MiB, twice the
	// largest upload that a round may allow.
	maxPayload = 8 << 20
	// maxStore is the embedded server's own limit of the space that it takes: none. Its default is
	// a share of the space that is free at its start, which would stay in force after space has
	// been freed.
	maxStore = 1 << 50
	// startTime is the timeout of the embedded server's start, recovery included.
	startTime = 2 * time.Minute
	// watchEvery is the interval at which disk space and the embedded server are looked at.
	watchEvery = 250 * time.Millisecond
	// reopenAfter is the minimum interval between two attempts to open the embedded server again.
	reopenAfter = 2 * time.Second
	// patienceNATS is how long NATS may report a fault other than a failed write: a stream that is
	// being created is one to it.
	patienceNATS = 10 * time.Second
	// reserve is the space that is left to the embedded server's own files: indexes, and the state
	// of consumers.
	reserve = 512 << 10
)

// ErrFull means that the disk has no room for the object.
var ErrFull = errors.New("the disk of the server's state is full")

// errStopped means that the embedded server stopped writing after an error of the disk.
var errStopped = errors.New("the store stopped writing after an error of the disk, and is being " +
	"opened again")

// errRemovedFolder means that the embedded server's files are no longer where they were: it would
// write on to files that nothing finds again.
var errRemovedFolder = errors.New("the folder of the server's state was removed or " +
	"replaced: nothing is stored until it is back")

// embedded is the NATS server inside the program. A write that fails, for want of space or
// otherwise, makes NATS refuse every later write of the stream until it is started again: embedded
// looks for such failures, and starts the server again once there is space.
// One goroutine watches, and others read its findings under mu. options, dir and limits are not
// changed after the start.
type embedded struct {
	dir     string
	options natsserver.Options
	largest int64
	low     int64
	log     *slog.Logger
	lock    io.Closer
	end     context.CancelFunc
	ended   chan struct{}

	well time.Time // when the server last had no fault; only for watch

	mu     sync.Mutex
	server *natsserver.Server
	// closed when the server stops writing; another one after it was started again
	stopped chan struct{}
	fault   error // of the last attempt to write to the disk, since the server stopped
	space   Space
	homes   []*os.File // the folders that the server opened
}

// Space is the space on the disk of the state.
type Space struct {
	// Free is the number of bytes that are free; -1 where the system does not tell.
	Free int64
	// Low says that fewer bytes than the threshold are free, Full that uploads are refused until
	// there is more space.
	Low, Full bool
}

// newEmbedded starts the server in a folder that no other process uses.
// The caller closes it. After an error nothing runs, and the folder is free for others.
func newEmbedded(o Options) (*embedded, error) {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, err
	}
	lock, ok, err := atomicfile.Lock(o.Dir)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, fmt.Errorf("%s: %w", o.Dir, ErrBusy)
	}
	e := &embedded{dir: o.Dir, largest: o.Largest, low: o.LowSpace, log: o.Log, lock: lock,
		stopped: make(chan struct{}),
		ended:   make(chan struct{}), options: natsserver.Options{
			ServerName: "fmp", DontListen: o.Listen == "", NoSigs: true, NoLog: true,
			MaxPayload: maxPayload,
			JetStream:  true,
			StoreDir:   filepath.Join(o.Dir, "nats"), SyncAlways: o.Sync,
			JetStreamMaxMemory: 64 << 20, JetStreamMaxStore: maxStore,
		}}
	if e.log == nil {
		e.log = slog.New(slog.DiscardHandler)
	}
	if o.Listen != "" {
		if o.Token == "" {
			return nil, errors.Join(errors.New("a server that listens wants a token"), lock.Close())
		}
		host, port, err := splitHostPort(o.Listen)
		if err != nil {
			return nil, errors.Join(err, lock.Close())
		}
		e.options.Host, e.options.Port, e.options.Authorization = host, port, o.Token
	}
	// The first look comes before the server's start, so that a full disk is known by then.
	e.look()
	// A killed server leaves it, of as many bytes as an upload.
	if err := os.Remove(e.probed()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, errors.Join(err, lock.Close())
	}
	if err := e.start(); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	if err := e.hold(); err != nil {
		e.stop()
		return nil, errors.Join(err, lock.Close())
	}
	e.well = time.Now()
	ctx, end := context.WithCancel(context.Background())
	e.end = end
	go e.watch(ctx)
	return e, nil
}

// start erases the deleted messages that a killed server left, and starts the server.
// scrub must run before: the server would write to the files that it reads.
// The server has startTime for its recovery. The caller sees to it that no server runs.
func (e *embedded) start() error {
	if err := scrub(e.options.StoreDir, e.log); err != nil {
		return err
	}
	o := e.options // the server fills in what is not set
	s, err := natsserver.NewServer(&o)
	if err != nil {
		return fmt.Errorf("NATS: %w", err)
	}
	gaveUp := make(fatal, 1)
	s.SetLogger(gaveUp, false, false)
	s.Start()
	for end := time.Now().Add(startTime); !s.ReadyForConnections(watchEvery); {
		err := fmt.Errorf("it did not start within %v", startTime)
		select {
		case err = <-gaveUp:
		default:
			if time.Now().Before(end) {
				continue
			}
		}
		s.Shutdown()
		return fmt.Errorf("NATS in %s: %w", e.dir, err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.server = s
	return nil
}

// fatal is the log of a NATS server that tells alone with which error it gave up: its start returns
// without one.
type fatal chan error

// Fatalf keeps the first error; later ones follow from it.
func (f fatal) Fatalf(format string, v ...any) {
	select {
	case f <- fmt.Errorf(format, v...):
	default:
	}
}

func (fatal) Noticef(string, ...any) {}
func (fatal) Warnf(string, ...any)   {}
func (fatal) Errorf(string, ...any)  {}
func (fatal) Debugf(string, ...any)  {}
func (fatal) Tracef(string, ...any)  {}

// InProcessConn connects to the server that runs now.
// It is the dialler of a NATS client, which calls it again after each restart.
func (e *embedded) InProcessConn() (net.Conn, error) {
	e.mu.Lock()
	s := e.server
	e.mu.Unlock()
	if s == nil {
		return nil, errStopped
	}
	return s.InProcessConn()
}

// watch looks at the disk and at the server until the context ends.
// It looks every quarter of a second, and tries to start a stopped server again every two seconds,
// once the disk has room.
func (e *embedded) watch(ctx context.Context) {
	defer close(e.ended)
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	var tried time.Time
	var removed bool
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		full := e.look().Full
		err := e.kept()
		if err != nil && !removed {
			e.log.Error("uploads are refused", "error", err)
		} else if err == nil && removed {
			e.log.Info("the folder of the state is back, and uploads are taken", "folder", e.dir)
		}
		removed = err != nil
		if removed || !e.fails() || full || time.Since(tried) < reopenAfter {
			continue
		}
		tried = time.Now()
		if e.probe() != nil {
			continue
		}
		if err := e.reopen(); err != nil {
			e.log.Error("the store cannot be opened again", "folder", e.dir, "error", err,
				"again_in", reopenAfter)
			continue
		}
		e.log.Info("the store is open again, and uploads are taken", "folder", e.dir, "seconds",
			time.Since(tried).Seconds())
	}
}

// hold remembers a folder of the server, by the names below its own. It stays open until close: the
// system gives its inode to no other folder meanwhile, so that kept can tell them apart.
// A folder that is removed and made anew under its name has another inode.
func (e *embedded) hold(names ...string) error {
	path := filepath.Join(e.options.StoreDir, natsserver.JetStreamStoreDir, filepath.Join(names...))
	f, err := os.Open(path)
	if err == nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.homes = append(e.homes, f)
	}
	return err
}

// holdStream remembers the folder of a stream's messages.
func (e *embedded) holdStream(name string) error {
	return e.hold(natsserver.DEFAULT_GLOBAL_ACCOUNT, "streams", name, "msgs")
}

// kept returns an error unless the folders are still those that the server opened.
// It costs two calls of the system a folder. homes only grows, so that the slice is read unlocked.
func (e *embedded) kept() error {
	e.mu.Lock()
	homes := e.homes
	e.mu.Unlock()
	for _, home := range homes {
		was, err := home.Stat()
		is, gone := os.Stat(home.Name())
		if err != nil || gone != nil || !os.SameFile(was, is) {
			return fmt.Errorf("%w: %s", errRemovedFolder, home.Name())
		}
	}
	return nil
}

// look reads the free space and reports changes.
// Only changes are logged. A system that does not tell its free space has neither low nor full.
func (e *embedded) look() Space {
	now := Space{Free: freeBytes(e.dir)}
	e.mu.Lock()
	was := e.space
	if now.Free >= 0 {
		now.Full = now.Free < e.largest+reserve
		// a tenth more ends it, so that one byte does not
		now.Low = now.Free < e.low || was.Low && now.Free < e.low+e.low/10
	}
	e.space = now
	e.mu.Unlock()
	about := []any{"folder", e.dir, "free_bytes", now.Free}
	switch {
	case now.Full && !was.Full:
		e.log.Error("the disk of the state is full: uploads are refused until there is space",
			append(about, "needed_bytes", e.largest+reserve)...)
	case was.Full && !now.Full:
		e.log.Info("the disk of the state has space again", about...)
	case now.Low && !was.Low:
		e.log.Warn("the disk of the state is low on space", append(about, "low_bytes", e.low)...)
	case was.Low && !now.Low:
		e.log.Info("the disk of the state is no longer low on space", about...)
	}
	return now
}

// fails reports whether the server has stopped writing, and tells those who wait for it, by closing
// stopped. reopen makes another channel. Only watch calls it.
func (e *embedded) fails() bool {
	e.mu.Lock()
	s, stopped := e.server, e.stopped
	e.mu.Unlock()
	if s == nil {
		return true
	}
	health := s.Healthz(nil)
	if health.Error == "" {
		e.well = time.Now()
	}
	if !lasting(health.Error, time.Since(e.well)) {
		return false
	}
	select {
	case <-stopped:
	default:
		e.log.Error("the store stopped writing", "folder", e.dir, "error", health.Error)
		close(stopped)
	}
	return true
}

// lasting reports whether a fault that the server reports since some time will not pass by itself.
func lasting(fault string, since time.Duration) bool {
	return fault != "" && (strings.Contains(fault, "write error") || since > patienceNATS)
}

// probed is the file that probe writes.
func (e *embedded) probed() string { return filepath.Join(e.dir, "probe.tmp") }

// probe writes as many bytes as room asks for to a file of its own, and removes it. Free space
// alone does not tell of a quota, or of a disk that fails. Its error is that of room until it
// succeeds, and is reported where it is another than before.
// EDQUOT is a quota that is used up, and EFBIG a limit of the size of files.
func (e *embedded) probe() error {
	err := written(e.probed(), e.largest+reserve)
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT),
		errors.Is(err, syscall.EFBIG):
		err = fmt.Errorf("%w: %w", ErrFull, err)
	case err != nil:
		err = fmt.Errorf("%w: %w", errStopped, err)
	}
	e.mu.Lock()
	was := e.fault
	e.fault = err
	e.mu.Unlock()
	if err != nil && fmt.Sprint(was) != err.Error() {
		e.log.Error("uploads are refused until the disk of the state can be written to", "folder",
			e.dir, "error", err)
	}
	return err
}

// written writes a file as the server does, at offsets and to the disk, and removes it.
// The zeros are written as data: a sparse file would take no room.
func written(path string, bytes int64) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(path)) }()
	if _, err := f.WriteAt(make([]byte, bytes), 0); err != nil {
		return err
	}
	return f.Sync()
}

// reopen starts the server again. Connections to it come back by themselves.
// After an error no server runs, and watch tries again after reopenAfter.
func (e *embedded) reopen() error {
	e.stop()
	if err := e.start(); err != nil {
		return err
	}
	e.well = time.Now()
	e.mu.Lock()
	e.stopped = make(chan struct{})
	e.mu.Unlock()
	return nil
}

// room returns ErrFull if the disk has no room for that number of bytes, and an error if the server
// does not write, or writes to a folder that was removed.
// Callers may come at once: each looks at the disk as it is, and no room is set aside.
func (e *embedded) room(bytes int64) error {
	if err := e.kept(); err != nil {
		return err
	}
	e.mu.Lock()
	stopped, fault := e.stopped, e.fault
	e.mu.Unlock()
	if free := freeBytes(e.dir); free >= 0 && free < bytes+reserve {
		return fmt.Errorf("%w: %d bytes are free in %s, and %d are needed", ErrFull, free,
			e.dir, bytes+reserve)
	}
	select {
	case <-stopped:
		return cmp.Or(fault, errStopped)
	default:
		return nil
	}
}

// during returns a context that also ends when the server stops writing, with the reason as its
// cause.
// The caller calls the function, which ends the goroutine.
func (e *embedded) during(ctx context.Context) (context.Context, context.CancelFunc) {
	e.mu.Lock()
	stopped := e.stopped
	e.mu.Unlock()
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-stopped:
			cancel(errStopped)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// close stops the server.
// It waits for watch first, which would start the server again. It is called once.
func (e *embedded) close() {
	e.end()
	<-e.ended
	e.stop()
	for _, home := range e.homes {
		home.Close()
	}
	e.lock.Close()
}

// stop stops the server, and waits until it has.
func (e *embedded) stop() {
	e.mu.Lock()
	s := e.server
	e.server = nil
	e.mu.Unlock()
	if s != nil {
		s.Shutdown()
		s.WaitForShutdown()
	}
}
