package docs

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"fmp/onnx/must"
	"fmp/pipeline/lab/domains"
	"fmp/pipeline/lab/rival"
)

// families is results/families.yaml: the task families of the next measurement.
type families struct {
	Date       time.Time
	Repeats    int
	Seeds      []int `yaml:"extractor_seeds"`
	Clients    int
	Partitions []string
	Methods    []string
	Intervals  string
	Splits     []struct {
		Split                    int
		Extractor, Tuning, Tasks []int
	}
	Families []struct {
		Name, Data      string
		Points, Clients int
		Date            time.Time
		Methods         []string
	}
	Calibrated struct {
		Date                 time.Time
		Points               []int
		Families, Seen, Aims []string
	}
	Ends struct {
		Date     time.Time
		Confirms string
		Aims     []string
	}
	Aims       []string
	Pretrained struct {
		Date       time.Time
		Data       []string
		Points     []int
		Partitions []string
		Clients    int
		Methods    []string
		Repeats    map[int]int
		More       string
		Aims       []string
	}
	Domains struct {
		Date            time.Time
		Seed            uint64
		Data, Kinds     []string
		Severities      []int
		Points, Repeats int
		Alphas          []float64
		Methods, Aims   []string
		More            struct {
			Date time.Time
			Runs []domainRun
		}
	}
}

// domainRun is a run of clients as domains: with both alphas.
type domainRun struct {
	Family, Data string
	Points       int
	Extractor    string // lite0: EfficientNet-Lite0, without a corpus
}

func readFamilies(t *testing.T) families {
	t.Helper()
	b := must.Get(os.ReadFile("results/families.yaml"))(t)
	var f families
	d := yaml.NewDecoder(bytes.NewReader(b))
	d.KnownFields(true)
	must.Do(t, d.Decode(&f))
	return f
}

// TestFamilies: the families fixed for the next measurement are as their rule says, of at least
// five splits and three extractor seeds, and of methods that there are.
func TestFamilies(t *testing.T) {
	f := readFamilies(t)
	if f.Date.IsZero() || f.Repeats < 10 || len(f.Splits) < 5 || len(f.Seeds) < 3 ||
		len(f.Families) == 0 || len(f.Aims) == 0 {
		t.Errorf("date %v, %d repeats, %d splits, %d seeds, %d families, %d aims", f.Date, f.Repeats,
			len(f.Splits), len(f.Seeds), len(f.Families), len(f.Aims))
	}
	for _, n := range f.Pretrained.Points {
		if f.Pretrained.Repeats[n] < 2 {
			t.Errorf("%d repeats of %d images behind a pretrained network; want 2 at least",
				f.Pretrained.Repeats[n], n)
		}
	}
	for _, m := range slices.Concat(f.Methods, f.Pretrained.Methods, f.Domains.Methods) {
		if _, err := rival.Lookup(m); err != nil {
			t.Error(err)
		}
	}
	first := domains.Families[0]
	if d := f.Domains; !slices.Equal(d.Kinds, first.Kinds) ||
		!slices.Equal(d.Severities, first.Severities) ||
		!slices.Equal(d.Methods, domains.Rivals) || d.Date.IsZero() || d.Repeats < 3 ||
		len(d.Aims) == 0 {
		t.Errorf("clients as domains: %+v; fmp bench domains has %v, %v, %v", d, first.Kinds,
			first.Severities, domains.Rivals)
	}
	for i, s := range f.Splits {
		digest := make([][sha256.Size]byte, 60)
		order := make([]int, 60)
		for c := range order {
			order[c], digest[c] = c, sha256.Sum256(fmt.Appendf(nil, "split %d class %d", i+1, c))
		}
		slices.SortFunc(order, func(a, b int) int { return bytes.Compare(digest[a][:], digest[b][:]) })
		for _, part := range [][2][]int{{s.Extractor, order[:30]}, {s.Tuning, order[30:40]},
			{s.Tasks, order[40:]}} {
			slices.Sort(part[1])
			if s.Split != i+1 || !slices.Equal(part[0], part[1]) {
				t.Errorf("split %d has classes %v; its rule gives %v", s.Split, part[0], part[1])
			}
		}
	}
	names := map[string]bool{}
	for _, x := range f.Families {
		if names[x.Name] || x.Name == "" || x.Data == "" || x.Points < 1 {
			t.Errorf("family %+v has no name of its own, no data or no points", x)
		}
		names[x.Name] = true
	}
}
