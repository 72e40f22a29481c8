package assets

import (
	"slices"
	"strings"

	"fmp/onnx/suggest"
)

// DatasetDefaults holds the settings that suit a data set, those that its shipped models were
// trained for.
type DatasetDefaults struct {
	// Classes are those kept in closed scope by default; empty: all.
	Classes string
	// L2 is erm.l2: about where the likelihood of the meta-training corpus is highest under the
	// methods that see all points (ANN, BNN, MP and FMP).
	L2 float64
	// Points is federation.points: with those of the paper's data sets, a client alone, with our
	// extractors, is about as accurate as in Table I of the paper, which does not state its sizes.
	Points int
	// Fresh is predictor.fresh, the points drawn per sample.
	Fresh int
}

type namedDefaults struct {
	dataset string
	DatasetDefaults
}

// known lists the data sets whose settings are known.
var known = []namedDefaults{
	{"digits", DatasetDefaults{L2: 1, Points: 20, Fresh: 100}},
	{"digits-color", DatasetDefaults{L2: 1, Points: 20, Fresh: 100}},
	{"mnist", DatasetDefaults{L2: 0.1, Points: 35, Fresh: 100}},
	{"cifar10", DatasetDefaults{L2: 7, Points: 10, Fresh: 100}},
	{"cifar100", DatasetDefaults{Classes: "20", L2: 7, Points: 40, Fresh: 200}},
}

// others holds the settings of every other data set.
var others = DatasetDefaults{L2: 3, Points: 20, Fresh: 100}

// DefaultsFor returns the settings that suit a data set.
func DefaultsFor(dataset string) DatasetDefaults {
	for _, s := range known {
		if s.dataset == dataset {
			return s.DatasetDefaults
		}
	}
	return others
}

// BySet describes which value applies to which data sets: "35 for mnist, 40 for cifar100 and 20 for
// others".
func BySet(value func(DatasetDefaults) string) string {
	var values []string
	sets := map[string][]string{}
	for _, s := range known {
		v := value(s.DatasetDefaults)
		if v == value(others) {
			continue
		}
		if !slices.Contains(values, v) {
			values = append(values, v)
		}
		sets[v] = append(sets[v], s.dataset)
	}
	var parts []string
	and := " and "
	for _, v := range values {
		parts = append(parts, v+" for "+strings.ReplaceAll(suggest.Or(sets[v]...), " or ", " and "))
		if len(sets[v]) > 1 {
			and = ", and "
		}
	}
	return strings.Join(parts, ", ") + and + value(others) + " for others"
}
