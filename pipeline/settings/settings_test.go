package settings

import (
	"errors"
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

// TestExtractorGroup: the rules of a group are checked wherever a struct has it. Any share of an
// image may be cropped, as in a side-car.
func TestExtractorGroup(t *testing.T) {
	type command struct {
		Extractor Extractor `yaml:"extractor"`
	}
	for _, v := range []struct {
		change func(*Extractor)
		want   string
	}{
		{func(x *Extractor) {}, ""},
		{func(x *Extractor) { x.Resize = "crop:0.9" }, ""},
		{func(x *Extractor) { x.Resize = "crop:1.5" }, "setting extractor.resize is \"crop:1.5\""},
		{func(x *Extractor) { x.Resize = "crop:SHARE" }, "above 0 and at most 1"},
		{func(x *Extractor) { x.Resize = "squash" }, "pass --resize crop:0.9, say"},
		{func(x *Extractor) { x.Kappa = []float64{0.7} }, "pass --kappa 0.7,0.15, say"},
		{func(x *Extractor) { x.Kappa = []float64{0.7, 0.1} }, ""},
	} {
		c := option.Default[command]()
		v.change(&c.Extractor)
		if err := errors.Join(option.Check(&c)...); (err != nil) != (v.want != "") ||
			err != nil && !strings.Contains(err.Error(), v.want) {
			t.Errorf("%+v: %v; want %q", c.Extractor, err, v.want)
		}
	}
}
