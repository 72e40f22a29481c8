package privacy

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"fmp/onnx/atomicfile"
)

// maxLedger bounds a ledger: a thousand releases of a thousand images have 34 MB.
const maxLedger = 256 << 20

// Spending is one release of a client, an upload or a report of counts, a line of its [Ledger].
type Spending struct {
	Time   time.Time `json:"time"`
	Client string    `json:"client"` // its name
	Round  uint64    `json:"round"`
	Graph  string    `json:"graph"` // sha256 of the client graph
	// Server is the public key of the server that has it, both keys where there are two; "" is not
	// yet any server's. Local noise has none: the message already holds it.
	Server string `json:"server,omitempty"`
	Budget Budget `json:"budget"`
	// Classes and K are the sizes of the release, Noise the standard deviation in steps of the
	// noise that its budget asks for.
	Classes int    `json:"classes"`
	K       int    `json:"coordinates"`
	Noise   uint64 `json:"noise_steps"`
	// Counts says that it is a report of counts of an evaluation (package tally), whose classifier
	// Graph is.
	Counts bool `json:"counts,omitempty"`
	// Content is the sha256 of the images with their labels, Images the beginnings of the images'
	// own, sorted; an image that is there twice is listed twice. A line without images spends
	// nothing: it counts the message of an earlier line, with a salt or for its first server.
	Content string   `json:"content"`
	Images  []string `json:"images"`
	// Files are the files written, with the sha256 of each.
	Files []Written `json:"files"`
	// Chain is the keyed digest of the line and of all before it (chain.go); empty in a page's
	// ledger, and before there was a key.
	Chain string `json:"chain,omitempty"`
}

// Written is a file of a release.
type Written struct {
	Path   string `json:"path"`
	Sha256 string `json:"sha256"`
}

// imageBytes is the length of an image's digest in a ledger: two among 2^32 images are equal with a
// probability of 2^-64.
const imageBytes = 16

// NewSpending returns the record of a release of images with these digests and labels, which its
// maker completes.
// Content does not depend on the order of the images. Time, client, round, graph, server and files
// are its maker's to set.
func NewSpending(b Budget, classes, k int, digests [][sha256.Size]byte, labels []int) Spending {
	s := Spending{Budget: b, Classes: classes, K: k, Noise: b.NoiseSteps(classes)}
	var all []string
	for i, d := range digests {
		s.Images = append(s.Images, hex.EncodeToString(d[:imageBytes]))
		all = append(all, fmt.Sprintf("%x %d\n", d, labels[i]))
	}
	slices.Sort(s.Images)
	slices.Sort(all)
	sum := sha256.Sum256([]byte(strings.Join(all, "")))
	s.Content = hex.EncodeToString(sum[:])
	return s
}

// same reports whether a release answers the same question about the same images as an earlier one,
// so that the second draw of noise would let both be averaged. An earlier program's may hold
// copies, which its content has: then the images alone are compared.
func (s Spending) same(o Spending) bool {
	alike := s.Client == o.Client && s.Round == o.Round && s.Counts == o.Counts &&
		s.Graph == o.Graph &&
		s.Budget.Effective() == o.Budget.Effective()
	if !alike || s.Content == o.Content {
		return alike
	}
	images := slices.Compact(slices.Clone(o.Images))
	return len(images) < len(o.Images) && slices.Equal(s.Images, images)
}

// change returns the norm, in steps, by which one unit can change a release: an image that is in it
// count times, or a whole client.
func (s Spending) change(unit, relation string, count int) float64 {
	norm := float64(s.Budget.ClientNorm(s.Classes))
	one := Budget{Unit: Example, Relation: relation}.Sensitivity(s.Classes)
	switch {
	case unit == Client && s.Budget.Unit == Client:
		return Budget{Unit: Client, Relation: relation,
			Points: s.Budget.Points}.Sensitivity(s.Classes)
	case unit == Client: // not clipped: as many images as there are
		return float64(len(s.Images)) * one
	// one image less moves the clipped vector no further than the vector, but for rounding, nor
	// further than across the ball
	case s.Budget.Unit == Client:
		return min(float64(count)*one+2*math.Sqrt(float64(s.Classes*(s.K+1))), 2*norm)
	}
	return float64(count) * one
}

