package service

import (
	"encoding/json"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/onnx/must"
	"fmp/pipeline/federate/store"
	"fmp/pipeline/federate/wire"
	"fmp/pipeline/privacy"
)

// TestOpenAPI: the interface's file names the routes that there are and no others, and every reason
// of a refusal.
func TestOpenAPI(t *testing.T) {
	s := newFixture(t, "").srv
	var doc struct {
		Paths      map[string]map[string]yaml.Node
		Components struct {
			Schemas struct {
				Problem struct {
					Properties struct {
						Code struct{ Enum []string }
					}
				} `yaml:"Problem"`
				All map[string]schema `yaml:",inline"`
			}
		}
	}
	must.Do(t, yaml.Unmarshal(openAPISource, &doc))
	var stated, are []string
	secured := map[string]bool{}
	for path, item := range doc.Paths {
		for method, op := range item {
			if method == "parameters" {
				continue
			}
			name := strings.ToUpper(method) + " " + path
			stated = append(stated, name)
			var o struct {
				Summary   string
				Security  []map[string][]string
				Responses map[string]yaml.Node
			}
			if err := op.Decode(&o); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if o.Summary == "" || len(o.Responses) == 0 {
				t.Errorf("%s has no summary or no responses", name)
			}
			for _, k := range o.Security {
				_, reader := k["reader"]
				secured[name] = secured[name] || reader
			}
			for _, p := range []string{"round", "client", "version"} {
				if strings.Contains(path, "{"+p+"}") && item["parameters"].Kind == 0 {
					t.Errorf("%s does not state its parameters", name)
				}
			}
		}
	}
	for _, r := range s.routes() {
		// open_inference_grpc.proto specifies the former, and the latter is there for errors
		if strings.Contains(r.pattern, grpcPath) || strings.HasSuffix(r.pattern, elsewhere) {
			continue
		}
		name := strings.TrimSuffix(r.pattern, "{$}")
		are = append(are, name)
		if secured[name] != r.readers {
			t.Errorf("%s: the file says %v of readers alone, the server %v", name,
				secured[name], r.readers)
		}
	}
	slices.Sort(stated)
	slices.Sort(are)
	if !slices.Equal(stated, are) {
		t.Errorf("openapi.yaml states\n%s\nand the server has\n%s", strings.Join(stated, "\n"),
			strings.Join(are, "\n"))
	}
	schemas := doc.Components.Schemas.All
	for name, v := range map[string]any{"Description": wire.Description{}, "Privacy": privacy.Budget{},
		"Receipt": wire.Receipt{},
		"Status":  Status{}, "Version": struct {
			VersionStatus
			Members []store.Member `json:"members"`
		}{}, "Withdrawal": wire.Withdrawal{}, "Notice": wire.Notice{},
		"VersionRef": wire.VersionRef{}} {
		says := slices.Sorted(maps.Keys(schemas[name].properties(schemas)))
		is := fields(reflect.TypeOf(v))
		slices.Sort(is)
		if !slices.Equal(says, is) {
			t.Errorf("openapi.yaml says that a %s has %v and it has %v", name, says, is)
		}
	}
	var codes []string
	for c := range refusals {
		codes = append(codes, c)
	}
	slices.Sort(codes)
	enum := slices.Sorted(slices.Values(doc.Components.Schemas.Problem.Properties.Code.Enum))
	if !slices.Equal(codes, enum) {
		t.Errorf("openapi.yaml states the codes %v and the server has %v", enum, codes)
	}
}

// TestQueries: the parameters of a route's query are those of the interface's file. Any other is
// refused by every route, of a round and of a classifier alone, in the form that its clients read.
func TestQueries(t *testing.T) {
	type stated []struct{ Name, In string }
	var doc struct {
		Paths map[string]struct {
			Parameters stated
			Get        struct{ Parameters stated }
		}
	}
	must.Do(t, yaml.Unmarshal(openAPISource, &doc))
	says := map[string][]string{}
	for path, item := range doc.Paths {
		for _, p := range append(item.Parameters, item.Get.Parameters...) {
			if p.In == "query" {
				says["GET "+path] = append(says["GET "+path], p.Name)
			}
		}
	}
	if !reflect.DeepEqual(says, queries) {
		t.Errorf("openapi.yaml states the parameters %v and the server takes %v", says, queries)
	}
	f, _ := serving(t)
	eng := must.Get(pure.New(engine.Options{Threads: 1}))(t)
	alone, end := must.Get2(Classifier(eng, f.srv.predictions.serving.data, nil, 0,
		slog.New(slog.DiscardHandler), nil))(t)
	defer end()
	at := func(h http.Handler, pattern, query string) *httptest.ResponseRecorder {
		method, path, _ := strings.Cut(pattern, " ")
		path = strings.NewReplacer("{round}", "3", "{client}", "a", "{version}", "1", "{$}", "",
			"{path...}", "x", "{method}", "ModelInfer").Replace(path)
		return answer(h, method, path+query, nil)
	}
	refused := func(h http.Handler, pattern string) {
		for query, want := range map[string]string{"?level=0.99": "level", "?version=1&level=1": "level",
			"?level": "level", "?version=%zz": "cannot be read"} {
			w := at(h, pattern, query)
			var said struct{ Error, Code, Detail string }
			must.Do(t, json.Unmarshal(w.Body.Bytes(), &said))
			text, v2 := said.Detail, strings.Contains(pattern, " /v2")
			if v2 {
				text = said.Error
			}
			if w.Code != http.StatusBadRequest || !v2 && said.Code != wire.BadRequest ||
				!strings.Contains(text, want) {
				t.Errorf("%s%s: %d %s", pattern, query, w.Code, w.Body)
			}
		}
	}
	for _, r := range f.srv.routes() {
		refused(f.srv.Handler(), r.pattern)
	}
	for _, r := range f.srv.predictions.routes() {
		refused(alone, r.pattern)
	}
	refused(alone, "GET /classifier.onnx")
	refused(alone, "GET /metrics")
	for _, h := range []http.Handler{f.srv.Handler(), alone} {
		if w := at(h, "GET /metrics", "?name[]=go_goroutines"); w.Code != http.StatusOK ||
			strings.Contains(w.Body.String(), "go_threads") {
			t.Errorf("one metric: %d %.200s", w.Code, w.Body)
		}
	}
}

// schema is as much of one as the test reads.
type schema struct {
	Ref        string `yaml:"$ref"`
	Properties map[string]yaml.Node
	AllOf      []schema `yaml:"allOf"`
}

// properties are its own and those of the schemas that it takes over.
func (s schema) properties(all map[string]schema) map[string]yaml.Node {
	out := map[string]yaml.Node{}
	maps.Copy(out, s.Properties)
	for _, p := range append(s.AllOf, schema{Ref: s.Ref}) {
		if name, ok := strings.CutPrefix(p.Ref, "#/components/schemas/"); ok {
			p = all[name]
		} else if p.Ref != "" || p.Properties == nil {
			continue
		}
		maps.Copy(out, p.properties(all))
	}
	return out
}

// fields are the names that a struct has in JSON.
func fields(t reflect.Type) []string {
	var out []string
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
			out = append(out, name)
		}
	}
	return out
}
