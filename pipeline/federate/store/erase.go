package store

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// history is how many values of a key a bucket holds: the newest, and those that it replaced
	// until they are erased. NATS drops one beyond that number by itself, and leaves its bytes in
	// the file.
	history = jetstream.KeyValueMaxHistory
	// attempts is how often the messages of a subject are erased until none is counted: a server of
	// a cluster that lags behind does not tell of all.
	attempts = 10
	// block is the maximum size of a file of messages. To erase one, NATS writes its file again.
	block = 8 << 20
	// largestChunk is the maximum size of a part of an object: the larger, the fewer are erased.
	largestChunk = block / 2
)

// bucket is a bucket of values whose deleted ones are erased: their bytes are overwritten in the
// files of the servers. A value that NATS itself deletes stays in a file until a block is written
// again.
type bucket struct {
	jetstream.KeyValue
	store  *Store
	stream jetstream.Stream
}

// subject is the subject of a key's messages.
func (b bucket) subject(key string) string { return "$KV." + b.Bucket() + "." + key }

// clean erases the values of a key that newer ones replaced.
func (b bucket) clean(ctx context.Context, key string) error {
	return b.store.erase(ctx, b.stream, b.subject(key), true)
}

// cleanAll erases all values that newer ones replaced: those that were left when the program was
// killed.
func (b bucket) cleanAll(ctx context.Context) error {
	// every page of the answer has some 100,000 subjects, which only a bucket with work to do is
	// asked for
	info, err := b.stream.Info(ctx)
	if err != nil || info.State.Msgs <= info.State.NumSubjects {
		return err
	}
	if info, err = b.stream.Info(ctx, jetstream.WithSubjectFilter(b.subject(">"))); err != nil {
		return err
	}
	for subject, n := range info.State.Subjects {
		if n < 2 {
			continue
		}
		if err := b.store.erase(ctx, b.stream, subject, true); err != nil {
			return err
		}
	}
	return nil
}

// erase overwrites the messages of a subject, but the last one if it is to stay. It counts after
// each pass, and returns once none is left. On the embedded server each pass wants room for a
// block, which NATS writes anew. Messages that an error leaves are those of [Store.EraseRest].
func (s *Store) erase(ctx context.Context, st jetstream.Stream, subject string,
	last bool) (failed error) {
	defer func() {
		if failed != nil {
			s.left.Store(true)
		}
	}()
	for range attempts {
		info, err := st.Info(ctx, jetstream.WithSubjectFilter(subject))
		if err != nil {
			return err
		}
		if n := info.State.Subjects[subject]; n == 0 || last && n == 1 {
			return nil
		}
		if s.inside != nil { // a write that fails would stop all others
			if err := s.inside.room(block); err != nil {
				return err
			}
		}
		end := info.State.LastSeq + 1
		if last {
			m, err := st.GetLastMsgForSubject(ctx, subject)
			if err != nil {
				return err
			}
			end = m.Sequence
		}
		failed = eraseBefore(ctx, st, subject, end)
	}
	return errors.Join(fmt.Errorf("%s: old messages are still there: ask again", subject), failed)
}

// eraseBefore overwrites the messages of a subject before a sequence number. It asks for the first
// one at or after seq, so that the server passes over those of other subjects. It goes on
// after a message that could not be erased, and returns the last such error.
func eraseBefore(ctx context.Context, st jetstream.Stream, subject string,
	end uint64) (failed error) {
	for seq := uint64(1); seq < end; seq++ {
		m, err := st.GetMsg(ctx, seq, jetstream.WithGetMsgSubject(subject))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			break
		}
		if err != nil {
			return err
		}
		if seq = m.Sequence; seq >= end {
			break
		}
		// somebody else may have erased it meanwhile; those that are left are counted again
		if err := st.SecureDeleteMsg(ctx, seq); err != nil {
			failed = err
		}
	}
	return failed
}

// openBucket opens a bucket, creates it if it does not exist, and erases the old values that were
// left there.
func (s *Store) openBucket(ctx context.Context, name string) (b bucket, err error) {
	if b, err = s.makeBucket(ctx, name); err != nil {
		return b, err
	}
	return b, unlessFull(b.cleanAll(ctx))
}

// unlessFull leaves out that the disk has no room to erase the values that a killed program left:
// [Store.EraseRest] does, and before the receipt of a withdrawal is given, [Store.Erase].
func unlessFull(err error) error {
	if errors.Is(err, ErrFull) {
		return nil
	}
	return err
}

// Left reports whether an erasure failed, or had no room, so that the files of the servers may have
// bytes of values that were deleted or replaced.
func (s *Store) Left() bool { return s.left.Load() }

// EraseRest erases these bytes. Nothing is begun without room for a block: the error is ErrFull.
func (s *Store) EraseRest(ctx context.Context) error {
	if s.inside != nil {
		if err := s.inside.room(block); err != nil {
			return fmt.Errorf("store: erasing what is left: %w", err)
		}
	}
	if !s.left.Swap(false) {
		return nil
	}
	err := errors.Join(s.uploads.cleanAll(ctx), s.refused.cleanAll(ctx),
		s.discardRest(ctx, s.opened))
	if err != nil {
		s.left.Store(true)
		err = fmt.Errorf("store: erasing what is left: %w", err)
	}
	return err
}

