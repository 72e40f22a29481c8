package work

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"fmp/onnx"
	"fmp/onnx/alloctest"
	"fmp/onnx/must"
	"fmp/onnx/onnxpb"
	"fmp/onnx/serde"
	"fmp/pipeline/discriminant"
	"fmp/pipeline/federate/serverpb"
	"fmp/pipeline/honesty"
	"fmp/pipeline/pool"
	"fmp/pipeline/posterior"
)

var examplePart = pool.SampleRange{From: 10, To: 20,
	States: &honesty.States{Honest: [][]bool{{true, true, false}, {true, true, true}},
		P: []float64{0.25, 0.75}}}

// TestMessages: what is written is read back, bit for bit.
func TestMessages(t *testing.T) {
	for _, p := range []pool.SampleRange{{Chains: true, To: 3}, {From: 10, To: 20}, examplePart} {
		data := must.Get(encodePart(p))(t)
		if got, err := decodePart(data); err != nil || !cmp.Equal(got, p) {
			t.Errorf("part %+v: %+v, %v", p, got, err)
		}
	}
	for _, a := range []answer{
		{Error: "no such thing"},
		{Piece: pool.Piece{Proposed: [][]bool{{true, false}, {false, true}}}},
		{Piece: pool.Piece{Heads: posterior.Ensemble{
			{D: 2, C: 2, W: []float64{1, math.Copysign(0, -1), 5e-324, math.Pi}},
			{D: 2, C: 2, W: []float64{1, 2, 3, 4}}}}},
		{Files: map[string][]byte{"run.json": []byte("{}"), "results.csv": []byte("a,b\n")}},
	} {
		data := must.Get(a.encode())(t)
		if got, err := decodeAnswer(data); err != nil || !cmp.Equal(got, a) {
			t.Errorf("answer %+v: %+v, %v", a, got, err)
		}
	}
	if a, err := (answer{Error: strings.Repeat("x", 1<<20) + "\xff"}).encode(); err != nil ||
		len(a) > maxError+100 {
		t.Errorf("a long error becomes %d bytes, %v", len(a), err)
	}
}

func tensorOf[T onnx.Element](t testing.TB, data []T, shape ...int) *onnxpb.TensorProto {
	return must.Get(serde.TensorToProto("t", onnx.NewTensor(data, shape...)))(t)
}

// TestHostileMessages: parts and answers that are not what they should be are refused before memory
// is taken for what they claim.
func TestHostileMessages(t *testing.T) {
	huge := tensorOf(t, []bool{true}, 1, 1)
	huge.Dims = []int64{1 << 20, 1 << 20}
	honest, probability := tensorOf(t, []bool{true, false, true, true}, 2, 2), tensorOf(t, []float64{0.5, 0.5}, 2)
	states := func(honest, probability *onnxpb.TensorProto) proto.Message {
		return &serverpb.SampleRange{Format: format, To: 1, Honest: honest, Probability: probability}
	}
	likely := func(p ...float64) proto.Message { return states(honest, tensorOf(t, p, len(p))) }
	heads := func(w ...float64) *onnxpb.TensorProto { return tensorOf(t, w, 1, 1, len(w)) }
	for want, m := range map[string]proto.Message{
		"format 3":                      &serverpb.SampleRange{Format: 3, To: 1},
		"5 to 5":                        &serverpb.SampleRange{Format: format, From: 5, To: 5},
		"to 4294967295":                 &serverpb.SampleRange{Format: format, To: math.MaxUint32},
		"more than 2147483647 elements": states(huge, probability),
		"honest is float64":             states(probability, probability),
		"of 2 dimensions":               states(tensorOf(t, []bool{true}, 1), probability),
		"honest: tensor: missing":       states(nil, probability),
		"probability: tensor: missing":  states(honest, nil),
		"dimensions of at least 1":      states(tensorOf(t, []bool{}, 2, 0), probability),
		"2 states with 1 probabilities": likely(1),
		"probability NaN":               likely(math.NaN(), 1),
		"probability -1":                likely(-1, 2),
		"sum to +Inf":                   likely(math.Inf(1), 1),
		"sum to 3":                      likely(1, 2),
		"answer: format 7":              &serverpb.Answer{Format: 7, Error: "x"},
		"0 of error, proposed":          &serverpb.Answer{Format: format},
		"2 of error, proposed":          &serverpb.Answer{Format: format, Error: "x", Heads: heads(1)},
		"not finite":                    &serverpb.Answer{Format: format, Heads: heads(1, math.NaN())},
		"finite":                        &serverpb.Answer{Format: format, Heads: heads(math.Inf(-1))},
		"heads is float32": &serverpb.Answer{Format: format,
			Heads: tensorOf(t, []float32{1}, 1, 1, 1)},
		"heads is float64 of shape [1 1]": &serverpb.Answer{Format: format,
			Heads: tensorOf(t, []float64{1}, 1, 1)},
		"proposed is bool of shape [2]": &serverpb.Answer{Format: format,
			Proposed: tensorOf(t, []bool{true, true}, 2)},
		`file "a"`: &serverpb.Answer{Format: format,
			Files: []*serverpb.File{{Name: "a", Data: []byte("x")}, {Name: "a"}}},
		`file ""`:  &serverpb.Answer{Format: format, Files: []*serverpb.File{{}}},
		"17 files": &serverpb.Answer{Format: format, Files: make([]*serverpb.File, 17)},
	} {
		data := must.Get(proto.Marshal(m))(t)
		_, part := m.(*serverpb.SampleRange)
		var err error
		alloctest.AtMost(t, 1<<20, func() {
			if part {
				_, err = decodePart(data)
			} else {
				_, err = decodeAnswer(data)
			}
		})
		must.Fail(err)(t, want)
	}
	for _, data := range [][]byte{[]byte("gob"), {0x08, 0x01, 0xfa, 0x7f, 0x00},
		{0x0a, 0xff, 0xff, 0xff, 0xff, 0x07}} {
		if p, err := decodePart(data); err == nil {
			t.Errorf("part of %x: %+v", data, p)
		}
		if a, err := decodeAnswer(data); err == nil {
			t.Errorf("answer of %x: %+v", data, a)
		}
	}
	must.Fail(decodePart(make([]byte, maxInput+1)))(t, "allowed are", "a part that is too long")
}

