package docs

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"slices"
	"testing"

	"go.yaml.in/yaml/v3"

	"fmp/onnx/must"
)

// families is the part of results/families.yaml, the task families that were fixed before they were
// measured, that tables read.
type families struct {
	Splits []struct {
		Split                    int
		Extractor, Tuning, Tasks []int
	}
	Families []struct {
		Name   string
		Points int
	}
	Calibrated struct {
		Points         []int
		Families, Seen []string
	}
	Domains struct {
		Data            []string
		Points, Repeats int
		Alphas          []float64
		More            struct{ Runs []domainRun }
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
	var f families
	must.Do(t, yaml.Unmarshal(must.Get(os.ReadFile("results/families.yaml"))(t), &f))
	return f
}

// TestSplitsOfClasses: the splits fixed for the measurement are as their rule says.
func TestSplitsOfClasses(t *testing.T) {
	splits := readFamilies(t).Splits
	if len(splits) < 5 {
		t.Errorf("%d splits", len(splits))
	}
	for i, s := range splits {
		digest, order := make([][sha256.Size]byte, 60), make([]int, 60)
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
}
