package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fmp/onnx/must"
)

// TestCompletion: what a shell is offered at the end of a command line.
func TestCompletion(t *testing.T) {
	for _, c := range []struct {
		args      []string
		has, lack []string
		directive string
	}{
		{[]string{"r"}, []string{"run", "results"}, []string{"data"}, ":4"},
		{[]string{"run", "--dataset", ""}, []string{"mnist", "digits-color"}, nil, ":0"},
		{[]string{"run", "--methods", "FMP,"}, []string{"FMP,CANN"}, []string{"FMP,FMP"}, ":6"},
		{[]string{"run", "--partition", ""}, []string{"dirichlet"}, nil, ":4"},
		{[]string{"config", "--federation.partition", ""}, []string{"dirichlet"}, nil, ":4"},
		{[]string{"run", "--config", ""}, []string{"table1"}, nil, ":0"},
		{[]string{"run", "--set", "erm"}, []string{"erm.l2="}, nil, ":6"},
		{[]string{"run", "--set", "protocol="}, []string{"protocol=tuned"}, nil, ":0"},
		{[]string{"data", "pull", ""}, []string{"mnist", "cifar100"}, []string{"digits"}, ":4"},
		{[]string{"data", "pull", "mnist", ""}, nil, []string{"mnist"}, ":4"},
		{[]string{"onnx", "inspect", ""}, []string{"onnx"}, nil, ":8"},
		{[]string{"results", "show", ""}, nil, nil, ":16"},
		{[]string{"results", "compare", "RUN", "--method", ""}, []string{"CANN", "FedCGS"}, nil, ":4"},
		{[]string{"help", "onnx", ""}, []string{"inspect"}, []string{"run\tRaw"}, ":4"},
		{[]string{"completion", ""}, []string{"bash", "zsh", "fish"}, nil, ":4"},
		{[]string{"version", ""}, nil, nil, ":4"},
	} {
		out, _ := ran(t, append([]string{"__complete"}, c.args...)...)
		lines := strings.Split(strings.TrimSpace(out), "\n")
		var offered []string
		for _, l := range lines {
			name, _, _ := strings.Cut(l, "\t")
			offered = append(offered, name)
		}
		if lines[len(lines)-1] != c.directive {
			t.Errorf("%v: the last line is %q, want %q", c.args, lines[len(lines)-1], c.directive)
		}
		for _, n := range c.has {
			if !slices.Contains(offered, n) {
				t.Errorf("%v: offered %v, without %s", c.args, offered, n)
			}
		}
		for _, n := range c.lack {
			if slices.Contains(offered, n) {
				t.Errorf("%v: offered %s", c.args, n)
			}
		}
	}
}

// TestCompletionScripts: every shell's script is written, and is one for the shells that are here.
func TestCompletionScripts(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		out, _ := ran(t, "completion", shell)
		if !strings.Contains(out, "__complete") {
			t.Errorf("%s: %s", shell, out)
			continue
		}
		path, err := exec.LookPath(shell)
		if err != nil || shell == "powershell" {
			continue
		}
		file := filepath.Join(t.TempDir(), "script")
		must.Do(t, os.WriteFile(file, []byte(out), 0o644))
		if said, err := exec.Command(path, "-n", file).CombinedOutput(); err != nil {
			t.Errorf("%s does not read its script: %v\n%s", shell, err, said)
		}
	}
}
