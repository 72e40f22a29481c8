package main

import (
	"fmt"
	"slices"
	"strings"

	"fmp/models"
	"fmp/pipeline/conformal"
)

// pooledSets is the calibration of a classifier's prediction sets.
type pooledSets struct {
	Level   float64 `json:"level"`
	Score   string  `json:"score"`
	Points  int     `json:"points"` // calibration points, held back from everything else
	Clients int     `json:"clients"`
	// Thresholds are the scores from which on a class is in a set: one, or with ByClass one a
	// class.
	Thresholds  []float32 `json:"thresholds"`
	ByClass     bool      `json:"by_class,omitempty"`
	Proportions []float64 `json:"proportions,omitempty"`
	Groups      []string  `json:"groups,omitempty"` // of clients, for each of which the level holds
	Always      []string  `json:"always,omitempty"` // classes in every set, as their points are too few
	// Highest is the highest level that the points prove, for the class with most of them where
	// ByClass.
	Highest float64 `json:"highest"`
	// False is the number of further clients, of each group, whose points may be false; LeftOut are
	// those whose points contradict the others'.
	False   []int    `json:"false,omitempty"`
	LeftOut []string `json:"left_out,omitempty"`

	survived string // conformal.Survived
}

// pooledChoice is the choice of calibration points (posterior.Calibration): temperature and penalty
// relative to the corpus's.
type pooledChoice struct {
	Temperature float64 `json:"temperature"`
	Penalty     float64 `json:"penalty"`
	Points      int     `json:"points"`
}

func setsOf(s *models.OriginSets, names []string) *pooledSets {
	if s == nil {
		return nil
	}
	out := &pooledSets{s.Level, s.Score, s.Images, s.Clients, s.Thresholds, s.ByClass, s.Proportions,
		s.Groups, always(s, names), 1, s.False, s.LeftOut, conformal.Survived(s)}
	if out.survived == "" {
		out.False = nil
	}
	d := conformal.FromOrigin(s)
	for _, counts := range d.Counts(s.Class, max(len(names), slices.Max(s.Class)+1)) {
		out.Highest = min(out.Highest, d.Highest(counts))
	}
	return out
}

func (s *pooledSets) print(b *strings.Builder) {
	if s == nil {
		return
	}
	clients := fmt.Sprintf("%d clients", s.Clients)
	if s.Clients == 1 {
		clients = "one client"
	}
	of := "of these clients"
	if s.ByClass || s.Proportions != nil {
		of += " " + held(s.ByClass, s.Proportions)
	}
	if len(s.Groups) > 0 {
		of += " of each group (" + clip(strings.Join(s.Groups, ", ")) + ")"
	}
	fmt.Fprintf(b, "sets:       hold the class of a new image %s with probability %g or more, from "+
		"%d calibration points of %s (fmp predict --level: up to %.3g)\n", of, s.Level, s.Points,
		clients, s.Highest)
	if s.survived != "" {
		fmt.Fprintf(b, "            whatever the points of %s are\n", clip(s.survived))
	}
	if len(s.LeftOut) > 0 {
		fmt.Fprintf(b, "            left out, as their points contradict the others': %s (fmp pool "+
			"--for CLIENT makes sets by a client's own)\n", clip(strings.Join(s.LeftOut, ", ")))
	}
	if len(s.Always) > 0 {
		fmt.Fprintf(b, "            in every set, as their points are too few: %s\n",
			clip(strings.Join(s.Always, ", ")))
	}
}
