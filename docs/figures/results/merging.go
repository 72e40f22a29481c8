package main

import (
	"encoding/csv"
	"fmt"
	"os"
	"strconv"

	"gonum.org/v1/plot/plotter"

	"fmp/docs/internal/panels"
)

// merging draws the cost of merging against the number of clients: processor time, memory and the
// size of the part, on logarithmic axes. Dashed lines grow in proportion.
func merging(table, path string) error {
	f, err := os.Open(table)
	if err != nil {
		return err
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		return fmt.Errorf("%s: %w", table, err)
	}
	var plots []*panels.Panel
	// Columns of the table that docs/results/merging.csv holds, by number.
	for _, c := range []struct {
		column       int
		title, label string
	}{{1, "1. adding up", "processor seconds"}, {5, "2. memory", "MiB"}, {3, "3. part", "MB"}} {
		var at plotter.XYs
		// The first row names the columns.
		for _, row := range rows[1:] {
			x, err := strconv.ParseFloat(row[0], 64)
			if err != nil {
				return fmt.Errorf("%s: %w", table, err)
			}
			y, err := strconv.ParseFloat(row[c.column], 64)
			if err != nil {
				return fmt.Errorf("%s: %w", table, err)
			}
			at = append(at, plotter.XY{X: x, Y: y})
		}
		plots = append(plots, panels.Growth(c.title, c.label, at))
	}
	return panels.Save(path, plots...)
}
