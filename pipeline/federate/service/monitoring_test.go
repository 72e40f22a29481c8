package service

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"fmp/onnx/must"
)

// TestMonitoring: every metric that the dashboard and the alerts ask for is one of the server's,
// and no metric of the program's own is forgotten.
func TestMonitoring(t *testing.T) {
	f := newFixture(t, "quorum: 4\n")
	f.srv.metrics.refused.WithLabelValues("x").Inc()
	f.wants("healthz", 200, "")(f.request("GET", "/healthz", nil, nil))
	_, data := f.request("GET", "/metrics", nil, reader)
	var have []string
	for _, m := range regexp.MustCompile(`(?m)^([a-z_]+)(?:\{.*\})? `).FindAllStringSubmatch(string(data), -1) {
		have = append(have, m[1])
	}
	read := func(name string, decode func([]byte, any) error, to any) {
		t.Helper()
		data := must.Get(os.ReadFile("../../../examples/deploy/monitoring/" + name))(t)
		must.Do(t, decode(data, to))
	}
	var dashboard struct {
		Panels []struct {
			ID      int
			Title   string
			Targets []struct{ Expr string }
		}
	}
	var rules struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr string
				Annotations map[string]string
			}
		}
	}
	read("dashboard.json", json.Unmarshal, &dashboard)
	read("alerts.yaml", yaml.Unmarshal, &rules)
	asked := map[string][]string{}
	for _, p := range dashboard.Panels {
		for _, e := range p.Targets {
			asked[p.Title] = append(asked[p.Title], e.Expr)
		}
	}
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			if asked[r.Alert] = append(asked[r.Alert], r.Expr); r.Annotations["summary"] == "" {
				t.Errorf("alert %s says nothing", r.Alert)
			}
		}
	}
	if len(asked) < 12 {
		t.Fatalf("%d panels and alerts", len(asked))
	}
	used := ""
	for of, exprs := range asked {
		for _, e := range exprs {
			names := regexp.MustCompile(`\b(?:fmp|go|process)_[a-z_]+`).FindAllString(e, -1)
			if len(names) == 0 {
				t.Errorf("%s asks for nothing: %q", of, e)
			}
			for _, name := range names {
				if used += name + "\n"; !slices.Contains(have, name) {
					t.Errorf("%s asks for %s, which the server lacks", of, name)
				}
			}
		}
	}
	for _, name := range have {
		base := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, "")
		// a constant of the round
		if strings.HasPrefix(name, "fmp_") && !strings.Contains(used, base) &&
			base != "fmp_round_epsilon" {
			t.Errorf("%s is on no panel and in no alert", name)
		}
	}
}

// TestAlertsFire has Prometheus's own promtool run the tests of the alerts: each fires when it
// should, and not before. It is left out where there is no promtool, which CI installs.
func TestAlertsFire(t *testing.T) {
	t.Parallel()
	tool, err := exec.LookPath("promtool")
	must.Have(t, err)
	cmd := exec.CommandContext(t.Context(), tool, "test", "rules", "alerts_test.yaml")
	cmd.Dir = "../../../examples/deploy/monitoring"
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	rules := must.Get(os.ReadFile(filepath.Join(cmd.Dir, "alerts.yaml")))(t)
	tests := must.Get(os.ReadFile(filepath.Join(cmd.Dir, "alerts_test.yaml")))(t)
	for _, m := range regexp.MustCompile(`alert: (\w+)`).FindAllSubmatch(rules, -1) {
		if !regexp.MustCompile(`alertname: ` + string(m[1]) + `\n\s+exp_alerts:`).Match(tests) {
			t.Errorf("no test has the alert %s fire", m[1])
		}
	}
}
