package settings

import (
	"slices"
	"strings"
	"testing"

	"fmp/pipeline/option"
)

// own is a command's own struct: groups of this package, and settings beside them.
type own struct {
	Method  string   `yaml:"method" default:"FMP" allowed:"@methods" doc:"method"`
	Any     []string `yaml:"any,flow" default:"" allowed:"@methods" check:"no" doc:"methods, checked elsewhere"`
	Dataset Dataset  `yaml:"dataset"`
	ERM     ERM      `yaml:"erm"`
}

func (*own) Lists() map[string]func() []string {
	return map[string]func() []string{"methods": func() []string { return []string{"FMP", "ANN"} }}
}

// TestOwnStruct: defaults, checks and what suits a data set come from the tags of any struct, with
// lists of its own.
func TestOwnStruct(t *testing.T) {
	c := option.Default[own]()
	if c.Method != "FMP" || c.Dataset.Name != "digits" || c.ERM.Tolerance != 1e-8 ||
		c.Dataset.Splits.Corpus != 0.375 {
		t.Errorf("defaults %+v", c)
	}
	if keys := option.Keys[own](); !slices.Contains(keys, "dataset.splits.corpus") ||
		slices.Contains(keys, "engine.name") {
		t.Errorf("keys %q", keys)
	}
	if errs := option.Check(&c); len(errs) > 0 {
		t.Errorf("defaults: %v", errs)
	}
	c.Method, c.Any, c.Dataset.Test = "ANM", []string{"ann"}, -1
	errs := option.Check(&c)
	if len(errs) != 2 || !strings.Contains(errs[0].Error(), "method=ANN") ||
		!strings.Contains(errs[1].Error(), "dataset.test is -1") {
		t.Errorf("errors %v", errs)
	}
	c.Dataset.Name = "cifar100"
	keys := option.FillDefaults(&c, "cifar100", "dataset.classes")
	if !slices.Equal(keys, []string{"erm.l2"}) || c.ERM.L2 != 7 || c.Dataset.Classes != "" {
		t.Errorf("suited %q: %+v", keys, c)
	}
	if keys := option.FillDefaults(&c, "cifar100"); !slices.Equal(keys, []string{"dataset.classes"}) ||
		c.Dataset.Classes != "20" || c.ERM.L2 != 7 {
		t.Errorf("suited %q: %+v", keys, c)
	}
}
