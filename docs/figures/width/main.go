// The program width measures fits of points x rows of a head x classes beside scikit-learn and
// scipy, and draws the figure of docs/speed.md.
//
//	go run ./docs/figures/width measure PEERS > docs/figures/width.txt
//	go run ./docs/figures/width draw docs/figures/width.txt docs/figures/width.svg
//
// PEERS is the folder of peer.py and its virtual environment (make bench-peers). All stop at the
// same gradient; the least processor time of a few runs in turns on one thread counts. It takes
// half an hour. A third argument of measure, N x D x C, measures that size alone.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"fmp/docs/internal/panels"
	"fmp/pipeline/lab/bench"
)

const (
	most   = 2.1e9                   // points x rows x classes of the largest fit
	budget = 1500 * time.Millisecond // of the runs of one contender, after the first
	goal   = 1.5                     // times as long as fmp
)

func main() {
	var err error
	switch args := os.Args[1:]; {
	case len(args) == 2 && args[0] == "measure":
		err = measure(context.Background(), args[1], "")
	case len(args) == 3 && args[0] == "measure":
		err = measure(context.Background(), args[1], args[2])
	case len(args) == 3 && args[0] == "draw":
		err = figure(args[1], args[2])
	default:
		err = errors.New("usage: width measure PEERS [N x D x C], or width draw ROWS FILE.svg")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "width:", err)
		os.Exit(1)
	}
}

// measure prints a row for every size: its name, "strong" where the features have 32 long
// directions, our milliseconds, and those of the others.
func measure(ctx context.Context, peers, only string) error {
	for _, stretched := range []bool{false, true} {
		for _, n := range []int{100, 1000, 10_000, 100_000} {
			for _, d := range []int{65, 513, 2049} {
				for _, c := range []int{2, 10, 100, 1000} {
					s := bench.FitSize{N: n, D: d, C: c}
					// A fit has two points a class or more.
					if c > n/2 || float64(n)*float64(d)*float64(c) > most || only != "" &&
						only != s.String() {
						continue
					}
					if err := cell(ctx, bench.Peers(peers), s, stretched); err != nil {
						return fmt.Errorf("%v: %w", s, err)
					}
				}
			}
		}
	}
	return nil
}

// cell measures one size. newton-cg is left out where it takes long: it is never the best there.
func cell(ctx context.Context, peers bench.Peers, s bench.FitSize, stretched bool) error {
	ours, others, end, err := bench.FitContenders(ctx, peers, s, stretched)
	if err != nil {
		return err
	}
	defer end()
	least := map[string]float64{"fmp": math.Inf(1)}
	again := func(name string, c bench.Contender) error {
		// The least of up to five runs counts, since other programs only add time.
		var spent time.Duration
		for run := 0; run < 5 && spent < budget; run++ {
			took, err := c.Once()
			if err != nil {
				return err
			}
			spent += took
			if was, ok := least[name]; !ok || took.Seconds() < was {
				least[name] = took.Seconds()
			}
		}
		return nil
	}
	if err := again("fmp", ours); err != nil {
		return err
	}
	for _, how := range slices.Sorted(maps.Keys(others)) {
		if how == "newton-cg" && s.N*s.D > 1_000_000 {
			continue
		}
		c, err := others[how]()
		if err != nil {
			return err
		}
		if c.Once == nil {
			return fmt.Errorf("%s is not at hand in %s", how, peers)
		}
		// fmp runs again beside each of the others, so that a slower machine slows both.
		if err := errors.Join(again(how, c), c.Close(), again("fmp", ours)); err != nil {
			return err
		}
	}
	kind := "plain"
	if stretched {
		kind = "strong"
	}
	fmt.Printf("%d %d %d %s", s.N, s.D, s.C, kind)
	// A contender that was left out is printed as 0.
	for _, how := range []string{"fmp", "lbfgs", "newton-cg", "scipy"} {
		fmt.Printf(" %.3g", 1e3*least[how])
	}
	fmt.Println()
	return nil
}

// row is a measured size, and the best other's time over ours.
type row struct {
	n, d, c int
	kind    string
	ratio   float64
}

// read returns the rows of a file of [measure]; lines that begin with # are its head. A time of 0
// is of a contender that was left out.
func read(path string) (out []row, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		var r row
		var ours float64
		var others [3]float64
		if _, err := fmt.Sscan(lines.Text(), &r.n, &r.d, &r.c, &r.kind, &ours, &others[0],
			&others[1], &others[2]); err != nil {
			return nil, fmt.Errorf("%s: %q: %w", path, lines.Text(), err)
		}
		best := math.Inf(1)
		for _, v := range others {
			if v > 0 {
				best = min(best, v)
			}
		}
		r.ratio = best / ours
		out = append(out, r)
	}
	return out, lines.Err()
}

// figure draws the ratios against the rows of a head: a panel for each number of classes, a line
// for each number of points.
func figure(from, to string) error {
	rows, err := read(from)
	if err != nil {
		return err
	}
	var plots []*panels.Panel
	for _, c := range []int{2, 10, 100} {
		p := panels.New(fmt.Sprintf("fit: %d classes", c))
		p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
		p.X.Tick.Marker = plot.ConstantTicks{{Value: 65, Label: "65"}, {Value: 513, Label: "513"},
			{Value: 2049, Label: "2,049"}}
		p.Y.Tick.Marker = plot.ConstantTicks{{Value: 1, Label: "1"}, {Value: goal, Label: "1.5"},
			{Value: 3, Label: "3"}, {Value: 10, Label: "10"}, {Value: 30, Label: "30"}}
		p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 60, 2200, .8, 200
		p.Y.Label.Text = "times as long as fmp"
		p.Y.Label.TextStyle = panels.Style(9, panels.Palette[8])
		p.X.Label.Text = "rows of a head"
		p.X.Label.TextStyle = panels.Style(9, panels.Palette[8])
		p.Legend.Top, p.Legend.TextStyle.Font = true, panels.Style(8, panels.Palette[8]).Font
		level := p.Line(panels.Palette[8], 1, plotter.XY{X: 60, Y: goal},
			plotter.XY{X: 2200, Y: goal})
		level.Dashes = []vg.Length{vg.Points(3), vg.Points(3)}
		for i, n := range []int{100, 1000, 10_000, 100_000} {
			add(p, rows, n, c, i)
		}
		plots = append(plots, p)
	}
	return panels.Save(to, plots...)
}

// add draws the lines of n points: whole where features are plain, dotted where they are strong.
func add(p *panels.Panel, rows []row, n, c, colour int) {
	for _, kind := range []string{"plain", "strong"} {
		var at plotter.XYs
		for _, r := range rows {
			if r.n == n && r.c == c && r.kind == kind {
				at = append(at, plotter.XY{X: float64(r.d), Y: r.ratio})
			}
		}
		if len(at) == 0 {
			continue
		}
		line, marks := p.Line(panels.Palette[colour], 1, at...), plotter.DefaultGlyphStyle
		if kind == "strong" {
			line.Dashes = []vg.Length{vg.Points(1), vg.Points(2)}
		} else {
			p.Legend.Add(fmt.Sprintf("%d points", n), line)
		}
		marks.Color = panels.Palette[colour]
		p.Dots(marks, at...)
	}
}
