package experiment

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"fmp/onnx/sorting"
	"fmp/pipeline/lab/score"
	"fmp/pipeline/metric"
)

// Cell is the smallest unit of work of a run: one method on one task under one protocol.
type Cell struct {
	Partition string `json:"partition"`
	Repeat    int    `json:"repeat"` // 0 to seeds-1
	Protocol  string `json:"protocol"`
	Method    string `json:"method"`
}

// String names the cell in messages.
func (c Cell) String() string {
	return fmt.Sprintf("%s, repeat %d, %s, %s", c.Partition, c.Repeat, c.Protocol, c.Method)
}

// Record is one line of results.jsonl: the figures of one cell. Nothing in it depends on time,
// machine or the number of threads.
type Record struct {
	Cell
	Dataset string  `json:"dataset"`
	Alpha   float64 `json:"alpha"` // 0: homogeneous
	Group   string  `json:"group"` // rival.Group
	// Param is the hyper-parameter that the tuned protocol chooses, and Value its value in this
	// cell.
	Param string  `json:"param,omitempty"`
	Value float64 `json:"value,omitempty"`
	// Temperature divides the heads, as chosen by the tuned protocol; 0 where none was chosen,
	// which means 1. More holds the further settings that it chose.
	Temperature float64            `json:"temperature,omitempty"`
	More        map[string]float64 `json:"more,omitempty"`
	metric.Scores
	// Hindsight is the NLL with the settings and the temperature that are best on the scored
	// images; nil where the settings do not ask for it.
	Hindsight *float64 `json:"hindsight_nll,omitempty"`
	// UploadBytes is the size of one client's upload, in bytes; 0 for a method that sends nothing.
	UploadBytes float64            `json:"upload_bytes"`
	Diagnostics map[string]float64 `json:"diagnostics,omitempty"`
	// Coverage of the method's intervals against the limit of infinite data; nil where it has none.
	Coverage *score.Coverage `json:"coverage,omitempty"`
	// Membership is the area under the ROC curve of membership inference from an uploaded class
	// mean; nil where no class means are uploaded.
	Membership *float64 `json:"membership_auc,omitempty"`
	// Absent holds scores on images of classes that no client holds; nil where every class is held.
	Absent *score.Absent `json:"absent,omitempty"`
	// Shifted holds scores on other and corrupted images, where the settings ask for them.
	Shifted []score.Shifted `json:"shifted,omitempty"`
	// BySamples scores prefixes of the ensemble, for methods with one ensemble of several heads.
	BySamples []score.Prefix `json:"by_samples,omitempty"`
	// Origin names the file of predictions that the figures are of, for a method from outside this
	// program; empty for the program's own.
	Origin string `json:"origin,omitempty"`
}

// parseRecords reads JSON Lines. A last line without a newline was cut short when the
// run was stopped and is dropped; any other malformed line is an error with its number, and so are
// the second record of a cell and a figure out of its range.
func parseRecords(data []byte) ([]Record, error) {
	var out []Record
	has := map[Cell]bool{}
	n := 0
	for line := range bytes.Lines(data) {
		if n++; !bytes.HasSuffix(line, []byte("\n")) {
			break
		}
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var r Record
		if err := parseJSON(line, &r); err != nil {
			return nil, fmt.Errorf("line %d is not a record: %w", n, err)
		}
		if err := r.check(); err != nil {
			return nil, fmt.Errorf("line %d, %s: %w", n, r.Cell, err)
		}
		if has[r.Cell] {
			return nil, fmt.Errorf("line %d is a second record of %s: remove one of the "+
				"two", n, r.Cell)
		}
		has[r.Cell], out = true, append(out, r)
	}
	return out, nil
}

// most are the largest values of the figures that have one, by their names in a record. The least
// is 0 for all columns of numbers but value, a setting, which is not looked at.
var most = map[string]float64{"acc": 1, "ece": 1, "brier": 2, "aurc": 1, "class_ece": 1,
	"adaptive_ece": 1, "membership_auc": 1, "auroc_entropy": 1, "auroc_disagreement": 1,
	"confidence": 1, "accuracy": 1}

