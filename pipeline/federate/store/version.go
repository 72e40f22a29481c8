package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"fmp/onnx/sorting"
)

// Version is one classifier of a round.
type Version struct {
	Number int       `json:"version"`
	Time   time.Time `json:"time"`
	// Digest is the SHA-256 of classifier.onnx, and Bytes its size.
	Digest string `json:"digest"`
	Bytes  int    `json:"bytes"`
	// Clients is the number of uploads in the version; Members returns them.
	Clients int `json:"clients"`
	// Points is the number of real points behind the uploads.
	Points int64 `json:"points"`
	// Summary is the summary that pooling returned.
	Summary json.RawMessage `json:"summary,omitempty"`
	// Options is a digest of the options of pooling; "" where they are not known.
	Options string `json:"options,omitempty"`
}

// Member is an upload in a version: the client and the digest of its message.
type Member struct {
	Client string `json:"client"`
	Upload string `json:"upload"`
	// Honest is the probability with which it was weighted; 1 if honesty was not judged.
	Honest float64 `json:"p_honest"`
	// Counted is how many of the images that it claims count if it is honest; absent if honesty was
	// not judged.
	Counted *float64 `json:"counted,omitempty"`
}

// listed is the record of a version.
type listed struct {
	Version
	// Parts is the digest of the parts, which is in their names: a server that comes second with a
	// version of the same number overwrites none of them. States of version 0.1.0 have none.
	Parts string `json:"parts,omitempty"`
}

// parts are the names of a version's objects.
type parts struct{ classifier, rows, members string }

// names are those of the parts. Rows may have no object.
func (l *listed) names() parts {
	of := strconv.Itoa(l.Number)
	if l.Parts != "" {
		of += "-" + l.Parts
	}
	return parts{"classifier-" + of + ".onnx", "classifier-" + of + "-rows.onnx",
		"members-" + of + ".json"}
}

// names returns the names of a version's objects, by its record.
func (s *Store) names(ctx context.Context, version int) (parts, error) {
	var l listed
	e, err := s.versions.Get(ctx, strconv.Itoa(version))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		err = ErrNone
	}
	if err == nil {
		err = json.Unmarshal(e.Value(), &l)
	}
	if err != nil {
		return parts{}, fmt.Errorf("store: version %d: %w", version, err)
	}
	return l.names(), nil
}

// Publish stores a version. Its parts are written first, so that a listed version is complete.
// Their names hold a digest of all three: an attempt that ended midway leaves parts of other names,
// or the same bytes. A number that is listed already is an error, as the record is created and
// never replaced. rows may be nil.
func (s *Store) Publish(ctx context.Context, v Version, classifier, rows []byte,
	members []Member) error {
	list, err := json.Marshal(members)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	sum := sha256.New()
	for _, part := range [][]byte{classifier, rows, list} {
		one := sha256.Sum256(part)
		sum.Write(one[:])
	}
	l := listed{v, hex.EncodeToString(sum.Sum(nil))}
	names := l.names()
	if err := s.PutObject(ctx, names.classifier, classifier); err != nil {
		return err
	}
	if rows != nil {
		if err := s.PutObject(ctx, names.rows, rows); err != nil {
			return err
		}
	}
	if err := s.PutObject(ctx, names.members, list); err != nil {
		return err
	}
	text, err := json.Marshal(l)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	err = s.write(ctx, int64(len(text)), func(ctx context.Context) error {
		_, err := s.versions.Create(ctx, strconv.Itoa(v.Number), text)
		return err
	})
	if err != nil {
		return fmt.Errorf("store: version %d: %w", v.Number, err)
	}
	return nil
}

// Versions returns the published versions, in order.
func (s *Store) Versions(ctx context.Context) ([]Version, error) {
	all, err := s.listed(ctx)
	var out []Version
	for _, l := range all {
		out = append(out, l.Version)
	}
	return out, err
}

// listed returns the records of all versions, in order.
// It reads the records alone, and no parts.
func (s *Store) listed(ctx context.Context) ([]listed, error) {
	var out []listed
	for e, err := range each(ctx, s.versions) {
		if err != nil {
			return nil, err
		}
		var l listed
		if err := json.Unmarshal(e.Value(), &l); err != nil {
			return nil, fmt.Errorf("store: version %s: %w", e.Key(), err)
		}
		out = append(out, l)
	}
	sorting.By(out, func(a, b listed) int { return a.Number - b.Number })
	return out, nil
}

// File returns a version's classifier file.
func (s *Store) File(ctx context.Context, version int) ([]byte, error) {
	names, err := s.names(ctx, version)
	if err != nil {
		return nil, err
	}
	return s.Object(ctx, names.classifier, maxClassifier)
}

// Classifier returns a version's classifier file, and the one that takes feature rows, nil if there
// is none.
func (s *Store) Classifier(ctx context.Context, version int) (classifier, rows []byte, err error) {
	names, err := s.names(ctx, version)
	if err != nil {
		return nil, nil, err
	}
	if classifier, err = s.Object(ctx, names.classifier, maxClassifier); err != nil {
		return nil, nil, err
	}
	if rows, err = s.Object(ctx, names.rows, maxClassifier); errors.Is(err, ErrNone) {
		err = nil
	}
	return classifier, rows, err
}

// DropClassifier deletes the files of a version, whose record and members stay.
func (s *Store) DropClassifier(ctx context.Context, version int) error {
	names, err := s.names(ctx, version)
	if err != nil {
		return err
	}
	return errors.Join(s.DeleteObject(ctx, names.classifier), s.DeleteObject(ctx, names.rows))
}

// DropUnlisted deletes the parts that are of no listed version: a Publish that did not get to its
// end leaves them.
// Names are listed before versions: a version that is published in between would lose its parts
// else. No publishing may be under way.
func (s *Store) DropUnlisted(ctx context.Context) error {
	names, err := s.Objects(ctx)
	if err != nil {
		return err
	}
	versions, err := s.listed(ctx)
	if err != nil {
		return err
	}
	keep := map[string]bool{}
	for _, l := range versions {
		of := l.names()
		keep[of.classifier], keep[of.rows], keep[of.members] = true, true, true
	}
	for _, name := range names {
		part := strings.HasPrefix(name, "classifier-") || strings.HasPrefix(name, "members-")
		if part && !keep[name] {
			err = errors.Join(err, s.DeleteObject(ctx, name))
		}
	}
	return err
}

// Members returns the uploads in a version, sorted by client name.
func (s *Store) Members(ctx context.Context, version int) ([]Member, error) {
	names, err := s.names(ctx, version)
	if err != nil {
		return nil, err
	}
	data, err := s.Object(ctx, names.members, maxMembers)
	if err != nil {
		return nil, err
	}
	var out []Member
	if err := json.Unmarshal(data, &out); err != nil {
		return nil, fmt.Errorf("store: members of version %d: %w", version, err)
	}
	return out, nil
}
