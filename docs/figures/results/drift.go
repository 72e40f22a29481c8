package main

import (
	"encoding/json"
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"

	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"fmp/docs/internal/panels"
	"fmp/pipeline/lab/martingale"
)

// drift draws how far predictions go from their start under predictive resampling, from the kept
// runs of fmp bench martingale.
func drift(root, path string) error {
	var plots []*panels.Panel
	for _, c := range []struct{ title, name string }{{"1. MNIST, even clients", "mnist"},
		{"2. MNIST, α = 0.1", "mnist-0.1"},
		{"3. CIFAR-10, even clients", "cifar10"}, {"4. CIFAR-10, α = 0.1", "cifar10-0.1"}} {
		data, err := os.ReadFile(filepath.Join(root, c.name+".json"))
		if err != nil {
			return err
		}
		var kept struct{ Rows []martingale.Row }
		if err := json.Unmarshal(data, &kept); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		plots = append(plots, panel(c.title, kept.Rows))
	}
	return panels.SaveSized(path, 2.4*vg.Inch, 2.4*vg.Inch, plots...)
}

// panel is one line a method: the mean probability less that at the start, with bars of 95% of the
// sum of its drifts. Errors of batches are taken as independent: their squares add up.
func panel(title string, rows []martingale.Row) *panels.Panel {
	p := panels.New(title)
	p.X.Label.Text, p.X.Label.TextStyle = "draws", panels.Style(8, color.Black)
	for i, row := range rows {
		var at plotter.XYs
		var half []float64
		var square float64
		// With e_j the standard error of batch j's drift, the bar of step k is ± 1.96 √(e_1² + ...
		// + e_k²).
		for _, s := range row.Steps {
			square += s.DriftError * s.DriftError
			at = append(at, plotter.XY{X: s.Drawn, Y: s.Probability - row.Steps[0].Probability})
			half = append(half, 1.96*math.Sqrt(square))
		}
		p.Legend.Add(row.Method, p.Line(panels.Palette[i], 1, at...))
		p.Bars(panels.Palette[i], at, half)
	}
	p.Y.Label.Text, p.Y.Label.TextStyle = "probability less the start's",
		panels.Style(8, color.Black)
	p.Legend.Top = true
	p.Small()
	// All panels have one scale, so that they can be compared.
	p.Y.Min, p.Y.Max = -0.035, 0.08
	return p
}
