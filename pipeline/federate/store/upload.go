package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"fmp/pipeline/federate/wire"
)

// Record is a stored upload: the message, the signature that proves whose it is, and the receipt.
// The three are one value, so that there is no upload without a receipt.
type Record struct {
	Receipt wire.Receipt `json:"receipt"`
	// Signature is the client's.
	Signature []byte `json:"signature"`
	// Key is the public key that the roster had for the client; "" where the record does not say.
	Key string `json:"key,omitempty"`
	// N is the number of real points that the upload claims.
	N int `json:"n"`
	// Replaced are the digests of the client's uploads that were in before this one.
	Replaced []string `json:"replaced,omitempty"`
	// Peer is the other server's part of the proof of a share, once the proof has been checked;
	// only in a private round with two servers.
	Peer []byte `json:"peer,omitempty"`
	// Gone, if not nil, says that the upload was withdrawn: the record has no message then, and
	// Signature is of the request to withdraw.
	Gone *Gone `json:"gone,omitempty"`
	// Data is the message.
	Data []byte `json:"-"`
	// Revision is the revision of the value in the store; it is not encoded.
	Revision uint64 `json:"-"`
}

// Gone says when an upload was withdrawn, by whom (wire.ByClient, wire.ByOperator), and the numbers
// of the versions that held an upload of its client.
type Gone struct {
	Time time.Time `json:"time"`
	By   string    `json:"by"`
	Held []int     `json:"held"`
}

// encode returns a line of JSON, followed by the message.
func (r *Record) encode() ([]byte, error) {
	head, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	return append(append(head, '\n'), r.Data...), nil
}

// decodeRecord reads a record, whose message shares the memory of the value.
func decodeRecord(value []byte) (*Record, error) {
	head, data, ok := bytes.Cut(value, []byte("\n"))
	r := &Record{Data: data}
	if !ok {
		return nil, errors.New("store: a record without a message")
	}
	if err := json.Unmarshal(head, r); err != nil {
		return nil, fmt.Errorf("store: a record that cannot be read: %w", err)
	}
	return r, nil
}

// ErrWithdrawn means that the client withdrew its upload.
var ErrWithdrawn = errors.New("the client withdrew its upload")

// ErrTaken means that another record of this client exists.
var ErrTaken = errors.New("another upload of this client is there")

// Put stores a client's record: as the first if revision is 0, otherwise in place of that revision.
// If another write came first, nothing is stored and the error is ErrTaken. The bytes of the
// replaced one are erased from the servers' files.
// It sets r.Revision to that of the stored record. After another error it is not known whether the
// record is stored. Room for a block more is wanted where bytes are erased.
func (s *Store) Put(ctx context.Context, r *Record, revision uint64) error {
	value, err := r.encode()
	if err != nil {
		return err
	}
	room := max(int64(len(value)), s.largest)
	if revision != 0 { // the replaced one is erased
		room += block
	}
	if r.Gone != nil { // it frees space
		room = int64(len(value))
	}
	err = s.write(ctx, room, func(ctx context.Context) (err error) {
		if revision == 0 {
			r.Revision, err = s.uploads.Create(ctx, key(r.Receipt.Client), value)
		} else {
			r.Revision, err = s.uploads.Update(ctx, key(r.Receipt.Client), value, revision)
		}
		return err
	})
	taken := conflict(err)
	if err != nil && !taken {
		return fmt.Errorf("store: keeping the upload of %q: %w", r.Receipt.Client, err)
	}
	// an earlier attempt may have stored the record, and ended before it erased the one before it
	if taken || revision != 0 {
		if err := s.Erase(ctx, r.Receipt.Client); err != nil {
			return err
		}
	}
	if taken {
		return fmt.Errorf("store: client %q: %w", r.Receipt.Client, ErrTaken)
	}
	return nil
}

// conflict reports whether another write to a key came first.
func conflict(err error) bool {
	var api *jetstream.APIError
	return errors.Is(err, jetstream.ErrKeyExists) ||
		(errors.As(err, &api) && api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence)
}

