package prio

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cloudflare/circl/vdaf/prio3/sumvec"

	"fmp/onnx/must"
)

// vectorsOf is the draft whose test vectors circl has, and vectorsSum the SHA-256 of those of two
// servers.
const (
	vectorsOf  = "draft-irtf-cfrg-vdaf-14"
	vectorsSum = "2ac327d9320e7a183b37956a3b51a8df3c2ff11196b2ba12ffdca3d26150f12d"
)

// octets is bytes in hex.
type octets []byte

func (o *octets) UnmarshalText(text []byte) (err error) {
	*o, err = hex.DecodeString(string(text))
	return err
}

// vectors are the draft's for Prio3SumVec.
type vectors struct {
	Sum       []int64        `json:"agg_result"`
	SumShares []octets       `json:"agg_shares"`
	Context   octets         `json:"ctx"`
	Key       octets         `json:"verify_key"`
	Bits      int            `json:"bits"`
	Length    int            `json:"length"`
	Chunk     int            `json:"chunk_length"`
	Shares    int            `json:"shares"`
	Clients   []clientVector `json:"prep"`
}

type clientVector struct {
	Numbers  []uint64   `json:"measurement"`
	Inputs   []octets   `json:"input_shares"`
	Nonce    octets     `json:"nonce"`
	Messages [][]octets `json:"prep_shares"`
	Public   octets     `json:"public_share"`
	Rand     octets     `json:"rand"`
}

// shares are the draft's, one for each server.
func (c *clientVector) shares() *[2]Share {
	var out [2]Share
	for i := range out {
		out[i] = Share{i, [NonceSize]byte(c.Nonce), bytes.Clone(c.Public), bytes.Clone(c.Inputs[i])}
	}
	return &out
}

// draft reads the vectors, of two or more servers, from circl's source.
func draft(t *testing.T, file string) (*vectors, *Scheme) {
	t.Helper()
	dir := must.Get(exec.Command("go", "list", "-m", "-f", "{{.Dir}}",
		"github.com/cloudflare/circl").Output())(t)
	data := must.Get(os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "vdaf", "prio3",
		"testdata", file)))(t)
	if sum := sha256.Sum256(data); file == "Prio3SumVec_0.json.gz" &&
		hex.EncodeToString(sum[:]) != vectorsSum {
		t.Errorf("the vectors are no longer those of %s: name the draft that circl implements in "+
			"docs/privacy.md, in docs/formats.md and here; its shares go with no other's", vectorsOf)
	}
	z := must.Get(gzip.NewReader(bytes.NewReader(data)))(t)
	var v vectors
	must.Do(t, json.NewDecoder(z).Decode(&v))
	if len(v.Clients) < 2 || v.Shares < servers {
		t.Fatalf("%d clients, %d shares", len(v.Clients), v.Shares)
	}
	// The draft's numbers are a vector; ours one of classes and a coordinate each.
	s := &Scheme{Classes: v.Length / 2, K: 1, Bits: v.Bits}
	must.Do(t, s.open(string(v.Context), v.Chunk))
	return &v, s
}

