package alloctest

import "testing"

// counter stands in for a test, to see it fail.
type counter struct {
	testing.TB
	failures int
}

func (c *counter) Helper()               {}
func (c *counter) Errorf(string, ...any) { c.failures++ }

var sink []byte

func TestAtMost(t *testing.T) {
	for _, c := range []struct {
		limit, bytes, failures int
	}{{0, 100, 0}, {0, 3 * Slack, 1}, {3 * Slack, 3 * Slack, 0}} {
		n := &counter{TB: t}
		AtMost(n, c.limit, func() { sink = make([]byte, c.bytes) })
		if n.failures != c.failures {
			t.Errorf("%d bytes with a bound of %d: %d failures; want %d", c.bytes, c.limit, n.failures, c.failures)
		}
	}
}
