// Package work distributes the sampling of a round's posterior, the merging of its uploads, and the
// runs of a grid, to any number of workers on any machines, through a work queue in NATS JetStream.
// The sampling of a round is several jobs (pool.Part). A job is done by one worker, and by another
// if that one dies. The posterior is, sample for sample, the one that the server would compute by
// itself, as both run the same function on the same uploads; so is the part of merged uploads.
//
// A job leaves two objects in the store. Its input is there from before it is queued until its
// result was taken: a worker that finds none knows that nobody waits. Its result is there once a
// worker is done, whether the message is acknowledged or not. The name of a result is a digest of
// the job and its input. Equal jobs thus have one result, and a server that was restarted finds it.
package work

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel/attribute"

	"fmp/models"
	"fmp/pipeline/federate"
	"fmp/pipeline/federate/identity"
	"fmp/pipeline/federate/store"
	"fmp/pipeline/federate/trace"
	"fmp/pipeline/merge"
	"fmp/pipeline/pool"
)

const (
	stream   = "fmp-jobs"
	subject  = "fmp.jobs"
	consumer = "workers"
	// Jobs that merge have a subject of their own: their workers take nothing else.
	mergeSubject, mergeConsumer = "fmp.merges", "mergers"
	// Beat is the interval of a worker's heartbeats.
	Beat = 2 * time.Second
	// Silence is the time without a heartbeat after which a worker's job goes to another.
	Silence = 4 * Beat
)

// resultName is the object of a job's answer, by the digest of the job.
func resultName(id string) string { return "result-" + id }

// queue is the producer's side.
type queue struct {
	store *store.Store
	js    jetstream.JetStream
	jobs  jetstream.Stream
	look  time.Duration // between two looks for a job in the queue
}

// Queue is the queue of a server, for one round.
type Queue struct {
	queue
	// Signers are the workers whose parts are taken; nil: any that the servers let in.
	Signers *identity.Roster
	// Server is the public key (base64) of the server, for which workers sign their parts.
	Server string

	// Uploads is the number of uploads of a job that merges; default 1,000.
	Uploads int

	job Sampling // all fields of the round except the uploads
}

// newQueue opens the queue on the servers of a state, and makes it where there is none.
func newQueue(ctx context.Context, st *store.Store) (q queue, err error) {
	q.store, q.look = st, Silence
	if q.js, err = jetstream.New(st.Conn()); err != nil {
		return q, fmt.Errorf("job queue: %w", err)
	}
	q.jobs, err = makeStream(ctx, q.js, st.Replicas())
	return q, err
}

// makeStream makes the queue, and gives one of fewer replicas those that are asked for. A queue has
// several users: none takes replicas from it.
func makeStream(ctx context.Context, js jetstream.JetStream,
	replicas int) (jetstream.Stream, error) {
	if s, err := js.Stream(ctx, stream); err == nil {
		replicas = max(replicas, s.CachedInfo().Config.Replicas)
	}
	s, err := js.CreateOrUpdateStream(ctx,
		jetstream.StreamConfig{Name: stream, Subjects: []string{subject, mergeSubject},
			Retention: jetstream.WorkQueuePolicy, Storage: jetstream.FileStorage,
			Replicas: replicas})
	if err != nil {
		return nil, fmt.Errorf("job queue: %w", err)
	}
	return s, nil
}

// Models are the files of a round: the client graph, the round's own predictors, and its anchor;
// nil for one that is shipped with the program.
type Models struct{ Graph, Predictor, Open, Anchor []byte }

// NewQueue prepares the jobs of a round: it stores the round's models where workers find them.
// Models are stored under their SHA-256, and paths in the options are emptied: a job names no file.
// Threads are 0 in a job, as equal options then give equal jobs.
func NewQueue(ctx context.Context, st *store.Store, round uint64, m Models,
	o pool.Options) (*Queue, error) {
	of, err := newQueue(ctx, st)
	if err != nil {
		return nil, err
	}
	o.Threads = 0 // each worker uses its own number of threads
	q := &Queue{queue: of, Uploads: mergeUploads,
		job: Sampling{Store: st.Name(), Replicas: st.Replicas(), Round: round}}
	for _, f := range []struct {
		data []byte
		to   *string
		path *string
	}{{m.Graph, &q.job.Graph, new(string)}, {m.Predictor, &q.job.Predictor, &o.Predictor},
		{m.Open, &q.job.Open, &o.Open}, {m.Anchor, &q.job.Anchor, &o.Anchor}} {
		if f.data == nil {
			continue
		}
		*f.to, *f.path = models.DigestBytes(f.data), ""
		if err := st.PutObject(ctx, *f.to, f.data); err != nil {
			return nil, err
		}
	}
	q.job.Options = o
	return q, nil
}

