package kernel

import (
	"fmt"
	"slices"

	"fmp/onnx"
	"fmp/onnx/internal/try"
)

// tfIdf counts the n-grams of a pool in rows of words: n neighbours, or every k-th of them for 1 <=
// k <= skips + 1. Single words are counted once.
type tfIdf struct {
	// words of the shortest and of the longest n-gram, and words between neighbours that may be
	// skipped
	least, most, skips int
	column             []int     // of the output, by n-gram
	weight             []float32 // by n-gram; nil is 1
	once               bool      // whether it occurs, in place of how often
	columns            int
}

// newTfIdf: x [c] or [b, c] of int32, int64 or strings; y [columns] or [b, columns]. The pool holds
// the n-grams of one word, then those of two, ...; ngram_counts says where each kind begins. TF
// counts, IDF gives an n-gram's weight where it occurs, and TFIDF the weight times the count.
func newTfIdf(s *Spec) (Kernel, error) {
	t := tfIdf{least: s.int("min_gram_length"), most: s.int("max_gram_length"),
		skips:  s.int("max_skip_count"),
		column: s.ints("ngram_indexes"), weight: s.floats("weights")}
	mode, starts := s.str("mode"), s.ints("ngram_counts")
	numbers, words := s.ints("pool_int64s"), s.strs("pool_strings")
	switch mode {
	case "TF":
		t.weight = nil
	case "IDF", "TFIDF":
		t.once = mode == "IDF"
	default:
		return nil, fmt.Errorf("mode is %q; allowed are TF, IDF and TFIDF", mode)
	}
	if t.least < 1 || t.most < t.least || t.skips < 0 || len(t.column) == 0 ||
		slices.Min(t.column) < 0 || slices.Max(t.column) > maxExtent {
		return nil, fmt.Errorf("min_gram_length %d, max_gram_length %d, max_skip_count %d or "+
			"ngram_indexes %v are out of range", t.least, t.most, t.skips, t.column)
	}
	// No n-gram is longer than the kinds that the pool has.
	t.columns, t.most, t.skips = slices.Max(t.column)+1, min(t.most, len(starts)),
		min(t.skips, maxExtent)
	if t.weight != nil && len(t.weight) != len(t.column) {
		return nil, fmt.Errorf("%d weights for %d n-grams", len(t.weight), len(t.column))
	}
	// Two programs read `weights` in two ways; a model that both read alike is accepted, others are
	// refused.
	for i, c := range t.column {
		if t.weight != nil && (c >= len(t.weight) || t.weight[c] != t.weight[i]) {
			return nil, fmt.Errorf("the weight of n-gram %d, whose column is %d: by the standard it is "+
				"weight %d, the ONNX Runtime takes that of the column, and they differ", i, c, i)
		}
	}
	if s.In[0] == onnx.String {
		return countGrams(t, words, starts, data[string])
	}
	pool := make([]int64, len(numbers))
	for i, v := range numbers {
		pool[i] = int64(v)
	}
	return countGrams(t, pool, starts, func(x *onnx.Tensor) []int64 {
		if words, ok := x.Data.([]int64); ok {
			return words
		}
		return wide(data[int32](x))
	})
}

// gram is an n-gram, or the beginning of some; id counts those of the pool from 1, 0 is none. Grams
// make a tree (a trie) whose edges are words: a walk from the root spells an n-gram.
type gram[T comparable] struct {
	id   int
	next map[T]*gram[T]
}

// grams reads the n-grams of a pool. lengths[i] is the number of words of n-gram i. size is that of
// the pool, in words; starts[i] is where the n-grams of i + 1 words begin. An error says that
// starts do not divide the pool, or not in as many n-grams as there are columns.
func (t tfIdf) grams(size int, starts []int) (lengths []int, err error) {
	for i, from := range starts {
		to, n := size, i+1
		if i+1 < len(starts) {
			to = starts[i+1]
		}
		if from < 0 || to < from || to > size || (to-from)%n != 0 {
			return nil, fmt.Errorf("ngram_counts %v do not divide a pool of %d words", starts, size)
		}
		lengths = append(lengths, slices.Repeat([]int{n}, (to-from)/n)...)
	}
	if len(lengths) != len(t.column) || len(starts) > 0 && starts[0] != 0 {
		return nil, fmt.Errorf("a pool of %d n-grams for %d ngram_indexes", len(lengths),
			len(t.column))
	}
	return lengths, nil
}

// countGrams builds the tree of the pool once, when the node is prepared. Calls only read it, so
// that several may run at a time. Where an n-gram stands twice in the pool, the later one counts.
func countGrams[T comparable](t tfIdf, pool []T, starts []int,
	read func(*onnx.Tensor) []T) (Kernel, error) {
	lengths, err := t.grams(len(pool), starts)
	if err != nil {
		return nil, err
	}
	root := &gram[T]{}
	for i, n := range lengths {
		// N-grams of other lengths are read over, but keep their numbers.
		if n >= t.least && n <= t.most {
			at := root
			for _, w := range pool[:n] {
				if at.next == nil {
					at.next = map[T]*gram[T]{}
				}
				if at.next[w] == nil {
					at.next[w] = &gram[T]{}
				}
				at = at.next[w]
			}
			at.id = i + 1
		}
		pool = pool[n:]
	}
	return func(c *Call) error {
		in := c.In[0].Shape
		if len(in) != 1 && len(in) != 2 {
			return fmt.Errorf("words of shape %v; allowed are [c] and [b, c]", in)
		}
		// Rows are the last axis; words alone, [c], are one row.
		row, x := in[len(in)-1], read(c.In[0])
		out := try.Get(c.New(0, onnx.Float32, append(slices.Clone(in[:len(in)-1]), t.columns)))
		clearData(out)
		y := out.F32()
		c.Parallel(len(y)/t.columns, work(row, t.most, t.skips+1), func(lo, hi int) {
			for r := lo; r < hi; r++ {
				count(c, t, root, x[r*row:][:row], y[r*t.columns:][:t.columns])
			}
		})
		return nil
	}, nil
}

// count adds the n-grams of a row of words to y. It costs at most len(x) · most steps of the tree
// for each distance between words. A step longer than the row allows for the shortest n-gram ends
// the loop, so that a hostile max_skip_count is bounded by the row.
func count[T comparable](c *Call, t tfIdf, root *gram[T], x []T, y []float32) {
	least := t.least
	for step := 1; step <= t.skips+1 && least-1 <= (max(len(x), 1)-1)/step; step++ {
		c.check()
		for i := range x {
			at := root
			for n, k := 1, i; n <= t.most && k < len(x); n, k = n+1, k+step {
				if at = at.next[x[k]]; at == nil {
					break
				}
				if at.id == 0 || n < least {
					continue
				}
				w := float32(1)
				if t.weight != nil {
					w = t.weight[at.id-1]
				}
				if p := &y[t.column[at.id-1]]; t.once {
					*p = w
				} else {
					*p += w
				}
			}
		}
		// A single word has no neighbours, and would be counted again at every distance.
		if least == 1 {
			least = 2
		}
		if least > t.most {
			return
		}
	}
}