// ratio is the change over the noise.
func (s Spending) ratio(unit, relation string, count int) float64 {
	if s.Counts {
		return s.countsRatio(unit, relation, count)
	}
	return s.change(unit, relation, count) / float64(max(s.Noise, 1))
}

// Total returns the epsilon, at the delta of next and for its unit and relation, that the releases
// before it and next have spent together on the unit that they spent most on: of images, on the one
// of next's that was in the most releases; of a client, on that client. Gaussian noise adds up as
// in [Epsilon]. count is the number of earlier releases that share the unit. With c_i the change of
// release i by the unit and s_i its noise, the sum is that of one release of noise
//
//	1/sqrt(sum_i (c_i/s_i)^2)
//
// at change 1, whose epsilon at delta is returned.
func Total(past []Spending, next Spending) (epsilon float64, count int) {
	unit, relation := next.Budget.Unit, next.Budget.Relation
	spent := map[string]float64{} // sums of (change/noise)^2
	for i, s := range append(slices.Clone(past), next) {
		shares := false
		times := map[string]int{}
		if unit == Client {
			if s.Client != next.Client || len(s.Images) == 0 {
				continue
			}
			times[""] = 1
		} else {
			for _, im := range s.Images {
				times[im]++
			}
		}
		for im, n := range times {
			_, held := slices.BinarySearch(next.Images, im)
			if unit == Example && !held {
				continue
			}
			shares = true
			spent[im] += math.Pow(s.ratio(unit, relation, n), 2)
		}
		if shares && i < len(past) {
			count++
		}
	}
	most := 0.0
	for _, v := range spent {
		most = max(most, v)
	}
	return Epsilon(1/math.Sqrt(most), next.Budget.Delta), count
}

// Ledger is the file in which a client writes down every release before it is written, one JSON
// object a line; nothing in it is ever changed. It adds up the budget spent on every image, in any
// folder or round, as noise that is drawn twice over the same sums averages out.
type Ledger struct {
	Path string
	// Allowed, where it is set, is asked under the lock right before a line is added; its error
	// adds none, and begins no ledger.
	Allowed func() error
}

func (l Ledger) allowed() error {
	if l.Allowed == nil {
		return nil
	}
	return l.Allowed()
}

// SpentError is the refusal of a release beyond a limit.
type SpentError struct {
	Total, Limit float64
	Earlier      int
	Unit         string
}

func (e *SpentError) Error() string {
	of := "an image of these"
	if e.Unit == Client {
		of = "this client"
	}
	return fmt.Sprintf("with this release epsilon %.4g would be spent on %s, over %d earlier "+
		"releases and this; --max-epsilon allows %.4g in all", e.Total, of, e.Earlier, e.Limit)
}

// Find returns the last release that answered the same question about the same images, nil where
// there is none.
func (l Ledger) Find(s Spending) (*Spending, error) {
	past, err := l.past()
	return last(past, s), err
}

// FindAll returns all releases that answered the same question about the same images, the last one
// last.
func (l Ledger) FindAll(s Spending) ([]Spending, error) {
	past, err := l.past()
	return slices.DeleteFunc(past, func(o Spending) bool { return !s.same(o) }), err
}

// past returns the releases of the ledger, none of one that is not begun.
func (l Ledger) past() (all []Spending, err error) {
	if !l.begun() {
		return nil, nil
	}
	err = l.read(func(lines []byte, _ *chain) (_ []byte, err error) {
		all, err = parseLedger(lines)
		return nil, err
	})
	return all, err
}

// Written returns the sha256 of every file that the ledger counts.
func (l Ledger) Written() (map[string]bool, error) {
	all := map[string]bool{}
	past, err := l.past()
	for _, s := range past {
		for _, f := range s.Files {
			all[f.Sha256] = true
		}
	}
	return all, err
}

// Find is [Ledger.Find] in a ledger's lines.
func Find(lines []byte, s Spending) (found *Spending, err error) {
	past, err := parseLedger(lines)
	return last(past, s), err
}

// last returns the last of some releases that is the same as another.
func last(past []Spending, s Spending) (found *Spending) {
	for i := range past {
		if s.same(past[i]) {
			found = &past[i]
		}
	}
	return found
}

