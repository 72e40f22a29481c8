package stats

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"fmp/pipeline/federate"
)

// Folds is the number of sums of a round: evidence leaves out one fold of its clients at a time. It
// is the number of groups that package candidate leaves out of single uploads.
const Folds = 10

// maxNumbers bounds the whole numbers of a state: 512 MiB.
const maxNumbers = 1 << 25

// Client is a client whose upload is in a state.
type Client struct {
	Name, Upload string // SHA-256 of the upload, in hexadecimal
	N            int    // its images, calibration points with them
}

// State is the sums of a round's uploads, and the names of its clients: all that is kept of them.
// The same uploads have the same state, whatever their order, and whatever was added and taken out
// between.
type State struct {
	Round  uint64
	Model  string // SHA-256 of the client graph, in hexadecimal
	Dx, C  int
	client []Client    // by names
	fold   [Folds]*Sum // never nil; of no clients where none is in it
}

// FoldOf returns the fold of a client: its name alone decides.
func FoldOf(client string) int {
	h := sha256.Sum256([]byte("fmp.stats.Fold\n" + client))
	return int(binary.LittleEndian.Uint64(h[:8]) % Folds)
}

// Start returns the state of no uploads, of the kind of one.
func Start(like *federate.Upload) *State {
	s := &State{Round: like.Round, Model: like.Model, Dx: like.Points.Dx, C: like.Points.C}
	for i := range s.fold {
		s.fold[i] = &Sum{Dx: s.Dx, C: s.C}
	}
	return s
}

// Clients returns the clients, by their names.
func (s *State) Clients() []Client { return slices.Clone(s.client) }

// Fold returns the sum of a fold.
func (s *State) Fold(i int) *Sum { return s.fold[i] }

// find returns where a client is, or would be.
func (s *State) find(name string) (int, bool) {
	return slices.BinarySearchFunc(s.client, name,
		func(c Client, name string) int { return strings.Compare(c.Name, name) })
}

// Client returns a client that is in.
func (s *State) Client(name string) (Client, bool) {
	at, in := s.find(name)
	if !in {
		return Client{}, false
	}
	return s.client[at], true
}

// Add adds an upload, whose file has a SHA-256, in hexadecimal. After an error nothing is added.
// The upload is read once, and nothing of it is kept but its sum. It costs O(dx rows), with second
// moments O(dx^2 rows), and O(clients) to insert the name.
func (s *State) Add(u *federate.Upload, digest string) error {
	of, err := s.sumOf(u)
	if err != nil {
		return err
	}
	at, in := s.find(u.Client)
	if in {
		return fmt.Errorf(
			"stats: client %q is in already, by the upload %.12s; this one is %.12s: "+
				"take that out first", u.Client, s.client[at].Upload, digest)
	}
	if n := s.numbers() + of.numbers(); n > maxNumbers {
		return fmt.Errorf("stats: with client %q the sums have %d numbers; a state has %d at most",
			u.Client, n, maxNumbers)
	}
	if err := s.fold[FoldOf(u.Client)].Add(of); err != nil {
		return err
	}
	s.client = slices.Insert(s.client, at, Client{u.Client, digest, int(of.N)})
	return nil
}

// Remove takes an upload out that was added. After an error nothing is taken out.
// It needs the very upload, as a sum does not tell one apart. The state is then, to the byte, the
// one without it.
func (s *State) Remove(u *federate.Upload, digest string) error {
	of, err := s.sumOf(u)
	if err != nil {
		return err
	}
	at, in := s.find(u.Client)
	switch {
	case !in:
		return fmt.Errorf("stats: client %q is not in: nothing is taken out", u.Client)
	case s.client[at].Upload != digest:
		return fmt.Errorf("stats: client %q is in by the upload %.12s, and this one is %.12s: "+
			"give the one that was added", u.Client, s.client[at].Upload, digest)
	}
	if err := s.fold[FoldOf(u.Client)].Sub(of); err != nil {
		return err
	}
	s.client = slices.Delete(s.client, at, at+1)
	return nil
}

// sumOf returns the sum of one upload, or an error where it is not of the state's round, graph and
// sizes.
func (s *State) sumOf(u *federate.Upload) (*Sum, error) {
	if u.Round != s.Round || u.Model != s.Model || u.Points.Dx != s.Dx || u.Points.C != s.C {
		return nil, fmt.Errorf("stats: client %q is of round %d, client graph %.12s, %d "+
			"coordinates and %d classes; the state is of %d, %.12s, %d and %d",
			u.Client, u.Round, u.Model, u.Points.Dx, u.Points.C, s.Round,
			s.Model, s.Dx, s.C)
	}
	return Compute(u)
}

// numbers returns how many whole numbers the state has.
func (s *State) numbers() (n int) {
	for _, f := range s.fold {
		n += f.numbers()
	}
	return n
}

// numbers returns how many whole numbers the sum has: second moments, and for each class that is
// held mass, squares and sums.
func (s *Sum) numbers() int { return len(s.second) + len(s.classes)*(first+s.Dx) }
