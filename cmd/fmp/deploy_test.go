package main

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"go.yaml.in/yaml/v3"

	"fmp/onnx/must"
	"fmp/pipeline/federate/selfsigned"
)

// TestDeploy: the commands of the compose file and the systemd units are commands of this program,
// with flags that it has.
func TestDeploy(t *testing.T) {
	read := func(name string) []byte { return read(t, "../../examples/deploy/"+name) }
	var compose struct {
		Services map[string]struct {
			Build   any
			Command any
			Secrets []string
		}
		Secrets map[string]struct{ File string }
	}
	must.Do(t, yaml.Unmarshal(read("compose.yaml"), &compose))
	commands := map[string]string{}
	for name, s := range compose.Services {
		if s.Build == nil {
			continue
		}
		text, ok := s.Command.(string)
		if !ok {
			t.Fatalf("service %s: command %v", name, s.Command)
		}
		commands[name] = text
		for _, m := range regexp.MustCompile(`/run/secrets/(\S+)`).FindAllStringSubmatch(text, -1) {
			if !strings.Contains(strings.Join(s.Secrets, " ")+" ", m[1]+" ") ||
				compose.Secrets[m[1]].File == "" {
				t.Errorf("service %s reads the secret %s, which it is not given", name, m[1])
			}
		}
	}
	unit := regexp.MustCompile(`(?m)^ExecStart=\S+/fmp (.*)$`).FindSubmatch(read("fmp-serve.service"))
	if unit == nil || len(commands) != 2 {
		t.Fatalf("commands %v, unit %s", commands, unit)
	}
	commands["fmp-serve.service"] = string(unit[1])
	for name, text := range commands {
		parses(t, name, strings.Fields(text))
	}
}

// parses reports a command line that is none of this program.
func parses(t *testing.T, name string, words []string) {
	t.Helper()
	c, args, err := newRootCommand(nil).Find(words)
	if err == nil {
		err = c.ParseFlags(args)
	}
	if err != nil || !c.Runnable() {
		t.Errorf("%s: %v: %v", name, words, err)
	}
}

// podTemplate is the template of a pod, as far as the tests below read it.
type podTemplate struct {
	Spec struct {
		Containers []struct {
			Image        string
			Args         []string
			Env          []struct{ Name, Value string }
			Resources    struct{ Requests, Limits map[string]string }
			VolumeMounts []struct{ Name, MountPath string } `yaml:"volumeMounts"`
			Startup      probe                              `yaml:"startupProbe"`
			Readiness    probe                              `yaml:"readinessProbe"`
			Liveness     probe                              `yaml:"livenessProbe"`
		}
		Volumes []struct{ Name string }
	}
}

// podSet is a StatefulSet, Deployment or Job of Kubernetes.
type podSet struct {
	Kind     string
	Metadata struct {
		Name   string
		Labels map[string]string
	}
	Spec struct {
		Template    podTemplate
		Claims      []struct{ Metadata struct{ Name string } } `yaml:"volumeClaimTemplates"`
		Completions int
		Mode        string `yaml:"completionMode"`
		Retries     int    `yaml:"backoffLimitPerIndex"`
		// Of a JobSet.
		Jobs []struct {
			Name      string
			DependsOn []struct{ Name, Status string } `yaml:"dependsOn"`
			Template  podSet
		} `yaml:"replicatedJobs"`
	}
}

type probe struct {
	HTTPGet struct{ Path string } `yaml:"httpGet"`
}

// podSets are those of the manifests, by name.
func podSets(t *testing.T) map[string]podSet {
	t.Helper()
	all := map[string]podSet{}
	for _, file := range must.Get(filepath.Glob("../../examples/deploy/kubernetes*/*.yaml"))(t) {
		for d := yaml.NewDecoder(bytes.NewReader(read(t, file))); ; {
			var w podSet
			var node yaml.Node
			if err := d.Decode(&node); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			var kind struct{ Kind string }
			must.Do(t, node.Decode(&kind))
			if kind.Kind != "StatefulSet" && kind.Kind != "Deployment" {
				continue
			}
			if err := node.Decode(&w); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			all[w.Metadata.Name] = w
		}
	}
	return all
}

