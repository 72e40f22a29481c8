package prio

import (
	"bytes"
	"crypto/rand"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/cloudflare/circl/vdaf/prio3/sumvec"

	"fmp/onnx/must"
	"fmp/pipeline/privacy"
)

func budget(unit string, points int) privacy.Budget {
	return privacy.Budget{Epsilon: 1, Delta: 1e-5, Unit: unit, Relation: privacy.AddRemove,
		Noise: privacy.TwoServers, Points: points}
}

func scheme(t testing.TB, context string) *Scheme {
	t.Helper()
	return must.Get(New(budget(privacy.Example, 10), 3, 4, context))(t)
}

// sums are those of a client, each with a sign of its own, up to the bound.
func sums(s *Scheme, client int) *privacy.Release {
	r := privacy.NewRelease(s.Classes, s.K)
	for i := range r.Values {
		r.Values[i] = int64((i+1)*(client+7)*997%10_240) * int64(1-2*((i+client)%2))
	}
	return r
}

var key = Key{1, 2, 3}

// checked runs both servers on a pair of shares.
func checked(s *Scheme, pair *[2]Share) ([2]*sumvec.OutShare, error) {
	out, errs := run(s, &key, pair, nil)
	return out, errors.Join(errs[:]...)
}

// TestSum: the sum that is opened is the plain sum, to the last number, where no noise is added,
// and where it is the plain sum and that noise.
func TestSum(t *testing.T) {
	t.Parallel()
	const clients = 20
	s := scheme(t, "")
	want := privacy.NewRelease(s.Classes, s.K)
	leader, helper := s.NewSum(), s.NewSum()
	for m := range clients {
		own := sums(s, m)
		must.Do(t, want.Add(own))
		c := scheme(t, string(rune('a'+m)))
		pair := must.Get(c.Split(own, rand.Reader))(t)
		out := must.Get(checked(c, pair))(t)
		leader.Add(out[Leader])
		helper.Add(out[Helper])
	}
	zero := make([]int64, len(want.Values))
	noise := slices.Clone(zero)
	for i := range noise {
		noise[i] = int64(i*i) - 40
	}
	open := func(own []int64) []int64 {
		t.Helper()
		l := &Sum{scheme: s, share: s.vdaf.AggregateInit(), clients: leader.clients}
		b, err := leader.Bytes()
		if err == nil {
			err = l.share.UnmarshalBinary(b)
		}
		if err == nil {
			err = l.shift(own)
		}
		must.Do(t, err)
		b = must.Get(helper.Bytes())(t)
		must.Fail(l.Open(b[1:]))(t, "", "half a share was opened")
		return must.Get(l.Open(b))(t).Values
	}
	must.Do(t, helper.shift(zero))
	if got := open(zero); !slices.Equal(got, want.Values) {
		t.Errorf("opened %v, want %v", got, want.Values)
	}
	for i, v := range open(noise) {
		if v != want.Values[i]+noise[i] {
			t.Errorf("number %d with noise %d is %d, without %d", i, noise[i], v, want.Values[i])
		}
	}
	must.Fail(leader.shift([]int64{math.MaxInt64}))(t, "", "noise without bound was added")
}

// TestRefuses: an element beyond the field, a server's share given to the other and numbers out of
// range are refused; [TestTamperedVectors] has all else.
func TestRefuses(t *testing.T) {
	t.Parallel()
	s := scheme(t, "round 1, a")
	p := must.Get(s.Split(sums(s, 1), rand.Reader))(t)
	must.Get(s.Begin(&key, &p[Helper]))(t) // the share says whose it is
	p[Helper].Server = Leader
	must.Fail(s.Begin(&key, &p[Helper]))(t, "", "the helper's share was taken for the leader's")
	p[Helper].Server = Helper
	copy(p[Leader].Input, bytes.Repeat([]byte{255}, 16))
	if _, err := checked(s, p); !errors.Is(err, ErrProof) {
		t.Errorf("an element beyond the field: %v", err)
	}
	own := sums(s, 0)
	own.Values[2] = s.offset()
	must.Fail(s.Split(own, rand.Reader))(t, "16383", "a number out of range")
	own.Values[2] = -s.offset() // the other end is in
	must.Get(s.Split(own, rand.Reader))(t)
	must.Fail(s.Split(privacy.NewRelease(2, 2), rand.Reader))(t, "", "sums of other sizes were shared")
}

// TestRange: bits follow from what clients may have, and what one that lies can do from the bits.
func TestRange(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		unit   string
		points int
		bits   int
		worst  float64
	}{
		{privacy.Example, 10, 15, 16_384 * 10},
		{privacy.Example, 1000, 21, 1 << 20 * 10},
		{privacy.Client, 10, 13, 4096 * 10},
	} {
		s, err := New(budget(c.unit, c.points), 10, 9, "")
		if err != nil || s.Bits != c.bits || s.WorstNorm() != c.worst {
			t.Errorf("%s of %d points: %v, %v; want %d bits and %v", c.unit, c.points, s, err,
				c.bits, c.worst)
		}
	}
	must.Fail(New(budget(privacy.Example, 1_000_000), 1000, 999, ""))(
		t, "allowed", "too many numbers")

	local := budget(privacy.Example, 10)
	local.Noise = privacy.Local
	must.Fail(New(local, 2, 1, ""))(t, "", "a round of local noise has a scheme")
	a, _ := KeyOf("secret", 1, "g")
	b, _ := KeyOf("secret", 2, "g")
	c, _ := KeyOf("other", 1, "g")
	if *a == *b || *a == *c {
		t.Error("two rounds, or two secrets, have one key")
	}
}

// FuzzShare: whatever a client and the other server send is an error or one of the shares that were
// made.
func FuzzShare(f *testing.F) {
	s := scheme(f, "")
	pair := must.Get(s.Split(sums(s, 1), rand.Reader))(f)
	c := must.Get(s.Begin(&key, &pair[Leader]))(f)
	m := must.Get(c.Message())(f)
	f.Add(pair[Helper].Input, pair[Helper].Public, m)
	f.Add(pair[Helper].Input[:3], []byte{}, m[:9])
	f.Fuzz(func(t *testing.T, input, public, other []byte) {
		sh := &Share{Server: Helper, Nonce: pair[Helper].Nonce, Public: public, Input: input}
		c, err := s.Begin(&key, sh)
		if err != nil {
			return
		}
		if _, err := c.Finish(other); err == nil &&
			!(bytes.Equal(input, pair[Helper].Input) && bytes.Equal(public, pair[Helper].Public) &&
				bytes.Equal(other, m)) {
			t.Error("a forged share was taken")
		}
	})
}
