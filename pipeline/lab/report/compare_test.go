package report

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"

	"fmp/onnx/must"
	"fmp/pipeline/lab/experiment"
	"fmp/pipeline/lab/score"
	"fmp/pipeline/metric"
)

func TestCompareMethodsPairsRepeats(t *testing.T) {
	// The two methods' figures vary together: unpaired, the difference of 0.1 would drown.
	var rs []experiment.Record
	for rep, base := range []float64{0.2, 0.5, 0.8} {
		for m, v := range map[string]float64{"FMP": base + 0.1 + 0.001*float64(rep), "CANN": base} {
			r := record(m, rep)
			r.ACC = v
			rs = append(rs, r)
		}
	}
	ds := must.Get(CompareMethods(rs, &experiment.Manifest{}, "FMP", false))(t)
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
	b.Reset() // repeats that differ by nothing
	for i := range rs {
		rs[i].ACC = map[string]float64{"FMP": .5, "CANN": .375}[rs[i].Method]
	}
	ds = must.Get(CompareMethods(rs, &experiment.Manifest{}, "FMP", false))(t)
	must.Do(t, DifferencesText(&b, ds, true))
	if !strings.Contains(b.String(), "+0.1250") || strings.Contains(b.String(), "±.") ||
		!strings.Contains(b.String(), "repeats; without ±, all repeats give the same.") {
		t.Error(b.String())
	}
	must.Fail(CompareMethods(rs, &experiment.Manifest{}, "MP", false))(t, "CANN",
		"an absent method")
}

// TestFamiliesOfDifferences: a heading has the repeats of all its rows, and the footer has the
// confidence of each family of differences.
func TestFamiliesOfDifferences(t *testing.T) {
	of := func(partition string, n, of int) Difference {
		d := Difference{Partition: partition, Protocol: "shared", First: "FMP", Second: "NCM", Of: of}
		d.ACC = metric.Interval{N: n, Mean: .5, Half: .1}
		return d
	}
	one := []Difference{of("homogeneous", 3, 2), of("homogeneous", 3, 2)}
	two := []Difference{of("homogeneous", 3, 6), of("homogeneous", 2, 6), of("dirichlet-0.1", 2, 3)}
	for _, x := range []struct {
		ds   []Difference
		want []string
	}{
		{one, []string{"homogeneous, shared, 3 repeats\n",
			"hold together (Bonferroni: each at 97.5% for 2 differences).\n"}},
		{two, []string{"homogeneous, shared, 2 to 3 repeats\n", "dirichlet-0.1, shared, 2 repeats\n",
			"homogeneous, shared hold together (Bonferroni: each at 99.17% for 6 differences).\n",
			"dirichlet-0.1, shared hold together (Bonferroni: each at 98.33% for 3 differences).\n"}},
		{[]Difference{of("homogeneous", 3, 1)}, []string{"interval without zero.\n"}},
	} {
		var b bytes.Buffer
		must.Do(t, DifferencesText(&b, x.ds, true))
		for _, want := range x.want {
			if !strings.Contains(b.String(), want) {
				t.Errorf("want %q in\n%s", want, &b)
			}
		}
		if n := strings.Count(b.String(), "Bonferroni"); n != len(x.want)/2 {
			t.Errorf("%d families are told; want %d:\n%s", n, len(x.want)/2, &b)
		}
	}
}

