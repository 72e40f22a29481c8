package rival

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"gonum.org/v1/gonum/floats"
)

// Held is a task from the meta-training corpus with held-out points of the same corpus, for Tune.
type Held struct {
	Task     *Task
	Features []float32 // n x dx, row-major
	Labels   []int     // n class indices
	// Batches are the batches of points that joint scores are computed on ([metric.NearBatches]);
	// nil for none. Methods with Info.Joint need them.
	Batches [][]int
	// Errs is the number of points beside Labels that are taken to err: an even share of all of
	// them, each of its likeliest other class; default 0. Where few points are all right, a
	// temperature of nearly 0 would have the least NLL. With 1, of n points that are right the next
	// one is with a probability of n/(n + 1), about Laplace's rule of succession.
	Errs float64
}

// Choice is the setting that Tune chose for a method, with the mean NLL on held-out points at every
// value tried, in ascending order of the values.
type Choice struct {
	Method string    `json:"method"`
	Param  string    `json:"param"`
	Value  float64   `json:"value"`
	Grid   []float64 `json:"grid"`
	NLL    []float64 `json:"nll"` // with Info.Joint the sum of NLL and joint NLL
	// Temperatures are those of least NLL at the values of Grid, and Temperature that of the chosen
	// value. Choices written by earlier versions have none: their methods ran at temperature 1.
	Temperatures []float64 `json:"temperatures,omitempty"`
	Temperature  float64   `json:"temperature,omitempty"`
	// More are the choices of further settings, by name, and MoreTried the values tried. Choices
	// written by earlier versions have none of these: they tried the grid of the method alone.
	More      map[string]float64 `json:"more,omitempty"`
	MoreTried map[string]Tried   `json:"more_tried,omitempty"`
}

// Tried are the values of a setting that were tried, ascending, and the NLL at each.
type Tried struct {
	Grid []float64 `json:"grid"`
	NLL  []float64 `json:"nll"`
}

// flat is a difference in NLL that a tuning task's hundreds of images do not resolve.
const flat = 1e-4

// AtEnd returns the names of the settings for which a value beyond those tried might be better: the
// chosen one is the first or the last, no bound of the setting, and more than flat below its
// neighbour.
func (c *Choice) AtEnd() []string {
	var out []string
	if c.atEnd(c.Param, c.Value, Tried{c.Grid, c.NLL}) {
		out = append(out, c.Param)
	}
	for _, name := range slices.Sorted(maps.Keys(c.More)) {
		tried, ok := c.MoreTried[name]
		if m, err := Lookup(c.Method); err == nil && !ok {
			i := slices.IndexFunc(m.Info().More, func(p Param) bool { return p.Name == name })
			if i < 0 {
				continue
			}
			tried.Grid = m.Info().More[i].Grid
		}
		if c.atEnd(name, c.More[name], tried) {
			out = append(out, name)
		}
	}
	return out
}

// atEnd is AtEnd of one setting; where no NLL is known the neighbour is taken for worse.
func (c *Choice) atEnd(param string, v float64, tried Tried) bool {
	k, step := slices.Index(tried.Grid, v), 1
	switch {
	case len(tried.Grid) < 2 || k < 0 || k > 0 && k < len(tried.Grid)-1:
		return false
	case k == 0:
		step = -1
	}
	if _, err := DefaultSettings().With(param, v+float64(step)*math.Max(1, v)*1e-9); err != nil {
		return false
	}
	return tried.NLL == nil || tried.NLL[k-step]-tried.NLL[k] > flat
}

// Apply returns base with the chosen settings.
func (c *Choice) Apply(base Settings) (Settings, error) {
	var err error
	if c.Param != "" {
		if base, err = base.With(c.Param, c.Value); err != nil {
			return base, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.More)) {
		if base, err = base.With(name, c.More[name]); err != nil {
			return base, err
		}
	}
	if c.Temperature != 0 {
		base.Temperature = c.Temperature
	}
	return base, base.Check()
}

// tuneWarmup is the number of adaptation steps per chain while values are compared. Chains then
// keep as many draws as an ensemble needs; R-hat is left to the run itself.
const tuneWarmup = 50

// extensions bounds how often a method's own grid is extended beyond an end at which its best value
// lies. Ten times the first step of gridL2 leads to 2e-7; much below, the regulariser's gradient is
// less than the solver's tolerance.
const extensions = 10

// refinements is how often a method's own grid is refined around its minima. Each refinement halves
// the steps on both sides of one: the half-decades of gridL2 become eighths of a decade
// there.
const refinements = 2

