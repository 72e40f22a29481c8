package service

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"fmp/pipeline/federate/sender"
	"fmp/pipeline/federate/trace"
	"fmp/pipeline/federate/wire"
)

// Bounds on the messages between the two servers of a private round.
const (
	// helperTime is the timeout of one request; the helper's share of a sum of many clients takes
	// longest.
	helperTime = 10 * time.Minute
	// maxProof is the maximum size of a message about one client's proof, maxSum that of the
	// helper's share of the sum, and maxMember that of one client's entry in a list of clients.
	maxProof, maxSum, maxMember = 4 << 20, 64 << 20, 1 << 10
)

// proofCheck is the request to the helper about a client's share, and its answer.
type proofCheck struct {
	// Nonce is that of the client's two messages; Message is the sender's part of the proof.
	Nonce   []byte `json:"nonce,omitempty"`
	Message []byte `json:"message"`
	// Before asks about a share that must have been proven before: the round is closed, and the
	// leader may have lost it.
	Before bool `json:"before,omitempty"`
}

// sumOf requests the helper's share of the sum of these clients, which are sorted by name.
type sumOf struct {
	Clients []shared `json:"clients"`
}

// shared is a client in the sum, with the nonce of its messages.
type shared struct {
	Client string `json:"client"`
	Nonce  []byte `json:"nonce"`
}

// is reports whether two are of one client and of the same messages.
func (c shared) is(o shared) bool { return c.Client == o.Client && bytes.Equal(c.Nonce, o.Nonce) }

// noisyShare is the helper's answer to sumOf.
type noisyShare struct {
	Share []byte `json:"share"`
}

// Helper is the leader's client of the helper in a private round with two servers.
type Helper struct {
	url, token string
	http       *http.Client
}

// NewHelper returns a client of the helper at an address (https://HOST:PORT, or http:// on
// loopback), which must know the same secret. ca is as in [sender.New].
func NewHelper(address, ca, secret string) (*Helper, error) {
	c, base, err := sender.HTTP(address, ca)
	if err != nil {
		return nil, fmt.Errorf("helper: %w", err)
	}
	c.Timeout = helperTime
	return &Helper{base, peerToken(secret), c}, nil
}

// Describe requests the description of the helper's round.
func (h *Helper) Describe(ctx context.Context, round uint64) (*wire.Description, error) {
	var d wire.Description
	if err := h.call(ctx, http.MethodGet, wire.RoundPath(round), nil, &d,
		wire.MaxJSON); err != nil {
		return nil, err
	}
	return &d, nil
}

// check sends this server's part of the proof of a client's share and returns the helper's.
func (h *Helper) check(ctx context.Context, round uint64, client string,
	c proofCheck) ([]byte, error) {
	var answer proofCheck
	err := h.call(ctx, http.MethodPost, wire.UploadPath(round, client)+"/proof", c,
		&answer, maxProof)
	return answer.Message, err
}

// sum returns the helper's share of the clients' sum, with its noise.
func (h *Helper) sum(ctx context.Context, round uint64, of sumOf) ([]byte, error) {
	var answer noisyShare
	err := h.call(ctx, http.MethodPost, wire.RoundPath(round)+"/sum", of, &answer, maxSum)
	return answer.Share, err
}

// given returns the set of clients whose sum the helper gave its share of; none if it gave none.
func (h *Helper) given(ctx context.Context, round uint64) (of sumOf, err error) {
	err = h.call(ctx, http.MethodGet, wire.RoundPath(round)+"/sum", nil, &of, maxOpened)
	return of, err
}

// Knows returns an error unless the helper knows the leader's secret; [ErrSecret] if it has
// another.
func (h *Helper) Knows(ctx context.Context, round uint64) error {
	_, err := h.given(ctx, round)
	if codeOf(err) == wire.NoToken {
		return ErrSecret
	}
	return err
}

// ErrSecret means that leader and helper have different secrets.
var ErrSecret = errors.New("the helper has another secret than the leader: " +
	"give both the same file with --servers-secret-file")

// ErrUnasked means that a helper does not know a request, as one of an earlier release.
var ErrUnasked = errors.New("it does not know this request: " +
	"give leader and helper one release of fmp")

// codeOf returns the code of the helper's refusal; "" of another error.
func codeOf(err error) string {
	var p *wire.Problem
	if errors.As(err, &p) {
		return p.Code
	}
	return ""
}

// call sends JSON and decodes the JSON answer; a refusal is a *wire.Problem.
func (h *Helper) call(ctx context.Context, method, path string, body, answer any,
	most int64) error {
	data, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("helper: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, method, h.url+path, bytes.NewReader(data))
	if err != nil {
		return fmt.Errorf("helper: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+h.token)
	req.Header.Set("Content-Type", "application/json")
	if parent := trace.Parent(ctx); parent != "" {
		req.Header.Set(trace.Header, parent)
	}
	resp, err := h.http.Do(req)
	if err != nil {
		return fmt.Errorf("helper: %w", err)
	}
	defer resp.Body.Close()
	if data, err = io.ReadAll(io.LimitReader(resp.Body, most+1)); err != nil {
		return fmt.Errorf("helper: %w", err)
	}
	if int64(len(data)) > most {
		return fmt.Errorf("helper: an answer of more than %d bytes", most)
	}
	if resp.StatusCode >= 300 {
		p := &wire.Problem{}
		if json.Unmarshal(data, p) != nil || p.Code == "" {
			if resp.StatusCode == http.StatusNotFound ||
				resp.StatusCode == http.StatusMethodNotAllowed {
				return fmt.Errorf("helper: it answered %s: %w", resp.Status, ErrUnasked)
			}
			return fmt.Errorf("helper: it answered %s", resp.Status)
		}
		return fmt.Errorf("helper: %w", p)
	}
	if err := json.Unmarshal(data, answer); err != nil {
		return fmt.Errorf("helper: its answer is not the JSON it should be: %w", err)
	}
	return nil
}
