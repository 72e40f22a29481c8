package experiment

import (
	"testing"

	"fmp/pipeline/pool"
)

// TestDefaultsOfARound: a run samples and fits as a round does where nobody says otherwise.
func TestDefaultsOfARound(t *testing.T) {
	c := Default()
	if c.Conjugate.Samples != pool.ConjugateSamples || c.Posterior.Samples != pool.DrawnSamples ||
		c.ERM.Tolerance != pool.Tolerance ||
		c.Seed != pool.Seed {
		t.Errorf("a run has %d and %d samples and tolerance %v; a round %d, %d and %v",
			c.Conjugate.Samples, c.Posterior.Samples, c.ERM.Tolerance, pool.ConjugateSamples,
			pool.DrawnSamples, pool.Tolerance)
	}
}
