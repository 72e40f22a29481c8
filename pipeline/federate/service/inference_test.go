package service

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"fmp/onnx/alloctest"
	"fmp/onnx/must"
)

// binaryRequest is JSON followed by binary data.
func (f *fixture) binaryRequest(text string, data []byte) *httptest.ResponseRecorder {
	return answer(f.srv.Handler(), "POST", inferPath, append([]byte(text), data...),
		headerLength, strconv.Itoa(len(text)))
}

// TestBinaryTensors: requests and answers as tritonclient writes and reads them by default have the
// numbers of those in JSON.
func TestBinaryTensors(t *testing.T) {
	f, dx := serving(t)
	const n = 2
	x := make([]float32, n*dx)
	var data []byte
	for i := range x {
		x[i] = float32(i%7) / 4
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(x[i]))
	}
	plain := must.Get(json.Marshal(
		map[string]any{"inputs": []any{map[string]any{"name": "features", "shape": []int{n, dx},
			"datatype": "FP32", "data": x}}}))(t)
	type output struct {
		Name       string
		Shape      []int
		Datatype   string
		Data       []float32
		Parameters struct {
			Size int `json:"binary_data_size"`
		}
	}
	var want, got struct {
		Outputs []output
	}
	if w := f.ask(inferPath, "application/json", plain); w.Code != 200 ||
		json.Unmarshal(w.Body.Bytes(), &want) != nil ||
		len(want.Outputs) != 3 {
		t.Fatalf("JSON: %d %s", w.Code, w.Body)
	}
	input := fmt.Sprintf(
		`{"id":"","inputs":[{"name":"features","shape":[%d,%d],"datatype":"FP32","parameters":{"binary_data_size":%d}}]`, n, dx, len(data))
	w := f.binaryRequest(input+`,"parameters":{"binary_data_output":true}}`, data)
	length, err := strconv.Atoi(w.Header().Get("Inference-Header-Content-Length"))
	if err != nil || w.Code != 200 || w.Header().Get("Content-Type") != "application/octet-stream" ||
		json.Unmarshal(w.Body.Bytes()[:length], &got) != nil || len(got.Outputs) != 3 {
		t.Fatalf("binary: %d %v %q", w.Code, w.Header(), w.Body)
	}
	rest := w.Body.Bytes()[length:]
	for i, o := range got.Outputs {
		if o.Name != want.Outputs[i].Name || o.Parameters.Size != 4*len(want.Outputs[i].Data) ||
			o.Data != nil {
			t.Fatalf("output %+v; want %+v", o, want.Outputs[i])
		}
		for k, v := range want.Outputs[i].Data {
			if got := math.Float32frombits(binary.LittleEndian.Uint32(rest[4*k:])); got != v {
				t.Errorf("%s[%d] is %v in bytes and %v in JSON", o.Name, k, got, v)
			}
		}
		rest = rest[o.Parameters.Size:]
	}
	if len(rest) != 0 {
		t.Errorf("%d bytes too many", len(rest))
	}
	// One output in bytes and one in JSON.
	w = f.binaryRequest(input+
		`,"outputs":[{"name":"entropy","parameters":{"binary_data":true}},{"name":"probabilities"}]}`,
		data)
	length, _ = strconv.Atoi(w.Header().Get("Inference-Header-Content-Length"))
	got.Outputs = nil
	if w.Code != 200 || json.Unmarshal(w.Body.Bytes()[:length], &got) != nil ||
		len(got.Outputs) != 2 ||
		len(got.Outputs[0].Data) != len(want.Outputs[0].Data) || w.Body.Len()-length != 4*n {
		t.Errorf("both forms: %d %s", w.Code, w.Body)
	}
	// Images in bytes.
	size := f.srv.predictions.serving.images.Fit.Size()
	images := fmt.Sprintf(
		`{"inputs":[{"name":"images","shape":[1,28,28,1],"datatype":"UINT8","parameters":{"binary_data_size":%d}}]}`, size)
	if w := f.binaryRequest(images, make([]byte, size)); w.Code != 200 ||
		w.Header().Get("Inference-Header-Content-Length") != "" {
		t.Errorf("images: %d %s", w.Code, w.Body)
	}
	nan := append([]byte{0, 0, 0xc0, 0x7f}, data[4:]...)
	for name, c := range map[string]struct {
		text, want string
		data       []byte
	}{
		"too few bytes":  {input + "}", "binary_data_size", data[1:]},
		"too many bytes": {input + "}", "accounts for", append(data, 0)},
		"of another shape": {strings.Replace(input, fmt.Sprintf("[%d,", n), "[1,", 1) + "}",
			"for its shape", data},
		"not finite": {input + "}", "finite", nan},
		"negative": {`{"inputs":[{"name":"features","parameters":{"binary_data_size":-1}}]}`,
			"binary_data_size -1", nil},
		"data beside it": {strings.Replace(input, `"datatype"`, `"data":[1],"datatype"`, 1) + "}",
			"beside", data},
		"an unknown output": {input + `,"outputs":[{"name":"x"}]}`, "not known", data},
		"an input's parameters": {strings.Replace(input, `"binary_data_size"`,
			`"shared_memory_region":"r","binary_data_size"`, 1) + "}",
			`\"shared_memory_region\"; there is binary_data_size`, data},
		"an output's parameters": {input +
			`,"outputs":[{"name":"probabilities","parameters":{"binary_data":true,"classification":2}}]}`,
			`\"classification\"; there is binary_data`, data},
		"the request's parameters": {input + `,"parameters":{"binary_data_output":true,"sequence_id":7}}`,
			`\"sequence_id\"; there is binary_data_output`, data},
		"images of few": {strings.Replace(images, fmt.Sprint(size), "3", 1), "for its shape",
			[]byte{1, 2, 3}},
		"rows in float64": {strings.Replace(input, "FP32", "FP64", 1) + "}", "want FP32", data},
		"no input at all": {"{}", "want one", nil},
		"many inputs":     {`{"inputs":[` + strings.Repeat("{},", 16) + `{}]}`, "17 elements", nil},
		"commas in a name": {`{"inputs":[{"name":"\",` + strings.Repeat(",", 20) + `"}]}`,
			"want one", nil},
		"inputs no list":     {`{"inputs":{}}`, "cannot unmarshal", nil},
		"text that is short": {"{", "unexpected end", nil},
	} {
		if w := f.binaryRequest(c.text, c.data); w.Code != 400 ||
			!strings.Contains(w.Body.String(), c.want) {
			t.Errorf("%s: %d %s; want %q", name, w.Code, w.Body, c.want)
		}
	}
}

