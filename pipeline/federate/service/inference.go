package service

import (
	"fmt"
	"net/http"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"fmp/pipeline/classify"
	"fmp/pipeline/federate/store"
	"fmp/pipeline/federate/wire"
)

// The Open Inference Protocol, version 2, REST (github.com/kserve/open-inference-protocol), which
// clients of KServe and Triton speak, with Triton's extensions for binary tensors, model
// configuration and statistics (github.com/triton-inference-server/server/tree/main/docs/protocol).
// The model takes images (UINT8) or features (FP32).
const (
	serverName      = "fmp serve"
	protocolVersion = "2"
	modelName       = "classifier"
	modelPlatform   = "onnx_onnxv1"
	elsewhere       = "/v2/{path...}" // paths that are none of its
)

// inferOutputs are the names of the outputs, in their order.
var inferOutputs = []string{"probabilities", "entropy", "mutual_information"}

// inferError writes an error as the protocol defines it.
// The status of HTTP tells the kind; the protocol has the one field error.
func inferError(w http.ResponseWriter, status int, format string, args ...any) {
	reply(w, status, map[string]string{"error": fmt.Sprintf(format, args...)})
}

// inferNowhere answers as clients of the protocol read it where there is nothing.
func inferNowhere(w http.ResponseWriter, r *http.Request) {
	inferError(w, http.StatusNotFound, "%s %.80s is not answered here; there is the model %s",
		r.Method, r.URL.Path, modelName)
}

// ofVersion refuses requests for another version than the one that makes predictions.
// While there is no version the next handler says so. A path without a version is any.
func (p *predictor) ofVersion(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if v := p.version(); v != nil {
			if err := isModel(v.version, modelName, r.PathValue("version")); err != nil {
				p.inferFailed(w, r, err)
				return
			}
		}
		next(w, r)
	}
}

// inferServer answers with the name of the program and the extensions of the protocol that it has.
// Names of extensions are Triton's.
func (p *predictor) inferServer(w http.ResponseWriter, _ *http.Request) {
	reply(w, http.StatusOK, map[string]any{"name": serverName, "version": protocolVersion,
		"extensions": []string{"binary_tensor_data", "model_configuration", "statistics"}})
}

// inferLive answers while the program runs.
func (p *predictor) inferLive(w http.ResponseWriter, _ *http.Request) {
	reply(w, http.StatusOK, map[string]bool{"live": true})
}

// inferReady is 503 while no version makes predictions.
func (p *predictor) inferReady(w http.ResponseWriter, _ *http.Request) {
	ready := p.version() != nil
	status := http.StatusOK
	if !ready {
		status = http.StatusServiceUnavailable
	}
	reply(w, status, map[string]any{"name": modelName, "ready": ready})
}

// current returns the version that makes predictions, and its inputs and outputs; errNotYet if
// there is none.
// The version is not held on return: only its numbers are to be read.
func (p *predictor) current() (v *served, inputs, outputs []tensor, err error) {
	if v, err = p.acquire(); err != nil {
		return nil, nil, nil, err
	}
	defer v.mu.RUnlock()
	f := v.images.Fit
	inputs = []tensor{{Name: "images", Shape: []int64{-1, int64(f.H), int64(f.W), int64(f.Ch)},
		Datatype: "UINT8"}}
	if v.rows != nil {
		inputs = append(inputs, tensor{Name: "features",
			Shape: []int64{-1, int64(v.rows.Manifest.Dx)}, Datatype: "FP32"})
	}
	for _, name := range inferOutputs {
		outputs = append(outputs, tensor{Name: name, Shape: []int64{-1}, Datatype: "FP32"})
	}
	outputs[0].Shape = []int64{-1, int64(v.images.Manifest.C)}
	return v, inputs, outputs, nil
}

// inferModel describes inputs and outputs; -1 is an axis of any size.
func (p *predictor) inferModel(w http.ResponseWriter, r *http.Request) {
	if v, inputs, outputs, err := p.current(); err != nil {
		p.inferFailed(w, r, err)
	} else {
		reply(w, http.StatusOK, map[string]any{"name": modelName,
			"versions": []string{fmt.Sprint(v.version.Number)}, "platform": modelPlatform,
			"inputs": inputs, "outputs": outputs})
	}
}