// TestKubernetes: containers of the program run its commands, with flags that it has and files of
// volumes that are mounted; every probe asks a path that the server has, liveness none that fails
// on a full disk; every container states what it needs.
func TestKubernetes(t *testing.T) {
	all := podSets(t)
	if len(all) != 4 {
		t.Fatalf("%d sets of pods; want the NATS servers, the server, the workers and those that merge",
			len(all))
	}
	api := must.Get(os.ReadFile("../../pipeline/federate/service/openapi.yaml"))(t)
	for name, w := range all {
		checkPods(t, name, w)
		c := w.Spec.Template.Spec.Containers[0]
		for _, p := range []probe{c.Startup, c.Readiness, c.Liveness} {
			path := p.HTTPGet.Path
			if c.Image == "fmp" && path != "" && !bytes.Contains(api, []byte("\n  "+path+":\n")) {
				t.Errorf("%s probes %s, which the server lacks", name, path)
			}
		}
	}
	if c := all["fmp-server"].Spec.Template.Spec.Containers[0]; c.Readiness.HTTPGet.Path != "/readyz" ||
		c.Liveness.HTTPGet.Path != "/healthz" {
		t.Errorf("the server is asked for %s to be ready and for %s to live", c.Readiness.HTTPGet.Path,
			c.Liveness.HTTPGet.Path)
	}
}

// checkPods reports a container that states no resources, reads a file of no volume that is
// mounted, or runs no command of this program.
func checkPods(t *testing.T, name string, w podSet) {
	t.Helper()
	pod := w.Spec.Template.Spec
	var volumes []string
	for _, v := range pod.Volumes {
		volumes = append(volumes, v.Name)
	}
	for _, v := range w.Spec.Claims {
		volumes = append(volumes, v.Metadata.Name)
	}
	c := pod.Containers[0]
	mounted := []string{"/round/"} // in the image
	for _, m := range c.VolumeMounts {
		if mounted = append(mounted, m.MountPath+"/"); !slices.Contains(volumes, m.Name) {
			t.Errorf("%s mounts %s, which is no volume", name, m.Name)
		}
	}
	if c.Resources.Requests["memory"] == "" || c.Resources.Requests["cpu"] == "" ||
		c.Resources.Limits["memory"] == "" {
		t.Errorf("%s: resources %v", name, c.Resources)
	}
	files := slices.Clone(c.Args)
	for _, e := range c.Env {
		files = append(files, e.Name+"="+e.Value)
	}
	for _, a := range files {
		_, file, _ := strings.Cut(a, "=")
		if strings.HasPrefix(file, "/") &&
			!slices.ContainsFunc(mounted,
				func(m string) bool { return strings.HasPrefix(file+"/", m) }) {
			t.Errorf("%s: %s is in no volume", name, a)
		}
	}
	if c.Image == "fmp" {
		parses(t, name, c.Args)
	}
}

// TestKubernetesFeatures: the JobSet has a queue of Kueue; each index of its Indexed Job computes
// the shard of that number and is tried again; the merging waits for all, in the same store.
func TestKubernetesFeatures(t *testing.T) {
	data := must.Get(os.ReadFile("../../examples/deploy/kubernetes/features/features.yaml"))(t)
	var set podSet
	must.Do(t, yaml.Unmarshal(data, &set))
	if set.Kind != "JobSet" || set.Metadata.Labels["kueue.x-k8s.io/queue-name"] == "" ||
		len(set.Spec.Jobs) != 2 {
		t.Fatalf("kind %s, labels %v, %d jobs", set.Kind, set.Metadata.Labels, len(set.Spec.Jobs))
	}
	for _, j := range set.Spec.Jobs {
		checkPods(t, j.Name, j.Template)
	}
	shards, merge := set.Spec.Jobs[0], set.Spec.Jobs[1]
	args := shards.Template.Spec.Template.Spec.Containers[0].Args
	text, ok := strings.CutPrefix(args[len(args)-1], "--shard=")
	_, n, err := parseShard(strings.ReplaceAll(text, "$(SHARD)", "0"))
	if !ok || err != nil || n != shards.Template.Spec.Completions ||
		shards.Template.Spec.Mode != "Indexed" ||
		shards.Template.Spec.Retries < 1 {
		t.Errorf("shard %q of %d completions, mode %s, %d retries: %v", text,
			shards.Template.Spec.Completions, shards.Template.Spec.Mode,
			shards.Template.Spec.Retries, err)
	}
	if !regexp.MustCompile(`name: SHARD\s+valueFrom: \{fieldRef: \{fieldPath: "` +
		`metadata\.annotations\['batch\.kubernetes\.io/job-completion-index'\]"`).Match(data) {
		t.Error("SHARD is not the index of the pod")
	}
	if d := merge.DependsOn; len(d) != 1 || d[0].Name != shards.Name || d[0].Status != "Complete" {
		t.Errorf("the merging waits for %v", d)
	}
	a, b := shards.Template.Spec.Template.Spec.Containers[0].Env,
		merge.Template.Spec.Template.Spec.Containers[0].Env
	if !slices.Contains(a, b[0]) {
		t.Errorf("the shards are in %v, the merging in %v", a, b)
	}
}

