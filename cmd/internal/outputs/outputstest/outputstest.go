// Package outputstest holds the outputs of every command apart from its inputs.
package outputstest

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"fmp/cmd/internal/outputs"
)

// Command is one of a program's: its name, its flags, the number of arguments that it wants, and
// how it is run.
type Command struct {
	Name  string
	Flags *pflag.FlagSet
	Args  int
	Run   func(args ...string) (code int, said string)
}

// writes are words in the help of a flag of an output.
var writes = regexp.MustCompile(
	`to write\b|for the package|run director|contact sheet|of the signature \(default|private half|also write`)

// others are flags with these words, or with the name of an output, that are none.
var others = []string{"fmp onnx grad --output", "fmp onnx run --output", "fmp onnx train --output",
	"fmp doctor --output.dir", "fmp config --output.dir", "fmp package --card",
	"fmp verify --signature", "fmp run --keep-models"}

// Check runs every command with each of its outputs the same file as each of its inputs, by the
// file's name, by a symbolic link and by a hard link: the command must refuse, with exit code 2 and
// one line that names both, and leave the file as it was.
func Check(t *testing.T, commands []Command) {
	for _, c := range commands {
		t.Run(strings.ReplaceAll(c.Name, " ", "_"), func(t *testing.T) {
			c.Flags.VisitAll(func(out *pflag.Flag) {
				name := c.Name + " --" + out.Name
				looks := writes.MatchString(out.Usage) ||
					slices.Contains([]string{"out", "output", "record", "report"}, out.Name)
				if looks && !outputs.Marked(out) && !slices.Contains(others, name) {
					t.Errorf("%s names what is written (%q), and outputs.Files or outputs.Made "+
						"does not say so", name, out.Usage)
				}
				if outputs.Marked(out) {
					c.output(t, out)
				}
			})
		})
	}
}

// output runs the command with one output that is an input.
func (c Command) output(t *testing.T, out *pflag.Flag) {
	dir := t.TempDir()
	file := filepath.Join(dir, "a.onnx")
	links := []string{file, filepath.Join(dir, "soft.onnx"), filepath.Join(dir, "hard.onnx"),
		dir + "/./a.onnx"}
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("a.onnx", links[1]); err != nil {
		t.Skip(err)
	}
	if err := os.Link(file, links[2]); err != nil {
		t.Skip(err)
	}
	refused := func(link string, args []string) {
		t.Helper()
		code, said := c.Run(append(strings.Fields(c.Name)[1:], args...)...)
		if code != 2 || !strings.Contains(said, "--"+out.Name) ||
			strings.Count(strings.TrimSpace(said), "\n") > 0 {
			t.Errorf("%s %s: exit code %d, %q; want 2 and one line that names --%s", c.Name,
				strings.Join(args, " "), code, said, out.Name)
		}
		if data, err := os.ReadFile(file); err != nil || string(data) != "precious" {
			t.Errorf("%s %s: the input is %q now (%v)", c.Name, strings.Join(args, " "), data, err)
		}
	}
	for _, link := range links {
		spare := slices.Repeat([]string{filepath.Join(dir, "none")}, c.Args)
		if c.Args > 0 {
			args := slices.Clone(spare)
			args[0] = file
			refused(link, append(args, "--"+out.Name, link))
		}
		c.Flags.VisitAll(func(in *pflag.Flag) {
			kind := in.Value.Type()
			if in.Name != out.Name && slices.Contains([]string{"string", "stringArray",
				"stringSlice"}, kind) && !outputs.Free(in) {
				refused(link, append(slices.Clone(spare), "--"+in.Name, file, "--"+out.Name, link))
				if kind == "stringArray" {
					refused(link, append(slices.Clone(spare), "--"+in.Name, "x="+file,
						"--"+out.Name, link))
				}
			}
		})
	}
}
