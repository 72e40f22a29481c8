package service

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"fmp/onnx/atomicfile"
	"fmp/pipeline/federate/store"
	"fmp/pipeline/federate/wire"
)

// maxRecord bounds the record of withdrawals, in bytes: one line for each client that withdrew, of
// some hundred bytes and as much again for each three versions that it names.
const maxRecord = 256 << 20

// errRecord means that the record of withdrawals could not be read or written.
var errRecord = errors.New("the record of withdrawals, which every older copy of the state needs")

// record adds withdrawals to the record beside the server's key, but those that it has: one signed
// receipt a line. A client gets its receipt only once its line is on the disk, so that a state that
// is put back revives no upload in silence ([Server.heed]). The caller holds publishing or has
// exclusive access.
// The file only grows: a line is added whole or not at all, and none is changed. Without a path of
// Withdrawals nothing is kept.
func (s *Server) record(all ...*store.Record) error {
	var lines []byte
	var made []*wire.Withdrawal
	for _, r := range all {
		if s.recorded[r.Receipt.Client] != nil {
			continue
		}
		w := s.withdrawal(r)
		line, err := json.Marshal(w)
		if err != nil {
			return err
		}
		lines, made = append(append(lines, line...), '\n'), append(made, w)
	}
	if len(lines) == 0 || s.Withdrawals == "" {
		return nil
	}
	err := atomicfile.Extend(s.Withdrawals, maxRecord, func([]byte) ([]byte, error) {
		return lines, nil
	}, nil)
	if err != nil {
		return fmt.Errorf("%w: %w", errRecord, err)
	}
	// The index follows the disk, so that a line that failed is tried again.
	for _, w := range made {
		s.recorded[w.Client] = w
	}
	return nil
}

// heed reads the record of withdrawals, and takes out again the uploads of clients that it names:
// a state that holds one is an older copy. Versions that the record names and the state lacks stay
// in the notice, and their numbers are given to no others. It has exclusive access.
// A server that makes one classifier alone has no withdrawals to heed. An error stops the start:
// serving an upload that was withdrawn would be worse.
func (s *Server) heed(ctx context.Context) error {
	if s.Withdrawals == "" || s.once() {
		return nil
	}
	var all []*wire.Withdrawal
	err := atomicfile.Extend(s.Withdrawals, maxRecord, func(lines []byte) (_ []byte, err error) {
		all, err = s.receipts(lines)
		// No bytes are added: Extend reads alone.
		return nil, err
	}, nil)
	if err != nil {
		return fmt.Errorf("%w: %w", errRecord, err)
	}
	for _, w := range all {
		s.recorded[w.Client] = w
		s.miss(w)
	}
	for _, w := range all {
		if s.gone[w.Client] != nil {
			continue
		}
		if err := s.again(ctx, w); err != nil {
			return fmt.Errorf("taking %q out again, who withdrew at %v: %w", w.Client, w.Time, err)
		}
	}
	var gone []*store.Record
	for _, r := range s.gone {
		gone = append(gone, r)
	}
	s.later(s.record(gone...)) // of a server before this one, or one that was killed
	return nil
}

// receipts reads the lines of the record of withdrawals.
// Each signature is verified by this server's key. One bad line is an error, as a file that was
// cut may lack others.
func (s *Server) receipts(lines []byte) (all []*wire.Withdrawal, err error) {
	n := 0
	for line := range bytes.Lines(lines) {
		n++
		w, err := wire.ReadWithdrawal(line, s.Key.PublicText())
		if err == nil && (w.Round != s.Round.Round || w.Graph != s.Round.Client.Digest) {
			err = errors.New("it is of another round")
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w: bring back the file as this server wrote it", n, err)
		}
		all = append(all, w)
	}
	return all, nil
}

// miss notes the versions that a withdrawal names and the state lacks.
// floor is the largest number ever given, since two files of one number could not be told apart.
func (s *Server) miss(w *wire.Withdrawal) {
	named := w.Held
	if w.Without != nil {
		named = append(slices.Clone(named), *w.Without)
	}
	for i, v := range named {
		s.floor = max(s.floor, v.Version)
		known := func(other wire.VersionRef) bool { return other == v }
		there := slices.ContainsFunc(s.versions, func(have store.Version) bool {
			return have.Number == v.Version && have.Digest == v.SHA256
		})
		if i < len(w.Held) && !there && !slices.ContainsFunc(s.missing, known) {
			s.missing = append(s.missing, v)
		}
	}
}

// again repeats a withdrawal of the record. A client that an older copy of the state does not know
// has a note of it all the same, as its upload may be sent again.
// Its time is that of the first withdrawal, as the client's receipt says. An upload that could not
// be erased yet is owed, and tried later.
func (s *Server) again(ctx context.Context, w *wire.Withdrawal) error {
	stored, err := s.Store.Get(ctx, w.Client)
	if errors.Is(err, store.ErrNone) {
		stored, err = &store.Record{Receipt: wire.Receipt{Server: w.Server, Round: w.Round,
			Client: w.Client, Graph: w.Graph, Upload: w.Upload, Time: w.Time}}, nil
	}
	if err != nil {
		return err
	}
	// the state may have an earlier one
	stored.Receipt.Upload, stored.Receipt.Graph = w.Upload, w.Graph
	held, err := s.holding(ctx, w.Client)
	if err != nil {
		return err
	}
	s.Log.Warn("the state is older than the record of withdrawals: a withdrawal is noted again, and "+
		"the client's upload in the state is taken out", "client", w.Client, "withdrawn", w.Time)
	err = s.Store.Withdraw(ctx, stored, store.Gone{Time: w.Time, By: w.By, Held: held}, nil)
	if err == nil {
		s.later(s.takeOut(ctx, stored))
	}
	return err
}
