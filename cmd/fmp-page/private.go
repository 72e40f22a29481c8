package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"fmp/featurize/imagefile"
	"fmp/models"
	"fmp/pipeline/client"
	"fmp/pipeline/federate"
	"fmp/pipeline/federate/wire"
	"fmp/pipeline/privacy"
)

// admit returns an error where a client graph and the round do not agree about privacy. It is asked
// when the graph comes and again before images are read, as the round may be another. A plain graph
// without a round is admitted: its upload is a file for later.
func (s *session) admit(c *client.Client) error {
	switch d := s.round; {
	case c.Private() && d == nil:
		return errors.New("the client graph is one of private rounds, and no server states the " +
			"round's budget here: use fmp-edge compress --epsilon")
	case c.Private() && d.Privacy == nil:
		return fmt.Errorf("the client graph is one of private rounds and round %d is not "+
			"private: it is not used", d.Round)
	case !c.Private() && d != nil && d.Privacy != nil:
		return fmt.Errorf("round %d is private (%v) and its client graph is one of plain "+
			"uploads: it is not used", d.Round, d.Privacy)
	}
	return nil
}

// spending is the ledger of a page's browser, with its owner's limit and the place of the new
// upload. The page holds the ledger in the browser's storage, and gives all of its lines.
type spending struct {
	Ledger     string  // its lines
	MaxEpsilon float64 // which rounds may spend on any image, or client, in all
	Taken      bool    // an upload of this name is at the server
	Kept       string  // where the upload will be
	Reply      float64 // seconds from now to the new upload
}

// spent is the page's account of a private upload. Epsilon is that of all releases of an image
// together, as [privacy.Spend] counts it.
type spent struct {
	Line    string  `json:"line"`    // of the ledger, to be kept together with the upload
	Epsilon float64 `json:"epsilon"` // spent in all
	Earlier int     `json:"earlier"` // releases before this
	// Again is an upload that was made before of the same images: it is given again, and nothing is
	// spent.
	Again *privacy.Written `json:"again,omitempty"`
}

