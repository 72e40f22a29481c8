package experiment

import "fmp/pipeline/discriminant"

// Rounds says which rounds of a prepared run a measurement draws, and how it samples them.
type Rounds struct {
	// Clients is the number of clients of a round, Points that of the images of each, and Repeats
	// that of the rounds, each of which is drawn anew.
	Clients, Points, Repeats int
	Alpha                    float64 // of the Dirichlet partition, 0 for homogeneous clients
	Samples                  int     // S, the heads of a posterior
	Seed                     uint64
	Threads                  int
	// Progress is told how many steps of a stage are done; nil for no reports.
	Progress func(stage string, done, total int)
}

// Report tells the progress, where there is somebody to be told.
func (r *Rounds) Report(stage string, done, total int) {
	if r.Progress != nil {
		r.Progress(stage, done, total)
	}
}

// Kappa returns the prior of the temperature that the settings state for the extractor; the zero
// value, for which [discriminant.Unknown] stands in, where they state none.
func (c *Config) Kappa() discriminant.Kappa {
	if known := c.Extractor.Kappa; len(known) == 2 {
		return discriminant.Kappa{Median: known[0], Deviation: known[1]}
	}
	return discriminant.Kappa{}
}