// rounding is how far beyond its range a figure may lie: an NLL of certain answers is -1e-12.
const rounding = 1e-3

// check returns an error for a figure that no predictions have.
func (r *Record) check() error {
	var err error
	see := func(name string, v float64) {
		top, ok := most[name]
		if strings.HasPrefix(name, "coverage_") {
			top, ok = 1, true
		}
		if err == nil && (v < -rounding || ok && v > top+rounding) {
			allowed := "0 or more"
			if ok {
				allowed = fmt.Sprintf("0 to %v", top)
			}
			err = fmt.Errorf("%s is %v; want %s: take the run's own file, or run it again",
				name, v, allowed)
		}
	}
	for _, c := range Columns {
		switch v := c.Value(r).(type) {
		case float64:
			if c.Name != "value" {
				see(c.Name, v)
			}
		case *float64:
			if v != nil {
				see(c.Name, *v)
			}
		}
	}
	scores := func(acc, ece, nll float64) { see("acc", acc); see("ece", ece); see("nll", nll) }
	for _, s := range r.Shifted {
		scores(s.ACC, s.ECE, s.NLL)
		see("auroc_entropy", s.Entropy)
		see("auroc_disagreement", s.Disagreement)
	}
	for _, p := range r.BySamples {
		scores(p.ACC, p.ECE, p.NLL)
		if p.Joint != nil {
			see("joint_nll_near", p.Joint.Near)
			see("joint_nll_random", p.Joint.Random)
		}
	}
	if a := r.Absent; a != nil {
		scores(a.ACC, 0, a.NLL)
	}
	for _, b := range r.Curve {
		see("count", b.Count)
		see("confidence", b.Confidence)
		see("accuracy", b.Accuracy)
	}
	return err
}

// encodeRecords writes records as JSON Lines. NaN and infinite figures, which JSON lacks, are
// errors.
func encodeRecords(rs []Record) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	for _, r := range rs {
		if err := e.Encode(r); err != nil {
			return nil, fmt.Errorf("record of %s: %w", r.Cell, err)
		}
	}
	return b.Bytes(), nil
}

// sortRecords sorts records in the order of cells and drops duplicates, and records of none of
// them. Of two records of a cell the first is kept.
func sortRecords(rs []Record, cells []Cell) []Record {
	at := map[Cell]int{}
	for i, c := range cells {
		at[c] = i
	}
	out := slices.DeleteFunc(slices.Clone(rs),
		func(r Record) bool { _, ok := at[r.Cell]; return !ok })
	sorting.Stably(out, func(a, b Record) int { return cmp.Compare(at[a.Cell], at[b.Cell]) })
	return slices.CompactFunc(out, func(a, b Record) bool { return a.Cell == b.Cell })
}

// MethodsOf returns the methods of records, in their order.
func MethodsOf(rs []Record) []string {
	var out []string
	for _, r := range rs {
		if !slices.Contains(out, r.Method) {
			out = append(out, r.Method)
		}
	}
	return out
}

// ScopeNotes states which form FMP used, where both were available or it used the open one: in how
// many tasks, and at which novelty of their uploads.
func ScopeNotes(rs []Record) []string {
	tasks, open, low, high := map[Cell]bool{}, 0, math.Inf(1), math.Inf(-1)
	for _, r := range rs {
		// Records of one task under several protocols state the same form.
		is, ok := r.Diagnostics["open"]
		at := Cell{Partition: r.Partition, Repeat: r.Repeat}
		if r.Method != "FMP" || !ok || tasks[at] {
			continue
		}
		tasks[at] = true
		if is == 1 {
			open++
		}
		low, high = min(low, r.Diagnostics["novelty"]), max(high, r.Diagnostics["novelty"])
	}
	if len(tasks) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("FMP took its open form in %d of %d tasks; novelty of the "+
		"uploads %.2f to %.2f (about 1: the corpus's classes)", open, len(tasks), low, high)}
}
