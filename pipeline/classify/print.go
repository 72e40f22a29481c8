package classify

import (
	"bufio"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"fmp/onnx/printable"
)

// Format is an output format of predictions.
type Format string

// The formats.
const (
	Table Format = "table" // for people
	JSON  Format = "json"  // one object
	CSV   Format = "csv"
)

// FormatOf returns the format that the flags --json and --csv name; a table without them.
func FormatOf(asJSON, asCSV bool) (Format, error) {
	switch {
	case asJSON && asCSV:
		return Table, errors.New("--json and --csv are two formats; give one")
	case asJSON:
		return JSON, nil
	case asCSV:
		return CSV, nil
	}
	return Table, nil
}

// CheckReject returns a fault of --reject, the probability below which images are left to people.
// A probability that is no number is one.
func CheckReject(p float64) error {
	if !(p >= 0 && p <= 1) {
		return fmt.Errorf("--reject is %v; allowed are 0 to 1", p)
	}
	return nil
}

// Printer writes predictions: a table as they arrive, the other formats at the end, so that of a
// failed run there is no part that looks whole, unless it has more than wholeBytes.
// A Printer is for one goroutine.
type Printer struct {
	c      *Classifier
	w      *bufio.Writer
	whole  whole
	csv    *csv.Writer
	format Format
	// reject is the probability below which the most probable class is left to people to decide.
	reject       float64
	class        int // width of its column
	n, unsure    int
	intervals    bool
	entropy      bool
	disagreement bool
	sets         bool
}

// wholeBytes bounds the predictions that are held until they are all there.
const wholeBytes = 16 << 20

// whole holds output until it is complete or longer than wholeBytes.
type whole struct {
	w    io.Writer
	held []byte
}

// Write never fails for want of room: output beyond the bound goes out, and the rest is held anew.
func (h *whole) Write(p []byte) (int, error) {
	if len(h.held)+len(p) > wholeBytes {
		if err := h.release(); err != nil {
			return 0, err
		}
	}
	h.held = append(h.held, p...)
	return len(p), nil
}

// release writes the output that is held.
func (h *whole) release() error {
	held := h.held
	if h.held = nil; len(held) == 0 {
		return nil
	}
	_, err := h.w.Write(held)
	return err
}

// NewPrinter returns a Printer for predictions of c. Predictions whose most probable class has a
// probability below reject, 0 to 1, are marked as unsure, for people to decide.
// It writes the header at once, so that no prediction at all is a valid document too. Close is the
// caller's to call, once, after the last predictions.
func NewPrinter(w io.Writer, c *Classifier, format Format, reject float64) (*Printer, error) {
	if err := CheckReject(reject); err != nil {
		return nil, err
	}
	p := &Printer{c: c, format: format, reject: reject, class: len("class"),
		intervals: c.Has(low), entropy: c.Has(entropy), disagreement: c.Has(mutualInformation),
		sets: c.Has(set)}
	if format != Table {
		p.whole.w = w
		w = &p.whole
	}
	p.w = bufio.NewWriter(w)
	// A column of classes is as wide as the longest name, and has 16 characters at most.
	names := Names(c.Manifest)
	for _, name := range names {
		p.class = min(max(p.class, len([]rune(name))), 16)
	}
	switch format {
	case JSON:
		head, err := json.Marshal(struct {
			Model   string   `json:"model"` // sha256
			Classes []string `json:"classes"`
			Reject  float64  `json:"reject,omitempty"`
		}{c.Manifest.Digest, names, reject})
		if err != nil {
			return nil, err
		}
		// The object stays open: Print adds its predictions, and Close its end.
		fmt.Fprintf(p.w, "%s,\"predictions\":[", printable.JSON(head[:len(head)-1]))
	case CSV:
		p.csv = csv.NewWriter(p.w)
		header := []string{"file", "class", "probability", "second", "second_probability",
			"entropy", "mutual_information", "unsure"}
		if p.intervals {
			header = append(header, "low", "high")
		}
		if p.sets {
			header = append(header, "set")
		}
		return p, p.csv.Write(header)
	case Table:
		fmt.Fprintf(p.w, "%-36s  %-*s  %11s  %-*s  %6s  %12s", "file", p.class,
			"class", "probability", p.class, "second", "", "disagreement")
		if p.sets {
			p.w.WriteString("  set")
		}
		p.w.WriteByte('\n')
	default:
		return nil, fmt.Errorf("format %q; allowed are %s, %s and %s", format, Table, JSON, CSV)
	}
	return p, nil
}

// printed is a prediction as JSON.
// The order of the fields is that of the document. Set is omitted where nil, and kept where empty:
// an empty prediction set is an answer.
type printed struct {
	File              string    `json:"file"`
	Class             string    `json:"class"`
	Probability       float64   `json:"probability"`
	Second            string    `json:"second"`
	SecondProbability float64   `json:"second_probability"`
	Entropy           *float64  `json:"entropy,omitempty"`            // nats
	MutualInformation *float64  `json:"mutual_information,omitempty"` // nats
	Unsure            bool      `json:"unsure,omitempty"`
	Probabilities     []float32 `json:"probabilities"`
	Low               []float32 `json:"low,omitempty"`
	High              []float32 `json:"high,omitempty"`
	Set               []string  `json:"set,omitzero"`
}

