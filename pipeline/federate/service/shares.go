package service

import (
	"net/http"
	"net/netip"
	"sync"
)

// shares bounds the part of a memory that one caller holds, so that the others find room. Between
// allow and add a caller's other requests may be allowed as well: the bound may be passed by as
// much as these take, and the memory of all is bounded by the semaphore.
type shares struct {
	most int64
	mu   sync.Mutex
	held map[string]int64
}

// newShares gives each caller up to a number of bytes.
func newShares(most int64) *shares { return &shares{most: most, held: map[string]int64{}} }

// allow reports whether a caller may hold more bytes.
func (s *shares) allow(caller string, bytes int64) bool {
	if s == nil || caller == "" {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held[caller]+bytes <= s.most
}

// add counts bytes that a caller holds, or gives back where there are fewer than 0.
func (s *shares) add(caller string, bytes int64) {
	if s == nil || caller == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[caller] += bytes; s.held[caller] <= 0 {
		delete(s.held, caller)
	}
}

// caller returns the address that a request comes from, of IPv6 its network of 64 bits, which one
// machine may have whole; empty on loopback, where a proxy stands for all its callers.
func caller(r *http.Request) string {
	a, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return ""
	}
	ip := a.Addr().Unmap()
	if ip.IsLoopback() {
		return ""
	}
	if ip.Is6() {
		if network, err := ip.WithZone("").Prefix(64); err == nil {
			return network.String()
		}
	}
	return ip.String()
}