// Spend writes a release down, and returns the epsilon that has been spent with it and over how
// many earlier ones; a total above limit is a [SpentError], and nothing is written (0: no limit).
// Unless again is set, so is a release that was made before: another process may have made it
// meanwhile. It reads, checks and appends under one lock of the file, so that two processes cannot
// both pass a limit.
func (l Ledger) Spend(s Spending, limit float64,
	again bool) (total float64, earlier int, err error) {
	if !l.begun() { // what would be refused begins none
		if _, total, earlier, err = Spend(nil, s, limit, again); err != nil {
			return total, earlier, fmt.Errorf("privacy: ledger %s: %w", l.Path, err)
		}
	}
	err = l.read(func(lines []byte, c *chain) (line []byte, err error) {
		if _, total, earlier, err = Spend(lines, s, limit, again); err != nil {
			return nil, err
		}
		s.Chain = c.of(lines, s)
		line, err = json.Marshal(s)
		return append(line, '\n'), err
	})
	return total, earlier, err
}

// Hand writes down that a message is about to go to the server of next, which adds noise. Each
// server draws its own: the release itself pays for the first, and every further one is charged on
// the same images, like another release. A server that has the release is charged no more. Of a
// message that no line has, next is its account; that one goes to one server alone. So do the
// shares of one splitting, to one pair: where two pairs have them a server that is in both, as
// leader and as helper, opens the sums.
func (l Ledger) Hand(next Spending, limit float64) (total float64, earlier int, err error) {
	if next.Budget.Noise == Local {
		return 0, 0, nil
	}
	err = l.read(func(lines []byte, c *chain) (line []byte, err error) {
		past, err := parseLedger(lines)
		if err != nil {
			return nil, err
		}
		s, err := handed(past, next)
		if s == nil || err != nil {
			return nil, err
		}
		if len(s.Images) > 0 {
			if _, total, earlier, err = Spend(lines, *s, limit, true); err != nil {
				return nil, err
			}
		}
		s.Chain = c.of(lines, *s)
		line, err = json.Marshal(s)
		return append(line, '\n'), err
	})
	return total, earlier, err
}

// handed returns the line of a release that goes to a server, with images where it is charged; nil
// where that server has it: the release, or of two servers this splitting of it.
func handed(past []Spending, next Spending) (*Spending, error) {
	s, split := next, next.Budget.Noise == TwoServers
	paid, servers, sent := 0, map[string]bool{}, map[string]bool{}
	for _, o := range slices.Backward(past) {
		if o.holds(next) {
			s, sent[o.Server] = o, true
		}
	}
	delete(sent, "")
	s.Time, s.Server, s.Images = next.Time, next.Server, nil
	for _, o := range past {
		if !s.same(o) && !o.holds(next) {
			continue
		}
		if len(o.Images) > 0 {
			paid++
			s.Images = o.Images
		}
		if o.Server != "" {
			servers[o.Server] = true
		}
	}
	switch {
	case sent[next.Server] || servers[next.Server] && !split:
		return nil, nil
	case split && len(sent) > 0:
		return nil, errors.New("the shares of this upload went to another pair of servers: who " +
			"is in both pairs may open them; compress or join with --redraw splits anew, and " +
			"spends its budget again")
	case servers[next.Server] || paid > len(servers) || len(servers) == 0:
		s.Images = nil
	case paid == 0:
		return nil, errors.New("this upload, or another of this client and round, went to " +
			"another server, and no line says of which images it is: a second server draws noise " +
			"of its own and spends its budget again; give the --ledger of the machine that made it")
	}
	return &s, nil
}

// holds reports whether a file of a release is one of another's.
func (s Spending) holds(o Spending) bool {
	return slices.ContainsFunc(s.Files, func(f Written) bool {
		return slices.ContainsFunc(o.Files, func(g Written) bool { return f.Sha256 == g.Sha256 })
	})
}

// Spend is [Ledger.Spend] in a ledger's lines: it returns the line to append, which the caller
// keeps before the release leaves.
func Spend(lines []byte, s Spending, limit float64,
	again bool) (line []byte, total float64, earlier int, err error) {
	past, err := parseLedger(lines)
	if err != nil {
		return nil, 0, 0, err
	}
	if !again && slices.ContainsFunc(past, s.same) {
		return nil, 0, 0, fmt.Errorf("the same release is being made by another process")
	}
	total, earlier = Total(past, s)
	if limit > 0 && total > limit {
		return nil, total, earlier, &SpentError{total, limit, earlier, s.Budget.Unit}
	}
	line, err = json.Marshal(s)
	return append(line, '\n'), total, earlier, err
}

