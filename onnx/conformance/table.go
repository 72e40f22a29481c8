package conformance

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"sort"
	"strings"

	"fmp/onnx/coverage"
)

// WriteTable writes, in Markdown, each engine's results on the tests: by operator set, and operator
// by operator, where a test counts for every operator of its model. The operators that no test
// holds are listed as well, and for each whether it has a shape rule, a kernel of the pure engine
// and a gradient. Missing parts follow with their reasons, and the tests that an engine fails, each
// with its [KnownFailure] reason, or does not run. Errors of w are passed over.
func WriteTable(w io.Writer, engines map[string][]Result) {
	names := slices.Sorted(maps.Keys(engines))
	fmt.Fprint(w, `# Operators

What the engines make of the ONNX standard's own operator tests, those of the Python package onnx. Written by
`+"`make conformance`"+`; do not edit. A test counts for every operator that its model holds, so that a
model of many operators that one of them makes unsupported is counted against all. Unsupported means refused,
by node and operator, before anything runs. The pure engine computes half-precision floats in float32.

`)
	writeSets(w, names, engines)
	fmt.Fprint(w, `
## By operator

Every operator's inputs, types, attributes and defaults are known (package onnx/op). Besides, it has a rule for
types and shapes, a kernel of the pure engine for some operator sets, which folds constants as well, and a gradient
(zero: its results do not vary with its floating-point inputs, or only in jumps); a dash has its reason below.

`)
	writeOperators(w, names, engines)
	fmt.Fprintf(w, "\n## What is missing\n\n| part | operators | why |\n| --- | --- | --- |\n%s\n",
		strings.Join(coverage.Reasons(), "\n"))
	for _, e := range names {
		writeFailures(w, e, engines[e])
		writeRefusals(w, e, engines[e])
	}
}

// counts are the verdicts of an engine on a group of tests.
type counts map[Verdict]int

// String is three cells of a table, empty where the engine has no test of the group.
func (c counts) String() string {
	if c == nil {
		return "| | | "
	}
	return fmt.Sprintf("| %d | %d | %d ", c[Passed], c[Failed], c[Unsupported])
}

// groups counts the verdicts of each engine, by the group of a test. A result counts in each of its
// groups. The maps are by group and then by engine.
func groups(engines map[string][]Result,
	group func(r Result) []string) map[string]map[string]counts {
	rows := map[string]map[string]counts{}
	for e, results := range engines {
		for _, r := range results {
			for _, g := range group(r) {
				if rows[g] == nil {
					rows[g] = map[string]counts{}
				}
				if rows[g][e] == nil {
					rows[g][e] = counts{}
				}
				rows[g][e][r.Verdict]++
			}
		}
	}
	return rows
}

// head writes the head of a table: its own columns, and three of each engine.
func head(w io.Writer, own []string, names []string) {
	line, rule := "| "+strings.Join(own, " | ")+" ", strings.Repeat("| --- ", len(own))
	for _, e := range names {
		line += fmt.Sprintf("| %s: passed | failed | unsupported ", e)
		rule += "| ---: | ---: | ---: "
	}
	fmt.Fprintf(w, "%s|\n%s|\n", line, rule)
}

// sets are the columns of the table by operator set, oldest first. A result falls into the first
// whose last set is not below its own. Set 0 is that of models without standard operators.
var sets = []struct {
	last int64
	name string
}{{0, "other domains alone"}, {6, "1 to 6"}, {12, "7 to 12"}, {16, "13 to 16"}, {18, "17 and 18"},
	{21, "19 to 21"}, {22, "22"}, {23, "23"}, {24, "24"}, {25, "25"}, {26, "26"},
	{27, "27"}, {28, "28"}}

// generated are the kinds of test that the standard makes from NumPy; the others were exported by
// PyTorch.
func generated(r Result) bool {
	return strings.HasPrefix(r.Name, "node/") || strings.HasPrefix(r.Name, "simple/")
}

