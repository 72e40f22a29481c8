package conformance

import (
	"fmt"
	"io"
	"sort"
	"strings"

	"fmp/onnx/coverage"
)

// WriteTable writes, in Markdown, what each engine made of the tests, operator by operator: a test counts for every
// operator of its model. The operators that no test holds are listed as well, and for each whether it has a shape rule, a kernel
// of the pure engine and a gradient. What is missing follows with its reason, and the tests that an engine fails, each with
// what is [Known] of it.
func WriteTable(w io.Writer, engines map[string][]Result) {
	var names []string
	for n := range engines {
		names = append(names, n)
	}
	sort.Strings(names)
	type count struct{ passed, failed, unsupported int }
	rows := map[string]map[string]*count{}
	total := map[string]*count{}
	for _, e := range names {
		total[e] = &count{}
		for _, r := range engines[e] {
			counts := []*count{total[e]}
			for _, op := range r.Ops {
				if rows[op] == nil {
					rows[op] = map[string]*count{}
				}
				if rows[op][e] == nil {
					rows[op][e] = &count{}
				}
				counts = append(counts, rows[op][e])
			}
			for _, c := range counts {
				switch r.Verdict {
				case Passed:
					c.passed++
				case Failed:
					c.failed++
				default:
					c.unsupported++
				}
			}
		}
	}
	cell := func(c *count) string {
		if c == nil {
			return "| | | "
		}
		return fmt.Sprintf("| %d | %d | %d ", c.passed, c.failed, c.unsupported)
	}
	fmt.Fprintln(w, "# Operators")
	fmt.Fprintln(w)
	fmt.Fprintln(w, "What the engines make of the ONNX standard's own operator tests (Debian's libonnx-testdata). Written by")
	fmt.Fprintln(w, "`make conformance`; do not edit. A test counts for every operator that its model holds, so that a")
	fmt.Fprintln(w, "model of many operators that one of them makes unsupported is counted against all. Unsupported means refused,")
	fmt.Fprintln(w, "by node and operator, before anything runs. The pure engine computes half-precision floats in float32.")
	fmt.Fprintln(w)
	fmt.Fprintln(w, "Every operator's inputs, types, attributes and defaults are known (package onnx/op). Besides, it has a rule for")
	fmt.Fprintln(w, "types and shapes, a kernel of the pure engine for some operator sets, which folds constants as well, and a gradient")
	fmt.Fprintln(w, "(zero: its results do not vary with its floating-point inputs, or only in jumps); a dash has its reason below.")
	fmt.Fprintln(w)
	head, rule := "| operator | shapes | opsets of pure | gradient ", "| --- | --- | --- | --- "
	for _, e := range names {
		head += fmt.Sprintf("| %s: passed | failed | unsupported ", e)
		rule += "| ---: | ---: | ---: "
	}
	fmt.Fprintln(w, head+"|")
	fmt.Fprintln(w, rule+"|")
	line := "| **all tests** | | | "
	for _, e := range names {
		line += cell(total[e])
	}
	fmt.Fprintln(w, line+"|")
	var ops []string
	for _, op := range coverage.Operators() {
		if rows[op] == nil {
			rows[op] = map[string]*count{}
		}
	}
	for op := range rows {
		ops = append(ops, op)
	}
	sort.Slice(ops, func(i, j int) bool { return strings.ToLower(ops[i]) < strings.ToLower(ops[j]) })
	for _, op := range ops {
		line := "| " + op + " "
		for _, part := range []coverage.Part{coverage.Shape, coverage.Kernel, coverage.Gradient} {
			line += "| " + coverage.Cell(op, part) + " "
		}
		for _, e := range names {
			line += cell(rows[op][e])
		}
		fmt.Fprintln(w, line+"|")
	}
	fmt.Fprintf(w, "\n## What is missing\n\n| part | operators | why |\n| --- | --- | --- |\n%s\n", strings.Join(coverage.Reasons(), "\n"))
	for _, e := range names {
		writeFailures(w, e, engines[e])
	}
}

// writeFailures lists what an engine's failures come of, and which they are.
func writeFailures(w io.Writer, name string, results []Result) {
	tests := map[string][]string{}
	var order []string
	for _, r := range results {
		if r.Verdict != Failed {
			continue
		}
		why := Known(r.Name)
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
