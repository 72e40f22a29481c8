package service

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// logBurst is the number of lines of one kind about one client that are written at once,
	// logEvery the interval at which more are.
	logBurst, logEvery = 8, 10 * time.Second
	// maxKinds is the maximum number of kinds of lines that are counted apart.
	maxKinds = 1024
)

// kind is the level and message of lines, and the client that they are about.
type kind struct {
	level   slog.Level
	message string
	client  string
}

// pace is how often a kind of lines was written lately, as a bucket of logBurst lines that gets one
// back each logEvery.
type pace struct {
	*rate.Limiter
	out int // lines left out since the last one
}

// quiet is a handler that writes a few lines of each kind, and then one an interval that says how
// many were left out: no client can fill a disk with lines, or hide those of others among them.
type quiet struct {
	slog.Handler
	*kinds
}

// kinds are the paces that handlers with different attributes share.
type kinds struct {
	mu  sync.Mutex
	of  map[kind]*pace
	now func() time.Time
}

// quietly returns a logger that bounds the lines of one kind.
func quietly(l *slog.Logger) *slog.Logger {
	return slog.New(&quiet{l.Handler(), &kinds{of: map[kind]*pace{}, now: time.Now}})
}

// WithAttrs and WithGroup share the paces: a logger with further attributes has no bounds of its
// own.
func (q *quiet) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &quiet{q.Handler.WithAttrs(attrs), q.kinds}
}
func (q *quiet) WithGroup(name string) slog.Handler {
	return &quiet{q.Handler.WithGroup(name), q.kinds}
}

// Handle writes a line, or counts it.
func (q *quiet) Handle(ctx context.Context, r slog.Record) error {
	k := kind{r.Level, r.Message, ""}
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "client" {
			k.client = a.Value.String()
		}
		return k.client == ""
	})
	if !q.may(k) {
		return nil
	}
	return q.Handler.Handle(ctx, r)
}

// may reports whether a line of a kind is written. The first that is not starts the interval at
// whose end the number of them is. Beyond maxKinds kinds the client is left out of a kind, so that
// memory stays bounded.
func (q *quiet) may(k kind) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.now()
	p := q.of[k]
	if p == nil {
		if len(q.of) >= maxKinds {
			q.forget(now)
		}
		if len(q.of) >= maxKinds {
			k.client = "(others)"
			p = q.of[k]
		}
		if p == nil {
			p = &pace{Limiter: rate.NewLimiter(rate.Every(logEvery), logBurst)}
			q.of[k] = p
		}
	}
	if p.AllowN(now, 1) {
		return true
	}
	if p.out++; p.out == 1 {
		time.AfterFunc(logEvery, func() { q.sum(k) })
	}
	return false
}

// sum writes how many lines of a kind were left out. It writes without the lock, as a handler may
// be slow.
func (q *quiet) sum(k kind) {
	q.mu.Lock()
	p := q.of[k]
	n := 0
	if p != nil {
		n, p.out = p.out, 0
	}
	q.mu.Unlock()
	if n == 0 {
		return
	}
	r := slog.NewRecord(q.now(), k.level, "lines left out", 0)
	r.AddAttrs(slog.String("of", k.message), slog.Int("lines", n))
	if k.client != "" {
		r.AddAttrs(slog.String("client", k.client))
	}
	_ = q.Handler.Handle(context.Background(), r)
}

// forget drops the kinds that have been quiet.
func (q *quiet) forget(now time.Time) {
	for k, p := range q.of {
		if p.out == 0 && p.TokensAt(now) >= logBurst {
			delete(q.of, k)
		}
	}
}
