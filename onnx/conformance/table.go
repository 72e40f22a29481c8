package conformance

import (
	"fmt"
	"io"
	"sort"
	"strings"
)

// WriteTable writes, in Markdown, what each engine made of the tests, operator by operator: a test counts for every
// operator of its model. opsets gives, for the engine pure, the opsets that it implements an operator for; it may name operators
// that no test holds. The tests that an engine fails follow, each with what is [Known] of it.
func WriteTable(w io.Writer, engines map[string][]Result, opsets map[string]string) {
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
	head, rule := "| operator | opsets of pure ", "| --- | --- "
	for _, e := range names {
		head += fmt.Sprintf("| %s: passed | failed | unsupported ", e)
		rule += "| ---: | ---: | ---: "
	}
	fmt.Fprintln(w, head+"|")
	fmt.Fprintln(w, rule+"|")
	line := "| **all tests** | "
	for _, e := range names {
		line += cell(total[e])
	}
	fmt.Fprintln(w, line+"|")
	var ops []string
	for op := range opsets {
		if rows[op] == nil {
			rows[op] = map[string]*count{}
		}
	}
	for op := range rows {
		ops = append(ops, op)
	}
	sort.Slice(ops, func(i, j int) bool { return strings.ToLower(ops[i]) < strings.ToLower(ops[j]) })
	for _, op := range ops {
		line := "| " + op + " | " + opsets[op] + " "
		for _, e := range names {
			line += cell(rows[op][e])
		}
		fmt.Fprintln(w, line+"|")
	}
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
