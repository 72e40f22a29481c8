package service

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strconv"
	"strings"

	"fmp/pipeline/federate/identity"
	"fmp/pipeline/federate/wire"
)

// readers passes on requests that carry the token, as a bearer token (RFC 6750) or as the password
// of HTTP basic authentication.
// The refusal does not say whether a token was wrong or missing.
func (s *Server) readers(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !s.permits(r) {
			s.refuse(w, wire.NoToken,
				"give the readers' token, as a bearer token or as the password of any user")
			return
		}
		next(w, r)
	}
}

// permits reports whether a request carries the token, where there is one.
// Any user name goes with the password, since browsers ask for one.
func (s *Server) permits(r *http.Request) bool {
	if s.Token == "" {
		return true
	}
	token, ok := bearer(r)
	if !ok {
		_, token, _ = r.BasicAuth()
	}
	// Digests have one length, so that the comparison reveals nothing of the token's length.
	got, want := sha256.Sum256([]byte(token)), sha256.Sum256([]byte(s.Token))
	return subtle.ConstantTimeCompare(got[:], want[:]) == 1
}

// bearer returns the token that a request carries as a bearer token, and whether it does.
// A scheme is in letters of any case (RFC 9110, section 11.1).
func bearer(r *http.Request) (token string, ok bool) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return token, strings.EqualFold(scheme, "Bearer")
}

// ofRound passes on requests about this round.
// A number beyond 64 bits names no round.
func (s *Server) ofRound(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		n, err := strconv.ParseUint(r.PathValue("round"), 10, 64)
		if err != nil || n != s.Round.Round {
			s.refuse(w, wire.NoRound, "round %.40q; this server holds round %d",
				r.PathValue("round"), s.Round.Round)
			return
		}
		next(w, r)
	}
}

// signed returns the client in a request's path and its signature over a statement, or the refusal
// of a request that carries none. This does not tell a name that the roster lacks from a wrong key,
// nor does the time that it takes.
// Server, round, graph and purpose are in the statement, so that a signature holds for no other.
// content binds the request's own bytes, as the digest of an upload.
func (s *Server) signed(r *http.Request, purpose identity.Purpose,
	content string) (client string, signature []byte, err error) {
	client = r.PathValue("client")
	if signature = wire.Signature(r.Header.Get("Authorization")); signature == nil {
		return client, nil, refusef(wire.NoKey,
			"give the header Authorization: %s SIGNATURE, as fmp-edge join does with --key",
			wire.Scheme)
	}
	statement := identity.Statement{Purpose: purpose, Server: s.Key.PublicText(),
		Round: s.Round.Round, Client: client, Graph: s.Round.Client.Digest, Content: content}
	if !s.clients.Load().Verify(statement, signature) {
		return client, nil, refusef(wire.WrongKey,
			"the roster of round %d has no client %.128q with a key that made this signature for "+
				"this server, the round's graph and this content", s.Round.Round, client)
	}
	return client, signature, nil
}
