package merge

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"fmp/models"
	"fmp/onnx/must"
	"fmp/pipeline/federate"
	"fmp/pipeline/federate/identity"
)

// TestSigned: a part is taken with the signature of a worker of the roster; an altered or forged
// one is refused.
func TestSigned(t *testing.T) {
	t.Parallel()
	var keys [2]*identity.Key
	for i := range keys {
		keys[i] = must.Get(identity.New("worker"))(t)
	}
	workers := must.Get(identity.ParseRoster([]byte(keys[0].Line())))(t)
	data := merged(t, nil, made(t, 1, federate.Single))
	good := must.Get(Sign(keys[0], data, "server A"))(t)
	forged := must.Get(Sign(keys[1], data, "server A"))(t)
	must.Do(t, Verify(workers, data, good, "server A"))
	altered := bytes.Clone(data)
	altered[len(altered)/2]++
	others := must.Get(Sign(keys[0], data, "server B"))(t)
	for name, c := range map[string]struct {
		data, signature []byte
		want            string
	}{
		"none":             {data, nil, "no signature"},
		"altered":          {altered, good, "not valid"},
		"another server's": {data, others, "not valid"},
		"forged":           {data, forged, "not valid"},
		"unknown": {data, bytes.Replace(good, []byte("worker\","), []byte("another\","), 1),
			"not valid"},
		"text": {data, []byte("signed"), "cannot be read"},
		"long": {data, append(bytes.Repeat([]byte(" "), MaxSignature), good...), "cannot be read"},
	} {
		if err := Verify(workers, c.data, c.signature, "server A"); !errors.Is(err, ErrSignature) ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", name, err, c.want)
		}
	}
}

// TestGivenLimit: mergers that are told the limit of the whole sum every upload from it on, and
// their parts give the part of the whole; a part lists its own uploads and no others.
func TestGivenLimit(t *testing.T) {
	t.Parallel()
	all := several(t, 0, 40)
	want := merged(t, nil, all...)
	whole := must.Get(Decode(want, federate.Expect{}))(t)
	kept := map[string]bool{}
	var low, high [][]byte
	for _, k := range whole.Kept {
		kept[k.Client] = true
	}
	uploads := map[string]string{}
	for _, data := range all {
		u := must.Get(federate.Decode(data, federate.Expect{}))(t)
		if kept[u.Client] {
			low = append(low, data)
		} else {
			high, uploads[u.Client] = append(high, data), models.DigestBytes(data)
		}
	}
	sums := func(uploads [][]byte) *Part {
		m := Merger{Trust: true, Limit: whole.limit}
		for _, data := range uploads {
			must.Do(t, m.Add(data))
		}
		if len(m.Part().Kept) > 0 {
			t.Fatalf("%d uploads are kept", len(m.Part().Kept))
		}
		return m.Part()
	}
	parts := [][]byte{merged(t, nil, low...)}
	for _, uploads := range [][][]byte{high[:9], high[9:]} {
		parts = append(parts, must.Get(sums(uploads).Encode())(t))
	}
	if got := merged(t, nil, parts[1], parts[0], parts[2]); !bytes.Equal(got, want) {
		t.Error("another part than that of the whole")
	}
	p := sums(high)
	if !p.Lists(uploads) {
		t.Error("the part does not list its uploads")
	}
	for client := range uploads {
		was := uploads[client]
		for _, other := range []string{"", was[:62], was + "00", strings.Repeat("0", 64)} {
			if uploads[client] = other; p.Lists(uploads) {
				t.Errorf("the part lists an upload of digest %q", other)
			}
		}
		delete(uploads, client)
		if p.Lists(uploads) {
			t.Error("the part lists fewer uploads")
		}
		uploads[client+"'"] = was
		if p.Lists(uploads) {
			t.Error("the part lists an upload of another client")
		}
		break
	}
}
