package report

import (
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strings"

	"fmp/pipeline/lab/experiment"
)

// Runs are the records of several runs, each with its name and its values of the settings in which
// they differ.
type Runs struct {
	Names   []string
	Records [][]experiment.Record
	Keys    []string
	Values  [][]string // of each run
}

// exported is a record of the i-th run.
type exported struct {
	*experiment.Record
	run int
}

// Parquet writes the records of runs as one Parquet file: run, [experiment.Columns], the origin of
// a method from outside, and the settings in which the runs differ, KEY=VALUE, by semicolons.
func Parquet(w io.Writer, runs *Runs) error {
	var rows []exported
	varied := make([]string, len(runs.Records))
	for i, rs := range runs.Records {
		var pairs []string
		for k, key := range runs.Keys {
			pairs = append(pairs, key+"="+runs.Values[i][k])
		}
		varied[i] = strings.Join(pairs, ";")
		for j := range rs {
			rows = append(rows, exported{&rs[j], i})
		}
	}
	columns := []parquetColumn[exported]{
		{"run", "", func(r exported) any { return runs.Names[r.run] }}}
	for _, c := range experiment.Columns {
		// The value of an empty record tells the column's type.
		columns = append(columns, parquetColumn[exported]{c.Name, c.Value(&experiment.Record{}),
			func(r exported) any { return c.Value(r.Record) }})
	}
	columns = append(columns,
		parquetColumn[exported]{"origin", "", func(r exported) any { return r.Origin }},
		parquetColumn[exported]{"varied", "", func(r exported) any { return varied[r.run] }})
	if err := writeParquet(w, rows, columns); err != nil {
		return fmt.Errorf("writing Parquet: %w", err)
	}
	return nil
}

// CSV writes the records of runs with a heading line; each setting in which the runs differ is a
// column. Columns are run, [experiment.Columns], origin and the settings, in this order. A field
// that a record lacks is empty.
func CSV(w io.Writer, runs *Runs) error {
	lines := [][]string{slices.Concat([]string{"run"}, experiment.CSVHeading(), []string{"origin"},
		runs.Keys)}
	for i, rs := range runs.Records {
		for _, r := range rs {
			lines = append(lines, slices.Concat([]string{runs.Names[i]}, r.CSV(),
				[]string{r.Origin}, runs.Values[i]))
		}
	}
	// WriteAll flushes, and an error of that is its own.
	if err := csv.NewWriter(w).WriteAll(lines); err != nil {
		return fmt.Errorf("writing CSV: %w", err)
	}
	return nil
}
