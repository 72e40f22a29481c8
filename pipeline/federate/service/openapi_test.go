package service

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

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
