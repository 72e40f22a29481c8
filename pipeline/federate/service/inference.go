package service

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"

	"fmp/onnx"
	"fmp/pipeline/classify"
	"fmp/pipeline/federate/store"
)

// modelName is the name of the model in the Open Inference Protocol, version 2, REST (github.com/kserve/open-inference-protocol),
// which clients of KServe and Triton speak. The model takes images (UINT8) or features (FP32).
const modelName = "classifier"

// tensor is a tensor of the protocol.
type tensor struct {
	Name     string          `json:"name"`
	Shape    []int64         `json:"shape"`
	Datatype string          `json:"datatype"`
	Data     json.RawMessage `json:"data,omitempty"`
}

// inferError writes an error as the protocol defines it.
func inferError(w http.ResponseWriter, status int, format string, args ...any) {
	reply(w, status, map[string]string{"error": fmt.Sprintf(format, args...)})
}

func (s *Server) inferServer(w http.ResponseWriter, _ *http.Request) {
	reply(w, http.StatusOK, map[string]any{"name": "fmp serve", "version": "2", "extensions": []string{}})
}

func (s *Server) inferLive(w http.ResponseWriter, _ *http.Request) {
	reply(w, http.StatusOK, map[string]bool{"live": true})
}

func (s *Server) inferReady(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	ready := s.serving != nil
	s.mu.Unlock()
	status := http.StatusOK
	if !ready {
		status = http.StatusServiceUnavailable
	}
	reply(w, status, map[string]any{"name": modelName, "ready": ready})
}

func (s *Server) inferModel(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	v := s.serving
	s.mu.Unlock()
	if v == nil {
		inferError(w, http.StatusNotFound, "no classifier yet")
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.images == nil {
		inferError(w, http.StatusServiceUnavailable, "a newer version is being readied; ask again")
		return
	}
	f := v.images.Fit
	c := int64(v.images.Manifest.C)
	inputs := []tensor{{Name: "images", Shape: []int64{-1, int64(f.H), int64(f.W), int64(f.Ch)}, Datatype: "UINT8"}}
	if v.rows != nil {
		inputs = append(inputs, tensor{Name: "features", Shape: []int64{-1, int64(v.rows.Manifest.Dx)}, Datatype: "FP32"})
	}
	reply(w, http.StatusOK, map[string]any{"name": modelName, "versions": []string{fmt.Sprint(v.version.Number)}, "platform": "onnx_onnxv1", "inputs": inputs,
		"outputs": []tensor{{Name: "probabilities", Shape: []int64{-1, c}, Datatype: "FP32"}, {Name: "entropy", Shape: []int64{-1}, Datatype: "FP32"}, {Name: "mutual_information", Shape: []int64{-1}, Datatype: "FP32"}}})
}

// infer classifies one tensor of images, or of feature rows.
func (s *Server) infer(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxPredictBytes))
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		inferError(w, http.StatusRequestEntityTooLarge, "a request of more than %d bytes", large.Limit)
		return
	}
	var req struct {
		ID      string   `json:"id"`
		Inputs  []tensor `json:"inputs"`
		Outputs []struct {
			Name string `json:"name"`
		} `json:"outputs"`
	}
	if r.Header.Get("Inference-Header-Content-Length") != "" {
		inferError(w, http.StatusBadRequest, "binary tensor data is not supported; send the data as JSON")
		return
	}
	if err == nil {
		err = json.Unmarshal(body, &req)
	}
	if err != nil {
		inferError(w, http.StatusBadRequest, "%v", err)
		return
	}
	if len(req.Inputs) != 1 || (req.Inputs[0].Name != "images" && req.Inputs[0].Name != "features") {
		inferError(w, http.StatusBadRequest, "%d inputs; want one, images or features", len(req.Inputs))
		return
	}
	in := req.Inputs[0]
	rows := in.Name == "features"
	build := func(c *classify.Classifier) (*memory, *onnx.Tensor, error) {
		want, kind := []int64{-1, int64(c.Fit.H), int64(c.Fit.W), int64(c.Fit.Ch)}, "UINT8"
		if rows {
			want, kind = []int64{-1, int64(c.Manifest.Dx)}, "FP32"
		}
		n, err := in.check(want, kind)
		if err != nil {
			return nil, nil, err
		}
		if rows {
			x, err := numbers[float32](in.Data, n*c.Manifest.Dx, -math.MaxFloat32, math.MaxFloat32)
			if err != nil {
				return nil, nil, err
			}
			return nil, onnx.NewTensor(x, n, c.Manifest.Dx), nil
		}
		size := c.Fit.Size()
		x, err := numbers[uint8](in.Data, n*size, 0, 255)
		if err != nil {
			return nil, nil, err
		}
		m := &memory{}
		for i := range n {
			m.names = append(m.names, fmt.Sprint(i))
			m.write = append(m.write, func(dst []uint8) error { copy(dst, x[i*size:(i+1)*size]); return nil })
		}
		return m, nil, nil
	}
	var answer map[string]any
	err = s.run(r.Context(), rows, build, func(v store.Version, c *classify.Classifier, ps []classify.Prediction) error {
		n, classes := int64(len(ps)), int64(c.Manifest.C)
		var probabilities, entropy, information []float32
		for i := range ps {
			probabilities = append(probabilities, ps[i].Probabilities...)
			entropy, information = append(entropy, ps[i].Entropy), append(information, ps[i].MutualInformation)
		}
		outputs := []tensor{}
		for _, o := range []struct {
			name  string
			shape []int64
			data  []float32
		}{{"probabilities", []int64{n, classes}, probabilities}, {"entropy", []int64{n}, entropy}, {"mutual_information", []int64{n}, information}} {
			wanted := len(req.Outputs) == 0
			for _, q := range req.Outputs {
				wanted = wanted || q.Name == o.name
			}
			if !wanted {
				continue
			}
			text, err := json.Marshal(o.data)
			if err != nil {
				return err
			}
			outputs = append(outputs, tensor{o.name, o.shape, "FP32", text})
		}
		if len(outputs) == 0 {
			return inputf("none of the outputs asked for is known; there are probabilities, entropy and mutual_information")
		}
		answer = map[string]any{"model_name": modelName, "model_version": fmt.Sprint(v.Number), "outputs": outputs}
		if req.ID != "" {
			answer["id"] = req.ID
		}
		return nil
	})
	var input *errInput
	switch {
	case err == nil:
		reply(w, http.StatusOK, answer)
	case errors.Is(err, errNotYet):
		inferError(w, http.StatusNotFound, "no classifier yet")
	case errors.As(err, &input):
		inferError(w, http.StatusBadRequest, "%v", err)
	default:
		s.Log.Error("prediction failed", "path", r.URL.Path, "error", err)
		inferError(w, http.StatusInternalServerError, "the classifier failed; the server's log says why")
	}
}

