package privacy

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"fmp/onnx/suggest"
)

// Units of privacy: one image, or all images of one client.
const (
	Example = "example"
	Client  = "client"
)

// Neighbouring relations: adding or removing one unit, or replacing one unit by another.
const (
	AddRemove  = "add-remove"
	ReplaceOne = "replace-one"
)

// Sources of the noise.
const (
	// Local: every client adds the noise itself, to its own upload.
	Local = "local"
	// Trusted: the server sums the clients' messages and adds noise once, to its release.
	Trusted = "trusted"
	// TwoServers: the sum is secret-shared between two servers, each of which adds noise before the
	// sum is opened.
	TwoServers = "two-servers"
)

// Units, Relations and Sources are the allowed values of the fields of a [Budget].
var (
	Units     = []string{Example, Client}
	Relations = []string{AddRemove, ReplaceOne}
	Sources   = []string{Trusted, TwoServers, Local}
)

// Bounds on a budget. An epsilon above 20 guarantees next to nothing; a delta above 0.01 would
// permit publishing one unit in a hundred unprotected.
const (
	minEpsilon, maxEpsilon = 0.01, 20
	minDelta, maxDelta     = 1e-12, 1e-2
	maxPoints              = 1_000_000
)

// DefaultDelta is the delta of a budget that does not specify one.
const DefaultDelta = 1e-5

// Budget is the privacy guarantee of one release: how strong it is, for which unit, and against
// whom.
type Budget struct {
	Epsilon float64 `json:"epsilon" yaml:"epsilon"` // 0.01 to 20
	Delta   float64 `json:"delta" yaml:"delta"`     // 1e-12 to 0.01
	// Unit is [Example] or [Client], Relation [AddRemove] or [ReplaceOne].
	Unit     string `json:"unit" yaml:"unit"`
	Relation string `json:"relation" yaml:"relation"`
	// Noise is the source of the noise: [Local], [Trusted] or [TwoServers].
	Noise string `json:"noise" yaml:"noise"`
	// Points is the most images of one client that count in full, 1 to 1,000,000; required if the
	// unit is a client, and with two servers. Sums of more are shortened: an error would tell of
	// one.
	Points int `json:"points,omitempty" yaml:"points,omitempty"`
}