// writeSets writes the table by operator set.
func writeSets(w io.Writer, names []string, engines map[string][]Result) {
	rows := groups(engines, func(r Result) []string {
		gs := []string{"all"}
		if generated(r) {
			gs = append(gs, "generated")
		}
		for _, s := range sets {
			if r.Opset <= s.last {
				return append(gs, s.name)
			}
		}
		// newer is beyond the last set that is listed.
		return append(gs, "newer")
	})
	// A group without tests has no line.
	line := func(title, group string) {
		if rows[group] == nil {
			return
		}
		text := "| " + title + " "
		for _, e := range names {
			text += rows[group][e].String()
		}
		fmt.Fprintln(w, text+"|")
	}
	head(w, []string{"operator set"}, names)
	line("**all tests**", "all")
	line("of them generated from NumPy (kinds node and simple)", "generated")
	for _, s := range sets {
		line(s.name, s.name)
	}
	line("newer", "newer")
}

// writeOperators writes a row for each operator of the tests and of the standard, by name whatever
// the case.
func writeOperators(w io.Writer, names []string, engines map[string][]Result) {
	rows := groups(engines, func(r Result) []string { return r.Ops })
	ops := slices.Collect(maps.Keys(rows))
	for _, op := range coverage.Standard() {
		if rows[op] == nil {
			ops = append(ops, op)
		}
	}
	sort.Slice(ops, func(i, j int) bool { return strings.ToLower(ops[i]) < strings.ToLower(ops[j]) })
	head(w, []string{"operator", "shapes", "opsets of pure", "gradient"}, names)
	for _, op := range ops {
		line := "| " + op + " "
		for _, part := range []coverage.Part{coverage.Shape, coverage.Kernel, coverage.Gradient} {
			line += "| " + coverage.Cell(op, part) + " "
		}
		for _, e := range names {
			line += rows[op][e].String()
		}
		fmt.Fprintln(w, line+"|")
	}
}

// particular are the parts of a reason that belong to one test: the names of model and node.
var particular = regexp.MustCompile(`(model|node|graph|input|output) "[^"]*"`)

// writeRefusals lists why an engine does not run tests, and how many. The reasons of most tests
// come first. Words that every reason has are cut, and a bar is escaped, which would end a cell.
func writeRefusals(w io.Writer, name string, results []Result) {
	tests := map[string][]string{}
	for _, r := range results {
		if r.Verdict != Unsupported {
			continue
		}
		// Reasons that differ in names alone are counted as one.
		why := particular.ReplaceAllString(r.Reason, "$1")
		for _, cut := range []string{"engine pure: the pure engine does not run this model: ",
			"ort: model: ", "loading model model.onnx: ",
			". Run it on the ONNX Runtime (engine ort) instead",
			". The model is at fault, and other engines refuse it too: correct it, or export it again"} {
			why = strings.ReplaceAll(why, cut, "")
		}
		why = strings.ReplaceAll(why, "|", "\\|")
		tests[why] = append(tests[why], r.Name[strings.LastIndexByte(r.Name, '/')+1:])
	}
	if len(tests) == 0 {
		return
	}
	// Equal numbers are ordered by the reason, so that each run writes the same page.
	reasons := slices.SortedFunc(maps.Keys(tests), func(a, b string) int {
		return cmp.Or(len(tests[b])-len(tests[a]), strings.Compare(a, b))
	})
	fmt.Fprintf(w, "\n## What %s does not run\n\n| tests | the first | why |\n| ---: | --- | --- |\n",
		name)
	for _, why := range reasons {
		fmt.Fprintf(w, "| %d | %s | %s |\n", len(tests[why]), tests[why][0], why)
	}
}

// writeFailures lists an engine's failures by their causes. Causes come in the order of the first
// test that fails by them.
func writeFailures(w io.Writer, name string, results []Result) {
	tests := map[string][]string{}
	var order []string
	for _, r := range results {
		if r.Verdict != Failed {
			continue
		}
		why := KnownFailure(r.Name)
		if why == "" {
			why = "not known: " + strings.ReplaceAll(r.Reason, "|", "\\|")
		}
		if tests[why] == nil {
			order = append(order, why)
		}
		tests[why] = append(tests[why], r.Name)
	}
	if len(order) == 0 {
		return
	}
	fmt.Fprintf(w, "\n## What %s fails\n\n| why | tests |\n| --- | --- |\n", name)
	for _, why := range order {
		fmt.Fprintf(w, "| %s | %s |\n", why, strings.Join(tests[why], ", "))
	}
}