// check checks a tensor's type and its shape against the wanted shape (-1: any size) and returns the size of the first axis.
func (t *tensor) check(want []int64, kind string) (int, error) {
	if t.Datatype != kind {
		return 0, inputf("%s has datatype %.20q; want %s", t.Name, t.Datatype, kind)
	}
	ok := len(t.Shape) == len(want) && t.Shape[0] >= 1 && t.Shape[0] <= maxPredictItems
	for i := 1; ok && i < len(want); i++ {
		ok = t.Shape[i] == want[i]
	}
	if !ok {
		shape := t.Shape
		if len(shape) > 8 {
			shape = shape[:8]
		}
		return 0, inputf("%s has shape %v; want %v, the first 1 to %d", t.Name, shape, want, maxPredictItems)
	}
	return int(t.Shape[0]), nil
}

// numbers parses exactly n numbers between two bounds, flat or in nested lists, and stops at the first beyond that.
func numbers[T uint8 | float32](data json.RawMessage, n int, low, high float64) ([]T, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	var out []T
	for depth := 0; ; {
		t, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, inputf("data: %v", err)
		}
		switch v := t.(type) {
		case json.Delim:
			switch v {
			case '[':
				depth++
			case ']':
				depth--
			default:
				return nil, inputf("data: %v is no number", v)
			}
			if depth > 8 {
				return nil, inputf("data: nested more than 8 deep")
			}
		case float64:
			if !(v >= low && v <= high) {
				return nil, inputf("data: %v; allowed are %v to %v", v, low, high)
			}
			if len(out) == n {
				return nil, inputf("data: more than the %d numbers of its shape", n)
			}
			out = append(out, T(v))
		default:
			return nil, inputf("data: %.40v is no number", v)
		}
	}
	if len(out) != n {
		return nil, inputf("data: %d numbers; want %d for its shape", len(out), n)
	}
	return out, nil
}
