package experiment

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

// TestEveryFigureIsAColumn: a number of a record is a column of its table, each of its own.
func TestEveryFigureIsAColumn(t *testing.T) {
	// Prefixes of columns, by the names of parts, and those that have none in a table.
	prefix := map[string]string{"uncertainty": "", "joint_nll": "joint_nll_", "coverage": "coverage_"}
	apart := []string{"more", "diagnostics", "curve", "by_samples", "shifted", "absent", "origin"}
	var r Record
	n := 0
	var walk func(v reflect.Value, before string)
	walk = func(v reflect.Value, before string) {
		for i := range v.NumField() {
			f := v.Type().Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if slices.Contains(apart, name) {
				continue
			}
			to := v.Field(i)
			if to.Kind() == reflect.Pointer {
				to.Set(reflect.New(to.Type().Elem()))
				to = to.Elem()
			}
			if to.Kind() == reflect.Struct {
				walk(to, prefix[name])
				continue
			}
			n++
			at := slices.Index(CSVHeading(), before+name)
			if at < 0 {
				t.Errorf("%s%s is no column", before, name)
				continue
			}
			empty := r.CSV()[at]
			switch to.Kind() {
			case reflect.String:
				to.SetString("7")
			case reflect.Int:
				to.SetInt(7)
			default:
				to.SetFloat(7)
			}
			if got := r.CSV()[at]; got != "7" || empty == "7" {
				t.Errorf("column %s%s is %q, and was %q; want 7", before, name, got, empty)
			}
		}
	}
	walk(reflect.ValueOf(&r).Elem(), "")
	if n != len(Columns) {
		t.Errorf("%d figures have %d columns", n, len(Columns))
	}
}
