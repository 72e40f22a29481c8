package experiment

import (
	"fmt"
	"strconv"

	"fmp/pipeline/lab/score"
	"fmp/pipeline/metric"
)

// Column is a column of records as a table: without the curves. Curves and other lists of a record
// stay in [ResultsFile], which has everything.
type Column struct {
	Name string
	// Value is a string, an int32, a float64 or, where records may lack it, a *float64.
	Value func(r *Record) any
}

// Columns are those of [CSVFile], in order. Readers of the file find columns by name.
var Columns = []Column{
	{"dataset", func(r *Record) any { return r.Dataset }},
	{"partition", func(r *Record) any { return r.Partition }},
	{"alpha", func(r *Record) any { return r.Alpha }},
	{"repeat", func(r *Record) any { return int32(r.Repeat) }},
	{"protocol", func(r *Record) any { return r.Protocol }},
	{"method", func(r *Record) any { return r.Method }},
	{"group", func(r *Record) any { return r.Group }},
	{"param", func(r *Record) any { return r.Param }},
	{"value", func(r *Record) any { return r.Value }},
	{"acc", func(r *Record) any { return r.ACC }},
	{"ece", func(r *Record) any { return r.ECE }},
	{"nll", func(r *Record) any { return r.NLL }},
	{"brier", func(r *Record) any { return r.Brier }},
	{"upload_bytes", func(r *Record) any { return r.UploadBytes }},
	{"joint_nll_near", of(joint, func(j *metric.Joint) *float64 { return &j.Near })},
	{"joint_nll_random", of(joint, func(j *metric.Joint) *float64 { return &j.Random })},
	{"aurc", of(uncertainty, func(u *metric.Uncertainty) *float64 { return &u.AURC })},
	{"class_ece", of(uncertainty, func(u *metric.Uncertainty) *float64 { return &u.ClassECE })},
	{"adaptive_ece", of(uncertainty, func(u *metric.Uncertainty) *float64 {
		return &u.AdaptiveECE
	})},
	{"entropy", of(uncertainty, func(u *metric.Uncertainty) *float64 { return &u.Entropy })},
	{"disagreement", of(uncertainty, func(u *metric.Uncertainty) *float64 {
		return &u.Disagreement
	})},
	{temperature, func(r *Record) any { return r.Temperature }},
	{"coverage_top", of(coverage, func(c *score.Coverage) *float64 { return &c.Top })},
	{"coverage_uncertain", of(coverage, func(c *score.Coverage) *float64 { return c.Uncertain })},
	{"coverage_weights", of(coverage, func(c *score.Coverage) *float64 { return c.Weights })},
	{"membership_auc", func(r *Record) any { return r.Membership }},
	{"hindsight_nll", func(r *Record) any { return r.Hindsight }},
	{"coverage_named", of(coverage, func(c *score.Coverage) *float64 { return c.Named })},
	{"coverage_classes", of(coverage, func(c *score.Coverage) *float64 { return &c.Classes })},
	{"coverage_above", of(coverage, func(c *score.Coverage) *float64 { return c.Above })},
	{"coverage_near", of(coverage, func(c *score.Coverage) *float64 { return c.Near })},
	{"coverage_regression", of(coverage, func(c *score.Coverage) *float64 {
		return c.Regression
	})},
	{"coverage_regression_named", of(coverage, func(c *score.Coverage) *float64 {
		return c.RegressionNamed
	})},
	{"coverage_regression_near", of(coverage, func(c *score.Coverage) *float64 {
		return c.RegressionNear
	})},
}

// temperature is the column of which 0 says that none was chosen.
const temperature = "temperature"

// uncertainty, coverage and joint are parts of a record, nil where it lacks them.
func uncertainty(r *Record) *metric.Uncertainty { return r.Uncertainty }

func coverage(r *Record) *score.Coverage { return r.Coverage }

// joint is nil too where no batches were scored.
func joint(r *Record) *metric.Joint {
	if r.Uncertainty == nil {
		return nil
	}
	return r.Uncertainty.Joint
}

// of is a figure of a part that records may lack: a *float64, nil without the part.
func of[T any](part func(*Record) *T, figure func(*T) *float64) func(*Record) any {
	return func(r *Record) any {
		if p := part(r); p != nil {
			return figure(p)
		}
		return (*float64)(nil)
	}
}

// CSV returns the record as a row of a table; figures that it lacks are empty. Numbers have as many
// digits as it takes to read the same float64 back. Quoting is left to the writer of CSV.
func (r *Record) CSV() []string {
	num := func(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
	var line []string
	for _, c := range Columns {
		text := ""
		switch v := c.Value(r).(type) {
		case float64:
			if v != 0 || c.Name != temperature {
				text = num(v)
			}
		case *float64:
			if v != nil {
				text = num(*v)
			}
		default:
			text = fmt.Sprint(v)
		}
		line = append(line, text)
	}
	return line
}

// CSVHeading returns the names of the columns.
func CSVHeading() (names []string) {
	for _, c := range Columns {
		names = append(names, c.Name)
	}
	return names
}
