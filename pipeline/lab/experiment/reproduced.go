package experiment

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// Close is the largest difference of figures that are told as close, of those above 1 relative to
// them: of other machines, whose vector instructions add in another order, or of other threads of
// the ONNX Runtime.
const Close = 1e-6

// Reproduced says how the figures of a run that was made again compare with those of the kept one,
// over the cells that both have.
type Reproduced struct {
	Kept string `json:"kept"`
	Made string `json:"made"`
	// Cells that both have are Equal to the last bit in all that their records hold, or Near: within
	// [Close] in each figure, or Changed.
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
	// Figures are the names of those that differ, or that one record lacks, in alphabetical order.
	Figures []string `json:"figures"`
	KeptNLL float64  `json:"kept_nll"`
	MadeNLL float64  `json:"made_nll"`
}

// Reproduce compares the records of a kept run with those of one that was made again, cell by cell.
// The second may have fewer repeats and methods. An error is returned where they share no cell. Of
// two records of one cell in was the last counts. Records are not changed. Reading the manifests
// and settings of both folders may fail, and the comparison is then returned beside the error.
func Reproduce(kept, made string, was, is []Record) (_ *Reproduced, err error) {
	out := &Reproduced{Kept: kept, Made: made}
	cells := map[Cell]*Record{}
	for i := range was {
		cells[was[i].Cell] = &was[i]
	}
	for i := range is {
		if old := cells[is[i].Cell]; old != nil {
			if err := out.add(old, &is[i]); err != nil {
				return nil, err
			}
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

// add compares two records of one cell. Texts and absent figures are equal or changed, and never
// near.
func (o *Reproduced) add(old, r *Record) error {
	was, err := old.figures()
	if err != nil {
		return err
	}
	is, err := r.figures()
	if err != nil {
		return err
	}
	o.Cells++
	ch := Changed{Cell: r.Cell, KeptNLL: old.NLL, MadeNLL: r.NLL}
	equal := true
	for _, name := range slices.Sorted(maps.Keys(is)) {
		if _, both := was[name]; !both {
			was[name] = nil
		}
	}
	for _, name := range slices.Sorted(maps.Keys(was)) {
		a, b := was[name], is[name]
		if a == b {
			continue
		}
		equal = false
		x, isNumber := a.(float64)
		y, both := b.(float64)
		if !isNumber || !both || math.Abs(x-y) > Close*max(1, math.Abs(x)) {
			ch.Figures = append(ch.Figures, name)
		}
	}
	switch {
	case equal:
		o.Equal++
	case len(ch.Figures) == 0:
		o.Near++
	default:
		o.Changed = append(o.Changed, ch)
	}
	return nil
}

// figures are all that a record holds, by their names in [ResultsFile], such as ece or
// shifted.0.nll: numbers and texts. The way through JSON takes in figures that a record may get
// later, without a list of them here.
func (r *Record) figures() (map[string]any, error) {
	data, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("record of %s: %w", r.Cell, err)
	}
	var tree any
	if err := json.Unmarshal(data, &tree); err != nil {
		return nil, fmt.Errorf("record of %s: %w", r.Cell, err)
	}
	out := map[string]any{}
	var walk func(name string, v any)
	walk = func(name string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for k, e := range v {
				walk(name+"."+k, e)
			}
		case []any:
			for i, e := range v {
				walk(fmt.Sprintf("%s.%d", name, i), e)
			}
		default:
			out[strings.TrimPrefix(name, ".")] = v
		}
	}
	walk("", tree)
	return out, nil
}

// reason says in which settings, models and data two runs differ, apart from their repeats and
// methods. Repeats and methods are left out since a second run may have fewer of them.
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
