package experiment

import (
	"fmt"
	"reflect"
	"strings"

	"fmp/pipeline/option"
)

// checkUnread fails for settings of uploads of moments, and the protocol that reads these, where no
// client sends any, and notes settings of a mode that the run is not in. It comes after the models
// are found, since only they tell whether clients send moments. The run directory is not open by
// then.
func (p *Prepared) checkUnread() error {
	c, d := &p.Config, Default()
	if n := c.unread(); n != "" {
		p.Manifest.Notes = append(p.Manifest.Notes, n)
	}
	if p.Tools.Embedded != nil {
		return nil
	}
	// FMP reads moments only where there is neither a conjugate nor an open predictor.
	fail := func(key string, value, is any) error {
		return option.Violation(key, value, fmt.Sprintf("%v where FMP has a predictor: no client "+
			"sends moments", is), "leave it at that, or pass --set conjugate.model=none --set "+
			"open.model=none")
	}
	if c.Protocol == protocolCalibrated {
		return fail("protocol", c.Protocol, "shared or tuned")
	}
	if n := c.Federation.Calibration; n != d.Federation.Calibration {
		return fail("federation.calibration", n, d.Federation.Calibration)
	}
	if k := c.Extractor.Kappa; len(k) > 0 {
		return fail("extractor.kappa", k, "nothing")
	}
	return nil
}

// unread returns a note of settings that are not their defaults and belong to a mode that the run
// is not in; "" where there are none. A row says when its settings are read, and why they are not
// otherwise. Such settings are noted and not refused: a grid varies a mode, and keeps the settings
// of all its modes.
func (c *Config) unread() string {
	d, s := Default(), c.Scores
	var out []string
	for _, u := range []struct {
		read     bool
		because  string
		got, was any // given, and by default
		key      string
	}{
		{c.Protocol == "tuned" || c.Protocol == "both", "the protocol is " + c.Protocol, c.Tuning,
			d.Tuning, "tuning"},
		{s.Corruptions || len(s.Other)+len(s.Domains) > 0, "there are no other and no spoiled " +
			"images", s.Images, d.Scores.Images, "scores.images"},
		{c.Federation.Partition != "homogeneous", "the partition is homogeneous",
			c.Federation.Alpha, d.Federation.Alpha, "federation.alpha"},
		{c.Privacy.Epsilon > 0, "privacy.epsilon is 0", c.Privacy, d.Privacy, "privacy"},
		{!c.OpenScope(), "the corpus lacks the tasks' classes", c.Conjugate.Model == "none" ||
			c.Conjugate.Model == d.Conjugate.Model, true, "conjugate.model"},
	} {
		if !u.read && !reflect.DeepEqual(u.got, u.was) {
			out = append(out, fmt.Sprintf("%s (%s)", u.key, u.because))
		}
	}
	if len(out) == 0 {
		return ""
	}
	return "settings that the run does not read: " + strings.Join(out, ", ")
}