// set returns the names of the classes in the prediction set, nil where the classifier has no sets.
func (p *Printer) set(q *Prediction) (names []string) {
	if p.sets {
		names = []string{}
	}
	for c, in := range q.Set {
		if in {
			names = append(names, p.c.Class(c))
		}
	}
	return names
}

// joined is a set as CSV has it: names are separated by |, and a | or \ in a name has a \ before
// it.
func joined(names []string) string {
	for i, n := range names {
		names[i] = strings.ReplaceAll(strings.ReplaceAll(n, `\`, `\\`), "|", `\|`)
	}
	return strings.Join(names, "|")
}

// Print writes predictions in the printer's format.
// A probability equal to reject is sure. The marks do not depend on the format.
func (p *Printer) Print(ps []Prediction) error {
	for i := range ps {
		q := &ps[i]
		first, second := q.Top()
		one, two := float64(q.Probabilities[first]), float64(q.Probabilities[second])
		unsure := one < p.reject
		if unsure {
			p.unsure++
		}
		p.n++
		// An output that the classifier lacks is 0 in a prediction, and no number in print.
		entropy := given(q.Entropy, p.entropy)
		disagreement := given(q.MutualInformation, p.disagreement)
		switch p.format {
		case JSON:
			text, err := json.Marshal(printed{q.Name, p.c.Class(first), one, p.c.Class(second), two,
				entropy, disagreement, unsure, q.Probabilities, q.Low,
				q.High, p.set(q)})
			if err != nil {
				return err
			}
			if p.n > 1 {
				p.w.WriteByte(',')
			}
			p.w.WriteByte('\n')
			p.w.Write(printable.JSON(text))
		case CSV:
			record := []string{q.Name, p.c.Class(first), number(one), p.c.Class(second),
				number(two), figure(entropy), figure(disagreement), strconv.FormatBool(unsure)}
			if p.intervals {
				record = append(record, number(float64(q.Low[first])),
					number(float64(q.High[first])))
			}
			if p.sets {
				record = append(record, joined(p.set(q)))
			}
			if err := p.csv.Write(record); err != nil {
				return err
			}
		default:
			// A table marks an unsure image by ?, and keeps the second class beside it.
			class := p.c.Class(first)
			if unsure {
				class = "?"
			}
			probability := fmt.Sprintf("%.3f", one)
			if p.intervals {
				probability = fmt.Sprintf("%.2f %.2f-%.2f", one, q.Low[first], q.High[first])
			}
			shown := "-"
			if disagreement != nil {
				shown = fmt.Sprintf("%.4f", *disagreement)
			}
			fmt.Fprintf(p.w, "%-36s  %-*s  %11s  %-*s  %6.3f  %12s", tail(q.Name, 36), p.class,
				head(class, p.class), probability, p.class, head(p.c.Class(second), p.class),
				two, shown)
			if p.sets {
				fmt.Fprintf(p.w, "  {%s}", head(strings.Join(p.set(q), ", "), 60))
			}
			p.w.WriteByte('\n')
		}
	}
	return p.w.Flush()
}

// Close completes the output, with the end of the JSON object or the number of unsure images, and
// flushes it.
// Without it output that is still held is never written, as is right after an error of the run.
func (p *Printer) Close() error {
	switch p.format {
	case JSON:
		fmt.Fprintf(p.w, "\n],\"count\":%d,\"unsure\":%d}\n", p.n, p.unsure)
	case Table:
		if p.reject > 0 {
			fmt.Fprintf(p.w, "%d of %d are below %v and left to people (?)\n", p.unsure,
				p.n, p.reject)
		}
	}
	if p.csv != nil {
		p.csv.Flush()
	}
	if err := p.w.Flush(); err != nil {
		return err
	}
	return p.whole.release()
}

// given is a number of the classifier's, nil where it has no such output.
func given(v float32, has bool) *float64 {
	if !has {
		return nil
	}
	f := float64(v)
	return &f
}

// figure is a number of [given] as CSV has it.
func figure(v *float64) string {
	if v == nil {
		return ""
	}
	return number(*v)
}

// number prints 6 significant digits, about the 7 that a float32 has.
func number(v float64) string { return strconv.FormatFloat(v, 'g', 6, 32) }

// tail shortens a text to its end, the most informative part of a path.
func tail(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	return "..." + string(r[len(r)-n+3:])
}

// head shortens a text to its beginning and removes characters that move a terminal's cursor.
func head(s string, n int) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, s)
	if r := []rune(s); len(r) > n {
		return string(r[:n])
	}
	return s
}
