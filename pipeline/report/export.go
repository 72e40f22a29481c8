package report

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"

	"github.com/parquet-go/parquet-go"

	"fmp/pipeline/experiment"
)

// ExportRow is one record of one run, flat: a line of the Parquet export.
type ExportRow struct {
	Run         string  `parquet:"run"`
	Dataset     string  `parquet:"dataset"`
	Partition   string  `parquet:"partition"`
	Alpha       float64 `parquet:"alpha"`
	Repeat      int32   `parquet:"repeat"`
	Protocol    string  `parquet:"protocol"`
	Method      string  `parquet:"method"`
	Group       string  `parquet:"group"`
	Param       string  `parquet:"param"`
	Value       float64 `parquet:"value"`
	ACC         float64 `parquet:"acc"`
	ECE         float64 `parquet:"ece"`
	NLL         float64 `parquet:"nll"`
	Brier       float64 `parquet:"brier"`
	UploadBytes float64 `parquet:"upload_bytes"`
}

// Parquet writes the records of runs, each under its name, as one Parquet file.
func Parquet(w io.Writer, names []string, runs [][]experiment.Record) error {
	var rows []ExportRow
	for i, rs := range runs {
		for _, r := range rs {
			rows = append(rows, ExportRow{Run: names[i], Dataset: r.Dataset, Partition: r.Partition, Alpha: r.Alpha, Repeat: int32(r.Repeat), Protocol: r.Protocol,
				Method: r.Method, Group: r.Group, Param: r.Param, Value: r.Value, ACC: r.ACC, ECE: r.ECE, NLL: r.NLL, Brier: r.Brier, UploadBytes: r.UploadBytes})
		}
	}
	if err := parquet.Write(w, rows); err != nil {
		return fmt.Errorf("writing Parquet: %w", err)
	}
	return nil
}

// CSV writes the records of runs, each under its name, with a heading line.
func CSV(w io.Writer, names []string, runs [][]experiment.Record) error {
	c := csv.NewWriter(w)
	if err := c.Write([]string{"run", "dataset", "partition", "alpha", "repeat", "protocol", "method", "group", "param", "value", "acc", "ece", "nll", "brier", "upload_bytes"}); err != nil {
		return fmt.Errorf("writing CSV: %w", err)
	}
	num := func(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
	for i, rs := range runs {
		for _, r := range rs {
			if err := c.Write([]string{names[i], r.Dataset, r.Partition, num(r.Alpha), strconv.Itoa(r.Repeat), r.Protocol, r.Method, r.Group,
				r.Param, num(r.Value), num(r.ACC), num(r.ECE), num(r.NLL), num(r.Brier), num(r.UploadBytes)}); err != nil {
				return fmt.Errorf("writing CSV: %w", err)
			}
		}
	}
	c.Flush()
	if err := c.Error(); err != nil {
		return fmt.Errorf("writing CSV: %w", err)
	}
	return nil
}