// TestVectors: the test vectors of the VDAF draft, of two servers, come out of this package's own
// path: shares, messages and sum.
func TestVectors(t *testing.T) {
	t.Parallel()
	v, s := draft(t, "Prio3SumVec_0.json.gz")
	key := Key(v.Key)
	total := [2]*Sum{s.NewSum(), s.NewSum()}
	for _, c := range v.Clients {
		pair := must.Get(s.split(c.Numbers, [NonceSize]byte(c.Nonce), c.Rand))(t)
		var check [2]*Checking
		var messages [2][]byte
		for i := range pair {
			if !bytes.Equal(pair[i].Input, c.Inputs[i]) || !bytes.Equal(pair[i].Public, c.Public) {
				t.Errorf("the share of server %d is another than the draft's", i)
			}
			check[i] = must.Get(s.Begin(&key, &pair[i]))(t)
			var err error
			if messages[i], err = check[i].Message(); err != nil ||
				!bytes.Equal(messages[i], c.Messages[0][i]) {
				t.Errorf("the message of server %d is another than the draft's, %v", i, err)
			}
		}
		for i := range pair {
			total[i].Add(must.Get(check[i].Finish(messages[1-i]))(t))
		}
	}
	for i, a := range total {
		share, err := a.Bytes()
		if err != nil || !bytes.Equal(share, v.SumShares[i]) {
			t.Errorf("the share of the sum of server %d is another than the draft's, %v", i, err)
		}
		must.Do(t, a.shift(make([]int64, v.Length)))
	}
	theirs := must.Get(total[Helper].Bytes())(t)
	r := must.Get(total[Leader].Open(theirs))(t)
	for i, n := range r.Values { // the draft's numbers have no offset
		if n+int64(len(v.Clients))*s.offset() != v.Sum[i] {
			t.Errorf("number %d of the sum is %d, want %d", i,
				n+int64(len(v.Clients))*s.offset(), v.Sum[i])
		}
	}
}

// run runs both servers on a pair of shares: the shares of the sum, and each server's verdict. An error
// before messages are exchanged is that of both.
func run(s *Scheme, key *Key, pair *[2]Share,
	tamper func(messages *[2][]byte)) (out [2]*sumvec.OutShare, errs [2]error) {
	var c [2]*Checking
	var m [2][]byte
	for i := range c {
		var err error
		if c[i], err = s.Begin(key, &pair[i]); err == nil {
			m[i], err = c[i].Message()
		}
		if err != nil {
			return out, [2]error{err, err}
		}
	}
	if tamper != nil {
		tamper(&m)
	}
	for i := range c {
		out[i], errs[i] = c[i].Finish(m[1-i])
	}
	return out, errs
}

// TestTamperedVectors: with any part of the draft's vectors changed, at any byte, both servers
// refuse the client.
func TestTamperedVectors(t *testing.T) {
	t.Parallel()
	v, s := draft(t, "Prio3SumVec_0.json.gz")
	key := Key(v.Key)
	c := &v.Clients[0]
	verdicts := func(s *Scheme, pair *[2]Share, tamper func(m *[2][]byte)) [2]error {
		_, errs := run(s, &key, pair, tamper)
		return errs
	}
	sound := verdicts(s, c.shares(), nil)
	must.Do(t, errors.Join(sound[:]...))
	refused := func(what string, got [2]error) {
		t.Helper()
		for i, err := range got {
			if !errors.Is(err, ErrProof) {
				t.Errorf("%s: server %d says %v", what, i, err)
			}
		}
	}
	for _, part := range []struct {
		name  string
		bytes func(p *[2]Share) [][]byte // of equal lengths
	}{
		{"the leader's share", func(p *[2]Share) [][]byte { return [][]byte{p[Leader].Input} }},
		{"the helper's share", func(p *[2]Share) [][]byte { return [][]byte{p[Helper].Input} }},
		{"the public share", func(p *[2]Share) [][]byte { return [][]byte{p[Leader].Public, p[Helper].Public} }},
		{"the leader's half in the helper's public share",
			func(p *[2]Share) [][]byte { return [][]byte{p[Helper].Public[:seedSize]} }},
		{"the helper's half in the leader's public share",
			func(p *[2]Share) [][]byte { return [][]byte{p[Leader].Public[seedSize:]} }},
		{"the nonce", func(p *[2]Share) [][]byte { return [][]byte{p[Leader].Nonce[:], p[Helper].Nonce[:]} }},
		{"the leader's nonce", func(p *[2]Share) [][]byte { return [][]byte{p[Leader].Nonce[:]} }},
		{"the helper's nonce", func(p *[2]Share) [][]byte { return [][]byte{p[Helper].Nonce[:]} }},
	} {
		for at := range part.bytes(c.shares())[0] {
			pair := c.shares()
			for _, b := range part.bytes(pair) {
				b[at] ^= 1
			}
			refused(part.name, verdicts(s, pair, nil))
		}
	}
	for at := range c.Messages[0][0] {
		for sender, name := range []string{"the leader's message", "the helper's message"} {
			got := verdicts(s, c.shares(), func(m *[2][]byte) { m[sender][at] ^= 1 })
			if !errors.Is(got[1-sender], ErrProof) || got[sender] != nil {
				t.Errorf("%s changed at %d: %v", name, at, got)
			}
		}
	}
	refused("each server's own message",
		verdicts(s, c.shares(),
			func(m *[2][]byte) { m[Leader], m[Helper] = m[Helper], m[Leader] }))
	refused("another client's messages", verdicts(s, c.shares(), func(m *[2][]byte) {
		for i := range m {
			m[i] = v.Clients[1].Messages[0][i]
		}
	}))
	mixed := c.shares()
	mixed[Helper] = v.Clients[1].shares()[Helper]
	refused("shares of two clients", verdicts(s, mixed, nil))
	other := &Scheme{Classes: s.Classes, K: s.K, Bits: s.Bits}
	must.Do(t, other.open("another application", v.Chunk))
	refused("another context", verdicts(other, c.shares(), nil))
}

