package merge

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"testing"

	"fmp/models/rng"
	"fmp/onnx/must"
	"fmp/pipeline/federate"
)

// TestRemove: a part that a client is taken out of is the one that it never took part in, whether
// it was kept or summed, judged or trusted, and an upload whose place another would take is refused
// by name; after an error the part is as it was.
func TestRemove(t *testing.T) {
	t.Parallel()
	for rule, judge := range map[string]func(*federate.Upload) (float64, error){"trusted": nil,
		"judged": judging} {
		for _, n := range []int{6, 40} {
			all := several(t, 0, n)
			whole := merged(t, judge, all...)
			p := must.Get(Decode(whole, federate.Expect{}))(t)
			refused, kept := 0, 0
			for i, data := range all {
				m := merger(t, judge, merged(t, judge, all[:n/2]...), merged(t, judge, all[n/2:]...))
				err := m.Remove(data)
				got := must.Get(m.Part().Encode())(t)
				want := whole
				if err == nil {
					want = merged(t, judge, slices.Delete(slices.Clone(all), i, i+1)...)
				} else if refused++; !errors.Is(err, ErrPlace) {
					t.Errorf("client %d of %d, %s: %v", i, n, rule, err)
				}
				if !bytes.Equal(got, want) {
					t.Errorf("client %d of %d, %s: the part is another than the wanted one (%v)",
						i, n, rule, err)
				}
				if slices.ContainsFunc(p.Kept, func(k Kept) bool { return bytes.Equal(k.Data, data) }) {
					kept++
				}
				if err == nil {
					must.Fail(m.Remove(data))(t, "", fmt.Sprintf("client %d is taken out twice", i))
				}
			}
			if want := map[bool]int{true: 0, false: kept + 1}[n == 6]; refused != want {
				t.Errorf("%d clients, %s: %d are refused; want %d", n, rule, refused, want)
			}
		}
	}
}

// TestRemoveOfMoments: sums of moments lose a client without a trace, with its calibration points.
func TestRemoveOfMoments(t *testing.T) {
	t.Parallel()
	left := each(450, func(i int) []byte { return madeMoments(t, i, 1+i%90, federate.Single) })
	m := merger(t, nil, left...)
	r := rng.New(1, "gone")
	gone := 0
	for range 40 {
		i := r.IntN(len(left))
		if err := m.Remove(left[i]); errors.Is(err, ErrPlace) {
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		left = slices.Delete(left, i, i+1)
		gone++
	}
	got := must.Get(m.Part().Encode())(t)
	if gone < 5 || !bytes.Equal(got, merged(t, nil, left...)) {
		t.Errorf("%d clients were taken out, and the part has a trace of them", gone)
	}
}

// TestNotTakenOut: another upload of a client is not taken out, nor one of nothing, nor the last; after
// an error the part is as it was.
func TestNotTakenOut(t *testing.T) {
	t.Parallel()
	all := several(t, 0, 2)
	m := merger(t, nil, all...)
	u := must.Get(federate.Decode(all[0], federate.Expect{}))(t)
	u.Precision = federate.Int8
	must.Fail(m.Remove(encoded(t, u)))(t, "", "another upload of a client is taken out")
	if again, err := m.Part().Encode(); err != nil || !bytes.Equal(again, merged(t, nil, all...)) {
		t.Errorf("after an error the part is another, %v", err)
	}
	one := Merger{Trust: true}
	must.Fail(one.Remove(all[0]))(t, "", "an upload is taken out of nothing")
	must.Do(t, one.Add(all[0]))
	must.Fail(one.Remove(all[0]))(t, "", "a part of no upload is left")
}

// TestWithoutInAPart: an upload that is passed over and in a part as well, in any order, leaves no
// trace; another upload of its client, or one of nobody's round, is told of or does no harm.
func TestWithoutInAPart(t *testing.T) {
	t.Parallel()
	all := several(t, 0, 5)
	u := must.Get(federate.Decode(all[2], federate.Expect{}))(t)
	u.Precision = federate.Int8
	other, damaged := encoded(t, u), all[2][:99]
	want := merged(t, nil, all[0], all[1], all[3], all[4])
	for name, c := range map[string]struct {
		add     [][]byte
		without []byte
		refused string
	}{
		"part first":   {[][]byte{merged(t, nil, all[:3]...), all[2], all[3], all[4]}, all[2], ""},
		"part last":    {[][]byte{all[2], all[3], all[4], merged(t, nil, all[:3]...)}, all[2], ""},
		"part alone":   {[][]byte{merged(t, nil, all...)}, all[2], ""},
		"file alone":   {all, all[2], ""},
		"damaged":      {[][]byte{damaged, all[0], all[1], all[3], all[4]}, damaged, ""},
		"another's":    {[][]byte{merged(t, nil, all...), other}, other, "by another upload"},
		"in no part":   {[][]byte{all[0], all[1]}, all[2], "is not in"},
		"is no upload": {[][]byte{all[0], all[1]}, damaged, "upload"},
	} {
		m := Merger{Trust: true, Without: map[[sha256.Size]byte]bool{sha256.Sum256(c.without): false, {}: false}}
		for _, data := range c.add {
			must.Do(t, m.Add(data))
		}
		if m.Without[[sha256.Size]byte{}] {
			t.Errorf("%s: an upload that did not come is passed over", name)
		}
		if err := m.Remove(c.without); c.refused != "" {
			must.Fail(err)(t, c.refused, name)
		} else if got, encoding := m.Part().Encode(); err != nil || encoding != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: the client that withdrew leaves a trace (%v, %v)", name, err, encoding)
		}
	}
}