// TestTablesOfDifferences: every partition and protocol has one heading, although records of methods
// from outside follow those of all partitions.
func TestTablesOfDifferences(t *testing.T) {
	var rs []experiment.Record
	for _, methods := range [][]string{{"FMP", "NCM"}, {"A"}, {"B"}} {
		for _, partition := range []string{"homogeneous", "dirichlet-0.1", "dirichlet-1"} {
			for _, protocol := range []string{"tuned", "shared"} {
				for rep := range 2 {
					for _, m := range methods {
						r := record(m, rep)
						r.Partition, r.Protocol = partition, protocol
						rs = append(rs, r)
					}
				}
			}
		}
	}
	ds := must.Get(CompareMethods(rs, &experiment.Manifest{}, "FMP", true))(t)
	var heads []string
	for i, d := range ds {
		if d.Of != 3 {
			t.Errorf("%s is corrected for %d differences; want 3", d.head(), d.Of)
		}
		if i == 0 || d.head() != ds[i-1].head() {
			heads = append(heads, d.head())
		}
	}
	want := []string{"homogeneous, tuned", "homogeneous, shared", "dirichlet-0.1, tuned",
		"dirichlet-0.1, shared", "dirichlet-1, tuned", "dirichlet-1, shared"}
	if diff := cmp.Diff(want, heads); diff != "" {
		t.Error(diff)
	}
}

// TestCompareRuns: runs are paired where their clients draw from the same images, and only there.
func TestCompareRuns(t *testing.T) {
	open := func(c *experiment.Config) { c.Corpus.Classes = "5-9" }
	for name, x := range map[string]struct {
		a, b func(*experiment.Config)
		ok   bool
	}{
		"another penalty": {func(*experiment.Config) {}, func(c *experiment.Config) { c.ERM.L2 = 2 }, true},
		"another seed":    {func(*experiment.Config) {}, func(c *experiment.Config) { c.Seed = 2 }, false},
		"another corpus in closed scope": {func(*experiment.Config) {},
			func(c *experiment.Config) { c.Dataset.Splits.Corpus = 0.25 }, false},
		"another corpus in open scope": {open,
			func(c *experiment.Config) { open(c); c.Dataset.Splits.Corpus = 0.25 }, true},
		"closed and open scope": {func(*experiment.Config) {}, open, false},
		"closed scope of all images": {func(c *experiment.Config) {
			c.Dataset.Splits.Extractor, c.Dataset.Splits.Corpus, c.Dataset.Splits.Clients = 0, 0, 1
		}, open, true},
		"another part to score": {open,
			func(c *experiment.Config) { open(c); c.Dataset.Splits.Test = 0.5 }, false},
	} {
		dirs := []string{t.TempDir(), t.TempDir()}
		for i, change := range []func(*experiment.Config){x.a, x.b} {
			c := experiment.Default()
			c.Methods, c.Seeds, c.Federation.Partition = []string{"FMP"}, 2, "homogeneous"
			change(&c)
			d := must.Get(experiment.Open(dirs[i], c, experiment.Manifest{Identity: name}))(t)
			cells := must.Get(experiment.Cells(&c))(t)
			for _, cell := range cells {
				must.Do(t, d.Add(experiment.Record{Cell: cell}, experiment.Took{}))
			}
			must.Get(d.Finish(cells))(t)
			must.Do(t, d.Close())
		}
		ds, err := CompareRuns(dirs, nil, false)
		if x.ok && (err != nil || len(ds) != 1) ||
			!x.ok && (err == nil || !strings.Contains(err.Error(), "the same tasks")) {
			t.Errorf("%s: %d differences, %v", name, len(ds), err)
		}
	}
}