// nearMinimum bounds how far above the least NLL, in nats, a minimum is refined too. Finer steps
// between its neighbours gain less.
const nearMinimum = 0.1

// Tune is the tuned protocol: it chooses the value of m's own setting, and the temperature, of
// least mean NLL over held; the smallest value at ties. It tries the values of m's grid, a few
// more beyond its end while the best one lies there, and then, twice, the geometric means of each
// minimum so far and its neighbours (the arithmetic ones beside 0); if grid is given, only its
// values. At each value it uses the best temperature, which needs no fit. All combinations of
// further settings (Info.More) are tried, with a search for each, and values beyond an end of
// theirs too. Every method is tuned in the same way. The settings returned are base with the
// chosen values. A method that follows another (Info.Follows) gets the other's choice. held must
// come from the meta-training corpus: points of the test set would be a leak.
func Tune(ctx context.Context, m Method, held []Held, base Settings,
	grid []float64) (Choice, Settings, error) {
	info := m.Info()
	name := info.Name
	if len(held) == 0 {
		return Choice{}, base, fmt.Errorf("tuning %s: no tasks; give at least one of the "+
			"meta-training corpus", name)
	}
	if leader := info.Follows; leader != "" {
		if leader == fmp.info.Name && !held[0].Task.closedForm() {
			leader = fmpISAB.info.Name // whose uploads PRIOR shuffles without either predictor
		}
		var err error
		if m, err = Lookup(leader); err != nil {
			return Choice{}, base, fmt.Errorf("tuning %s: %w", name, err)
		}
		info = m.Info()
	}
	s, err := info.Raw(base)
	if err != nil {
		return Choice{}, base, fmt.Errorf("tuning %s: %w", name, err)
	}
	t := &tuner{m: m, held: held}
	c, err := t.best(ctx, s, info.More, Param{info.Param, info.Grid}, grid)
	if err != nil {
		return c, base, err
	}
	c.Method = name
	chosen, err := c.Apply(base)
	if err != nil {
		return c, base, fmt.Errorf("tuning %s: %w", name, err)
	}
	return c, chosen, nil
}

// InHindsight returns the method with the grid that is tried where settings are chosen on the
// scored images themselves (Info.Wide).
func InHindsight(m Method) Method {
	if m.Info().Wide == nil {
		return m
	}
	return widened{m}
}

// widened is a method whose own grid is the wide one.
type widened struct{ Method }

// Info returns that of the method, with the wide grid.
func (w widened) Info() Info {
	i := w.Method.Info()
	i.Grid = i.Wide
	return i
}

// tuner tunes one method.
type tuner struct {
	m    Method
	held []Held
	warm float64 // the last temperature found, where the next search starts
}

// best returns the best choice over all combinations of the values of more: a search for each value
// of the first, which goes through the others in turn. Their number multiplies its cost.
func (t *tuner) best(ctx context.Context, s Settings, more []Param, p Param,
	values []float64) (Choice, error) {
	if len(more) == 0 {
		return t.search(ctx, s, p, values)
	}
	var best Choice
	var tried Tried
	try := func(v float64) error {
		at, err := s.With(more[0].Name, v)
		if err != nil {
			return fmt.Errorf("tuning %s: %w", t.m.Info().Name, err)
		}
		c, err := t.best(ctx, at, more[1:], p, values)
		if err != nil {
			return err
		}
		i, _ := slices.BinarySearch(tried.Grid, v)
		tried.Grid = slices.Insert(tried.Grid, i, v)
		tried.NLL = slices.Insert(tried.NLL, i, slices.Min(c.NLL))
		if best.More != nil && !(slices.Min(c.NLL) < slices.Min(best.NLL)) {
			return nil
		}
		if best = c; best.More == nil {
			best.More, best.MoreTried = map[string]float64{}, map[string]Tried{}
		}
		best.More[more[0].Name] = v
		return nil
	}
	for _, v := range more[0].Grid {
		if err := try(v); err != nil {
			return best, err
		}
	}
	for range extensions {
		v, ok := next(tried.Grid, floats.MinIdx(tried.NLL))
		if _, err := s.With(more[0].Name, v); !ok || err != nil || slices.Contains(tried.Grid, v) {
			break
		}
		if err := try(v); err != nil {
			return best, err
		}
	}
	best.MoreTried[more[0].Name] = tried
	return best, nil
}

