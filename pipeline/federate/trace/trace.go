// Package trace records spans of work and sends them to a collector of OpenTelemetry: W3C trace context between programs
// (www.w3.org/TR/trace-context), OTLP over HTTP in JSON to the collector (opentelemetry.io/docs/specs/otlp). It is off unless the standard
// variables name a collector.
package trace

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"strings"
	"time"
)

// Kinds of spans, by OTLP's numbers.
const (
	Internal = 1
	Server   = 2
	Consumer = 5
)

// Header carries the context, in HTTP and in NATS.
const Header = "traceparent"

// Span is a piece of work. A nil span is one that is not recorded; all methods take it.
type Span struct {
	tracer             *Tracer
	trace, id, parent  string // hexadecimal
	name               string
	kind               int
	start, end         time.Time
	attributes         []attribute
	failed, unrecorded bool
}

// attribute is an attribute of a span: a text or a whole number.
type attribute struct {
	key   string
	value any
}

// key is that of the span in a context.
type key struct{}

// remote is a caller's context: its trace and span, and whether it records.
type remote struct {
	trace, id string
	sampled   bool
}

// parse parses a traceparent: version, trace, span and flags.
func parse(text string) (r remote, ok bool) {
	if len(text) < 55 || text[:2] == "ff" || text[2] != '-' || text[35] != '-' || text[52] != '-' ||
		(len(text) > 55 && (text[:2] == "00" || text[55] != '-')) {
		return r, false
	}
	r.trace, r.id = text[3:35], text[36:52]
	for _, part := range []string{text[:2], r.trace, r.id, text[53:55]} {
		if strings.Trim(part, "0123456789abcdef") != "" {
			return r, false
		}
	}
	flags, err := hex.DecodeString(text[53:55])
	if err != nil || strings.Trim(r.trace, "0") == "" || strings.Trim(r.id, "0") == "" {
		return r, false
	}
	r.sampled = flags[0]&1 == 1
	return r, true
}

func random(bytes int) string {
	b := make([]byte, bytes)
	_, _ = rand.Read(b) // it never fails
	return hex.EncodeToString(b)
}

// From returns a context in which the spans that are started are children of a traceparent's span. One that is none changes nothing.
func From(ctx context.Context, traceparent string) context.Context {
	r, ok := parse(traceparent)
	if !ok {
		return ctx
	}
	return context.WithValue(ctx, key{}, &Span{trace: r.trace, id: r.id, unrecorded: !r.sampled})
}

// Parent returns the traceparent of the span of a context; empty if there is none.
func Parent(ctx context.Context) string {
	s, _ := ctx.Value(key{}).(*Span)
	if s == nil {
		return ""
	}
	flags := "01"
	if s.unrecorded {
		flags = "00"
	}
	return "00-" + s.trace + "-" + s.id + "-" + flags
}

// Start starts a span below the one of the context, or a trace. Attributes are pairs of a key and a text or whole number; they must
// not tell of a person: no names of clients, no addresses, no texts of errors.
func (t *Tracer) Start(ctx context.Context, name string, kind int, attributes ...any) (context.Context, *Span) {
	if t == nil {
		return ctx, nil
	}
	s := &Span{tracer: t, name: name, kind: kind, id: random(8), start: time.Now()}
	if above, _ := ctx.Value(key{}).(*Span); above != nil {
		s.trace, s.parent, s.unrecorded = above.trace, above.id, above.unrecorded
	} else {
		s.trace = random(16)
	}
	s.Set(attributes...)
	return context.WithValue(ctx, key{}, s), s
}

// Set adds attributes, as [Tracer.Start] has them.
func (s *Span) Set(attributes ...any) {
	if s == nil {
		return
	}
	for i := 0; i+1 < len(attributes); i += 2 {
		s.attributes = append(s.attributes, attribute{attributes[i].(string), attributes[i+1]})
	}
}

// End ends a span, as failed or not, and queues it for the collector. The text of an error stays here, as it may name a client.
func (s *Span) End(failed bool) {
	if s == nil || s.unrecorded {
		return
	}
	s.end, s.failed = time.Now(), failed
	s.tracer.queue(s)
}
