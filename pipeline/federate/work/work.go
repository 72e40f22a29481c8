// Package work hands the sampling of a round's posterior to workers, by a work queue in NATS JetStream: any number, on any
// machine. A job is taken by one worker, and by another where that one dies; what it makes is byte for byte what the server
// itself would make, as both run the same function on the same uploads.
package work

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"fmp/models"
	"fmp/pipeline/federate"
	"fmp/pipeline/federate/service"
	"fmp/pipeline/federate/store"
	"fmp/pipeline/pool"
)

const (
	stream   = "fmp-jobs"
	subject  = "fmp.jobs"
	consumer = "workers"
	// Beat is how often a worker says that it is still at it; a job whose worker is silent for Silence goes to another.
	Beat    = 2 * time.Second
	Silence = 4 * Beat
)

// Job is one sampling: everything that it depends on, by digest.
type Job struct {
	ID string `json:"id"`
	// Store and Replicas say where uploads are and the result goes.
	Store    string `json:"store"`
	Replicas int    `json:"replicas"`
	// Round and Graph are those of the uploads; the graph's file is the object Graph, that of a predictor of the round's own is
	// the object Predictor.
	Round     uint64       `json:"round"`
	Graph     string       `json:"graph"`
	Predictor string       `json:"predictor,omitempty"`
	Options   pool.Options `json:"options"`
	// Members is the object with the uploads to pool.
	Members string `json:"members"`
}

// result is what a worker leaves.
type result struct {
	Error      string          `json:"error,omitempty"`
	Classifier []byte          `json:"classifier,omitempty"`
	Rows       []byte          `json:"rows,omitempty"`
	Honest     []float64       `json:"honest,omitempty"`
	Summary    json.RawMessage `json:"summary,omitempty"`
}

func resultName(id string) string { return "result-" + id + ".json" }

// Queue is the server's side.
type Queue struct {
	store *store.Store
	js    jetstream.JetStream
	job   Job // what all of a round's jobs have in common
}

func makeStream(ctx context.Context, js jetstream.JetStream, replicas int) (jetstream.Stream, error) {
	s, err := js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{Name: stream, Subjects: []string{subject}, Retention: jetstream.WorkQueuePolicy, Storage: jetstream.FileStorage, Replicas: replicas})
	if err != nil {
		return nil, fmt.Errorf("job queue: %w", err)
	}
	return s, nil
}

// NewQueue prepares the jobs of a round: graph and predictor (nil for one that comes with the program) are kept where workers find
// them.
func NewQueue(ctx context.Context, st *store.Store, round uint64, graph, predictor []byte, o pool.Options) (*Queue, error) {
	js, err := jetstream.New(st.Conn())
	if err != nil {
		return nil, fmt.Errorf("job queue: %w", err)
	}
	if _, err := makeStream(ctx, js, st.Replicas()); err != nil {
		return nil, err
	}
	o.Threads = 0 // the worker's own
	if predictor != nil {
		o.Predictor = ""
	}
	q := &Queue{store: st, js: js, job: Job{Store: st.Name(), Replicas: st.Replicas(), Round: round, Graph: models.DigestBytes(graph), Options: o}}
	if err := st.PutObject(ctx, q.job.Graph, graph); err != nil {
		return nil, err
	}
	if predictor != nil {
		q.job.Predictor = models.DigestBytes(predictor)
		return q, st.PutObject(ctx, q.job.Predictor, predictor)
	}
	return q, nil
}

// Pool has a worker pool uploads, and waits for it.
func (q *Queue) Pool(ctx context.Context, uploads []pool.Upload) (*service.Pooled, error) {
	members := make([]store.Member, len(uploads))
	for i, u := range uploads {
		members[i] = store.Member{Client: u.Client, Upload: u.Digest}
	}
	list, err := json.Marshal(members)
	if err != nil {
		return nil, err
	}
	job := q.job
	job.Members = fmt.Sprintf("job-members-%x.json", sha256.Sum256(list))
	text, err := json.Marshal(job)
	if err != nil {
		return nil, err
	}
	job.ID = fmt.Sprintf("%x", sha256.Sum256(text))
	if r, err := q.result(ctx, job.ID); !errors.Is(err, store.ErrNone) {
		return r, err // a worker had finished it before the server was started again
	}
	if err := q.store.PutObject(ctx, job.Members, list); err != nil {
		return nil, err
	}
	if text, err = json.Marshal(job); err != nil {
		return nil, err
	}
	if _, err := q.js.Publish(ctx, subject, text, jetstream.WithMsgID(job.ID)); err != nil {
		return nil, fmt.Errorf("job queue: %w", err)
	}
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
		if r, err := q.result(ctx, job.ID); !errors.Is(err, store.ErrNone) {
			return r, err
		}
	}
}