// TestInferMetadata: configuration and statistics are as Triton's extensions define them, and count
// what was asked.
func TestInferMetadata(t *testing.T) {
	f, dx := serving(t)
	get := func(path string) (int, []byte) { return f.request("GET", path, nil, reader) }
	config := read[struct {
		Name  string
		Max   int `json:"max_batch_size"`
		Input []struct {
			Name     string
			DataType string `json:"data_type"`
			Dims     []int
		}
		Output []struct {
			Name    string
			Dims    []int
			Reshape map[string][]int
		}
	}](t, 200)(get("/v2/models/classifier/config"))
	if text := fmt.Sprintf("%+v",
		config); text != fmt.Sprintf("{Name:classifier Max:1024 Input:[{Name:images "+
		"DataType:TYPE_UINT8 Dims:[28 28 1]} {Name:features DataType:TYPE_FP32 Dims:[%d]}] "+
		"Output:[{Name:probabilities Dims:[10] Reshape:map[]} {Name:entropy Dims:[1] "+
		"Reshape:map[shape:[]]} {Name:mutual_information Dims:[1] Reshape:map[shape:[]]}]}", dx) {
		t.Error(text)
	}
	for range 2 {
		f.ask("/v1/predict", "application/json", []byte(`{"features": `+rows(3, dx)+`}`))
	}
	f.ask(inferPath, "application/json",
		[]byte(`{"inputs":[{"name":"features","datatype":"FP32","shape":[1,1],"data":[1]}]}`))
	for _, path := range []string{"/v2/models/classifier/stats", "/v2/models/stats"} {
		stats := read[struct {
			Models []modelStatistics `json:"model_stats"`
		}](t, 200)(get(path))
		if len(stats.Models) != 1 {
			t.Fatalf("%+v", stats)
		}
		s := stats.Models[0]
		if i := s.InferenceStats; s.Version != "1" || s.InferenceCount != 6 || s.ExecutionCount != 2 ||
			s.LastInference == 0 || i.Success.Count != 2 || i.Fail.Count != 1 ||
			i.ComputeInfer.Count != 2 || i.ComputeInfer.NS <= 0 ||
			i.Success.NS < i.Queue.NS+i.ComputeInput.NS+i.ComputeInfer.NS+i.ComputeOutput.NS {
			t.Errorf("%+v", s)
		}
	}
}

