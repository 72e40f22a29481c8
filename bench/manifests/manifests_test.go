// Package manifests renders the manifests of examples/deploy with Kustomize's library and has
// kubeconform check them, strictly, against the schemas that Kubernetes and JobSet publish.
package manifests

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/yannh/kubeconform/pkg/validator"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

var deploy = filepath.Join("..", "..", "examples", "deploy")

// get takes the results of a call. The function that it returns gives the value, or ends the test at
// the error.
func get[T any](v T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// rendered returns the resources of a folder's kustomization.
func rendered(t *testing.T, folder string) []byte {
	t.Helper()
	all := get(krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(),
		filepath.Join(deploy, folder)))(t)
	return get(all.AsYaml())(t)
}

// checker is kubeconform, strict, which knows no schema but those of a template.
func checker(t *testing.T) validator.Validator {
	t.Helper()
	return get(validator.New([]string{schemas(t)},
		validator.Opts{Strict: true, KubernetesVersion: "1.37.2"}))(t)
}

// check returns the number of sound resources, and what is wrong with the others.
func check(v validator.Validator, name string, data []byte) (valid int, wrong []string) {
	for _, r := range v.Validate(name, io.NopCloser(bytes.NewReader(data))) {
		switch r.Status {
		case validator.Valid:
			valid++
		case validator.Empty:
		default:
			wrong = append(wrong, fmt.Sprintf("%s: %v", name, r.Err))
		}
	}
	return valid, wrong
}

// TestManifests: every resource, as written and as rendered, is one that Kubernetes takes, with no
// field that it lacks; none is passed over.
func TestManifests(t *testing.T) {
	v := checker(t)
	all := map[string][]byte{}
	for _, pattern := range []string{"kubernetes*/*.yaml", "kubernetes/*/*.yaml"} {
		files, err := filepath.Glob(filepath.Join(deploy, pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v", pattern, err)
		}
		for _, file := range files {
			if filepath.Base(file) == "kustomization.yaml" {
				continue // Kustomize's own, which rendering reads strictly
			}
			if all[file], err = os.ReadFile(file); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, folder := range []string{"kubernetes", "kubernetes-merging"} {
		all[folder] = rendered(t, folder)
	}
	for name, data := range all {
		valid, wrong := check(v, name, data)
		if want := bytes.Count(append([]byte("\n"), data...), []byte("\nkind: ")); valid != want ||
			len(wrong) > 0 {
			t.Errorf("%s: %d of %d resources are valid: %s", name, valid, want,
				strings.Join(wrong, "; "))
		}
	}
}

// TestRendered: the kustomizations name image and namespace everywhere, and a round that merges has
// workers that do, and a server that leaves the adding up to them.
func TestRendered(t *testing.T) {
	for folder, want := range map[string]map[string]int{
		"kubernetes": {"image: registry.example/fmp-round:1\n": 2, "namespace: fmp\n": 7,
			"name: nats-": 2, "- --workers\n": 1, "- --merge\n": 0, "\n  name: fmp-worker\n": 1},
		"kubernetes-merging": {"image: registry.example/fmp-round:1\n": 2, "namespace: fmp\n": 7,
			"name: nats-": 2, "- --workers\n": 0, "- --merge\n": 2, "\n  name: fmp-worker\n": 0,
			"\n  name: fmp-merge\n": 1},
	} {
		data := rendered(t, folder)
		for text, n := range want {
			if got := bytes.Count(data, []byte(text)); got != n {
				t.Errorf("%s: %q %d times, want %d", folder, text, got, n)
			}
		}
	}
}

// TestRefused: kubeconform refuses a misspelt field, a wrong type, a missing field and an unknown
// kind, in each kind of manifest.
func TestRefused(t *testing.T) {
	v := checker(t)
	features := get(os.ReadFile(filepath.Join(deploy, "kubernetes", "features", "features.yaml")))(t)
	base := rendered(t, "kubernetes")
	for _, c := range []struct {
		data     []byte
		old, new string
	}{
		{base, "readinessProbe:", "readynessProbe:"},
		{base, "maxUnavailable: 1", "maxUnavailible: 1"},
		{base, "replicas: 3", "replicas: three"},
		{base, "containerPort: 8443", "containerPort: https"},
		{base, "runAsNonRoot: true", "runAsNonRoot: yes please"},
		{base, "clusterIP: None", "clusterIP: [None]"},
		{base, "serviceName: nats", "serviceNames: nats"},
		{base, "storage: 10Gi", "storage: {Gi: 10}"},
		{base, "kind: PodDisruptionBudget", "kind: PodDisruptionBudgets"},
		{base, "apiVersion: apps/v1", "apiVersion: apps/v1beta1"},
		{base, "  replicas: 1\n", "  replicas: 1\n  replicas: 2\n"},
		{features, "backoffLimitPerIndex: 10", "backoffLimitPerIndexes: 10"},
		{features, "dependsOn: [{name: shards, status: Complete}]",
			"dependsOn: [{name: shards, status: Completed}]"},
		{features, "completions: 16", "completions: all"},
		{features, "completionMode: Indexed", "completionModus: Indexed"},
		{features, "image: fmp", "images: fmp"},
	} {
		if _, wrong := check(v, "as it is", c.data); len(wrong) > 0 {
			t.Fatal(wrong)
		}
		changed := bytes.Replace(c.data, []byte(c.old), []byte(c.new), 1)
		if bytes.Equal(changed, c.data) {
			t.Errorf("there is no %q", c.old)
		}
		if _, wrong := check(v, "changed", changed); len(wrong) == 0 {
			t.Errorf("%q in place of %q is taken", c.new, c.old)
		}
	}
}