// names are those of the ledger: its file, and before that the symbolic links that lead there. The
// file need not be there.
func (l Ledger) names() []string {
	all := []string{l.Path}
	for len(all) <= 40 { // links that a system follows
		path := all[len(all)-1]
		target, err := os.Readlink(path)
		if err != nil {
			break
		}
		if !filepath.IsAbs(target) {
			dir, _ := filepath.Split(path)
			target = dir + target
		}
		// Links in the folder give a ".." another meaning than its text has.
		dir, name := filepath.Split(target)
		if folder, err := filepath.EvalSymlinks(cmp.Or(dir, ".")); err == nil {
			target = filepath.Join(folder, name)
		}
		all = append(all, target)
	}
	return all
}

// seals are the places of the file with the key and the end of the ledger's chain. The first is
// beside the file that links lead to, so that the ledger has one seal by all its names. An earlier
// program put it beside the link that it was given, which are the others.
func (l Ledger) seals() []string {
	all := l.names()
	slices.Reverse(all)
	for i := range all {
		all[i] += SealSuffix
	}
	return all
}

// Files are all names under which the ledger or its seal is read or written. They need not be
// there. A file in the place of one would be taken for the ledger or the seal.
func (l Ledger) Files() []string { return append(l.names(), l.seals()...) }

func there(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// begun reports whether the ledger or its seal is there, in whatever state. Nothing is made for a
// question to one that is not.
func (l Ledger) begun() bool { return there(l.Path) || slices.ContainsFunc(l.seals(), there) }

// read passes the lines of the file to next, with the chain that they follow, and appends its
// result, a line. The seal then counts it; a line that it cannot count is taken back, as its
// release is not made. Where a program was stopped between the two, the next reading counts the
// line. next is called under the lock.
// It costs O(bytes of the ledger), as every line is checked at each reading.
func (l Ledger) read(next func(lines []byte, c *chain) ([]byte, error)) error {
	if !l.begun() {
		if err := l.allowed(); err != nil {
			return err
		}
	}
	var c *chain
	var denied error
	seals := l.seals()
	seal := seals[0]
	err := atomicfile.Extend(l.Path, maxLedger, func(lines []byte) (more []byte, err error) {
		if c, err = openChain(seals, lines); err != nil {
			return nil, err
		}
		more, err = next(lines, c)
		if err == nil && len(more) > 0 {
			denied = l.allowed()
			err = denied
		}
		if err == nil && len(more) > 0 && c.unsaved {
			// This is before its first line, which no other key could follow.
			err = c.save(seal)
		}
		return more, err
	}, func() error { return c.count(seal) })
	if denied != nil {
		return denied
	}
	if err != nil {
		return fmt.Errorf("privacy: ledger %w", err)
	}
	return nil
}

// parseLedger reads a ledger's lines. A line that is not understood is an error: the budget that it
// spent would be forgotten.
func parseLedger(lines []byte) ([]Spending, error) {
	var out []Spending
	for i, line := range bytes.Split(bytes.TrimSuffix(lines, []byte("\n")), []byte("\n")) {
		if len(line) == 0 {
			continue
		}
		var s Spending
		if err := json.Unmarshal(line, &s); err != nil {
			return nil,
				fmt.Errorf("line %d: %w; what was spent cannot be told: restore the file, or "+
					"give another with --ledger", i+1, err)
		}
		if err := s.Budget.Check(); err != nil || s.Noise < 1 || s.Classes < 1 ||
			s.K < 1 && !s.Counts ||
			len(s.Images) > maxPoints {
			return nil, fmt.Errorf("line %d is of noise %d, %d classes and %d coordinates (%v); "+
				"what was spent cannot be told: restore the file, or give another with --ledger",
				i+1, s.Noise,
				s.Classes, s.K, err)
		}
		if s.Counts {
			if err := s.checkCounts(); err != nil {
				return nil,
					fmt.Errorf("line %d has %w: it was changed; restore the file, or give "+
						"another with --ledger", i+1, err)
			}
		} else if want := s.Budget.NoiseSteps(s.Classes); s.Noise != want {
			return nil, fmt.Errorf("line %d has noise_steps %d, and its budget asks for %d: it "+
				"was changed; restore the file, or give another with --ledger", i+1, s.Noise, want)
		}
		out = append(out, s)
	}
	return out, nil
}
