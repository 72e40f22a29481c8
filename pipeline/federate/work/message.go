package work

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"

	"google.golang.org/protobuf/proto"

	"fmp/onnx"
	"fmp/onnx/message"
	"fmp/onnx/onnxpb"
	"fmp/onnx/serde"
	"fmp/onnx/sorting"
	"fmp/pipeline/federate/serverpb"
	"fmp/pipeline/honesty"
	"fmp/pipeline/option"
	"fmp/pipeline/pool"
	"fmp/pipeline/posterior"
)

// format is the version of jobs, parts and answers; both sides must run the same release. It rises
// whenever the answer to a job changes, also where no field does: a job's ID names its answer.
const format = 2

// Maximum sizes of messages: a job, its input, an answer, a list of uploads, a model, and the text
// of an error.
const (
	maxJob     = 512 << 10 // a round file's longest options, escaped; NATS takes 1 MiB
	maxInput   = 128 << 20
	maxAnswer  = 1 << 30
	maxMembers = 128 << 20
	maxModel   = 1 << 30
	maxError   = 4 << 10
	maxFiles   = 16 // of an answer
)

// Job is one part of a sampling, uploads to merge, or one run of a grid, with everything that it
// depends on, by digest.
type Job struct {
	Format int `json:"format"`
	// ID is the SHA-256 of the other fields.
	ID string `json:"id"`
	Sampling
	// Input is the name of the object with the input: the pool.Part, the uploads to merge, or the
	// settings of a run.
	Input string `json:"input"`
	Run   bool   `json:"run,omitempty"`
	Merge bool   `json:"merge,omitempty"`

	sent uint64 // its number in the queue; 0: it was done already
}

// Sampling is the part that all jobs of one sampling share.
type Sampling struct {
	// Store and Replicas say where uploads are read and results are written.
	Store    string `json:"store"`
	Replicas int    `json:"replicas"`
	// Round and Graph are those of the uploads. The file of the graph is the object named Graph;
	// the files of the round's own predictors are the objects named Predictor and Open, and that of
	// its anchor the one named Anchor.
	Round     uint64       `json:"round"`
	Graph     string       `json:"graph"`
	Predictor string       `json:"predictor,omitempty"`
	Open      string       `json:"open,omitempty"`
	Anchor    string       `json:"anchor,omitempty"`
	Options   pool.Options `json:"options"`
	// Members is the name of the object with the uploads to pool.
	Members string `json:"members"`
}

// key names the sampling: options hold pointers, so that equal ones of two jobs do not compare
// equal.
func (s Sampling) key() string {
	text, err := json.Marshal(s)
	if err != nil { // NaN or an infinity, which no job has
		return ""
	}
	return string(text)
}

// digest returns the ID that the job should have: the SHA-256 of its JSON with an empty ID.
func (j Job) digest() string {
	j.ID = ""
	text, err := json.Marshal(j)
	if err != nil { // NaN or an infinity
		return ""
	}
	return fmt.Sprintf("%x", sha256.Sum256(text))
}

// membersName and inputName name objects by the SHA-256 of their bytes: a worker compares them.
func membersName(list []byte) string {
	return fmt.Sprintf("job-members-%x.json", sha256.Sum256(list))
}
func inputName(input []byte) string { return fmt.Sprintf("input-%x", sha256.Sum256(input)) }

var (
	aStore   = regexp.MustCompile(`^[a-z0-9-]{1,64}$`)
	aDigest  = regexp.MustCompile(`^[0-9a-f]{64}$`)
	anInput  = regexp.MustCompile(`^input-[0-9a-f]{64}$`)
	aMembers = regexp.MustCompile(`^job-members-[0-9a-f]{64}\.json$`)
)

// errRelease is the error for a job that only a worker of another release may do.
var errRelease = errors.New("job of another release")

