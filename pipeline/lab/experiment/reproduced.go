package experiment

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Close is the largest difference of figures that are told as close: of other machines, whose
// vector instructions add in another order, or of other threads of the ONNX Runtime.
const Close = 1e-6

// Reproduced says how the figures of a run that was made again compare with those of the kept one,
// over the cells that both have.
type Reproduced struct {
	Kept string `json:"kept"`
	Made string `json:"made"`
	// Cells that both have are Equal to the last bit in all [Columns], or Near: within [Close] in
	// each, or Changed.
	Cells   int       `json:"cells"`
	Equal   int       `json:"equal"`
	Near    int       `json:"near"`
	Changed []Changed `json:"changed,omitempty"` // those that differ most in NLL come first
	// Reason names settings, models and data in which the runs differ; empty where there are none.
	Reason string `json:"reason,omitempty"`
}

// Changed is a cell whose figures differ by more than [Close].
type Changed struct {
	Cell
	// Columns are the names of those that differ, in the order of [Columns].
	Columns []string `json:"columns"`
	KeptNLL float64  `json:"kept_nll"`
	MadeNLL float64  `json:"made_nll"`
}

// Reproduce compares the records of a kept run with those of one that was made again, cell by cell.
// The second may have fewer repeats and methods. An error is returned where they share no cell.
func Reproduce(kept, made string, was, is []Record) (_ *Reproduced, err error) {
	out := &Reproduced{Kept: kept, Made: made}
	cells := map[Cell]*Record{}
	for i := range was {
		cells[was[i].Cell] = &was[i]
	}
	for i := range is {
		if old := cells[is[i].Cell]; old != nil {
			out.add(old, &is[i])
		}
	}
	if out.Cells == 0 {
		return nil, fmt.Errorf("runs %s and %s share no partition, repeat, protocol and method: "+
			"make the second with --config %[1]s/%s", kept, made, ConfigFile)
	}
	slices.SortStableFunc(out.Changed, func(a, b Changed) int {
		return cmp.Compare(math.Abs(b.MadeNLL-b.KeptNLL), math.Abs(a.MadeNLL-a.KeptNLL))
	})
	out.Reason, err = reason(kept, made)
	return out, err
}

// add compares two records of one cell.
func (o *Reproduced) add(old, r *Record) {
	o.Cells++
	ch := Changed{Cell: r.Cell, KeptNLL: old.NLL, MadeNLL: r.NLL}
	equal := true
	for _, c := range Columns {
		a, b := figure(c.Value(old)), figure(c.Value(r))
		if a == b {
			continue
		}
		equal = false
		x, isNumber := a.(float64)
		y, both := b.(float64)
		if !isNumber || !both || !(math.Abs(x-y) <= Close*max(1, math.Abs(x))) {
			ch.Columns = append(ch.Columns, c.Name)
		}
	}
	switch {
	case equal:
		o.Equal++
	case len(ch.Columns) == 0:
		o.Near++
	default:
		o.Changed = append(o.Changed, ch)
	}
}

// figure returns a value of a column so that two of them can be compared: numbers behind pointers,
// and text in place of anything else. All NaN are one value.
func figure(v any) any {
	if p, ok := v.(*float64); ok {
		if p == nil {
			return "none"
		}
		v = *p
	}
	if x, ok := v.(float64); ok && !math.IsNaN(x) {
		return x
	}
	return fmt.Sprint(v)
}

// reason says in which settings, models and data two runs differ, apart from their repeats and
// methods.
func reason(kept, made string) (string, error) {
	old, err := ReadManifest(kept)
	if err != nil {
		return "", err
	}
	m, err := ReadManifest(made)
	if err != nil {
		return "", err
	}
	c, err := ReadConfig(made)
	if err != nil {
		return "", err
	}
	was, err := ReadConfig(kept)
	if err != nil {
		return "", err
	}
	c.Seeds, c.Methods = was.Seeds, was.Methods
	if text := differences(kept, old, c, *m); text != same {
		return text, nil
	}
	return "", nil
}
