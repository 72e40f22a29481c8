package manifests

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// The modules that publish the schemas, with their sums of the checksum database: Kubernetes's
// OpenAPI documents, and JobSet's definition.
const (
	kubernetes, kubernetesSum = "k8s.io/kubernetes@v1.37.2",
		"h1:A2VDEiObzkYqFTKhSsn0ZEb0RlLEXpHWj93gi2HqEwE="
	jobset, jobsetSum = "sigs.k8s.io/jobset@v0.11.0",
		"h1:1r2uTNQmylnqG/WCSSDADgNkHryvyUaCNCOgvSPWpN8="
)

// module returns the folder of a module's sources, fetched by the go tool.
func module(t *testing.T, name, sum string) string {
	t.Helper()
	c := exec.Command("go", "mod", "download", "-json", name)
	c.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off")
	c.Dir = t.TempDir() // no go.mod is to have it
	out, err := c.Output()
	var m struct{ Dir, Sum, Error string }
	if jerr := json.Unmarshal(out, &m); err != nil || jerr != nil || m.Sum != sum {
		t.Fatalf("go mod download %s: %v: %s, sum %s; want %s", name, err, m.Error, m.Sum, sum)
	}
	return m.Dir
}

type object = map[string]any

// closed makes a schema refuse fields that it does not name, in every object of named fields in it.
func closed(schema any) {
	switch s := schema.(type) {
	case []any:
		for _, v := range s {
			closed(v)
		}
	case object:
		open, _ := s["x-kubernetes-preserve-unknown-fields"].(bool)
		if _, named := s["properties"].(object); named && s["additionalProperties"] == nil && !open {
			s["additionalProperties"] = false
		}
		for _, v := range s {
			closed(v)
		}
	}
}

// schemas writes the schemas of the kinds of Kubernetes and of JobSet as kubeconform reads them,
// and returns the template of their files.
func schemas(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	write := func(group, version, kind string, schema object) {
		data, err := json.Marshal(schema)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir,
				strings.ToLower(strings.Join([]string{group, version, kind}, "_"))+".json"), data,
				0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	base := filepath.Join(module(t, kubernetes, kubernetesSum), "api", "openapi-spec", "v3")
	for _, name := range []string{"api__v1", "apis__apps__v1", "apis__batch__v1", "apis__policy__v1"} {
		data := get(os.ReadFile(filepath.Join(base, name+"_openapi.json")))(t)
		var document struct{ Components struct{ Schemas object } }
		if err := json.Unmarshal(data, &document); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all := document.Components.Schemas
		closed(any(all))
		for id, s := range all {
			kinds, _ := s.(object)["x-kubernetes-group-version-kind"].([]any)
			if len(kinds) != 1 { // of no kind, or of all groups
				continue
			}
			of := kinds[0].(object)
			group, version, kind := of["group"].(string), of["version"].(string), of["kind"].(string)
			if group == "" { // kubeconform names the core group by its version
				group = version
			}
			write(group, version, kind,
				object{"$ref": "#/components/schemas/" + id, "components": object{"schemas": all}})
		}
	}
	data := get(os.ReadFile(filepath.Join(module(t, jobset, jobsetSum), "config",
		"components", "crd", "bases", "jobset.x-k8s.io_jobsets.yaml")))(t)
	var definition struct {
		Spec struct {
			Group    string
			Names    struct{ Kind string }
			Versions []struct {
				Name   string
				Schema struct {
					OpenAPIV3Schema object `json:"openAPIV3Schema"`
				}
			}
		}
	}
	if err := yaml.Unmarshal(data, &definition); err != nil {
		t.Fatal(err)
	}
	for _, v := range definition.Spec.Versions {
		closed(v.Schema.OpenAPIV3Schema)
		write(definition.Spec.Group, v.Name, definition.Spec.Names.Kind, v.Schema.OpenAPIV3Schema)
	}
	return fmt.Sprint(dir, "/{{.Group}}_{{.ResourceAPIVersion}}_{{.ResourceKind}}.json")
}