// decodeJob parses a job and checks every field. A job cannot name a file of the worker's machine.
// A job comes from a queue that others may write to: it has no more fields than this release knows,
// as its ID is of all of them. The version is looked at first, so that a newer job is left to
// others.
func decodeJob(data []byte) (Job, error) {
	var j Job
	if len(data) > maxJob {
		return j, fmt.Errorf("job: %d bytes; allowed are %d", len(data), maxJob)
	}
	if err := json.Unmarshal(data, &j); err != nil {
		return j, fmt.Errorf("job: %w", err)
	}
	if j.Format != format {
		return j, fmt.Errorf("%w: format is %d; this one's is %d", errRelease, j.Format, format)
	}
	o := j.Options
	for _, c := range []struct {
		ok      bool
		field   string
		value   any
		allowed string
	}{
		{j.ID == j.digest(), "id", j.ID, "the sha256 of the other fields, which are those of " +
			"this release"},
		{aStore.MatchString(j.Store), "store", j.Store, aStore.String()},
		{j.Replicas >= 1 && j.Replicas <= 5, "replicas", j.Replicas, "1 to 5"},
		{anInput.MatchString(j.Input), "input", j.Input, anInput.String()},
		{j.Run || aDigest.MatchString(j.Graph), "graph", j.Graph, aDigest.String()},
		{j.Run || j.Merge || aMembers.MatchString(j.Members), "members", j.Members,
			aMembers.String()},
		{j.Predictor == "" || aDigest.MatchString(j.Predictor), "predictor", j.Predictor,
			aDigest.String()},
		{j.Open == "" || aDigest.MatchString(j.Open), "open", j.Open, aDigest.String()},
		{j.Anchor == "" || aDigest.MatchString(j.Anchor), "anchor", j.Anchor, aDigest.String()},
		{o.CorpusMoments == nil, "options.corpus", "here", "none: moments are pooled " +
			"by the server"},
		{o.Threads == 0, "options.threads", o.Threads, "0: they are the worker's own"},
	} {
		if !c.ok {
			return j, fmt.Errorf("job: %s is %.80s; allowed: %s", c.field,
				fmt.Sprint(c.value), c.allowed)
		}
	}
	for _, s := range option.List(&o) {
		if s.NamesFile() {
			return j, fmt.Errorf("job: options.%s is %.80s; files go by digest", s.Name, s.Value)
		}
	}
	return j, nil
}

// encodePart writes the input of a job. States of honesty are a tensor of bool [states, clients],
// and their probabilities one of float64 [states]. Equal parts have equal bytes, which name the
// job.
func encodePart(p pool.SampleRange) ([]byte, error) {
	m := &serverpb.SampleRange{Format: format, Chains: p.Chains, From: uint32(p.From),
		To: uint32(p.To)}
	var err error
	if p.States != nil {
		if m.Honest, err = states("honest", p.States.Honest); err != nil {
			return nil, err
		}
		if m.Probability, err = serde.TensorToProto("probability",
			onnx.NewTensor(p.States.P, len(p.States.P))); err != nil {
			return nil, err
		}
	}
	return proto.MarshalOptions{Deterministic: true}.Marshal(m)
}

// decodePart is the reverse. From is below To, and To below 2^31, so that samples are counted by an
// int of 32 bits.
func decodePart(data []byte) (p pool.SampleRange, err error) {
	var m serverpb.SampleRange
	if err := read("part", data, maxInput, &m); err != nil {
		return p, err
	}
	const most = math.MaxInt32
	if m.Format != format || m.From >= m.To || m.To > most {
		return p, fmt.Errorf("part: format %d, %d to %d; allowed: format %d (programs "+
			"of one release on both sides), from below to, up to %d", m.Format, m.From,
			m.To, format, most)
	}
	p = pool.SampleRange{Chains: m.Chains, From: int(m.From), To: int(m.To)}
	if m.Honest == nil && m.Probability == nil {
		return p, nil
	}
	p.States = &honesty.States{}
	if p.States.Honest, err = readStates("honest", m.Honest); err != nil {
		return p, err
	}
	t, err := tensor("probability", m.Probability, onnx.Float64, 1)
	if err != nil {
		return p, err
	}
	p.States.P = t.Data.([]float64)
	return p, p.States.Check(len(p.States.Honest[0]))
}

// answer is a worker's result: samples or chains, or an error.
type answer struct {
	Error string
	Piece pool.Piece
	Files map[string][]byte // of a run's directory
}

// encode returns the bytes of a message. Files are in the order of their names, so that equal
// answers have equal bytes. Beyond maxAnswer it is an error of the worker.
func (a answer) encode() ([]byte, error) {
	m := &serverpb.Answer{Format: format, Error: brief(a.Error)}
	var err error
	if len(a.Piece.Proposed) > 0 {
		if m.Proposed, err = states("proposed", a.Piece.Proposed); err != nil {
			return nil, err
		}
	}
	if len(a.Piece.Heads) > 0 {
		if m.Heads, err = serde.TensorToProto("heads", a.Piece.Heads.Tensor()); err != nil {
			return nil, err
		}
	}
	for name, data := range a.Files {
		m.Files = append(m.Files, &serverpb.File{Name: name, Data: data})
	}
	sorting.By(m.Files, func(a, b *serverpb.File) int {
		return bytes.Compare([]byte(a.Name), []byte(b.Name))
	})
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err == nil && len(data) > maxAnswer {
		err = fmt.Errorf("answer: %d bytes; allowed are %d", len(data), maxAnswer)
	}
	return data, err
}

