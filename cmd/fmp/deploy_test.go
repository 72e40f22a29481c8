package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// TestDeploy: the commands of the compose file and the systemd units are commands of this program, with flags that it has.
func TestDeploy(t *testing.T) {
	read := func(name string) []byte {
		data, err := os.ReadFile("../../examples/deploy/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	var compose struct {
		Services map[string]struct {
			Build   any
			Command any
			Secrets []string
		}
		Secrets map[string]struct{ File string }
	}
	if err := yaml.Unmarshal(read("compose.yaml"), &compose); err != nil {
		t.Fatal(err)
	}
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
			if !strings.Contains(strings.Join(s.Secrets, " ")+" ", m[1]+" ") || compose.Secrets[m[1]].File == "" {
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
		c, args, err := newRootCommand().Find(strings.Fields(text))
		if err == nil {
			err = c.ParseFlags(args)
		}
		if err != nil || !c.Runnable() {
			t.Errorf("%s: %s: %v", name, text, err)
		}
	}
}
