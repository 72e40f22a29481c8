package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"fmp/pipeline/federate/identity"
	"fmp/pipeline/federate/round"
	"fmp/pipeline/federate/selfsigned"
	"fmp/pipeline/federate/service"
)

// listen answers requests and runs the round until the context ends. Its end by the context is no
// error; the end of the server, of the round's loop or of the hold on the state is. The address is
// taken before the certificate is made, so that a port in use leaves no file. The line with the
// address is on standard output, for programs that start the server.
func (s *server) listen(cmd *cobra.Command, svc *service.Server, complaints *log.Logger) error {
	ctx := cmd.Context()
	l, err := net.Listen("tcp", s.address)
	if err != nil {
		return usageError(fmt.Errorf("serve: %w", err))
	}
	if s.selfSigned {
		s.cert, s.key = filepath.Join(s.state, "server.crt"), filepath.Join(s.state, "tls.key")
		if err := selfsigned.Ensure(s.cert, s.key, time.Now()); err != nil {
			return err
		}
	}
	c := &certificate{cert: s.cert, key: s.key, deadline: s.round.Deadline.Time, log: s.log}
	if s.cert != "" {
		if err := c.read(); err != nil {
			return usageError(fmt.Errorf("serve: certificate %s: %w", s.cert, err))
		}
	}
	l = &acceptor{Listener: l, log: s.log}
	srv := service.HTTPServer(svc.Handler(), complaints, s.hosts...)
	// Room for both: neither waits for a reader once the other has failed.
	failed := make(chan error, 2)
	work, stop := context.WithCancel(ctx)
	defer stop()
	// Its loop ends with work, which is cancelled when this function returns.
	go func() { failed <- svc.Run(work) }()
	go watchRoster(work, rosterEvery, s.round, svc.Admit, s.log)
	scheme := "http"
	if s.cert != "" {
		scheme = "https"
		srv.TLSConfig = c.config()
		go c.watch(work, rosterEvery)
		go func() { failed <- srv.ServeTLS(l, "", "") }()
	} else {
		go func() { failed <- srv.Serve(l) }()
	}
	fmt.Fprintf(cmd.OutOrStdout(), "serving round %d on %s://%s\n", s.round.Round, scheme,
		reached(s.address, l.Addr()))
	select {
	case <-ctx.Done():
		s.log.Info("stopping")
		drain(srv, s.stop, afterSignal)
		return nil // exit code 0: stopping is how a server ends
	case err := <-failed:
		return err
	case err := <-s.lost:
		return err
	}
}

// acceptor says in the log, once a minute at most, that connections cannot be taken. A server that
// runs out of files answers nobody, and would say nothing of it. said is the time of the last line,
// and needs no lock as one goroutine accepts.
type acceptor struct {
	net.Listener
	log  *slog.Logger
	said time.Time
}

// Accept implements [net.Listener], for one caller at a time. A listener that was closed is no
// fault.
func (a *acceptor) Accept() (net.Conn, error) {
	c, err := a.Listener.Accept()
	if err != nil && !errors.Is(err, net.ErrClosed) && time.Since(a.said) >= time.Minute {
		a.said = time.Now()
		a.log.Error("no connection can be taken", "error", err)
	}
	return c, err
}

// reached returns the host that --listen names, which a certificate may cover, with the port that
// was taken. An address without a host is printed as the listener has it.
func reached(address string, taken net.Addr) string {
	host, _, err := net.SplitHostPort(address)
	if tcp, ok := taken.(*net.TCPAddr); ok && err == nil && host != "" {
		return net.JoinHostPort(host, strconv.Itoa(tcp.Port))
	}
	return taken.String()
}

// rosterEvery is how often the files of the roster and the certificate are looked at; a change is
// taken at the second look that finds it. A change is therefore read two to four seconds after the
// writing has ended.
const rosterEvery = 2 * time.Second

// watchedFiles are files that are read together when one has changed. It is of one goroutine.
type watchedFiles struct {
	paths       []string
	taken, last string // stamps: of the files as they were read last, and of the last look
}

// stamp tells the files' contents by their times and sizes. A file that is not there has its error
// for a stamp, so that its coming is a change. Contents are not read: a change that keeps time and
// size is missed.
func (f *watchedFiles) stamp() (text string) {
	for _, path := range f.paths {
		info, err := os.Stat(path)
		if err != nil {
			return err.Error()
		}
		text += fmt.Sprintln(info.ModTime().UnixNano(), info.Size())
	}
	return text
}

// settled reports whether a file has changed and two looks in a row found it the same: one that is
// being written is not read, as a part of it may be a roster too, and its clients would be turned
// away. It is to be called once a look.
func (f *watchedFiles) settled() bool {
	now := f.stamp()
	same := now == f.last
	f.last = now
	if !same || now == f.taken {
		return false
	}
	f.taken = now
	return true
}

// follow calls read when the files have changed, until the context ends. Where it fails the files
// are looked at again, as the fault may be a moment's. failed is told once, until file or fault
// changes. each is called before every look. It does not return before the context ends, so that
// callers give it a goroutine. failed is called by the same goroutine as read.
func (f *watchedFiles) follow(ctx context.Context, every time.Duration, each func(),
	read func() error, failed func(error)) {
	f.last = f.stamp()
	for said := ""; ; {
		each()
		select {
		case <-ctx.Done():
			return
		case <-time.After(every):
		}
		if !f.settled() {
			continue
		}
		err := read()
		if err == nil {
			said = ""
			continue
		}
		f.taken = "" // the fault may be a moment's, such as too many open files: look again
		if text := f.last + err.Error(); text != said {
			failed(err)
			said = text
		}
	}
}

// watchRoster reads the roster again when its file has changed, and at the start, as it may have
// changed since the round was loaded. One that cannot be read leaves the last in place, until it
// can. admit is called for other clients alone. A client that is struck off keeps its upload in the
// round.
func watchRoster(ctx context.Context, every time.Duration, r *round.Round,
	admit func(*identity.Roster), log *slog.Logger) {
	f, holds := watchedFiles{paths: []string{r.Roster}}, r.Clients
	f.follow(ctx, every, func() {}, func() error {
		clients, err := identity.LoadRoster(r.Roster)
		if err == nil && !clients.Equal(holds) {
			admit(clients)
			holds = clients
		}
		return err
	}, func(err error) {
		log.Error("the roster could not be read again; the one before it holds", "error", err)
	})
}

// serverKey reads the key that signs receipts, made at the first start. Clients sign for it, so
// that a state keeps it for good. The file is its owner's alone to read. Any other fault of the
// file is an error: a new key would be another server to clients.
func serverKey(path string) (*identity.Key, error) {
	k, err := identity.Load(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return k, err
	}
	if k, err = identity.New("server"); err != nil {
		return nil, err
	}
	if err = k.Save(path); errors.Is(err, fs.ErrExist) { // another process made one meanwhile
		return identity.Load(path)
	}
	return k, err
}