// brief truncates long text and removes bytes that are not valid text.
func brief(s string) string {
	if len(s) > maxError {
		s = s[:maxError-4] + " ..."
	}
	return string(bytes.ToValidUTF8([]byte(s), []byte("?")))
}

// decodeAnswer reads an answer, which has one of error, chains, samples and files. Names of files
// are the reader's to check, as they are keys here and no paths.
func decodeAnswer(data []byte) (a answer, err error) {
	var m serverpb.Answer
	if err := read("answer", data, maxAnswer, &m); err != nil {
		return a, err
	}
	if m.Format != format {
		return a, fmt.Errorf("answer: format %d; allowed: %d; use programs of one release "+
			"on both sides", m.Format, format)
	}
	kinds := 0
	if m.Error != "" {
		kinds++
		a.Error = brief(m.Error)
	}
	if m.Proposed != nil {
		kinds++
		if a.Piece.Proposed, err = readStates("proposed", m.Proposed); err != nil {
			return a, err
		}
	}
	if m.Heads != nil {
		kinds++
		if a.Piece.Heads, err = readHeads(m.Heads); err != nil {
			return a, err
		}
	}
	if len(m.Files) > 0 {
		kinds++
		if len(m.Files) > maxFiles {
			return a, fmt.Errorf("answer: %d files; allowed are %d", len(m.Files), maxFiles)
		}
		a.Files = make(map[string][]byte, len(m.Files))
		for _, f := range m.Files {
			if f.Name == "" || a.Files[f.Name] != nil {
				return a, fmt.Errorf("answer: file %.80q; want names, each once", f.Name)
			}
			a.Files[f.Name] = f.Data
		}
	}
	if kinds != 1 {
		return a, fmt.Errorf("answer: %d of error, proposed, heads and files; want one", kinds)
	}
	return a, nil
}

// read decodes a message of at most most bytes and without unknown fields.
func read(kind string, data []byte, most int, m proto.Message) error {
	if len(data) > most {
		return fmt.Errorf("%s: %d bytes; allowed are %d", kind, len(data), most)
	}
	if err := message.Unmarshal(data, m, 0); err != nil {
		return fmt.Errorf("%s: %w", kind, err)
	}
	if n := len(m.ProtoReflect().GetUnknown()); n > 0 {
		return fmt.Errorf("%s: %d bytes of fields that are not known; use programs of "+
			"one release on both sides", kind, n)
	}
	return nil
}

// tensor decodes a tensor of the given type and rank, without dimensions of size 0. The length of
// its data is checked before memory is allocated.
func tensor(name string, p *onnxpb.TensorProto, d onnx.DType, rank int) (*onnx.Tensor, error) {
	t, err := serde.TensorFromProto(p)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if t.DType != d || len(t.Shape) != rank || slices.Contains(t.Shape, 0) {
		return nil, fmt.Errorf("%s is %v of shape %.80s; want %v of %d dimensions of at least 1",
			name, t.DType, fmt.Sprint(t.Shape), d, rank)
	}
	return t, nil
}

// states encodes rows of equal length as a tensor; readStates is the reverse.
func states(name string, rows [][]bool) (*onnxpb.TensorProto, error) {
	return serde.TensorToProto(name, onnx.NewTensor(slices.Concat(rows...),
		len(rows), len(rows[0])))
}

func readStates(name string, p *onnxpb.TensorProto) ([][]bool, error) {
	t, err := tensor(name, p, onnx.Bool, 2)
	if err != nil {
		return nil, err
	}
	return slices.Collect(slices.Chunk(t.Data.([]bool), t.Shape[1])), nil
}

// readHeads reads heads [samples, features, classes] in float64, each of which shares the memory of
// the tensor. Numbers that are not finite are refused, as they would spread through all
// predictions.
func readHeads(p *onnxpb.TensorProto) (posterior.Ensemble, error) {
	t, err := tensor("heads", p, onnx.Float64, 3)
	if err != nil {
		return nil, err
	}
	all := t.Data.([]float64)
	if slices.ContainsFunc(all, func(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) }) {
		return nil, errors.New("heads hold numbers that are not finite")
	}
	out := make(posterior.Ensemble, t.Shape[0])
	n := t.Shape[1] * t.Shape[2]
	for i := range out {
		out[i] = posterior.Theta{D: t.Shape[1], C: t.Shape[2], W: all[i*n : (i+1)*n : (i+1)*n]}
	}
	return out, nil
}