// TestHostileJobs: a job of another version, one that was changed, and one that would have a worker
// read its own files are refused.
func TestHostileJobs(t *testing.T) {
	graph := fmt.Sprintf("%064x", 1)
	good := Job{Format: format,
		Sampling: Sampling{Store: "fmp-1-0123", Replicas: 1, Round: 1, Graph: graph,
			Members: membersName(nil), Options: pool.Options{Samples: 5}}, Input: inputName(nil)}
	encode := func(j Job, sign bool) []byte {
		if sign {
			j.ID = j.digest()
		}
		return must.Get(json.Marshal(j))(t)
	}
	if j, err := decodeJob(encode(good, true)); err != nil || !reflect.DeepEqual(j.Sampling, good.Sampling) {
		t.Fatalf("%+v, %v", j, err)
	}
	for want, change := range map[string]func(j *Job){
		"another release":        func(j *Job) { j.Format = 3 },
		"store is ../x":          func(j *Job) { j.Store = "../x" },
		"replicas is 9":          func(j *Job) { j.Replicas = 9 },
		"input is result-1":      func(j *Job) { j.Input = "result-1" },
		"graph is other":         func(j *Job) { j.Graph = "other" },
		"members is /etc/passwd": func(j *Job) { j.Members = "/etc/passwd" },
		"predictor is a.onnx":    func(j *Job) { j.Predictor = "a.onnx" },
		"open is a.onnx":         func(j *Job) { j.Open = "a.onnx" },
		"options.predictor is":   func(j *Job) { j.Options.Predictor = "/root/key" },
		"options.open is":        func(j *Job) { j.Options.Open = "/root/key" },
		"options.anchor is":      func(j *Job) { j.Options.Anchor = "/root/key" },
		"options.corpus is":      func(j *Job) { j.Options.Corpus = "/root/key" },
		"options.corpus is here": func(j *Job) { j.Options.CorpusMoments = &discriminant.Client{} },
		"options.threads is 9":   func(j *Job) { j.Options.Threads = 9 },
	} {
		j := good
		change(&j)
		must.Fail(decodeJob(encode(j, true)))(t, want)
	}
	j := good
	j.ID = j.digest()
	j.Options.Samples = 6
	for want, data := range map[string][]byte{
		"id is": encode(j, false),
		"bytes": append(encode(good, true), make([]byte, maxJob)...),
		"job:":  []byte("x"),
	} {
		must.Fail(decodeJob(data))(t, want)
	}
}

// FuzzMessages: jobs, parts and answers are read or refused, and what is read is written as it was.
func FuzzMessages(f *testing.F) {
	part := must.Get(encodePart(examplePart))(f)
	heads := must.Get((answer{Piece: pool.Piece{Heads: posterior.Ensemble{{D: 1, C: 2, W: []float64{1, 2}}}}}).encode())(f)
	files := must.Get((answer{Files: map[string][]byte{"a": []byte("b")}}).encode())(f)
	for _, data := range [][]byte{part, heads, files, []byte(`{"format":1}`)} {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, err := decodeJob(data); err == nil {
			t.Fatalf("a job was made up: %s", data) // its id is a sha256
		}
		if p, err := decodePart(data); err == nil {
			text := must.Get(encodePart(p))(t)
			if again, err := decodePart(text); err != nil || !cmp.Equal(again, p) {
				t.Fatalf("%+v becomes %+v, %v", p, again, err)
			}
		}
		if a, err := decodeAnswer(data); err == nil {
			text := must.Get(a.encode())(t)
			if again, err := decodeAnswer(text); err != nil || !cmp.Equal(again, a) {
				t.Fatalf("%+v becomes %+v, %v", a, again, err)
			}
		}
	})
}