// TestKubernetesNATS: the configuration of the NATS servers is one that NATS takes: TLS, a token,
// JetStream that syncs each write, three servers.
func TestKubernetesNATS(t *testing.T) {
	data := must.Get(os.ReadFile("../../examples/deploy/kubernetes/nats.conf"))(t)
	dir := t.TempDir()
	must.Do(t, selfsigned.Ensure(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"),
		time.Now()))
	data = bytes.ReplaceAll(data, []byte("/tls/ca.crt"), []byte(filepath.Join(dir, "tls.crt")))
	data = bytes.ReplaceAll(data, []byte("/tls/"), []byte(dir+string(filepath.Separator)))
	t.Setenv("POD_NAME", "nats-0")
	t.Setenv("NATS_TOKEN", "secret")
	must.Do(t, os.WriteFile(filepath.Join(dir, "nats.conf"), data, 0o600))
	o := must.Get(natsserver.ProcessConfigFile(filepath.Join(dir, "nats.conf")))(t)
	if o.ServerName != "nats-0" || o.Authorization != "secret" || o.TLSConfig == nil ||
		o.Cluster.TLSConfig == nil || !o.JetStream ||
		!o.SyncAlways || len(o.Routes) != 3 {
		t.Errorf("server %q, %d routes, JetStream %v, sync %v", o.ServerName, len(o.Routes),
			o.JetStream, o.SyncAlways)
	}
}

// TestPinned: images that examples build on are of exact versions, those of Go and NATS the
// module's own; packages of Python are of exact versions with digests, and pip is made to check
// them.
func TestPinned(t *testing.T) {
	module := must.Get(os.ReadFile("../../go.mod"))(t)
	of := func(pattern string) string {
		t.Helper()
		m := regexp.MustCompile(pattern).FindSubmatch(module)
		if m == nil {
			t.Fatalf("go.mod has no %s", pattern)
		}
		return string(m[1])
	}
	own := map[string]string{"golang": of(`(?m)^go (\S+)$`), "nats": of(`nats-server/v2 v(\S+)`)}
	exact := regexp.MustCompile(`^([a-z0-9./-]+):(\d+\.\d+(?:\.\d+)?)(-[a-z]+)?(@sha256:[0-9a-f]{64})?$`)
	image := regexp.MustCompile(`(?m)^\s*(?:- )?(?:FROM|image:) (\S+)`)
	images := 0
	walk := func(root string, visit func(path, text string)) {
		must.Do(t, filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() {
				return err
			}
			data, err := os.ReadFile(path)
			visit(path, string(data))
			return err
		}))
	}
	walk("../../examples/deploy", func(path, text string) {
		for _, m := range image.FindAllStringSubmatch(text, -1) {
			if m[1] == "fmp" || m[1] == "build" { // what the Dockerfile makes
				continue
			}
			images++
			v := exact.FindStringSubmatch(m[1])
			if v == nil || own[v[1]] != "" && own[v[1]] != v[2] {
				t.Errorf("%s: image %s; want an exact version, of %v those of go.mod", path, m[1], own)
			}
		}
	})
	if images < 4 {
		t.Errorf("%d images were found; want the Dockerfile's two and both of NATS", images)
	}
	requirement := regexp.MustCompile(`(?m)^[A-Za-z0-9]\S*.*$`)
	pinned := regexp.MustCompile(`^[A-Za-z0-9._-]+(\[[a-z,]+\])?==[0-9][0-9A-Za-z.+]*( ; [^\\]*)? \\$`)
	for _, folder := range []string{"bench/peers", "bench/runtimes", "bench/service", "onnx/conformance/testdata"} {
		data := must.Get(os.ReadFile(filepath.Join("../..", folder, "requirements.txt")))(t)
		// a requirement's digests are on lines of their own
		text := strings.ReplaceAll(string(data), "\n    ", "\t")
		lines := requirement.FindAllString(text, -1)
		for _, line := range lines {
			head, digests, _ := strings.Cut(line, "\t")
			if !pinned.MatchString(head) || !strings.Contains(digests, "--hash=sha256:") {
				t.Errorf("%s: %s is not of one version with digests", folder, head)
			}
		}
		if len(lines) < 4 {
			t.Errorf("%s: %d requirements", folder, len(lines))
		}
	}
	makefile := must.Get(os.ReadFile("../../Makefile"))(t)
	for _, line := range strings.Split(string(makefile), "\n") {
		if strings.Contains(line, "pip install") && !strings.Contains(line, "--require-hashes -r ") {
			t.Errorf("Makefile: %s", line)
		}
	}
	collection := must.Get(os.ReadFile("../../onnx/internal/collection/collection.go"))(t)
	version := regexp.MustCompile(`const Version = "(.*)"`).FindSubmatch(collection)
	data, _ := os.ReadFile("../../onnx/conformance/testdata/requirements.txt")
	if version == nil || !strings.Contains(string(data), "onnx=="+string(version[1])+" ") {
		t.Errorf("the standard's tests are of version %s; its package is another", version)
	}
}
