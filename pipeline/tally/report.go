package tally

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"fmp/pipeline/federate/identity"
	"fmp/pipeline/federate/wire"
	"fmp/pipeline/privacy"
)

const (
	// Format is the number of the format of a report.
	Format = 1
	// MaxBytes is the maximum size of a report.
	MaxBytes = 4 << 20
	// maxClasses and maxCount bound the claims of a report.
	maxClasses, maxCount = 100_000, 1_000_000_000
	// MaxSize is the maximum [Report.Size], also of a pool of reports, so that 32 bits hold every
	// sum.
	MaxSize = 2 * maxCount
)

// Report is the counts of one site, signed by it.
type Report struct {
	Format int `json:"format"`
	// Site is the name of the key that signed it, Round the number of the round, and Classifier the
	// SHA-256 of the file that was scored.
	Site       string `json:"site"`
	Round      uint64 `json:"round"`
	Classifier string `json:"classifier"`
	Classes    int    `json:"classes"`
	// Level is that of the prediction sets; 0 where there are none.
	Level float64 `json:"level,omitempty"`
	// Least is the bound: no count is below it; 0 in a report with noise.
	Least int `json:"least,omitempty"`
	// Epsilon, Delta and Sigma are those of a report with noise.
	Epsilon float64 `json:"epsilon,omitempty"`
	Delta   float64 `json:"delta,omitempty"`
	Sigma   uint64  `json:"sigma,omitempty"`
	// Few says which images are fewer than Least, so that only numbers of images are told: "wrong"
	// or "right".
	Few string `json:"few,omitempty"`
	// FewSets says for which of these the prediction sets are fewer than Least, so that no number
	// of sets is told: "missed", "held", "wrong and held", or "any" where it does not say which.
	// Reports of 0.1.0 do not say it.
	FewSets string  `json:"few_sets,omitempty"`
	Groups  []Group `json:"groups"`
	Bins    []Bin   `json:"bins,omitempty"`
	// Server is the public key (base64) of the server that the report is for; empty in a file.
	Server    string `json:"server,omitempty"`
	Signature []byte `json:"signature"`
	// Names are the classifier's class names, for [Report.Print] alone.
	Names []string `json:"-"`
}

// statement is that of a site's key about all of a report but its signature.
func (r Report) statement() identity.Statement {
	r.Signature = nil
	return identity.Statement{Purpose: identity.Evaluated, Server: r.Server, Round: r.Round,
		Client: r.Site, Graph: r.Classifier, Content: wire.Content(r)}
}

// Sign names the site and signs the report, and returns its file.
func (r *Report) Sign(k *identity.Key) ([]byte, error) {
	r.Site = k.Name
	r.Signature = k.Sign(r.statement())
	data, err := json.MarshalIndent(r, "", " ")
	return append(data, '\n'), err
}

// Read parses a report that a site of a roster signed, and checks it against its own bounds.
func Read(data []byte, sites *identity.Roster) (*Report, error) {
	if len(data) > MaxBytes {
		return nil, fmt.Errorf("report: %d bytes; want up to %d", len(data), MaxBytes)
	}
	r := &Report{}
	if err := wire.Only(data, r); err != nil {
		return nil, fmt.Errorf("report: not what fmp-edge evaluate writes: %w", err)
	}
	if !sites.Verify(r.statement(), r.Signature) {
		return nil, fmt.Errorf("report: the roster has no %.128q with a key that signed it", r.Site)
	}
	if err := r.check(); err != nil {
		return nil, fmt.Errorf("report of %q: %w", r.Site, err)
	}
	return r, nil
}

