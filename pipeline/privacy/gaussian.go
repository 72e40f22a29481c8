package privacy

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math/big"
	"math/bits"
)

// Sampler samples exactly from the discrete Gaussian, integers x with probability proportional to
// exp(-x^2/(2 sigma^2)), by algorithms 1 to 3 of Canonne, Kamath and Steinke 2020 (The discrete
// Gaussian for differential privacy, arXiv:2004.00010). Its variance is at most sigma^2, and
// practically equal from sigma = 2 on.
type Sampler struct {
	r     *bufio.Reader
	t     uint64   // floor(sigma) + 1, the scale of the Laplace proposals
	s2    *big.Int // sigma^2
	denom *big.Int // 2 sigma^2 t^2
	err   error
}

// maxDeviation bounds sigma, so that sums of noise and data fit into 63 bits with room to spare.
const maxDeviation = 1 << 40

// NewSampler returns a sampler of standard deviation sigma (an integer, 1 to 2^40) that takes its
// randomness from r: crypto/rand's reader in a round, the run's stream in a simulation.
func NewSampler(sigma uint64, r io.Reader) (*Sampler, error) {
	if sigma < 1 || sigma > maxDeviation {
		return nil, fmt.Errorf("privacy: noise of standard deviation %d; allowed are 1 to %d",
			sigma, uint64(maxDeviation))
	}
	s := &Sampler{r: bufio.NewReader(r), t: sigma + 1, s2: new(big.Int).SetUint64(sigma)}
	s.s2.Mul(s.s2, s.s2)
	t := new(big.Int).SetUint64(s.t)
	s.denom = t.Mul(t, t).Mul(t, s.s2).Lsh(t, 1)
	return s, nil
}

// Next draws one number. The error is the reader's.
func (s *Sampler) Next() (int64, error) {
	for s.err == nil {
		y, negative := s.laplace()
		// Accepted with probability exp(-(|y| - sigma^2/t)^2/(2 sigma^2)) = exp(-(|y| t -
		// sigma^2)^2/(2 sigma^2 t^2)).
		gap := new(big.Int).SetUint64(y)
		gap.Mul(gap, new(big.Int).SetUint64(s.t)).Sub(gap, s.s2)
		gap.Mul(gap, gap)
		if !s.exponential(gap, s.denom) {
			continue
		}
		if negative {
			return -int64(y), s.err
		}
		return int64(y), s.err
	}
	return 0, s.err
}

// laplace draws from the discrete Laplace distribution of scale t (algorithm 2) and returns
// magnitude and sign. With u below t accepted with probability exp(-u/t), and v geometric with
// ratio 1/e, the magnitude is u + t v. A negative 0 is drawn again, so that 0 does not count twice.
func (s *Sampler) laplace() (size uint64, negative bool) {
	t := new(big.Int).SetUint64(s.t)
	for s.err == nil {
		u := s.below(s.t)
		if !s.exponential(new(big.Int).SetUint64(u), t) {
			continue
		}
		v := uint64(0)
		for s.err == nil && s.exponential(one, one) {
			v++
		}
		size, negative = u+s.t*v, s.below(2) == 1
		if size == 0 && negative {
			continue
		}
		return size, negative
	}
	return 0, false
}

var one = big.NewInt(1)

// exponential returns true with probability exp(-a/b) (algorithm 1; a > b is reduced to factors of
// exp(-1)).
func (s *Sampler) exponential(a, b *big.Int) bool {
	rest := new(big.Int).Set(a)
	for rest.Cmp(b) > 0 {
		if s.err != nil || !s.small(b, b) {
			return false
		}
		rest.Sub(rest, b)
	}
	return s.small(rest, b)
}

// small is [Sampler.exponential] for a <= b. It draws Bernoulli(a/(b k)) for k = 1, 2, ... until
// one fails, and returns whether that k is odd. Whole numbers alone are compared, so that no
// rounding moves the probability.
func (s *Sampler) small(a, b *big.Int) bool {
	k := uint64(1)
	for s.err == nil {
		var hit bool
		if b.IsUint64() && b.Uint64() < 1<<32 && k < 1<<31 {
			hit = s.below(b.Uint64()*k) < a.Uint64()
		} else {
			hit = s.belowBig(new(big.Int).Mul(b, new(big.Int).SetUint64(k))).Cmp(a) < 0
		}
		if !hit {
			return k%2 == 1
		}
		k++
	}
	return false
}

// below draws uniformly from 0 to n - 1. Numbers beyond n are drawn again, as their remainder would
// not be uniform.
func (s *Sampler) below(n uint64) uint64 {
	mask := ^uint64(0) >> bits.LeadingZeros64(n-1|1)
	for s.err == nil {
		var b [8]byte
		if _, s.err = io.ReadFull(s.r, b[:]); s.err != nil {
			break
		}
		if v := binary.LittleEndian.Uint64(b[:]) & mask; v < n {
			return v
		}
	}
	return 0
}

// belowBig is below for numbers of any size.
func (s *Sampler) belowBig(n *big.Int) *big.Int {
	wide := n.BitLen()
	b := make([]byte, (wide+7)/8)
	v := new(big.Int)
	for s.err == nil {
		if _, s.err = io.ReadFull(s.r, b); s.err != nil {
			break
		}
		b[0] &= byte(0xff >> (8*len(b) - wide))
		if v.SetBytes(b); v.Cmp(n) < 0 {
			return v
		}
	}
	return v.SetUint64(0)
}
