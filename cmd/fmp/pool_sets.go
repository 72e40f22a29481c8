package main

import (
	"fmt"
	"strings"

	"fmp/models"
)

// pooledSets is the calibration of a classifier's prediction sets.
type pooledSets struct {
	Level     float64 `json:"level"`
	Points    int     `json:"points"` // calibration points, held back from everything else
	Clients   int     `json:"clients"`
	Threshold float32 `json:"threshold"` // the probability from which on a class is in the set
}

func setsOf(s *models.OriginSets) *pooledSets {
	if s == nil {
		return nil
	}
	return &pooledSets{s.Level, s.Images, s.Clients, s.Threshold}
}

func (s *pooledSets) print(b *strings.Builder) {
	if s != nil {
		clients := fmt.Sprintf("%d clients", s.Clients)
		if s.Clients == 1 {
			clients = "one client"
		}
		fmt.Fprintf(b, "sets:       hold the class of a new image of these clients with probability %g or more, from %d calibration "+
			"points of %s\n", s.Level, s.Points, clients)
	}
}
