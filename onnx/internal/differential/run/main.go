// Command run draws random graphs and prints the results that disagree; see package differential.
//
//	go run ./onnx/internal/differential/run -seed 1 -count 10000
package main

import (
	"encoding/gob"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"

	"fmp/onnx"
	"fmp/onnx/internal/differential"
)

// main exits with status 1 on an error, and on disagreements without a reason.
func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "differential:", err)
		os.Exit(1)
	}
}

// run prints results to standard output as tables of Markdown, and disagreements to standard error.
func run() error {
	family := flag.String("family", "",
		"families, apart by commas: all where it is left out: "+strings.Join(differential.Families(),
			", "))
	seed := flag.Uint64("seed", 1, "seed")
	first := flag.Int("first", 0, "number of the first graph of each family")
	count := flag.Int("count", 1000, "graphs of each family")
	show := flag.Int("show", 10, "unknown disagreements that are printed, of each family")
	peer := flag.String("peer", "",
		"this command built for another kind of machine (GOARCH=386), whose outputs are compared")
	emit := flag.Bool("emit", false, "write the outputs of the pure engine, for -peer")
	list := flag.Bool("print", false, "print the graphs and do no more")
	double := flag.Bool("double", false, "with -print: those for gradients")
	flag.Parse()
	families := differential.Families()
	if *family != "" {
		families = strings.Split(*family, ",")
		for _, f := range families {
			if !slices.Contains(differential.Families(), f) {
				return fmt.Errorf("there is no family %q; there are %s", f,
					strings.Join(differential.Families(), ", "))
			}
		}
	}
	if *emit {
		return write(families, *seed, *first, *count)
	}
	if *peer != "" {
		return compare(*peer, families, *seed, *first, *count, *show)
	}
	if *list {
		for _, f := range families {
			for i := *first; i < *first+*count; i++ {
				c := differential.Draw(f, *seed, i, *double)
				fmt.Printf("%s\n%s", c, describe(c))
			}
		}
		return nil
	}
	return check(families, *seed, *first, *count, *show)
}

// write encodes the pure engine's outputs for a peer. Cases come in the order in which compare
// draws them, and carry no label.
func write(families []string, seed uint64, first, count int) error {
	enc := gob.NewEncoder(os.Stdout)
	for _, f := range families {
		for i := first; i < first+count; i++ {
			if err := enc.Encode(pack(differential.Outputs(f, seed, i))); err != nil {
				return err
			}
		}
	}
	return nil
}