// makeBucket creates a bucket if it does not exist. It is as NATS makes them, but that single
// messages can be erased, and that replaced ones stay until they are. One that NATS made itself
// keeps deleted values, which cannot be changed, and is refused.
func (s *Store) makeBucket(ctx context.Context, name string) (b bucket, err error) {
	b.store = s
	if st, err := s.js.Stream(ctx, "KV_"+name); err == nil && st.CachedInfo().Config.DenyDelete {
		return b, fmt.Errorf("the bucket %s keeps what is deleted: it is no server's of this "+
			"program; give another folder or other NATS servers for the state", name)
	}
	b.stream, err = s.js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{Name: "KV_" + name,
		Subjects: []string{"$KV." + name + ".>"}, MaxMsgsPerSubject: history, MaxBytes: -1,
		MaxMsgSize: -1, MaxMsgs: -1, MaxConsumers: -1, Storage: jetstream.FileStorage,
		Replicas: s.replicas, AllowRollup: true, AllowDirect: true, Discard: jetstream.DiscardNew})
	if err != nil {
		return b, err
	}
	b.KeyValue, err = s.js.KeyValue(ctx, name)
	return b, err
}

// bindBucket opens a bucket that exists.
func (s *Store) bindBucket(ctx context.Context, name string) (b bucket, err error) {
	b.store = s
	if b.KeyValue, err = s.js.KeyValue(ctx, name); err != nil {
		return b, err
	}
	b.stream, err = s.js.Stream(ctx, "KV_"+name)
	return b, err
}

// chunks is the subject of an object's parts.
func (s *Store) chunks(o *jetstream.ObjectInfo) string {
	return "$O." + o.Bucket + ".C." + o.NUID
}

// discard deletes an object and erases its parts. The mark that it is deleted is written first, so
// that no object lacks a part, and the parts that a killed program leaves are found by it.
func (s *Store) discard(ctx context.Context, name string) error {
	o, err := s.objects.GetInfo(ctx, name, jetstream.GetObjectInfoShowDeleted())
	if errors.Is(err, jetstream.ErrObjectNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if !o.Deleted {
		o.Deleted, o.Size, o.Chunks, o.Digest = true, 0, 0, ""
		text, err := json.Marshal(o)
		if err != nil {
			return err
		}
		m := nats.NewMsg("$O." + o.Bucket + ".M." + base64.URLEncoding.EncodeToString([]byte(name)))
		m.Header.Set(jetstream.MsgRollup, jetstream.MsgRollupSubject)
		m.Data = text
		if _, err := s.js.PublishMsg(ctx, m); err != nil {
			return err
		}
	}
	return s.erase(ctx, s.parts, s.chunks(o), false)
}

// unfinished is the age before this start at which parts without an object are left from a program
// that was killed: a worker that sent them before may name them after it.
const unfinished = time.Hour

// discardRest erases the parts of deleted objects that were left when the program was killed, and
// those that no object names once nobody can name them any more. External servers are not asked for
// these: one of a cluster that lags behind lists few of the objects, without an error.
// It costs O(objects), and a request for each subject that no object names.
func (s *Store) discardRest(ctx context.Context, start time.Time) error {
	all, err := s.objects.List(ctx, jetstream.ListObjectsShowDeleted())
	if err != nil && !errors.Is(err, jetstream.ErrNoObjectsFound) {
		return err
	}
	prefix := "$O." + s.name + "-objects."
	info, err := s.parts.Info(ctx, jetstream.WithSubjectFilter(prefix+">"))
	if err != nil {
		return err
	}
	deleted := map[string]bool{} // false: the object is there
	for _, o := range all {
		deleted[s.chunks(o)] = o.Deleted
	}
	var subjects []string
	names := 0
	for subject := range info.State.Subjects {
		if strings.HasPrefix(subject, prefix+"C.") {
			subjects = append(subjects, subject)
		} else {
			names++
		}
	}
	complete := s.inside != nil && names <= len(all)
	if complete && s.listens() { // a worker
		start = start.Add(-unfinished)
	}
	for _, subject := range subjects {
		gone, named := deleted[subject]
		if !named && complete {
			if gone, err = s.lastBefore(ctx, subject, start); err != nil {
				return err
			}
		}
		if !gone {
			continue
		}
		if err := s.erase(ctx, s.parts, subject, false); err != nil {
			return err
		}
	}
	return nil
}

// lastBefore reports whether the last part of a subject is older than a time; none is where
// somebody else erased them meanwhile.
func (s *Store) lastBefore(ctx context.Context, subject string, t time.Time) (bool, error) {
	m, err := s.parts.GetLastMsgForSubject(ctx, subject)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return false, nil
	}
	return err == nil && m.Time.Before(t), err
}