// check returns an error for a report that no images give. Cheap checks come first. Each later one
// may rely on those before: sizes, then the bound or the noise, then sums, groups and bins.
func (r *Report) check() error {
	switch {
	case r.Format != Format:
		return fmt.Errorf("format %d; this program reads %d", r.Format, Format)
	case r.Classes < 2 || r.Classes > maxClasses || len(r.Classifier) != 64:
		return fmt.Errorf("%d classes of the classifier %.80q; want 2 to %d and a sha256",
			r.Classes, r.Classifier, maxClasses)
	case r.Level != 0 && !(r.Level >= 0.5 && r.Level <= 0.999):
		return fmt.Errorf("sets of level %v; want 0.5 to 0.999", r.Level)
	case r.Few != "" && r.Few != "wrong" && r.Few != "right" || r.Few != "" &&
		(r.Sigma > 0 || len(r.Bins) > 0):
		return fmt.Errorf(
			"few is %.20q with %d bins; want wrong, right or nothing, and no bins where it is "+
				"given", r.Few, len(r.Bins))
	case len(r.Groups) == 0 || len(r.Groups) > r.Classes || len(r.Bins) > Bins:
		return fmt.Errorf("%d groups and %d bins; want 1 to %d and up to %d",
			len(r.Groups), len(r.Bins), r.Classes, Bins)
	}
	if err := r.checkBound(); err != nil {
		return err
	}
	if n := r.Size(); n > MaxSize {
		return fmt.Errorf("counts of %d in all; want up to %d", n, MaxSize)
	}
	n, right, err := r.checkGroups()
	if err != nil {
		return err
	}
	return r.checkBins(n, right)
}

// checkBound checks the bound on counts and on those of sets, or the noise.
func (r *Report) checkBound() error {
	words := []string{"", "missed", "held", "wrong and held", "any"}
	if !slices.Contains(words, r.FewSets) ||
		r.FewSets != "" && (r.Level == 0 || r.Sigma > 0 || r.Groups[0].Held != nil) {
		return fmt.Errorf("few sets are %.20q; want missed, held, wrong and held, any, or "+
			"nothing, and nothing where sets are told of", r.FewSets)
	}
	if r.Sigma > 0 {
		if want, err := privacy.CountsNoise(r.Epsilon, r.Delta); err != nil || want != r.Sigma ||
			r.Least != 0 || len(r.Groups) != r.Classes {
			return fmt.Errorf(
				"noise of sigma %d for epsilon %v and delta %v, a bound of %d and %d groups: %w",
				r.Sigma,
				r.Epsilon, r.Delta, r.Least, len(r.Groups), err)
		}
	} else if r.Least < MinLeast || r.Least > MaxLeast || r.Epsilon != 0 || r.Delta != 0 {
		return fmt.Errorf(
			"a bound of %d on counts, epsilon %v and delta %v without noise; want %d to %d, and 0",
			r.Least,
			r.Epsilon, r.Delta, MinLeast, MaxLeast)
	}
	return nil
}

// checkGroups returns the number of images and of those that are right. Without noise each group
// must reach the bound in all that it tells. With noise counts may be negative, and none larger
// than maxCount in size.
// Classes ascend in a group and are in one group at most. All groups tell the same numbers, as
// [Images.Report] makes them.
func (r *Report) checkGroups() (n, right int, err error) {
	seen := make([]bool, r.Classes)
	for i, g := range r.Groups {
		last := -1
		for _, c := range g.Classes {
			if c <= last || c >= r.Classes || seen[c] {
				return 0, 0, fmt.Errorf("groups[%d] has class %d twice, out of order or out "+
					"of bounds", i, c)
			}
			last, seen[c] = c, true
		}
		tells := onlyN
		of := count{n: g.N}
		if g.Right != nil {
			tells, of.right = andRight, *g.Right
		}
		if g.Held != nil {
			tells, of.held = andHeld, *g.Held
		}
		for _, v := range []int{of.n, of.right, of.held} {
			if v < -maxCount || v > maxCount {
				return 0, 0, fmt.Errorf("groups[%d] has a count of %d; want up to %d", i,
					v, maxCount)
			}
		}
		switch {
		case len(g.Classes) == 0 || (g.Right == nil) != (r.Few != ""):
			return 0, 0, fmt.Errorf("groups[%d] has %d classes, or tells what few says is hidden",
				i, len(g.Classes))
		case g.Held != nil && (r.Level == 0 || g.Right == nil || r.Sigma == 0 && g.Size == nil),
			g.Size != nil && (g.Held == nil || r.Sigma > 0 ||
				!(*g.Size >= 0 && *g.Size <= float64(r.Classes))):
			return 0, 0, fmt.Errorf("groups[%d] tells of sets that it cannot have", i)
		case (g.Held == nil) != (r.Groups[0].Held == nil):
			return 0, 0, fmt.Errorf("groups[%d] tells other things than the first", i)
		case r.Sigma == 0 && !of.fits(tells, r.Least):
			return 0, 0, fmt.Errorf("groups[%d] has counts that do not fit, or below the bound "+
				"of %d", i, r.Least)
		}
		n, right = n+of.n, right+of.right
	}
	return n, right, nil
}