// check runs the graphs and prints a table of agreements, with the reasons of the rest. Without the
// ONNX Runtime the column of engines is 0. The error, by which the exit status is 1, comes of
// unknown disagreements alone.
func check(families []string, seed uint64, first, count, show int) error {
	other, err := runtime()
	if err != nil {
		return err
	}
	if other != nil {
		defer other.Close()
	}
	fmt.Println("| family | graphs | engines | folded | upgraded | gradients | declined | known | " +
		"unknown |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
	unknown := 0
	reasons := map[string]int{}
	for _, f := range families {
		shown := 0
		t, err := differential.Run(f, seed, first, count, other,
			func(c *differential.Case, d differential.Disagreement) {
				if d.Known == "" && shown < show {
					shown++
					fmt.Fprintf(os.Stderr, "%s: %s of %s: %s\n%s\n", c, d.Check, d.Op, d.Detail,
						describe(c))
				}
			})
		if err != nil {
			return err
		}
		declined, known := 0, 0
		for _, n := range t.Declined {
			declined += n
		}
		for why, n := range t.Known {
			known += n
			reasons[why] += n
		}
		fmt.Printf("| %s | %d | %d | %d | %d | %d | %d | %d | %d |\n", f, t.Cases, t.Compared["engine"],
			t.Compared["fold"], t.Compared["upgrade"], t.Compared["gradient"], declined,
			known, t.Unknown)
		unknown += t.Unknown
	}
	if len(reasons) > 0 {
		fmt.Println("\n| times | why |\n| ---: | --- |")
	}
	for _, why := range slices.Sorted(maps.Keys(reasons)) {
		fmt.Printf("| %d | %s |\n", reasons[why], why)
	}
	if unknown > 0 {
		return fmt.Errorf("%d disagreements without a reason", unknown)
	}
	return nil
}

// describe prints a case's nodes and values. Values are cut to 300 bytes, as a case is drawn again
// by its seed and number.
func describe(c *differential.Case) string {
	var b strings.Builder
	fmt.Fprintf(&b, "  operator set %d\n", c.Model.Opset())
	for _, n := range c.Model.Graph.Nodes {
		fmt.Fprintf(&b, "  %s(%s) -> %s", n.Op, strings.Join(n.Inputs, ", "),
			strings.Join(n.Outputs, ", "))
		for _, a := range n.Attrs {
			fmt.Fprintf(&b, " %s=%v%v%v%v%v%v", a.Name, a.Int, a.Float, a.Str, a.Ints,
				a.Floats, a.Strs)
		}
		fmt.Fprintln(&b)
	}
	for _, vs := range []map[string]*onnx.Tensor{c.Feeds, c.Model.Graph.Initializers} {
		for _, name := range slices.Sorted(maps.Keys(vs)) {
			fmt.Fprintf(&b, "  %s %v %.300s\n", name, vs[name], fmt.Sprint(vs[name].Data))
		}
	}
	return b.String()
}

// packed is a tensor as gob holds it. Values are float64, which hold all element types but 64-bit
// integers beyond 2^53 exactly. None marks a case without outputs, which gob would not tell from an
// empty list.
type packed struct {
	Name   string
	DType  onnx.DType
	Shape  []int
	Values []float64
	None   bool
}

// pack orders outputs by name, so that equal results are equal bytes.
func pack(out map[string]*onnx.Tensor) []packed {
	if out == nil {
		return []packed{{None: true}}
	}
	p := []packed{}
	for _, name := range slices.Sorted(maps.Keys(out)) {
		t := out[name]
		v := packed{Name: name, DType: t.DType, Shape: t.Shape}
		for i := range t.Len() {
			v.Values = append(v.Values, t.At(i))
		}
		p = append(p, v)
	}
	return p
}

// unpack returns the values that pack wrote, as float64 with the name of the element type's own
// tolerance lost.
func unpack(p []packed) map[string]*onnx.Tensor {
	if len(p) == 1 && p[0].None {
		return nil
	}
	out := map[string]*onnx.Tensor{}
	for _, v := range p {
		if v.Values == nil {
			v.Values = []float64{}
		}
		out[fmt.Sprintf("%s %v", v.Name, v.DType)] = &onnx.Tensor{DType: onnx.Float64,
			Shape: v.Shape, Data: v.Values}
	}
	return out
}

// compare runs the peer as a process and reads its outputs as both go on. Both draw the same cases,
// which follow from the arguments alone.
func compare(peer string, families []string, seed uint64, first, count, show int) error {
	cmd := exec.Command(peer, "-emit", "-family", strings.Join(families, ","), "-seed",
		fmt.Sprint(seed), "-first", fmt.Sprint(first), "-count", fmt.Sprint(count))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	dec := gob.NewDecoder(out)
	fmt.Println("| family | graphs | agree | neither runs | disagree |\n| --- | ---: | ---: | " +
		"---: | ---: |")
	bad := 0
	for _, f := range families {
		agree, none, differ := 0, 0, 0
		for i := first; i < first+count; i++ {
			var theirs []packed
			if err := dec.Decode(&theirs); err != nil {
				return fmt.Errorf("reading from %s: %w", peer, err)
			}
			// Our own outputs go the same way, so that both sides lose the same.
			own, other := unpack(pack(differential.Outputs(f, seed, i))), unpack(theirs)
			why := differential.Peer(own, other)
			switch {
			case why != "":
				if differ++; differ <= show {
					fmt.Fprintf(os.Stderr, "%s, seed %d, number %d: %s\n", f, seed, i, why)
				}
			case own == nil:
				none++
			default:
				agree++
			}
		}
		fmt.Printf("| %s | %d | %d | %d | %d |\n", f, count, agree, none, differ)
		bad += differ
	}
	// The rest is read so that the peer is not stopped by a closed pipe before Wait.
	io.Copy(io.Discard, out)
	if err := cmd.Wait(); err != nil {
		return err
	}
	if bad > 0 {
		return fmt.Errorf("%d disagreements", bad)
	}
	return nil
}
