package shape

import "fmp/onnx/internal/try"

// Recurrent layers.
var recurrentRules = map[string]rule{"RNN": inferRecurrent, "GRU": inferRecurrent,
	"LSTM": inferRecurrent}

// inferRecurrent: X [seq, batch, in] -> Y [seq, dirs, batch, hidden], Y_h and Y_c [dirs, batch,
// hidden]; with layout 1 the batch comes first. The weight W is [dirs, gates hidden, in] and the
// recurrence R [dirs, gates hidden, hidden]. The LSTM alone has Y_c; the other operators have no
// third output to set.
func inferRecurrent(c *call) {
	d := try.Get(sameType(c.in[0], c.in[1], c.in[2]))
	dirs := constant(1)
	if c.attrs.Str("direction") == "bidirectional" {
		dirs = constant(2)
	}
	// hidden_size may be left out, and the last axis of R is the same number.
	hidden := c.inf.unknownSize()
	if h := c.attrs.Int("hidden_size"); h > 0 {
		hidden = constant(h)
	} else if r := c.in[2].shape; len(r) == 3 {
		hidden = r[2]
	}
	seq, batch := c.inf.unknownSize(), c.inf.unknownSize()
	first := c.attrs.Int("layout") == 1
	if x := c.in[0].shape; x != nil {
		if len(x) != 3 {
			try.Fail("an input of rank %d; [seq, batch, in] is needed", len(x))
		}
		seq, batch = x[0], x[1]
		if first {
			seq, batch = batch, seq
		}
		if w := c.in[1].shape; len(w) == 3 {
			agree(w[2], x[2], "features of input and weight")
		}
	}
	y, state := []expr{seq, dirs, batch, hidden}, []expr{dirs, batch, hidden}
	if first {
		y, state = []expr{batch, seq, dirs, hidden}, []expr{batch, dirs, hidden}
	}
	c.set(0, d, y)
	c.set(1, d, state)
	c.set(2, d, state)
}
