package service

import (
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

func checkOpenAPI(t *testing.T, s *Server) {
	var doc struct {
		Paths      map[string]map[string]yaml.Node
		Components struct {
			Schemas struct {
				Problem struct {
					Properties struct {
						Code struct{ Enum []string }
					}
				} `yaml:"Problem"`
			}
		}
	}
	if err := yaml.Unmarshal(openAPISource, &doc); err != nil {
		t.Fatal(err)
	}
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
		name := strings.TrimSuffix(r.pattern, "{$}")
		are = append(are, name)
		if secured[name] != r.readers {
			t.Errorf("%s: the file says %v of readers alone, the server %v", name, secured[name], r.readers)
		}
	}
	slices.Sort(stated)
	slices.Sort(are)
	if !slices.Equal(stated, are) {
		t.Errorf("openapi.yaml states\n%s\nand the server has\n%s", strings.Join(stated, "\n"), strings.Join(are, "\n"))
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