// Check returns an error that lists all that is wrong with the budget.
func (b Budget) Check() error {
	var errs []error
	fail := func(key string, value any, allowed string, args ...any) {
		errs = append(errs, fmt.Errorf("privacy: %s is %v; allowed: %s", key, value,
			fmt.Sprintf(allowed, args...)))
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
	if b.Points < 0 || b.Points > maxPoints || b.Points == 0 && b.bounded() {
		fail("points", b.Points, "1 to %d, the most images of a client, where the unit is a "+
			"client or the noise comes from two servers", maxPoints)
	}
	return errors.Join(errs...)
}

// bounded reports whether Points have an effect.
func (b Budget) bounded() bool { return b.Unit == Client || b.Noise == TwoServers }

// Effective returns the budget without Points that have no effect: those of releases that promise
// the same are equal.
func (b Budget) Effective() Budget {
	if !b.bounded() {
		b.Points = 0
	}
	return b
}

// String returns the budget in words.
func (b Budget) String() string {
	unit := "one image"
	if b.Unit == Client {
		unit = "a whole client"
	}
	relation := "added or removed"
	if b.Relation == ReplaceOne {
		relation = "replaced"
	}
	points := ""
	if b.bounded() {
		points = fmt.Sprintf(", points: %d", b.Points)
	}
	return fmt.Sprintf("epsilon %g, delta %g for %s %s, noise: %s%s", b.Epsilon, b.Delta, unit,
		relation, b.Noise, points)
}

// Promise describes in words the guarantee of a budget.
func (b Budget) Promise(classes int) string {
	noise := map[string]string{
		Local: fmt.Sprintf("Noise of standard deviation %d was added to each number on this "+
			"machine. Nobody, the server included, sees the numbers without it.",
			b.NoiseSteps(classes)),
		Trusted: "No noise was added here: the server sees the numbers as they are, and is " +
			"trusted to add noise before anybody else sees them.",
		TwoServers: "Two servers add noise to the sums of all clients before they are opened. If " +
			"the two put together what they hold, they see this client's numbers without it.",
	}[b.Noise]
	unit := "one image"
	if b.Unit == Client {
		unit = "all images of this client"
	}
	change := "there or not"
	if b.Relation == ReplaceOne {
		change = "these or others"
	}
	return fmt.Sprintf("%s\nThe promise (epsilon %g, delta %g): what comes out is at most %.3g "+
		"times as likely with %s %s, but for a chance of %g. It is for this release; the ledger "+
		"adds up those of several rounds.\n", noise, b.Epsilon, b.Delta, math.Exp(b.Epsilon), unit,
		change, b.Delta)
}

// Sigma returns the smallest standard deviation of Gaussian noise, at sensitivity 1, that is
// (epsilon, delta)-differentially private: the analytic Gaussian mechanism (Balle and Wang 2018,
// theorem 8), by bisection of
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

// Delta returns the smallest delta for which Gaussian noise of standard deviation sigma, at
// sensitivity 1, is (epsilon, delta)-differentially private.
func Delta(epsilon, sigma float64) float64 {
	a, b := 0.5/sigma-epsilon*sigma, 0.5/sigma+epsilon*sigma
	if epsilon <= 500 {
		return phi(a) - math.Exp(epsilon)*phi(-b)
	}
	// e^eps overflows and Phi(-b) vanishes. As b^2 - a^2 = 2 eps their product is e^(-a^2/2) times
	// Mills' ratio of b over sqrt(2 pi), whose series in 1/b^2 is exact to 1e-9: b >= sqrt(2 eps).
	q := 1 / (b * b)
	return phi(a) - math.Exp(-a*a/2)/(b*math.Sqrt(2*math.Pi))*(1-q*(1-3*q*(1-5*q)))
}

// Epsilon returns the smallest epsilon, at a given delta, of Gaussian noise of standard deviation
// sigma at sensitivity 1. Several releases of the same data with noise s_1, s_2, ... are equivalent
// to one with sigma = 1/sqrt(1/s_1^2 + 1/s_2^2 + ...).
func Epsilon(sigma, delta float64) float64 {
	if Delta(0, sigma) <= delta {
		return 0
	}
	low, high := 0.0, 1.0
	for Delta(high, sigma) > delta {
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

// phi is the distribution function of the standard normal, exact in its lower tail.
func phi(x float64) float64 { return 0.5 * math.Erfc(-x/math.Sqrt2) }

// Steps is the number of integer steps in the clipping norm R, and CountSteps the number that one
// point adds to a count: a quarter of R, which costs the sums 3% of their budget.
const (
	Steps      = 1024
	CountSteps = Steps / 4
)

// Sensitivity returns the sensitivity of a release with the given number of classes, in steps: the
// largest L2 norm of a change of it by one unit.
//
// A point adds a vector of norm Steps at most and a count of CountSteps: adding or removing it
// changes the release by at most sqrt(Steps^2 + CountSteps^2). Replacing it by another changes the
// release by at most 2 Steps within a class, which exceeds the sqrt(2) times that norm across two
// classes. A client's whole vector is clipped to [Budget.ClientNorm].
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

// ClientNorm returns the norm to which a client's vector is clipped if the client is the unit: 0.7
// of the largest norm of Points points spread evenly over the classes, on average sqrt(n (1 + n/C))
// times that of one point.
func (b Budget) ClientNorm(classes int) uint64 {
	n := float64(b.Points)
	return uint64(0.7 * math.Sqrt(n*(1+n/float64(classes))) * math.Hypot(Steps, CountSteps))
}

// MaxNumber returns the largest absolute value, in steps, of a number in the sums of a client of
// Points images: the bound for range proofs, to which those of more images are brought.
func (b Budget) MaxNumber(classes int) uint64 {
	most := uint64(b.Points) * Steps
	if b.Unit == Client {
		most = min(most, b.ClientNorm(classes))
	}
	return most
}

// NoiseSteps returns the standard deviation in steps, an integer, of the noise that one source adds
// to every number of a release.
func (b Budget) NoiseSteps(classes int) uint64 {
	return uint64(math.Ceil(Sigma(b.Epsilon, b.Delta) * b.Sensitivity(classes)))
}

// Parts returns how many times the noise is added to the total of the given number of clients'
// releases.
func (b Budget) Parts(clients int) int {
	switch b.Noise {
	case Local:
		return clients
	case TwoServers:
		return 2
	}
	return 1
}

// Account is the record of the privacy budget spent on a round; it accompanies everything that is
// derived from the round's data.
type Account struct {
	Budget
	// Sigma is the noise multiplier: standard deviation over sensitivity. Deviation is the standard
	// deviation of one source's noise in steps.
	Sigma     float64 `json:"sigma"`
	Deviation uint64  `json:"noise_steps"`
	// Releases is the number of times the noise is in the total.
	Releases int `json:"releases"`
	// Draws is how often noise was drawn for totals that one message is in, which Epsilon holds all
	// of; 0: once.
	Draws int `json:"draws,omitempty"`
}

// Spend returns the account of a release with the given numbers of classes and clients.
func (b Budget) Spend(classes, clients int) Account {
	d := b.NoiseSteps(classes)
	return Account{Budget: b, Sigma: float64(d) / b.Sensitivity(classes), Deviation: d,
		Releases: b.Parts(clients)}
}
