// Package loopback reports which addresses are this machine's own. Plain connections, without TLS,
// are for those alone.
//
// It depends on the standard library alone, as it is part of the program for small devices.
package loopback

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
)

// Host reports whether a host, as it stands in a URL, is this machine alone: an IP address of
// loopback, or localhost, which RFC 6761 reserves for it. A name that merely begins with 127. is a
// name like any other.
func Host(host string) bool {
	if strings.EqualFold(strings.TrimSuffix(host, "."), "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && ip.Unmap().IsLoopback()
}

// Address reports whether an address of the form HOST:PORT is this machine alone; see [Host].
func Address(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && Host(host)
}

// Dial is [net.Dialer.DialContext] for loopback: it refuses every other address, also one that
// localhost resolves to.
func Dial(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{Control: func(_, resolved string, _ syscall.RawConn) error {
		ip, err := netip.ParseAddrPort(resolved)
		if err != nil || !ip.Addr().Unmap().IsLoopback() {
			return fmt.Errorf(
				"%s is %s, which is not loopback: a connection without TLS stays on this "+
					"machine; use TLS", address, resolved)
		}
		return nil
	}}
	return d.DialContext(ctx, network, address)
}