// TestInferVersions: the model answers under the version that makes predictions too, and every
// refusal is the protocol's JSON.
func TestInferVersions(t *testing.T) {
	f, dx := serving(t)
	body := inferRows(1, dx)
	for path, want := range map[string]struct {
		method string
		status int
	}{
		"/v2/models/classifier/versions/1":        {"GET", 200},
		"/v2/models/classifier/versions/1/ready":  {"GET", 200},
		"/v2/models/classifier/versions/1/config": {"GET", 200},
		"/v2/models/classifier/versions/1/stats":  {"GET", 200},
		"/v2/models/classifier/versions/1/infer":  {"POST", 200},
		"/v2/models/classifier/versions/2":        {"GET", 404},
		"/v2/models/classifier/versions/2/ready":  {"GET", 404},
		"/v2/models/classifier/versions/01/infer": {"POST", 404},
		"/v2/models/other/infer":                  {"POST", 404},
		"/v2/repository/index":                    {"POST", 404},
		"/v2/models/other":                        {"GET", 404},
	} {
		answer := read[struct{ Error string }](t, want.status)(
			f.request(want.method, path, body, reader))
		if (answer.Error == "") != (want.status == 200) {
			t.Errorf("%s %s: %+v", want.method, path, answer)
		}
	}
	// a newer version that came while the last one's path was checked
	r := httptest.NewRequest("POST", inferPath, bytes.NewReader(body))
	r.SetPathValue("version", "2")
	w := httptest.NewRecorder()
	f.srv.predictions.infer(w, r)
	if w.Code != 404 || !strings.Contains(w.Body.String(), "version 1") {
		t.Errorf("a version that is not asked for answers: %d %s", w.Code, w.Body)
	}
}

// FuzzInferRequest: a request that is read has one input whose binary data is no more than what
// follows its JSON, and no request takes more memory than is held for it.
func FuzzInferRequest(f *testing.F) {
	f.Add(
		[]byte(
			`{"inputs":[{"name":"images","shape":[1],"datatype":"UINT8","parameters":{"binary_data_size":2}}]}ab`), "95")
	f.Add([]byte(`{"inputs":[{"name":"features","data":[1]}],"outputs":[{"name":"entropy"}]}`), "")
	f.Add([]byte(`{"inputs":[{"name":"features","shape":[`+strings.Repeat("1,", 1<<20)+`1]}]}`), "")
	f.Add([]byte(`{"inputs":[`+strings.Repeat("{},", 1<<20)+`{}]}`), "")
	f.Add([]byte(`{"id":"`+strings.Repeat("x", 1<<20)+`","inputs":[{"name":"`+strings.Repeat("x",
		1<<20)+`"}]}`), "")
	f.Fuzz(func(t *testing.T, body []byte, length string) {
		h := http.Header{}
		h.Set(headerLength, length)
		var q *inferRequest
		var err error
		alloctest.AtMost(t, ofJSON*len(body), func() { q, err = parseInfer(body, h) })
		if err != nil {
			return
		}
		if len(q.Inputs) != 1 || len(q.Inputs[0].Binary) > len(body) ||
			!bytes.HasSuffix(body, q.Inputs[0].Binary) {
			t.Fatalf("%+v", q)
		}
	})
}