// release makes the upload of a private round, unless it was made before: noise that is drawn again
// over the same sums averages out. The ledger's new line is returned with the upload: the page
// stores both at once. Limits of epsilon and delta are checked before a photograph is read. The
// upload is made once all is known to fit, and the ledger's line comes last. An error returns no
// bytes, so that none can be sent without its line.
// The order is: state and time of the round, limits, coordinates of the photographs, the ledger,
// the server's upload, noise, size, and the new line.
func (s *session) release(src imagefile.Source, name string, p spending) (any, []byte, error) {
	d, f := s.round, s.client.Manifest
	b := *d.Privacy
	if d.State == wire.Closed {
		return nil, nil, fmt.Errorf("round %d is closed and takes no upload: "+
			"nothing was read", d.Round)
	}
	if err := inTime(d, p.Reply); err != nil {
		return nil, nil, err
	}
	if !(p.MaxEpsilon > 0) || math.IsInf(p.MaxEpsilon, 0) {
		return nil, nil, fmt.Errorf("round %d is private: say how much epsilon rounds may spend "+
			"in all, a number above 0", d.Round)
	}
	if b.Epsilon > p.MaxEpsilon { // no photograph is read
		return nil, nil, fmt.Errorf("round %d spends epsilon %g, and you allow %g in all: "+
			"nothing was read", d.Round, b.Epsilon, p.MaxEpsilon)
	}
	if !(b.Delta <= privacy.DefaultDelta) { // an epsilon says less at a larger delta
		return nil, nil, fmt.Errorf("delta of round %d is %g, and the page allows %g: "+
			"nothing was read", d.Round, b.Delta, privacy.DefaultDelta)
	}
	im, left, err := s.client.Coordinates(context.Background(), src, client.Options{})
	if err != nil {
		return nil, nil, err
	}
	record := privacy.NewSpending(b, f.C, f.K, im.Digests, im.Labels)
	record.Time, record.Client, record.Round, record.Graph = time.Now().UTC(), name,
		d.Round, f.Digest
	if b.Noise != privacy.Local {
		record.Server = d.ServerKey
	}
	kept, err := privacy.Find([]byte(p.Ledger), record)
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("ledger: %w", err)
	case kept != nil && kept.Server != "" && kept.Server != record.Server:
		return nil, nil, fmt.Errorf("the upload of these photographs for round %d was made for "+
			"another server: a second one adds noise of its own and spends the budget again; "+
			"nothing is sent", d.Round)
	// The page finds the kept upload by its place and digest.
	case kept != nil && len(kept.Files) == 1:
		return map[string]any{"spent": spent{Again: &kept.Files[0]}}, nil, nil
	case made([]byte(p.Ledger), record):
		return nil, nil, fmt.Errorf("an upload for round %d was made in this browser, of other "+
			"photographs or another budget: a second one would spend a second budget on those in "+
			"both; nothing is made", d.Round)
	case p.Taken:
		return nil, nil, fmt.Errorf("the server has an upload of %q for round %d, made "+
			"elsewhere, and takes no other: nothing is made", name, d.Round)
	}
	u, err := s.client.Release(im, b, name, d.Round)
	if err != nil {
		return nil, nil, err
	}
	data, err := u.Encode()
	if err != nil {
		return nil, nil, err
	}
	if len(data) > d.MaxBytes {
		return nil, nil, fmt.Errorf("the upload has %d bytes; the round allows %d",
			len(data), d.MaxBytes)
	}
	record.Files = []privacy.Written{{Path: p.Kept, Sha256: models.DigestBytes(data)}}
	line, total, earlier, err := privacy.Spend([]byte(p.Ledger), record, p.MaxEpsilon, false)
	var over *privacy.SpentError
	switch {
	case errors.As(err, &over):
		return nil, nil, fmt.Errorf("with this upload epsilon %.4g would be spent "+
			"on %s, over %d earlier releases and this; you allow %.4g in all: nothing is made",
			over.Total, map[bool]string{false: "one of the photographs",
				true: "you"}[over.Unit == privacy.Client], over.Earlier, over.Limit)
	case err != nil:
		return nil, nil, fmt.Errorf("ledger: %w", err)
	}
	l := releasing(u, data)
	l.add(left, s.client)
	l.Spent = &spent{Line: string(line), Epsilon: total, Earlier: earlier}
	return l, data, nil
}

// made reports whether a ledger, which is read before, has a release of the same client and round,
// of any photographs. Reports of counts are no releases of a round. Lines that cannot be parsed are
// passed over: privacy.Find has refused a damaged ledger before.
func made(ledger []byte, next privacy.Spending) bool {
	for line := range bytes.Lines(ledger) {
		var s privacy.Spending
		if json.Unmarshal(line, &s) == nil && s.Client == next.Client && s.Round == next.Round &&
			s.Graph == next.Graph && !s.Counts {
			return true
		}
	}
	return false
}

// releasing is the content of a private upload that leaves a page. Its points are the noisy sums of
// the classes. Sums are whole numbers of steps; as float32 they serve for shades alone.
func releasing(u *federate.Release, data []byte) *leaving {
	// Behind the K sums of a class comes its number of images, in steps of 1 / CountSteps.
	width := u.Sums.K + 1
	l := &leaving{Bytes: len(data), Digest: models.DigestBytes(data),
		Client: u.Client, Round: u.Round, Model: u.Model, Features: u.Sums.K, Budget: &u.Budget,
		Promise: u.Budget.Promise(u.Sums.Classes)}
	var sums [][]float32
	for c := range u.Sums.Classes {
		values := u.Sums.Values[c*width:][:width]
		row := row{Class: c, Images: float32(values[u.Sums.K]) / privacy.CountSteps}
		l.Points = append(l.Points, row)
		line := make([]float32, u.Sums.K)
		for i := range line {
			line[i] = float32(values[i])
		}
		sums = append(sums, line)
	}
	for i, shades := range shaded(sums) {
		l.Points[i].Shades = shades
	}
	return l
}
