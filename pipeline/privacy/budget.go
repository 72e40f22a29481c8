package privacy

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"fmp/onnx/suggest"
)

// Units that a release protects: one image, or all images of one client.
const (
	Example = "example"
	Client  = "client"
)

// Relations of neighbouring data: one unit more or less, or one unit in place of another.
const (
	AddRemove  = "add-remove"
	ReplaceOne = "replace-one"
)

// Sources of the noise.
const (
	// Local: every client adds the noise itself, to what it sends.
	Local = "local"
	// Trusted: the server sums what clients send and adds noise once, to what it publishes.
	Trusted = "trusted"
	// TwoServers: the sum is shared between two servers, each of which adds the noise before the sum is opened.
	TwoServers = "two-servers"
)

// Units, Relations and Sources are the choices of a [Budget].
var (
	Units     = []string{Example, Client}
	Relations = []string{AddRemove, ReplaceOne}
	Sources   = []string{Trusted, TwoServers, Local}
)

// Bounds of a budget. Beyond an epsilon of 20 a promise is worth nothing; a delta above one in a hundred would allow to publish a
// unit in a hundred as it is.
const (
	minEpsilon, maxEpsilon = 0.01, 20
	minDelta, maxDelta     = 1e-12, 1e-2
	maxPoints              = 1_000_000
)

// DefaultDelta is the delta of a budget that states none.
const DefaultDelta = 1e-5

// Budget is what one release may give away, of what, and to whom.
type Budget struct {
	Epsilon float64 `json:"epsilon" yaml:"epsilon"` // 0.01 to 20
	Delta   float64 `json:"delta" yaml:"delta"`     // 1e-12 to 0.01
	// Unit is [Example] or [Client], Relation [AddRemove] or [ReplaceOne].
	Unit     string `json:"unit" yaml:"unit"`
	Relation string `json:"relation" yaml:"relation"`
	// Noise is where it comes from: [Local], [Trusted] or [TwoServers].
	Noise string `json:"noise" yaml:"noise"`
	// Points is the most images of one client, 1 to 1,000,000; needed where a client is the unit, and by two servers.
	Points int `json:"points,omitempty" yaml:"points,omitempty"`
}

// Check returns all that is wrong.
func (b Budget) Check() error {
	var errs []error
	fail := func(key string, value any, allowed string, args ...any) {
		errs = append(errs, fmt.Errorf("privacy: %s is %v; allowed: %s", key, value, fmt.Sprintf(allowed, args...)))
	}
	if !(b.Epsilon >= minEpsilon && b.Epsilon <= maxEpsilon) {
		fail("epsilon", b.Epsilon, "%v to %v", minEpsilon, maxEpsilon)
	}
	if !(b.Delta >= minDelta && b.Delta <= maxDelta) {
		fail("delta", b.Delta, "%v to %v", minDelta, maxDelta)
	}
	for _, c := range []struct {
		key, value string
		allowed    []string
	}{{"unit", b.Unit, Units}, {"relation", b.Relation, Relations}, {"noise", b.Noise, Sources}} {
		if !slices.Contains(c.allowed, c.value) {
			fail(c.key, fmt.Sprintf("%q", c.value), "%s", suggest.Or(c.allowed...))
		}
	}
	if b.Points < 0 || b.Points > maxPoints || b.Points == 0 && (b.Unit == Client || b.Noise == TwoServers) {
		fail("points", b.Points, "1 to %d, the most images of a client, where the unit is a client or the noise comes from two servers", maxPoints)
	}
	return errors.Join(errs...)
}

// String is the budget for people.
func (b Budget) String() string {
	unit := "one image"
	if b.Unit == Client {
		unit = "a whole client"
	}
	relation := "added or removed"
	if b.Relation == ReplaceOne {
		relation = "replaced"
	}
	return fmt.Sprintf("epsilon %g, delta %g for %s %s, noise: %s", b.Epsilon, b.Delta, unit, relation, b.Noise)
}

// Sigma is the least standard deviation of Gaussian noise, at sensitivity 1, that is (epsilon, delta)-differentially private: the
// analytic Gaussian mechanism (Balle and Wang 2018, theorem 8), by bisection,
//
//	Phi(1/2s - eps s) - e^eps Phi(-1/2s - eps s) <= delta.
func Sigma(epsilon, delta float64) float64 {
	low, high := 1e-4, 1e5
	for range 200 {
		mid := math.Sqrt(low * high)
		if Delta(epsilon, mid) > delta {
			low = mid
		} else {
			high = mid
		}
	}
	return high
}

