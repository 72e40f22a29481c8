package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// PutObject stores bytes under a name and replaces any others there. Bytes that are there already
// are not written again: NATS would leave the first ones in its files.
// The chunk is half of the largest message of the server, which leaves room for its headers, from
// 1 KiB on.
func (s *Store) PutObject(ctx context.Context, name string, data []byte) error {
	if is, err := s.objects.GetInfo(ctx, name); err == nil && is.Size == uint64(len(data)) &&
		is.Digest == digest(data) && s.hasParts(ctx, is) {
		return nil
	}
	err := s.write(ctx, int64(len(data)), func(ctx context.Context) error {
		chunk := max(1<<10, min(largestChunk, s.conn.MaxPayload()/2))
		_, err := s.objects.Put(ctx, jetstream.ObjectMeta{Name: name,
			Opts: &jetstream.ObjectMetaOptions{ChunkSize: uint32(chunk)}}, bytes.NewReader(data))
		return err
	})
	if err != nil {
		return fmt.Errorf("store: keeping %s: %w", name, err)
	}
	return nil
}

// hasParts reports whether the servers have all parts of an object.
// An object's parts are messages under one subject. An object whose parts are lost is written
// again.
func (s *Store) hasParts(ctx context.Context, o *jetstream.ObjectInfo) bool {
	info, err := s.parts.Info(ctx, jetstream.WithSubjectFilter(s.chunks(o)))
	return err == nil && info.State.Subjects[s.chunks(o)] == uint64(o.Chunks)
}

// digest is a digest as NATS keeps it with an object.
// The form is that of jetstream's ObjectInfo.
func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return "SHA-256=" + base64.URLEncoding.EncodeToString(sum[:])
}

// ErrNone means that there is nothing under the name.
// Callers find it with errors.Is.
var ErrNone = errors.New("nothing of that name")

const (
	// answers is the time in which a server answers, and slowest the rate in bytes a second at
	// which objects are read at least.
	answers = 5 * time.Second
	slowest = 1 << 20
)

// Object returns the bytes that PutObject stored, at most most of them. A server that dies loses
// requests without an answer, so that a read has a time of its own, by the object's size: NATS
// would wait as long as the context lasts, or end a large read after 5 seconds.
// The client of NATS compares the digest as it reads. The slice is the caller's.
func (s *Store) Object(ctx context.Context, name string, most int64) ([]byte, error) {
	data, err := s.object(ctx, name, most)
	if errors.Is(err, jetstream.ErrObjectNotFound) {
		return nil, fmt.Errorf("store: %s: %w", name, ErrNone)
	}
	if err != nil {
		return nil, fmt.Errorf("store: reading %s: %w", name, err)
	}
	return data, nil
}

// It takes 5 seconds for the answer, and one more for each MiB. The size is compared before a byte
// is read.
func (s *Store) object(ctx context.Context, name string, most int64) ([]byte, error) {
	short, cancel := context.WithTimeout(ctx, answers)
	defer cancel()
	info, err := s.objects.GetInfo(short, name)
	if err != nil {
		return nil, err
	}
	if info.Size > uint64(most) {
		return nil, fmt.Errorf("it has %d bytes; at most %d are read", info.Size, most)
	}
	ctx, end := context.WithTimeout(ctx, answers+time.Duration(info.Size/slowest)*time.Second)
	defer end()
	r, err := s.objects.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	data, err := io.ReadAll(io.LimitReader(r, most+1))
	if err == nil && int64(len(data)) > most { // it was replaced meanwhile
		err = fmt.Errorf("more than %d bytes", most)
	}
	return data, err
}

// Objects returns the names of all objects.
// They are in no promised order, and an empty store has none and no error.
func (s *Store) Objects(ctx context.Context) (names []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience) // NATS waits as long as the context lasts
	defer cancel()
	all, err := s.objects.List(ctx)
	if err != nil && !errors.Is(err, jetstream.ErrNoObjectsFound) {
		return nil, fmt.Errorf("store: listing objects: %w", err)
	}
	for _, o := range all {
		names = append(names, o.Name)
	}
	return names, nil
}

// DeleteObject deletes an object of PutObject, and its bytes from the servers' files.
func (s *Store) DeleteObject(ctx context.Context, name string) error {
	if err := s.discard(ctx, name); err != nil {
		return fmt.Errorf("store: removing %s: %w", name, err)
	}
	return nil
}
