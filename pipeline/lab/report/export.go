package report

import (
	"encoding/csv"
	"fmt"
	"io"
	"strings"

	"fmp/pipeline/lab/experiment"
)

// ExportRow is one record of one run, flattened: a row of the Parquet export.
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
	// Null for records without them.
	JointNear    *float64 `parquet:"joint_nll_near,optional"`
	JointRandom  *float64 `parquet:"joint_nll_random,optional"`
	AURC         *float64 `parquet:"aurc,optional"`
	ClassECE     *float64 `parquet:"class_ece,optional"`
	AdaptiveECE  *float64 `parquet:"adaptive_ece,optional"`
	Entropy      *float64 `parquet:"entropy,optional"`
	Disagreement *float64 `parquet:"disagreement,optional"`

	Temperature       float64  `parquet:"temperature"` // 0: none was chosen
	CoverageTop       *float64 `parquet:"coverage_top,optional"`
	CoverageUncertain *float64 `parquet:"coverage_uncertain,optional"`
	CoverageWeights   *float64 `parquet:"coverage_weights,optional"`
	Membership        *float64 `parquet:"membership_auc,optional"`
	Origin            string   `parquet:"origin"` // of a method from outside; empty for the program's own
	Varied            string   `parquet:"varied"` // settings in which the runs differ, KEY=VALUE, by semicolons
}

// Runs are the records of several runs, each with its name and its values of the settings in which
// they differ.
type Runs struct {
	Names   []string
	Records [][]experiment.Record
	Keys    []string
	Values  [][]string // of each run
}

// Parquet writes the records of runs as one Parquet file.
func Parquet(w io.Writer, runs *Runs) error {
	var rows []ExportRow
	names := runs.Names
	for i, rs := range runs.Records {
		var varied []string
		for k, key := range runs.Keys {
			varied = append(varied, key+"="+runs.Values[i][k])
		}
		for _, r := range rs {
			row := ExportRow{Run: names[i], Dataset: r.Dataset, Partition: r.Partition, Alpha: r.Alpha,
				Repeat: int32(r.Repeat), Protocol: r.Protocol,
				Method: r.Method, Group: r.Group, Param: r.Param, Value: r.Value,
				ACC: r.ACC, ECE: r.ECE, NLL: r.NLL, Brier: r.Brier,
				UploadBytes: r.UploadBytes, Temperature: r.Temperature, Membership: r.Membership,
				Origin: r.Origin, Varied: strings.Join(varied, ";")}
			if u := r.Uncertainty; u != nil {
				row.AURC, row.ClassECE, row.AdaptiveECE, row.Entropy, row.Disagreement = &u.AURC,
					&u.ClassECE,
					&u.AdaptiveECE, &u.Entropy,
					&u.Disagreement
				if u.Joint != nil {
					row.JointNear, row.JointRandom = &u.Joint.Near, &u.Joint.Random
				}
			}
			if v := r.Coverage; v != nil {
				row.CoverageTop, row.CoverageUncertain, row.CoverageWeights = &v.Top,
					v.Uncertain, v.Weights
			}
			rows = append(rows, row)
		}
	}
	if err := writeParquet(w, rows); err != nil {
		return fmt.Errorf("writing Parquet: %w", err)
	}
	return nil
}

// CSV writes the records of runs with a heading line; each setting in which the runs differ is a
// column.
func CSV(w io.Writer, runs *Runs) error {
	lines := [][]string{append(append([]string{"run"}, experiment.CSVHeading...),
		append([]string{"origin"}, runs.Keys...)...)}
	for i, rs := range runs.Records {
		for _, r := range rs {
			line := append(append([]string{runs.Names[i]}, r.CSV()...), r.Origin)
			lines = append(lines, append(line, runs.Values[i]...))
		}
	}
	if err := csv.NewWriter(w).WriteAll(lines); err != nil {
		return fmt.Errorf("writing CSV: %w", err)
	}
	return nil
}
