package onnx

// Budget bounds the work that a model may cause before it runs: constants that are folded, and
// small values that are followed through it. A small file could otherwise ask for any amount of
// memory and time. One budget serves inference, folding and an engine's plan alike; work beyond it
// is left to the run.
type Budget struct {
	Bytes float64 // of results
	Work  float64 // elementary operations
}

// NewBudget returns the budget of a model: 32 MiB and 8 times the bytes of its initializers
// (weights of 8 bits become float32 and are transposed), and 2^28 operations and 64 for each of
// these bytes.
func NewBudget(m *Model) *Budget {
	bytes := 0.0
	for _, t := range m.Graph.Initializers {
		bytes += float64(t.Len()) * float64(t.DType.Size())
	}
	return &Budget{Bytes: 1<<25 + 8*bytes, Work: 1<<28 + 64*bytes}
}

// Spend takes from the budget, if it has as much; if not, it takes nothing and returns false.
func (b *Budget) Spend(bytes, work float64) bool {
	if !(bytes <= b.Bytes && work <= b.Work) {
		return false
	}
	b.Bytes -= bytes
	b.Work -= work
	return true
}
