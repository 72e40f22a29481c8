package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func TestProgressInALog(t *testing.T) {
	var out bytes.Buffer
	now := time.Unix(0, 0)
	p := newProgress(&out)
	p.now = func() time.Time { return now }
	for i := 0; i <= 100; i++ {
		p.report("features", i, 100)
		now = now.Add(time.Second)
	}
	p.report("fits", 3, 0)
	p.close()
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if n := len(lines); n < 10 || n > 14 {
		t.Errorf("100 seconds gave %d lines, want about one every ten seconds:\n%s", n, out.String())
	}
	for _, want := range []string{"features: 0 of 100 (0%)",
		"features: 10 of 100 (10%), 1/s, 1m30s left", "features: 100 of 100 (100%)",
		"fits: 3"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no line %q in:\n%s", want, out.String())
		}
	}
	if strings.ContainsAny(out.String(), "\r\x1b") {
		t.Error("a log got control characters")
	}
}

// TestPace: rates are plain numbers of three digits.
func TestPace(t *testing.T) {
	for _, c := range []struct {
		done int
		took time.Duration
		want string
	}{{228_123, 10 * time.Second, ", 22800/s"}, {15, 10 * time.Second, ", 1.5/s"},
		{1, 3 * time.Second, ", 0.333/s"},
		{1, 10 * time.Hour, ", 0.0000278/s"}, {0, time.Second, ""}, {1, 0, ""}} {
		if got := pace(c.done, 0, 1, c.took); got != c.want {
			t.Errorf("%d in %v: %q; want %q", c.done, c.took, got, c.want)
		}
	}
}

func TestProgressBar(t *testing.T) {
	var out bytes.Buffer
	p := newProgress(&out)
	p.bars = true
	for i := range 5 {
		p.report("features", i+1, 5)
	}
	p.close()
	if !strings.Contains(out.String(), "features") || !strings.HasSuffix(out.String(), "\n") {
		t.Errorf("drew %q", out.String())
	}
}

// TestLateProgress: work of a moment writes nothing; longer work is shown from then on, with rate
// and time left.
func TestLateProgress(t *testing.T) {
	var out bytes.Buffer
	p := newLateProgress(&out)
	now := time.Now()
	clock := func() time.Time { return now }
	p.now, p.w.(*late).now = clock, clock
	p.report("short", 0, 2)
	p.report("short", 2, 2)
	p.report("long", 0, 40)
	now = now.Add(logEvery / 2)
	p.report("long", 5, 40)
	if out.Len() > 0 {
		t.Errorf("in the first seconds it wrote %q", out.String())
	}
	now = now.Add(logEvery)
	p.report("long", 15, 40)
	p.report("long", 40, 40)
	p.close()
	if want := "long: 15 of 40 (37%), 1/s, 25s left\nlong: 40 of 40 (100%), 2.67/s\n"; out.String() != want {
		t.Errorf("wrote %q; want %q", out.String(), want)
	}
}