// Erase erases the uploads of a client that were replaced or withdrawn from the servers' files. Put
// and Withdraw do so; Erase is for the attempt after one that failed.
func (s *Store) Erase(ctx context.Context, client string) error {
	if err := s.uploads.clean(ctx, key(client)); err != nil {
		return fmt.Errorf("store: erasing the former upload of %q: %w", client, err)
	}
	return nil
}

// Withdraw puts the note of a withdrawal in place of a record, whose message is gone with it.
func (s *Store) Withdraw(ctx context.Context, r *Record, g Gone, signature []byte) error {
	r.Gone, r.Data, r.Signature = &g, nil, signature
	return s.Put(ctx, r, r.Revision)
}

// DropRefusal deletes a client's refused upload, if there is one, and its bytes from the servers'
// files.
func (s *Store) DropRefusal(ctx context.Context, client string) error {
	_, err := s.refused.Get(ctx, key(client))
	if err == nil {
		err = s.refused.Delete(ctx, key(client))
	}
	// an earlier attempt may have left it
	if err == nil || errors.Is(err, jetstream.ErrKeyNotFound) {
		err = s.refused.clean(ctx, key(client))
	}
	if err != nil {
		return fmt.Errorf("store: removing the refused upload of %q: %w", client, err)
	}
	return nil
}

// Get returns a client's record; ErrNone if there is none. Of an upload that was withdrawn it
// returns the record and ErrWithdrawn.
func (s *Store) Get(ctx context.Context, client string) (*Record, error) {
	e, err := s.uploads.Get(ctx, key(client))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil, fmt.Errorf("store: client %q: %w", client, ErrNone)
	}
	if err != nil {
		return nil, fmt.Errorf("store: reading the upload of %q: %w", client, err)
	}
	r, err := decodeRecord(e.Value())
	if err != nil {
		return nil, err
	}
	r.Revision = e.Revision()
	if r.Gone != nil {
		return r, fmt.Errorf("store: client %q: %w", client, ErrWithdrawn)
	}
	return r, nil
}

// All iterates over all records, those of withdrawn uploads too, in no particular order.
// One record is decoded at a time, and an error ends it.
func (s *Store) All(ctx context.Context) iter.Seq2[*Record, error] {
	return func(yield func(*Record, error) bool) {
		for e, err := range each(ctx, s.uploads) {
			var r *Record
			if err == nil {
				if r, err = decodeRecord(e.Value()); err == nil {
					r.Revision = e.Revision()
				}
			}
			if !yield(r, err) || err != nil {
				return
			}
		}
	}
}

// Refusal is an upload that a client signed and the server refused; only the last of each client is
// stored.
type Refusal struct {
	Client string    `json:"client"`
	Time   time.Time `json:"time"`
	Upload string    `json:"upload"` // SHA-256 of the message
	Reason string    `json:"reason"`
	// Count is the number of refusals of this client so far.
	Count int `json:"count"`
}

// Refuse stores a refusal, with the message in quarantine.
// It takes the place of the client's last refusal, whose bytes are erased.
func (s *Store) Refuse(ctx context.Context, r Refusal, data []byte) error {
	head, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	err = s.write(ctx, int64(len(data)), func(ctx context.Context) error {
		_, err := s.refused.Put(ctx, key(r.Client), append(append(head, '\n'), data...))
		return err
	})
	if err == nil {
		err = s.refused.clean(ctx, key(r.Client))
	}
	if err != nil {
		return fmt.Errorf("store: keeping the refusal of %q: %w", r.Client, err)
	}
	return nil
}

// Refusals returns all refusals, in no particular order, without the messages.
func (s *Store) Refusals(ctx context.Context) ([]Refusal, error) {
	var out []Refusal
	for e, err := range each(ctx, s.refused) {
		if err != nil {
			return nil, err
		}
		head, _, _ := bytes.Cut(e.Value(), []byte("\n"))
		var r Refusal
		if err := json.Unmarshal(head, &r); err != nil {
			return nil, fmt.Errorf("store: a refusal that cannot be read: %w", err)
		}
		out = append(out, r)
	}
	return out, nil
}