// result reads what a worker left; store.ErrNone where nobody has yet.
func (q *Queue) result(ctx context.Context, id string) (*service.Pooled, error) {
	data, err := q.store.Object(ctx, resultName(id))
	if err != nil {
		return nil, err
	}
	var r result
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("job %s: %w", id, err)
	}
	if r.Error != "" {
		// The next attempt is to ask again.
		return nil, errors.Join(fmt.Errorf("job %.12s: the worker says: %s", id, r.Error), q.store.DeleteObject(ctx, resultName(id)))
	}
	return &service.Pooled{Classifier: r.Classifier, Rows: r.Rows, Honest: r.Honest, Summary: r.Summary}, nil
}

// Worker is the other side.
type Worker struct {
	Conn *nats.Conn
	// Pool does a job: the uploads in their order, the graph's file, that of a predictor (nil for one that comes with the program).
	Pool func(ctx context.Context, uploads []pool.Upload, graph, predictor []byte, o pool.Options) (*service.Pooled, error)
	Log  *slog.Logger
}

// Run takes jobs until the context ends.
func (w *Worker) Run(ctx context.Context, replicas int) error {
	js, err := jetstream.New(w.Conn)
	if err != nil {
		return fmt.Errorf("worker: %w", err)
	}
	s, err := makeStream(ctx, js, replicas)
	if err != nil {
		return fmt.Errorf("worker: %w", err)
	}
	c, err := s.CreateOrUpdateConsumer(ctx, jetstream.ConsumerConfig{Durable: consumer, AckPolicy: jetstream.AckExplicitPolicy, AckWait: Silence})
	if err != nil {
		return fmt.Errorf("worker: %w", err)
	}
	w.Log.Info("worker ready")
	for ctx.Err() == nil {
		batch, err := c.Fetch(1, jetstream.FetchMaxWait(5*time.Second))
		if err != nil {
			w.Log.Warn("no answer from the queue", "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
			continue
		}
		for m := range batch.Messages() {
			w.handle(ctx, m)
		}
	}
	return nil
}

// handle does one job, beating while it is at it.
func (w *Worker) handle(ctx context.Context, m jetstream.Msg) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		t := time.NewTicker(Beat)
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-t.C:
				_ = m.InProgress()
			}
		}
	}()
	var job Job
	if err := json.Unmarshal(m.Data(), &job); err != nil {
		w.Log.Error("a job that cannot be read", "error", err)
		_ = m.Term()
		return
	}
	w.Log.Info("job taken", "job", job.ID, "round", job.Round)
	start := time.Now()
	err := w.do(ctx, job)
	if ctx.Err() != nil {
		_ = m.Nak() // another worker may have it at once
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

// do does a job and leaves its result. What is wrong with the job itself is a result too; an error is of the worker's own.
func (w *Worker) do(ctx context.Context, job Job) error {
	st, err := store.Attach(ctx, w.Conn, job.Store, job.Replicas)
	if err != nil {
		return err
	}
	read := func(name string) []byte {
		var data []byte
		if err == nil && name != "" {
			data, err = st.Object(ctx, name)
		}
		return data
	}
	graph, predictor, list := read(job.Graph), read(job.Predictor), read(job.Members)
	if err != nil {
		return err
	}
	var r result
	made, err := w.pool(ctx, st, job, graph, predictor, list)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		r.Error = err.Error()
	} else {
		r.Classifier, r.Rows, r.Honest = made.Classifier, made.Rows, made.Honest
		if r.Summary, err = json.Marshal(made.Summary); err != nil {
			return err
		}
	}
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return st.PutObject(ctx, resultName(job.ID), text)
}

func (w *Worker) pool(ctx context.Context, st *store.Store, job Job, graph, predictor, list []byte) (*service.Pooled, error) {
	if models.DigestBytes(graph) != job.Graph || (predictor != nil && models.DigestBytes(predictor) != job.Predictor) {
		return nil, errors.New("a model in the store is not the one that the job names")
	}
	var members []store.Member
	if err := json.Unmarshal(list, &members); err != nil {
		return nil, err
	}
	var uploads []pool.Upload
	for _, m := range members {
		r, err := st.Get(ctx, m.Client)
		if err != nil {
			return nil, err
		}
		if models.DigestBytes(r.Data) != m.Upload {
			return nil, fmt.Errorf("the upload of %q was replaced", m.Client)
		}
		u, err := federate.Decode(r.Data, federate.Expect{Model: job.Graph, Round: &job.Round})
		if err != nil {
			return nil, fmt.Errorf("the upload of %q: %w", m.Client, err)
		}
		uploads = append(uploads, pool.Upload{Upload: u, Digest: m.Upload})
	}
	return w.Pool(ctx, uploads, graph, predictor, job.Options)
}