// search chooses the value of one setting and the temperature, with all other settings as in s. If
// values are given, only they are tried. For a method without a setting of its own it chooses only
// the temperature.
func (t *tuner) search(ctx context.Context, s Settings, p Param, values []float64) (Choice, error) {
	c := Choice{Method: t.m.Info().Name, Param: p.Name}
	beyond, rounds := 0, 0
	if len(values) == 0 {
		values, beyond, rounds = p.Grid, extensions, refinements
	}
	try := func(v float64) error {
		at, tried := slices.BinarySearch(c.Grid, v)
		if tried {
			return nil
		}
		temperature, nll, err := t.heldNLL(ctx, s, p.Name, v)
		if err != nil {
			return err
		}
		c.Grid, c.NLL, c.Temperatures = slices.Insert(c.Grid, at, v), slices.Insert(c.NLL, at, nll),
			slices.Insert(c.Temperatures, at, temperature)
		return nil
	}
	if p.Name == "" {
		values, beyond, rounds = []float64{0}, 0, 0 // a grid of one value that nothing reads
	}
	for _, v := range values {
		if err := try(v); err != nil {
			return c, err
		}
	}
	for range beyond {
		v, ok := next(c.Grid, floats.MinIdx(c.NLL))
		if !ok {
			break
		}
		if _, err := s.With(p.Name, v); err != nil {
			break // not a valid value of the setting
		}
		if err := try(v); err != nil {
			return c, err
		}
	}
	for range rounds {
		for _, v := range between(c.Grid, c.NLL) {
			if err := try(v); err != nil {
				return c, err
			}
		}
	}
	k := floats.MinIdx(c.NLL)
	c.Value, c.Temperature = c.Grid[k], c.Temperatures[k]
	if p.Name == "" {
		c.Grid = nil
	}
	return c, nil
}

// heldNLL returns the least mean NLL over the held-out points at one value of a setting, and its
// temperature. With Info.Joint it adds the joint NLL at this temperature, as training of the open
// predictor does.
func (t *tuner) heldNLL(ctx context.Context, s Settings, param string,
	v float64) (temperature, nll float64, err error) {
	name := t.m.Info().Name
	if param != "" {
		if s, err = s.With(param, v); err != nil {
			return 0, 0, fmt.Errorf("tuning %s: %w", name, err)
		}
	}
	at := name
	if param != "" {
		at = fmt.Sprintf("%s of %s = %v", param, name, v)
	}
	s.Temperature = 1
	s.Warmup, s.Draws = min(s.Warmup, tuneWarmup), min(s.Draws, minDraws)
	all := make([]*logits, len(t.held))
	for i, h := range t.held {
		r, err := t.m.Run(ctx, h.Task, s)
		if err != nil {
			return 0, 0, fmt.Errorf("tuning %s on task %d: %w", at, i, err)
		}
		if all[i], err = newLogits(ctx, r, h); err != nil {
			return 0, 0, fmt.Errorf("tuning %s on task %d: %w", at, i, err)
		}
	}
	t.warm = cmp.Or(t.warm, 1)
	temperature, nll = coolest(all, t.warm)
	t.warm = temperature
	if t.m.Info().Joint {
		for i, l := range all {
			nll += l.joint(temperature, t.held[i].Batches) / float64(len(all))
		}
	}
	return temperature, nll, nil
}

// next returns a value beyond the end of ascending values at which the k-th lies; false if it lies
// between others. The ratio to the end is that of the last two values: grids are geometric.
func next(xs []float64, k int) (float64, bool) {
	n := len(xs)
	switch {
	case n < 2:
	case k == 0:
		return digits(xs[0] * xs[0] / xs[1]), true
	case k == n-1:
		return digits(xs[k] * xs[k] / xs[k-1]), true
	}
	return 0, false
}

// between returns the values between each minimum of NLL over an ascending grid and its neighbours:
// their geometric means, the arithmetic ones beside 0. NLL may have several minima; those more than
// nearMinimum above the least are left out.
func between(grid, nll []float64) (finer []float64) {
	least := slices.Min(nll)
	for k, v := range nll {
		first := k == 0 || v < nll[k-1] // of a plateau the first
		if !first || k+1 < len(nll) && nll[k+1] < v || v > least+nearMinimum {
			continue
		}
		for _, j := range []int{k - 1, k + 1} {
			if j >= 0 && j < len(grid) {
				finer = append(finer,
					digits(cmp.Or(math.Sqrt(grid[k]*grid[j]), (grid[k]+grid[j])/2)))
			}
		}
	}
	return finer
}

// digits rounds to three significant digits.
func digits(v float64) float64 {
	short, err := strconv.ParseFloat(strconv.FormatFloat(v, 'e', 2, 64), 64)
	if err != nil { // no number that is printed fails to be read
		return v
	}
	return short
}