// checkBins checks the bins against the groups' sums. Without noise they hold the images of all
// groups, and as many right ones.
func (r *Report) checkBins(n, right int) error {
	if r.Few != "" {
		return nil
	}
	to := 0
	for i, b := range r.Bins {
		if b.From != to || b.To <= b.From || b.N < -maxCount || b.N > maxCount ||
			b.Right < -maxCount ||
			b.Right > maxCount {
			return fmt.Errorf(
				"bins[%d] is %+v; want bins that follow each other from 0 to %d, with counts up "+
					"to %d", i, b, Bins, maxCount)
		}
		to = b.To
		if r.Sigma > 0 {
			if b.Confidence != nil || b.To != b.From+1 {
				return fmt.Errorf("bins[%d] has a mean, or is merged, in a report with noise", i)
			}
			continue
		}
		const rounding = 0.0006
		if b.Confidence == nil ||
			!(*b.Confidence >= float64(b.From)/Bins-rounding &&
				*b.Confidence <= float64(b.To)/Bins+rounding) ||
			b.Right < r.Least || b.N-b.Right < r.Least {
			return fmt.Errorf("bins[%d] has a confidence outside of it, or counts below the bound "+
				"of %d", i, r.Least)
		}
		n, right = n-b.N, right-b.Right
	}
	if to != Bins || r.Sigma == 0 && (n != 0 || right != 0) {
		return fmt.Errorf(
			"the bins end at %d and lack %d images, %d of them right; "+
				"want those of the groups, to %d", to, n, right, Bins)
	}
	return nil
}

// Size bounds the sums of a report's counts: the sum of their absolute values, the largest of each
// group and bin.
// Counts with noise may be negative, so that the sum of a pool may be small where its parts are
// not.
func (r *Report) Size() (n int64) {
	add := func(counts ...*int) {
		most := int64(0)
		for _, c := range counts {
			if c != nil {
				most = max(most, int64(*c), -int64(*c))
			}
		}
		n += most
	}
	for i := range r.Groups {
		add(&r.Groups[i].N, r.Groups[i].Right, r.Groups[i].Held)
	}
	for i := range r.Bins {
		add(&r.Bins[i].N, &r.Bins[i].Right)
	}
	return n
}

// Total returns the number of images of a report, and the numbers of these that are right and held,
// 0 where they are hidden.
func (r *Report) Total() (n, right, held int) {
	for _, g := range r.Groups {
		n += g.N
		if g.Right != nil {
			right += *g.Right
		}
		if g.Held != nil {
			held += *g.Held
		}
	}
	return n, right, held
}

// ECE is the expected calibration error by the report's bins (Guo et al. 2017): of merged bins it
// is at most that of all 15. NaN where there are none, or noise hides their means.
// With r_b right images and mean confidence c_b of the n_b images of bin b it is
//
//	sum_b |r_b - c_b n_b| / sum_b n_b
func (r *Report) ECE() float64 {
	total, sum := 0, 0.0
	for _, b := range r.Bins {
		if b.Confidence == nil {
			return math.NaN()
		}
		total += b.N
		sum += math.Abs(float64(b.Right) - *b.Confidence*float64(b.N))
	}
	if total <= 0 {
		return math.NaN()
	}
	return sum / float64(total)
}
