package loopback

import (
	"net"
	"strings"
	"testing"

	"fmp/onnx/must"
)

func TestHost(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]bool{
		"127.0.0.1": true, "127.9.9.9": true, "::1": true, "[::1]": true, "::ffff:127.0.0.1": true,
		"localhost": true, "LOCALHOST.": true,
		"127.example.invalid": false, "127.0.0.1.example": false, "127.1": false, "0.0.0.0": false,
		"::": false, "": false, "10.0.0.1": false,
		"localhost.example": false, "::ffff:10.0.0.1": false, "2130706433": false, "0x7f.1": false,
	} {
		if got := Host(host); got != want {
			t.Errorf("%q: %v, want %v", host, got, want)
		}
	}
	for address, want := range map[string]bool{"127.0.0.1:1": true, "[::1]:1": true,
		"localhost:1": true, "127.0.0.1": false, ":1": false, "127.x:1": false} {
		if got := Address(address); got != want {
			t.Errorf("%q: %v, want %v", address, got, want)
		}
	}
}

// TestDial: what a name resolves to decides, before a byte is sent.
func TestDial(t *testing.T) {
	t.Parallel()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	c := must.Get(Dial(t.Context(), "tcp", l.Addr().String()))(t)
	c.Close()
	// TEST-NET-1 (RFC 5737)
	if c, err := Dial(t.Context(), "tcp", "192.0.2.1:9"); err == nil ||
		!strings.Contains(err.Error(), "not loopback") {
		t.Errorf("%v, %v", c, err)
	}
}