// TestTwoKeys: where the servers have different keys, they do not take a client whose proof holds.
func TestTwoKeys(t *testing.T) {
	t.Parallel()
	v, s := draft(t, "Prio3SumVec_0.json.gz")
	key, other := Key(v.Key), Key(v.Key)
	other[0] ^= 1
	pair := v.Clients[0].shares()
	leader := must.Get(s.Begin(&key, &pair[Leader]))(t)
	helper := must.Get(s.Begin(&other, &pair[Helper]))(t)
	for _, side := range [][2]*Checking{{leader, helper}, {helper, leader}} {
		m := must.Get(side[1].Message())(t)
		if _, err := side[0].Finish(m); !errors.Is(err, ErrProof) {
			t.Errorf("under two keys: %v", err)
		}
	}
}

// TestLengths: shares of other lengths, for another number of servers or with other numbers, are
// refused before they are computed with.
func TestLengths(t *testing.T) {
	t.Parallel()
	v, s := draft(t, "Prio3SumVec_0.json.gz")
	key := Key(v.Key)
	three, _ := draft(t, "Prio3SumVec_1.json.gz")
	if three.Shares != 3 {
		t.Fatalf("%d shares", three.Shares)
	}
	good := v.Clients[0].shares()
	for name, sh := range map[string]Share{
		"no public share": {Leader, good[0].Nonce, nil, good[0].Input},
		"a public share of one server": {Leader, good[0].Nonce,
			good[0].Public[:seedSize], good[0].Input},
		"a public share of three": {Helper, good[1].Nonce, three.Clients[0].Public, good[1].Input},
		"of three servers":        {Leader, good[0].Nonce, good[0].Public, three.Clients[0].Inputs[0]},
		"a share cut short": {Leader, good[0].Nonce, good[0].Public,
			good[0].Input[:len(good[0].Input)-1]},
		"a share with more": {Leader, good[0].Nonce, good[0].Public,
			append(slices.Clone(good[0].Input), 0)},
		"the helper's as the leader's": {Leader, good[0].Nonce, good[0].Public, good[1].Input},
		"the leader's as the helper's": {Helper, good[1].Nonce, good[1].Public, good[0].Input},
		"a third server's":             {2, good[1].Nonce, good[1].Public, good[1].Input},
		"of no server":                 {-1, good[1].Nonce, good[1].Public, good[1].Input},
	} {
		must.Fail(s.Begin(&key, &sh))(t, "a share ", name)
	}
	c := must.Get(s.Begin(&key, &good[Leader]))(t)
	message := v.Clients[0].Messages[0][Helper]
	for _, m := range [][]byte{nil, message[:len(message)-1], append(bytes.Clone(message), 0),
		three.Clients[0].Messages[0][1]} {
		if _, err := c.Finish(m); !errors.Is(err, ErrProof) {
			t.Errorf("a message of %d bytes: %v", len(m), err)
		}
	}
}
