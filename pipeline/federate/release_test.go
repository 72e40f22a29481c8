package federate

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fmp/onnx/must"
	"fmp/pipeline/privacy"
)

func release() *Release {
	r := &Release{Round: 3, Client: "shop-1", Model: hex.EncodeToString(bytes.Repeat([]byte{7}, 32)),
		Sums: privacy.NewRelease(3, 2),
		Budget: privacy.Budget{Epsilon: 1, Delta: 1e-5, Unit: privacy.Client,
			Relation: privacy.AddRemove, Noise: privacy.Local, Points: 20}}
	for i := range r.Sums.Values {
		r.Sums.Values[i] = int64(i*i) - 20
	}
	return r
}

// TestRelease: what is written is read, and what cannot be believed is refused by its field.
func TestRelease(t *testing.T) {
	want := release()
	data := must.Get(want.Encode())(t)
	got := must.Get(DecodeRelease(data, Expect{Model: want.Model, C: 3, Dx: 2, Round: &want.Round}))(t)
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	must.Fail(Decode(data, Expect{}))(t, "format is 2", "an ordinary reader")
	other := uint64(4)
	for field, w := range map[string]Expect{"round": {Round: &other}, "classes": {C: 4}, "dx": {Dx: 9},
		"model": {Model: "x"}} {
		must.Fail(DecodeRelease(data, w))(t, field)
	}
	salted := release()
	salted.Budget.Noise = privacy.Trusted
	rand.Read(salted.Salt[:])
	got = must.Get(DecodeRelease(must.Get(salted.Encode())(t), Expect{}))(t)
	if d := cmp.Diff(salted, got); d != "" {
		t.Error(d)
	}
	salted.Salt = [16]byte{}
	data = must.Get(salted.Encode())(t)
	must.Fail(DecodeRelease(data, Expect{}))(t, "nonce is 0 bytes", "a message without a salt")
	if d := cmp.Diff(salted, must.Get(DecodeRelease(data, Expect{Unsalted: true}))(t)); d != "" {
		t.Error(d)
	}
	damaged := bytes.Clone(data)
	damaged[len(damaged)/2] ^= 1
	must.Fail(DecodeRelease(damaged, Expect{}))(t, "", "a damaged message was read")
	for name, change := range map[string]func(*Release){
		"values":  func(r *Release) { r.Sums.Values = r.Sums.Values[:5] },
		"number":  func(r *Release) { r.Sums.Values[1] = math.MaxInt64 },
		"epsilon": func(r *Release) { r.Budget.Epsilon = math.NaN() },
		"unit":    func(r *Release) { r.Budget.Unit = "house" },
		"client":  func(r *Release) { r.Client = "" },
		"classes": func(r *Release) { r.Sums = privacy.NewRelease(1, 2) },
	} {
		r := release()
		change(r)
		must.Fail(r.Encode())(t, name)
	}
}

// TestContext: shares are bound to this text, to the byte: programs of before and after make one round.
func TestContext(t *testing.T) {
	for _, c := range []struct{ unit, relation, want string }{
		{privacy.Example, privacy.AddRemove, "one image added or removed"},
		{privacy.Example, privacy.ReplaceOne, "one image replaced"},
		{privacy.Client, privacy.AddRemove, "a whole client added or removed"},
		{privacy.Client, privacy.ReplaceOne, "a whole client replaced"},
	} {
		r := &Release{Round: 3, Client: "ward \"1\"", Model: "abc", Budget: privacy.Budget{Epsilon: .5, Delta: 1e-5,
			Unit: c.unit, Relation: c.relation, Noise: privacy.TwoServers, Points: 20}}
		want := "fmp private round 3\nclient \"ward \\\"1\\\"\"\ngraph abc\nepsilon 0.5, delta 1e-05 for " + c.want +
			", noise: two-servers, points: 20"
		if got := r.context(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestShares: the two messages of a client are read, are of one nonce, and each is refused where
// anything of it or of its bindings is changed.
func TestShares(t *testing.T) {
	r := release()
	r.Budget.Noise = privacy.TwoServers
	pair := must.Get(r.Split(rand.Reader))(t)
	if pair[0].Share.Nonce != pair[1].Share.Nonce {
		t.Error("two nonces")
	}
	for i, want := range pair {
		data := must.Get(want.Encode())(t)
		got := must.Get(DecodeRelease(data, Expect{Model: want.Model, C: 3, Dx: 2, Round: &want.Round}))(t)
		if d := cmp.Diff(want, got); d != "" || got.Share.Server != i {
			t.Error(d)
		}
	}
	for name, change := range map[string]func(*Release){
		"values":     func(r *Release) { r.Sums = release().Sums },
		"server 2":   func(r *Release) { r.Share.Server = 2 },
		"want 64":    func(r *Release) { r.Share.Public = r.Share.Public[1:] },
		"a share of": func(r *Release) { r.Share.Input = r.Share.Input[1:] },
		"points":     func(r *Release) { r.Budget.Points = 0 },
		"nonce":      func(r *Release) { r.Share = nil },
		"share":      func(r *Release) { r.Budget.Noise, r.Sums = privacy.Local, release().Sums },
	} {
		own := *pair[0]
		share := *own.Share
		own.Share = &share
		change(&own)
		must.Fail(own.Encode())(t, name)
	}
	if r.Sums.Values[0] = 1 << 40; true {
		must.Fail(r.Split(rand.Reader))(t, "", "a number beyond the range was shared")
	}
}

// FuzzRelease: whatever comes is refused or is a release that is written to the same content.
func FuzzRelease(f *testing.F) {
	data := must.Get(release().Encode())(f)
	f.Add(data)
	r := release()
	r.Budget.Noise = privacy.TwoServers
	pair := must.Get(r.Split(rand.Reader))(f)
	data = must.Get(pair[1].Encode())(f)
	f.Add(data)
	f.Add([]byte{8, 2})
	f.Add([]byte{8, 2, 40, 255, 255, 3, 48, 255, 255, 3})
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := DecodeRelease(data, Expect{})
		if err != nil {
			return
		}
		again := must.Get(r.Encode())(t)
		back, err := DecodeRelease(again, Expect{})
		if err != nil || cmp.Diff(r, back) != "" {
			t.Fatalf("read again: %v\n%s", err, cmp.Diff(r, back))
		}
	})
}