// configured is a tensor in a model configuration, which leaves out the size of the batch.
// Types are TYPE_UINT8 and TYPE_FP32, as Triton's model_config.proto names them.
type configured struct {
	Name     string  `json:"name"`
	DataType string  `json:"data_type"`
	Dims     []int64 `json:"dims"`
	// Reshape says that there is no axis but the batch's, of which Dims cannot tell.
	Reshape  *reshape `json:"reshape,omitempty"`
	Optional bool     `json:"optional,omitempty"`
}

// reshape is the shape of a tensor in the graph, without the batch.
type reshape struct {
	Shape []int64 `json:"shape"`
}

// inferConfig answers with the model configuration, as Triton's extension defines it.
// The largest batch is that of one request. Both inputs are optional where there are two, as a
// request gives one.
func (p *predictor) inferConfig(w http.ResponseWriter, r *http.Request) {
	_, inputs, outputs, err := p.current()
	if err != nil {
		p.inferFailed(w, r, err)
		return
	}
	of := func(tensors []tensor, optional bool) []configured {
		var out []configured
		for _, t := range tensors {
			c := configured{Name: t.Name, DataType: "TYPE_" + t.Datatype, Dims: t.Shape[1:],
				Optional: optional}
			if len(c.Dims) == 0 {
				c.Dims, c.Reshape = []int64{1}, &reshape{Shape: []int64{}}
			}
			out = append(out, c)
		}
		return out
	}
	reply(w, http.StatusOK, map[string]any{"name": modelName, "platform": modelPlatform,
		"backend":        "",
		"version_policy": map[string]any{"latest": map[string]int{"num_versions": 1}},
		"max_batch_size": maxPredictItems, "input": of(inputs, len(inputs) > 1),
		"output": of(outputs, false)})
}

// inferStatistics answers with the statistics of the version that makes predictions, as Triton's
// extension defines them.
// The list is empty while no version makes predictions. Counts begin anew with each version.
func (p *predictor) inferStatistics(w http.ResponseWriter, _ *http.Request) {
	v := p.version()
	stats := []modelStatistics{}
	if v != nil {
		stats = append(stats, v.statistics.of(v.version.Number))
	}
	reply(w, http.StatusOK, map[string]any{"model_stats": stats})
}

// infer classifies one tensor of images, or of feature rows.
// The version is compared again with the path once the classifier has run: another may have taken
// its place.
// Binary tensors take a smaller multiple of memory, as no text of numbers is parsed.
func (p *predictor) infer(w http.ResponseWriter, r *http.Request) {
	held := lease{in: p.intake}
	defer held.release()
	times := ofJSON
	if r.Header.Get(headerLength) != "" {
		times = ofBinary
	}
	body, err := p.receive(&held, w, r, maxPredictBytes, times)
	var req *inferRequest
	if err == nil {
		if req, err = parseInfer(body, r.Header); err != nil {
			err = inputf("%w", err)
		} else {
			req.decoding = p.decoding
		}
	}
	if err != nil {
		p.inferFailed(w, r, err)
		return
	}
	var answer *inferAnswer
	err = p.run(r.Context(), &held, req.rows(), req.build,
		func(v store.Version, c *classify.Classifier, ps []classify.Prediction) (err error) {
			// a newer one may have come since
			if err = isModel(v, modelName, r.PathValue("version")); err == nil {
				p.sayVoid(v, w.Header().Set)
				answer, err = req.answer(v, c, ps)
			}
			return err
		})
	if err != nil {
		p.inferFailed(w, r, err)
		return
	}
	answer.write(w, &held)
}

// inferFailed answers with the error of a request.
// It has the status of [predictor.badPrediction], in the form of the protocol.
// Retry-After is in seconds (RFC 9110, section 10.2.3).
func (p *predictor) inferFailed(w http.ResponseWriter, r *http.Request, err error) {
	if s := status.Convert(err); s.Code() == codes.NotFound {
		inferError(w, http.StatusNotFound, "%s", s.Message())
		return
	}
	p.badPrediction(func(code, detail string, args ...any) {
		if code == wire.Unavailable {
			w.Header().Set("Retry-After", "2")
		}
		if code == wire.NotYet {
			detail = errNotYet.Error()
		}
		inferError(w, refusals[code].status, detail, args...)
	}, r, err)
}