// Delta is the least delta for which Gaussian noise of standard deviation sigma, at sensitivity 1, is
// (epsilon, delta)-differentially private.
func Delta(epsilon, sigma float64) float64 {
	return phi(0.5/sigma-epsilon*sigma) - math.Exp(epsilon)*phi(-0.5/sigma-epsilon*sigma)
}

// Epsilon is the least epsilon, at a delta, of Gaussian noise of standard deviation sigma at sensitivity 1. Several releases of the
// same data with noise s_1, s_2, ... are one of sigma = 1/sqrt(1/s_1^2 + 1/s_2^2 + ...).
func Epsilon(sigma, delta float64) float64 {
	if Delta(0, sigma) <= delta {
		return 0
	}
	low, high := 0.0, 1.0
	for Delta(high, sigma) > delta && high < 500 {
		high *= 2
	}
	for range 100 {
		mid := (low + high) / 2
		if Delta(mid, sigma) > delta {
			low = mid
		} else {
			high = mid
		}
	}
	return high
}

func phi(x float64) float64 { return 0.5 * math.Erfc(-x/math.Sqrt2) }

// Steps is how many whole numbers the clipping norm R has, and CountSteps how many stand for one point in a count: a quarter
// of R, which costs the sums 3% of their budget.
const (
	Steps      = 1024
	CountSteps = Steps / 4
)

// Sensitivity is how far, in steps, one unit can move a release of so many classes: the L2 norm of the difference.
//
// A point is a vector of norm Steps at most and a count of CountSteps: sqrt(Steps^2 + CountSteps^2) apart from none, and 2 Steps from
// another, which is more than sqrt(2) times that. A client's whole vector is cut to [Budget.ClientNorm].
func (b Budget) Sensitivity(classes int) float64 {
	one := math.Hypot(Steps, CountSteps)
	switch {
	case b.Unit == Client && b.Relation == ReplaceOne:
		return 2 * float64(b.ClientNorm(classes))
	case b.Unit == Client:
		return float64(b.ClientNorm(classes))
	case b.Relation == ReplaceOne:
		return 2 * Steps
	}
	return one
}

// ClientNorm is what a client's vector is cut to where the client is the unit: 0.7 of the norm that Points points, spread evenly over
// the classes, have at most on average, sqrt(n (1 + n/C)) points' worth.
func (b Budget) ClientNorm(classes int) uint64 {
	n := float64(b.Points)
	return uint64(0.7 * math.Sqrt(n*(1+n/float64(classes))) * math.Hypot(Steps, CountSteps))
}

// MaxNumber is the largest number, in steps and without its sign, that the sums of a client of Points images have: the most that a range proof is to allow.
func (b Budget) MaxNumber(classes int) uint64 {
	most := uint64(b.Points) * Steps
	if b.Unit == Client {
		most = min(most, b.ClientNorm(classes))
	}
	return most
}

// NoiseSteps is the standard deviation in steps, a whole number, of what one source adds to every number of a release.
func (b Budget) NoiseSteps(classes int) uint64 {
	return uint64(math.Ceil(Sigma(b.Epsilon, b.Delta) * b.Sensitivity(classes)))
}

// Parts is how many times the noise is in the total of so many clients' releases.
func (b Budget) Parts(clients int) int {
	switch b.Noise {
	case Local:
		return clients
	case TwoServers:
		return 2
	}
	return 1
}

// Account is what was spent on a round: it goes with everything that the round's data become.
type Account struct {
	Budget
	// Sigma is the noise multiplier: standard deviation over sensitivity. Deviation is that of one source's noise in steps.
	Sigma     float64 `json:"sigma"`
	Deviation uint64  `json:"noise_steps"`
	// Releases counts how often the noise is in the total.
	Releases int `json:"releases"`
}

// Spend is the account of a release of so many classes by so many clients.
func (b Budget) Spend(classes, clients int) Account {
	d := b.NoiseSteps(classes)
	return Account{Budget: b, Sigma: float64(d) / b.Sensitivity(classes), Deviation: d, Releases: b.Parts(clients)}
}
