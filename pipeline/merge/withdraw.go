package merge

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"fmp/pipeline/federate"
	"fmp/pipeline/internal/whole"
)

// ErrPlace is wrapped by the error for an upload whose place in a part another would take, which
// the part does not hold whole any more.
var ErrPlace = errors.New(
	"the part without it keeps another upload whole, which is summed by now: merge the round's " +
		"uploads again without it, or keep the round's sums (fmp pool --state)")

// Remove takes an upload out of the merged ones: the part is then, to the byte, the one that the
// client never took part in. An upload whose place a summed one would take cannot be taken out
// ([ErrPlace]). One that Add passed over ([Merger.Without]) may be in a part besides, and need not
// be. After an error nothing is taken out. The clients are found by binary search, since both lists
// ascend by key.
// The cost is O(log clients) to find it and O(clients) to take it out of the lists.
// data are the bytes that were merged: entries hold their digest, and others are refused.
func (m *Merger) Remove(data []byte) error {
	digest := sha256.Sum256(data)
	passed := m.Without[digest]
	u, err := federate.Decode(data, m.Want)
	if err != nil {
		if passed { // no part of this round has it
			return nil
		}
		return err
	}
	if m.part == nil {
		return fmt.Errorf("client %q is not in: nothing was merged", u.Client)
	}
	m.settle()
	p := m.part
	k := Kept{Upload: u, Data: data, key: key(u.Round, u.Model, u.Client)}
	e := entryOf(k.key, digest)
	at, in := slices.BinarySearchFunc(p.clients, e, byKey)
	switch {
	case !in && passed:
		return nil
	case !in:
		return fmt.Errorf("client %q is not in: nothing is taken out", u.Client)
	case p.clients[at] != e:
		return fmt.Errorf("client %q is in by another upload: give the one that was merged",
			u.Client)
	case len(p.clients) == 1:
		return fmt.Errorf("without client %q no upload is left", u.Client)
	}
	if i, kept := slices.BinarySearchFunc(p.Kept, k, compare); kept {
		// With a place free, the lowest key of the summed could be kept, and the part lacks its
		// bytes.
		if p.Summed+p.LeftOut > 0 {
			return fmt.Errorf("client %q is kept whole: %w", u.Client, ErrPlace)
		}
		// The clone keeps lists that a caller of Part may hold as they were.
		p.Kept = slices.Delete(slices.Clone(p.Kept), i, i+1)
	} else if err := m.subtract(&k); err != nil {
		return err
	}
	p.clients = slices.Delete(slices.Clone(p.clients), at, at+1)
	return nil
}

// subtract takes an upload out of the sums. The one of the limit is the first that had no room:
// without it the next might have some. Exact sums make this possible: package whole undoes an
// addition bit for bit. The judge gives its share again, which must be the one that it was added
// with.
// Checks run on the result, and the part is put back where they fail.
func (m *Merger) subtract(k *Kept) error {
	p := m.part
	if bytes.Equal(k.key[:], p.limit) && p.Summed+p.LeftOut > 1 {
		return fmt.Errorf("client %q is the first that is summed: %w", k.Client, ErrPlace)
	}
	share, err := m.share(k)
	if err != nil {
		return err
	}
	before := *p
	p.sums = slices.Clone(p.sums)
	if share == 0 {
		p.LeftOut--
	} else {
		p.Summed, p.N = p.Summed-1, p.N-k.summed()
		if p.sums != nil {
			p.addMeans(k.Upload, share, (*whole.Number).Sub)
		}
		// All sums are 0 after the last client, unless another upload was taken out than was
		// added.
		if p.Summed == 0 && !slices.ContainsFunc(p.sums,
			func(w whole.Number) bool { return w != whole.Number{} }) {
			p.sums = nil
		}
	}
	if p.LeftOut < 0 || p.Summed < 0 || p.N < p.Summed || (p.Summed > 0) != (p.sums != nil) ||
		p.checkSums() != nil {
		*p = before
		return fmt.Errorf("client %q is not in the sums as it would be now: give what it was "+
			"judged by (--against), or trust (--trust), as it was merged", k.Client)
	}
	if p.Summed+p.LeftOut == 0 {
		p.limit = nil
	}
	return nil
}