// TestSameImages: beside the best stands what its paired interval does not tell from it, however far
// apart the figures of each are from repeat to repeat. Repeats of the same images have neither
// intervals, nor stars, nor a second best.
func TestSameImages(t *testing.T) {
	for _, x := range []struct {
		same     bool
		of, n    int
		star     bool
		marked   bool // the second best, of which an interval holds zero
		repeated string
	}{
		{false, 2, 3, true, true, "3 repeats"},
		{true, 1, 1, false, false, "repeats of the same images"},
	} {
		var rs []experiment.Record
		for rep, noise := range []float64{-.01, .01, 0} {
			for m, v := range map[string]float64{"FMP": .5, "FedCGS": .499 + noise, "FedPFT": .1 + .1*noise} {
				r := record(m, rep)
				r.ACC = v + []float64{.3, -.2, .1}[rep] // of the repeat's tasks, which methods share
				r.Shifted = []score.Shifted{{Name: "blur", Severity: 1, ACC: r.ACC}}
				rs = append(rs, r)
			}
		}
		m := &experiment.Manifest{SameImages: x.same}
		ds := must.Get(CompareMethods(rs, m, "FMP", true))(t)
		var b bytes.Buffer
		must.Do(t, DifferencesText(&b, ds, true))
		for _, d := range ds {
			if d.Of != x.of || d.ACC.N != x.n || (d.ACC.Half > 0) == x.same || d.ACC.Mean <= 0 {
				t.Errorf("same %t: %+v", x.same, d)
			}
		}
		if text := b.String(); strings.Contains(text, "*") != x.star ||
			strings.Contains(text, "±") == x.same || !strings.Contains(text, x.repeated) {
			t.Errorf("same %t:\n%s", x.same, text)
		}
		table := must.Get(Tables(rs, m))(t)[0]
		for _, s := range table.Shifted {
			if s.ACC.N != x.n || (s.ACC.Half > 0) == x.same || s.Entropy.N != 0 {
				t.Errorf("same %t: %+v", x.same, s)
			}
		}
		for _, r := range table.Rows {
			if want := r.Method == "FMP" || x.marked && r.Method == "FedCGS"; r.best[columnACC] != want {
				t.Errorf("same %t: %s is marked: %t", x.same, r.Method, r.best[columnACC])
			}
		}
	}
}

// text is a value as a reader of Parquet prints it.
func text(v any) string {
	switch v := v.(type) {
	case float64:
		return parquet.DoubleValue(v).String()
	case *float64:
		if v == nil {
			return parquet.NullValue().String()
		}
		return text(*v)
	}
	return fmt.Sprint(v)
}

// TestParquetReadsBack: what is written is what a reader of the whole format reads, whatever is
// null.
func TestParquetReadsBack(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var drawn []experiment.Record
	for i := range 5000 {
		r := experiment.Record{Dataset: strings.Repeat("é", rng.IntN(40)), Temperature: math.Inf(1)}
		r.Method, r.Repeat, r.ACC = fmt.Sprint(i), int(rng.Int32()-1<<30), rng.NormFloat64()
		if rng.IntN(3) > 0 {
			v := rng.NormFloat64()
			r.Membership = &v
		}
		if i > 2000 && i < 4000 {
			r.Uncertainty = &metric.Uncertainty{Entropy: rng.NormFloat64()}
		}
		drawn = append(drawn, r)
	}
	for _, rs := range [][]experiment.Record{nil, drawn[:1], drawn[:20], drawn, records("digits")} {
		var b bytes.Buffer
		must.Do(t, Parquet(&b, &Runs{Names: []string{"one"}, Records: [][]experiment.Record{rs},
			Keys: []string{"l2"}, Values: [][]string{{"3"}}}))
		f := must.Get(parquet.OpenFile(bytes.NewReader(b.Bytes()), int64(b.Len())))(t)
		rows := make([]parquet.Row, len(rs)+1)
		n, err := parquet.NewReader(f).ReadRows(rows)
		if n != len(rs) || err != io.EOF {
			t.Fatalf("%d rows of %d records, %v", n, len(rs), err)
		}
		names := slices.Concat([]string{"run"}, experiment.CSVHeading(), []string{"origin", "varied"})
		for i, path := range f.Schema().Columns() {
			if path[0] != names[i] {
				t.Errorf("column %d is %q; want %q", i, path, names[i])
			}
		}
		for i, row := range rows[:n] {
			want := []string{"one"}
			for _, c := range experiment.Columns {
				want = append(want, text(c.Value(&rs[i])))
			}
			want = append(want, "", "l2=3")
			var got []string
			for _, v := range row {
				got = append(got, v.String())
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Fatalf("row %d of %d: %s", i, n, d)
			}
		}
	}
	must.Fail(writeParquet(io.Discard, []bool{true}, []parquetColumn[bool]{{name: "x", like: true}}))(t,
		"column x", "a type that is not written")
}