// Do distributes parts of the sampling of uploads to workers and waits for all of them. The pieces
// are in the order of the parts. All parts are in the queue before the first is waited for. At an
// error the results that are there stay, and the next attempt finds them.
func (q *Queue) Do(ctx context.Context, uploads []pool.Upload,
	parts []pool.SampleRange) ([]*pool.Piece, error) {
	members := make([]store.Member, len(uploads))
	for i, u := range uploads {
		members[i] = store.Member{Client: u.Client, Upload: u.Digest}
	}
	list, err := json.Marshal(members)
	if err != nil {
		return nil, err
	}
	of := q.job
	of.Members = membersName(list)
	if err := q.store.PutObject(ctx, of.Members, list); err != nil {
		return nil, err
	}
	inputs := make([][]byte, len(parts))
	for i, p := range parts {
		if inputs[i], err = encodePart(p); err != nil {
			return nil, err
		}
	}
	out := make([]*pool.Piece, len(parts))
	err = q.all(ctx, Job{Sampling: of}, inputs, func(i int, _ Job, r answer) error {
		out[i] = &r.Piece
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, q.Sweep(ctx)
}

// all queues a job for each input, then waits for one after another and has its answer used.
func (q *queue) all(ctx context.Context, of Job, inputs [][]byte,
	use func(i int, j Job, r answer) error) error {
	jobs := make([]Job, len(inputs))
	for i, input := range inputs {
		var err error
		if jobs[i], err = q.ask(ctx, of, input); err != nil {
			return err
		}
	}
	for i, j := range jobs {
		r, err := q.wait(ctx, j)
		if err == nil {
			err = use(i, j, r)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// aRemainder is the name of an object that jobs of a round leave: inputs, results, lists of
// members, and parts to judge by.
var aRemainder = regexp.MustCompile(`^((result|input|job-members)-.*|[0-9a-f]{64})$`)

// Sweep deletes the objects of finished jobs, and of jobs that a server or a worker left when it
// was killed. The models of the round stay. It looks again until there are none: a worker may have
// left its result before the input was deleted, and after the first look.
func (q *Queue) Sweep(ctx context.Context) error {
	of := q.job
	for {
		names, err := q.store.Objects(ctx)
		if err != nil {
			return err
		}
		names = slices.DeleteFunc(names, func(name string) bool {
			return slices.Contains([]string{of.Graph, of.Predictor, of.Open, of.Anchor}, name) ||
				!aRemainder.MatchString(name)
		})
		if len(names) == 0 {
			return nil
		}
		for _, name := range names {
			if err := q.store.DeleteObject(ctx, name); err != nil {
				return err
			}
		}
	}
}

// ask queues a job, unless a worker finished it before this program was restarted. The input is in
// the store before the message is in the queue: a worker that finds none drops the job.
// The returned job has its number in the queue, 0 where its result is there already.
func (q *queue) ask(ctx context.Context, j Job, input []byte) (Job, error) {
	j.Format, j.Input = format, inputName(input)
	j.ID = j.digest()
	text, err := json.Marshal(j)
	if err != nil {
		return j, err
	}
	if _, err := decodeJob(text); err != nil { // never send what a worker would reject
		return j, err
	}
	if _, err := q.result(ctx, j.ID); !errors.Is(err, store.ErrNone) {
		return j, err
	}
	if err := q.store.PutObject(ctx, j.Input, input); err != nil {
		return j, err
	}
	err = q.send(ctx, &j)
	return j, err
}

// send puts a job into the queue.
func (q *queue) send(ctx context.Context, j *Job) error {
	text, err := json.Marshal(j)
	if err != nil {
		return err
	}
	m := &nats.Msg{Subject: subject, Data: text, Header: nats.Header{}}
	if j.Merge {
		m.Subject = mergeSubject
	}
	if parent := trace.Parent(ctx); parent != "" {
		m.Header.Set(trace.Header, parent)
	}
	sent, err := q.js.PublishMsg(ctx, m)
	if err != nil {
		return fmt.Errorf("job queue: %w", err)
	}
	j.sent = sent.Sequence
	return nil
}

// queued reports whether a job that has no result is in the queue, as far as the servers say.
func (q *queue) queued(ctx context.Context, j Job) bool {
	if j.sent == 0 { // its result was there when it was asked for
		return false
	}
	m, err := q.jobs.GetMsg(ctx, j.sent)
	if err != nil {
		return !errors.Is(err, jetstream.ErrMsgNotFound) &&
			!errors.Is(err, jetstream.ErrStreamNotFound)
	}
	return bytes.Contains(m.Data, []byte(j.ID)) // else the queue was made anew
}

// wait waits for a worker to finish a job and returns the result. A job that is neither done nor in
// the queue at two looks is sent again, and is an error if it is lost again. It takes two looks, as
// a worker may leave its result between two questions. A worker may also do a job whose message is
// acknowledged ([Worker.drop]), or one of another release may have thrown it away.
func (q *queue) wait(ctx context.Context, j Job) (answer, error) {
	look, missed, again := time.NewTicker(q.look), false, false
	defer look.Stop()
	for {
		r, err := q.result(ctx, j.ID)
		switch {
		case err == nil && r.Error != "":
			// The next attempt must ask again.
			return r, errors.Join(fmt.Errorf("job %.12s: worker: %s", j.ID, r.Error),
				q.forget(ctx, j))
		case !errors.Is(err, store.ErrNone):
			return r, err
		}
		// read for whether it is there alone: 0 bytes of it
		if _, err := q.store.Object(ctx, j.Input, 0); errors.Is(err, store.ErrNone) {
			return r, fmt.Errorf("job %.12s: its input is there no more, as another program took "+
				"the result: give the same command again", j.ID)
		}
		select {
		case <-ctx.Done():
			return r, ctx.Err()
		case <-look.C:
			gone := !q.queued(ctx, j)
			if gone && missed {
				err := errors.New("it was sent twice")
				if !again {
					err = q.send(ctx, &j)
				}
				if err != nil {
					return r, fmt.Errorf("job %.12s: nobody did it, and it is in the queue no "+
						"more (%w): the queue was lost, or workers of another release threw the "+
						"job away: run workers of this release alone; the next attempt asks "+
						"again", j.ID, err)
				}
				again, gone = true, false
			}
			missed = gone
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// forget deletes the remains of a finished job in the store. The input goes first: without a result
// it says that there will be one.
func (q *queue) forget(ctx context.Context, j Job) error {
	for _, name := range []string{j.Input, resultName(j.ID)} {
		if err := q.store.DeleteObject(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// result reads a worker's answer; store.ErrNone if there is none yet. An answer that cannot be
// decoded is returned as an answer with that error: the job may be asked for again.
func (q *queue) result(ctx context.Context, id string) (a answer, err error) {
	data, err := q.store.Object(ctx, resultName(id), maxAnswer)
	if err == nil {
		if a, err = decodeAnswer(data); err != nil {
			return answer{Error: "what it left cannot be read: " + err.Error()}, nil
		}
	}
	return a, err
}

// Worker is the consumer's side: it takes jobs from the queues of a NATS server and does them.
type Worker struct {
	Conn *nats.Conn
	// Open prepares a sampling of the uploads, which are in order.
	Open func(uploads []pool.Upload, m Models, o pool.Options) (Sampler, error)
	// Experiment does a run with the given settings and returns the files of its directory.
	Experiment func(ctx context.Context, settings []byte) (map[string][]byte, error)
	// Judge, where it is not nil, makes this a worker that merges: it takes these jobs alone. It
	// prepares the judgement of uploads by those that a part keeps ([merge.Merger]). Key signs the
	// parts; nil: they are not signed.
	Judge func(ctx context.Context, by *merge.Part, m Models,
		o pool.Options) (func(*federate.Upload) (float64, error), error)
	Key *identity.Key
	Log *slog.Logger
	// Tracer records spans; nil: none are recorded.
	Tracer *trace.Tracer

	last    string // the key of the sampling that open and judge belong to
	open    Sampler
	judge   func(*federate.Upload) (float64, error)
	against string // digest of the part that judge judges by
}

// Sampler does parts of a sampling; see [pool.Sampling].
type Sampler interface {
	Do(ctx context.Context, p pool.SampleRange) (*pool.Piece, error)
	Close()
}

// Run does jobs until the context ends. It waits for servers that are unreachable or have no queue
// yet, or have it no more.
// It does one job at a time, and looks for a queue again a second after each error. It returns nil
// once the context has ended. Replicas are those of a queue that it makes.
func (w *Worker) Run(ctx context.Context, replicas int) error {
	js, err := jetstream.New(w.Conn)
	if err != nil {
		return fmt.Errorf("worker: %w", err)
	}
	for ctx.Err() == nil {
		c, err := w.attach(ctx, js, replicas)
		if err == nil {
			w.Log.Info("worker ready")
			err = w.take(ctx, c)
		}
		if err == nil {
			break
		}
		w.Log.Warn("no queue", "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
	return nil
}

// attach returns the consumer of the worker's jobs. The queue is its servers' own: it is made only
// where there is none.
func (w *Worker) attach(ctx context.Context, js jetstream.JetStream,
	replicas int) (jetstream.Consumer, error) {
	of := jetstream.ConsumerConfig{Durable: consumer, FilterSubject: subject,
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: Silence}
	if w.Judge != nil {
		of.Durable, of.FilterSubject = mergeConsumer, mergeSubject
	}
	s, err := js.Stream(ctx, stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		s, err = makeStream(ctx, js, replicas)
	}
	if err != nil {
		return nil, err
	}
	return s.CreateOrUpdateConsumer(ctx, of)
}

// take does jobs until the context ends, or until the queue does not answer as one: it may have
// been lost or made anew.
func (w *Worker) take(ctx context.Context, c jetstream.Consumer) error {
	for ctx.Err() == nil {
		batch, err := c.Fetch(1, jetstream.FetchMaxWait(5*time.Second))
		if err != nil {
			return err
		}
		for m := range batch.Messages() {
			w.handle(ctx, m)
		}
		if err := batch.Error(); err != nil {
			return err
		}
	}
	return nil
}

// handle does one job, sending heartbeats meanwhile. A heartbeat starts the consumer's time for an
// acknowledgement, Silence, anew. A job that fails for a reason of the worker's own goes back into
// the queue; one whose own error is its result is acknowledged. A
// job of another release is left to its workers, and a message that is no job is thrown away.
// It never returns an error: each outcome is an answer to the queue, and a line in the log.
func (w *Worker) handle(ctx context.Context, m jetstream.Msg) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	done := ctx.Done() // ctx is assigned once more below
	go func() {
		t := time.NewTicker(Beat)
		defer t.Stop()
		for {
			select {
			case <-done:
				return
			case <-t.C:
				_ = m.InProgress()
			}
		}
	}()
	job, err := decodeJob(m.Data())
	if err != nil {
		w.Log.Error("a job that is not done here", "error", err)
		if errors.Is(err, errRelease) {
			_ = m.NakWithDelay(Silence) // for another worker
		} else {
			_ = m.Term()
		}
		return
	}
	w.Log.Info("job taken", "job", job.ID, "round", job.Round)
	start := time.Now()
	ctx, span := w.Tracer.Start(trace.From(ctx, m.Headers().Get(trace.Header)),
		"process "+m.Subject(), trace.Consumer, attribute.String("messaging.system", "nats"),
		attribute.String("messaging.destination.name", m.Subject()))
	defer func() { trace.End(span, err != nil) }()
	err = w.do(ctx, job)
	if ctx.Err() != nil {
		_ = m.Nak() // another worker may have it immediately
		return
	}
	if err != nil {
		w.Log.Error("job failed", "job", job.ID, "error", err)
		_ = m.NakWithDelay(Silence)
		return
	}
	if err := m.DoubleAck(ctx); err != nil {
		w.Log.Warn("the queue did not hear that the job is done", "job", job.ID, "error", err)
	}
	w.Log.Info("job done", "job", job.ID, "seconds", time.Since(start).Seconds())
}

// do does a job and writes its result. An error in the job itself is a result too; an error that do
// returns is the worker's own.
func (w *Worker) do(ctx context.Context, job Job) error {
	st, err := store.Attach(ctx, w.Conn, job.Store, job.Replicas)
	if err != nil {
		return err
	}
	input, err := st.Object(ctx, job.Input, maxInput)
	if errors.Is(err, store.ErrNone) {
		// nobody waits any more, and a worker that died may have left a result too late
		return w.drop(ctx, st, job)
	}
	if err != nil {
		return err
	}
	if _, err := st.Object(ctx, resultName(job.ID), maxAnswer); !errors.Is(err, store.ErrNone) {
		return err // this worker was taken for dead and another did the job
	}
	var r answer
	if inputName(input) != job.Input {
		err = fmt.Errorf("%s in the store is another", job.Input)
	} else if job.Merge {
		r.Files, err = w.merge(ctx, st, job, input)
	} else if job.Run {
		r.Files, err = w.Experiment(ctx, input)
	} else {
		var piece *pool.Piece
		if piece, err = w.part(ctx, st, job, input); err == nil {
			r.Piece = *piece
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		r = answer{Error: err.Error()}
	}
	text, err := r.encode()
	if err != nil {
		return err
	}
	if err := st.PutObject(ctx, resultName(job.ID), text); err != nil {
		return err
	}
	// The job may be of an upload that was withdrawn meanwhile: no sweep may come after this one.
	if _, err = st.Object(ctx, job.Input, maxInput); errors.Is(err, store.ErrNone) {
		return w.drop(ctx, st, job)
	}
	return err
}

// drop deletes the result of a job that nobody waits for. It does the job where somebody asked
// again before: the result may have been theirs, and their message may be acknowledged.
func (w *Worker) drop(ctx context.Context, st *store.Store, job Job) error {
	if err := st.DeleteObject(ctx, resultName(job.ID)); err != nil {
		return err
	}
	if _, err := st.Object(ctx, job.Input, 0); errors.Is(err, store.ErrNone) {
		return nil
	}
	return w.do(ctx, job)
}

// part does one part; the sampling stays open for the next.
// Opening reads all uploads of the round. Jobs of one sampling that follow each other open it once.
func (w *Worker) part(ctx context.Context, st *store.Store, job Job,
	data []byte) (*pool.Piece, error) {
	p, err := decodePart(data)
	if err != nil {
		return nil, err
	}
	if w.open == nil || w.last != job.Sampling.key() {
		w.Close()
		open, err := w.sampling(ctx, st, job)
		if err != nil {
			return nil, err
		}
		w.open, w.last = open, job.Sampling.key()
	}
	return w.open.Do(ctx, p)
}

// Close closes the open sampling.
func (w *Worker) Close() {
	if w.open != nil {
		w.open.Close()
		w.open = nil
	}
}

// readModels reads the models that a job names.
// Each is compared with its digest, as others may write to the store.
func readModels(ctx context.Context, st *store.Store, job Job) (m Models, err error) {
	for _, f := range []struct {
		digest string
		to     *[]byte
	}{{job.Graph, &m.Graph}, {job.Predictor, &m.Predictor}, {job.Open, &m.Open},
		{job.Anchor, &m.Anchor}} {
		if f.digest == "" {
			continue
		}
		if *f.to, err = st.Object(ctx, f.digest, maxModel); err != nil {
			return m, err
		}
		if models.DigestBytes(*f.to) != f.digest {
			return m, errors.New("a model in the store is not the one that the job names")
		}
	}
	return m, nil
}

// sampling reads models and uploads of a job and opens its sampling. Uploads are in the order of
// the list, which is that of the server. Digests are compared, so that both have the same bytes.
func (w *Worker) sampling(ctx context.Context, st *store.Store, job Job) (Sampler, error) {
	m, err := readModels(ctx, st, job)
	if err != nil {
		return nil, err
	}
	list, err := st.Object(ctx, job.Members, maxMembers)
	if err != nil {
		return nil, err
	}
	if membersName(list) != job.Members {
		return nil, fmt.Errorf("%s in the store is another", job.Members)
	}
	var members []store.Member
	if err := json.Unmarshal(list, &members); err != nil {
		return nil, fmt.Errorf("%s: %w", job.Members, err)
	}
	at := make(map[string]int, len(members))
	for i, m := range members {
		at[m.Client] = i
	}
	uploads := make([]pool.Upload, len(members))
	for r, err := range st.All(ctx) {
		if err != nil {
			return nil, err
		}
		i, in := at[r.Receipt.Client]
		if !in || models.DigestBytes(r.Data) != members[i].Upload {
			continue
		}
		u, err := federate.Decode(r.Data, federate.Expect{Model: job.Graph, Round: &job.Round})
		if err != nil {
			return nil, fmt.Errorf("the upload of %q: %w", r.Receipt.Client, err)
		}
		uploads[i] = pool.Upload{Upload: u, Digest: members[i].Upload}
	}
	for i, u := range uploads {
		if u.Upload == nil {
			return nil, fmt.Errorf("the upload of %q was replaced", members[i].Client)
		}
	}
	return w.Open(uploads, m, job.Options)
}
