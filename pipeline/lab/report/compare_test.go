package report

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/parquet-go/parquet-go"

	"fmp/onnx/must"
	"fmp/pipeline/lab/experiment"
)

func TestCompareMethodsPairsRepeats(t *testing.T) {
	// The two methods' figures vary together: unpaired, the difference of 0.1 would drown.
	var rs []experiment.Record
	for rep, base := range []float64{0.2, 0.5, 0.8} {
		for m, v := range map[string]float64{"FMP": base + 0.1 + 0.001*float64(rep), "CANN": base} {
			r := experiment.Record{Cell: experiment.Cell{Partition: "homogeneous", Repeat: rep,
				Protocol: "shared", Method: m}}
			r.ACC = v
			rs = append(rs, r)
		}
	}
	ds := must.Get(CompareMethods(rs, "FMP", false))(t)
	// Differences 0.100, 0.101, 0.102: sd 0.001, t(2, .975) = 4.302653, half = 4.302653 * 0.001 /
	// sqrt 3.
	if len(ds) != 1 || ds[0].Second != "CANN" || math.Abs(ds[0].ACC.Mean-0.101) > 1e-12 ||
		math.Abs(ds[0].ACC.Half-4.302653*0.001/math.Sqrt(3)) > 1e-8 {
		t.Errorf("%+v", ds)
	}
	var b bytes.Buffer
	must.Do(t, DifferencesText(&b, ds, true))
	if !strings.Contains(b.String(), "FMP - CANN") || !strings.Contains(b.String(), "+0.1010±.0025*") {
		t.Error(b.String())
	}
	b.Reset() // repeats that share their images differ by nothing
	for i := range rs {
		rs[i].ACC = map[string]float64{"FMP": .5, "CANN": .375}[rs[i].Method]
	}
	ds = must.Get(CompareMethods(rs, "FMP", false))(t)
	must.Do(t, DifferencesText(&b, ds, true))
	if !strings.Contains(b.String(), "+0.1250") || strings.Contains(b.String(), "±.") ||
		!strings.Contains(b.String(),
			"repeats; without ±, all repeats give the same, as where they share") {
		t.Error(b.String())
	}
	if _, err := CompareMethods(rs, "MP", false); err == nil ||
		!strings.Contains(err.Error(), "CANN") {
		t.Errorf("an absent method: %v", err)
	}
}

// TestParquetReadsBack: what is written is what a reader of the whole format reads, whatever is
// null.
func TestParquetReadsBack(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var drawn []ExportRow
	for i := range 5000 {
		r := ExportRow{Run: strings.Repeat("é", rng.IntN(40)), Method: fmt.Sprint(i),
			Repeat: rng.Int32() - 1<<30, ACC: rng.NormFloat64(),
			Temperature: math.Inf(1)}
		if rng.IntN(3) > 0 {
			v := rng.NormFloat64()
			r.JointNear = &v
		}
		if i > 2000 && i < 4000 {
			r.AURC = new(float64)
		}
		drawn = append(drawn, r)
	}
	for _, want := range [][]ExportRow{nil, drawn[:1], drawn[:20], drawn} {
		var b bytes.Buffer
		must.Do(t, writeParquet(&b, want))
		got := must.Get(parquet.Read[ExportRow](bytes.NewReader(b.Bytes()), int64(b.Len())))(t)
		if d := cmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" {
			t.Fatalf("%d rows: %s", len(want), d)
		}
	}
	if err := writeParquet(io.Discard, []struct {
		X bool `parquet:"x"`
	}{{}}); err == nil || !strings.Contains(err.Error(), "column x") {
		t.Errorf("a type that is not written: %v", err)
	}
	rs := records("digits")
	var b bytes.Buffer
	must.Do(t, Parquet(&b, &Runs{Names: []string{"one"}, Records: [][]experiment.Record{rs},
		Values: [][]string{nil}}))
	rows, err := parquet.Read[ExportRow](bytes.NewReader(b.Bytes()), int64(b.Len()))
	if err != nil || len(rows) != len(rs) {
		t.Fatalf("%d rows of %d records, %v", len(rows), len(rs), err)
	}
	for i, r := range rows {
		if r.Run != "one" || r.Method != rs[i].Method || r.ACC != rs[i].ACC ||
			*r.JointNear != rs[i].Uncertainty.Joint.Near ||
			int(r.Repeat) != rs[i].Repeat {
			t.Fatalf("row %d is %+v of %+v", i, r, rs[i].Cell)
		}
	}
}
