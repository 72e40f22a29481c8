package main

import (
	"bytes"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"fmp/assets/assetstest"
	"fmp/cmd/internal/outputs/outputstest"
	"fmp/models"
	"fmp/onnx/must"
	"fmp/onnx/printable"
)

// TestWrong: wrong inputs are refused in one line, and nothing is written or changed.
func TestWrong(t *testing.T) {
	client, extractor := assetstest.File(t, "digits", models.KindClient),
		assetstest.File(t, "digits", models.KindExtractor)
	t.Chdir(t.TempDir())
	var picture bytes.Buffer
	must.Do(t, png.Encode(&picture, image.NewGray(image.Rect(0, 0, 8, 8))))
	files := map[string]string{"cut.onnx": "\x08", "not.upload": "nothing", "bad.key": "nothing",
		"text.txt": "text", "round.yaml": "round: 1\n",
		"word.yaml":  "rond: 1\n",
		"past.yaml":  "round: 1\nclient_graph: client.onnx\nroster: roster.txt\ndeadline: soon\n",
		"roster.txt": "nobody\n", "grid.yaml": "vary: 1\n",
		"settings.yaml": "extractor:\n  model: x.onnx\n", "key.yaml": "extractr:\n  model: x.onnx\n",
		"cut.npy": "\x93NUMPY", "photos/1/a.png": picture.String(), "photos/2/b.png": picture.String(),
		"stray/zebra/a.png": picture.String(), "not.part": "nothing"}
	for name, from := range map[string]string{"client.onnx": client, "x.onnx": extractor} {
		data := must.Get(os.ReadFile(from))(t)
		files[name] = string(data)
	}
	for name, text := range files {
		must.Do(t, os.MkdirAll(filepath.Dir(name), 0o755))
		must.Do(t, os.WriteFile(name, []byte(text), 0o600))
	}
	const over = "would be overwritten"
	outputstest.CheckWrong(t, []outputstest.Wrong{
		// Outputs that are inputs, also those that settings name.
		{"fuse --extractor x.onnx --class-names a,b -o x.onnx", over},
		{"fuse --config settings.yaml --class-names a,b -o x.onnx", "give the output another name"},
		{"fuse --config settings.yaml --class-names a,b -o settings.yaml", over},
		{"pool not.upload --client-graph client.onnx -o client.onnx", over},
		{"pool not.upload --state new.onnx -o new.onnx", over},
		{"pool not.upload --signed-by= -o new.onnx", "--signed-by is empty"},
		{"pool x.onnx -o x.onnx", over},
		{"merge not.upload -o not.upload", over}, {"calibrate x.onnx photos -o x.onnx", over},
		{"onnx half x.onnx -o x.onnx", over},
		{"sign x.onnx --key bad.key -o x.onnx", over}, {"sign x.onnx --key bad.key -o bad.key", over},
		{"evaluate x.onnx photos --report x.onnx", over},
		{"evaluate x.onnx photos --card c.md --report c.md", "are one file"},
		{"evaluate x.onnx photos --card c.md --report C.MD", "are one file"},
		{"package x.onnx --card text.txt -o text.txt", over},
		{"train predictor --from x.onnx -o x.onnx", over}, {"onnx grad x.onnx -o x.onnx", over},
		{"onnx half x.onnx -o nowhere/y.onnx", "is not there"},
		{"onnx half x.onnx -o /proc/y.onnx", "cannot be written to"},
		{"onnx half x.onnx -o photos", "it is a folder"},
		{"onnx half x.onnx", "-o is not given"},
		{"data show --dataset ./photos --out photos/1/a.png", "give the output another name"},
		{"results export nowhere -o a.csv", "nowhere"},
		// The client graph.
		{"fuse --extractor x.onnx -o y.onnx", "--class-names"},
		{"fuse --extractor nowhere.onnx --class-names a,b -o y.onnx", "nowhere.onnx"},
		{"fuse --extractor x.onnx --class-names a,a -o y.onnx", "each another"},
		{"fuse --extractor x.onnx --class-names a -o y.onnx", "two names or more"},
		{"fuse --extractor x.onnx --class-names a/b,c -o y.onnx", "no folder"},
		{"fuse --extractor x.onnx --class-names .a,c -o y.onnx", "no folder"},
		{"fuse --extractor cut.onnx --class-names a,b -o y.onnx", "cut.onnx"},
		{"fuse --upload sums -o y.onnx", "sums"},
		{"fuse --extractor x.onnx --class-names a,b --bytes 1t -o y.onnx", "bytes"},
		{"fuse --config key.yaml -o y.onnx", "extractr"},
		{"fuse --extractor x.onnx --class-names a,b --kappa 1 -o y.onnx", "kappa"},
		{"fuse --dataset digits --bytes 64k -o y.onnx", "of uploads of moments"},
		{"fuse --dataset digits --kappa 0.7,0.1 -o y.onnx", "of uploads of moments"},
		// Rounds.
		{"pool", "none"}, {"pool nowhere.upload", "nowhere.upload"}, {"pool not.upload", "not.upload"},
		{"pool not.upload -o a.txt", ".onnx"},
		{"pool not.upload --samples -1", "samples"}, {"pool not.upload --record a.json", "--key"},
		{"pool not.upload --kappa 1,2", "kappa"}, {"pool not.part --client-graph x.onnx", "not.part"},
		{"merge not.upload", "output"},
		{"serve --round nowhere.yaml", "nowhere.yaml"}, {"serve --round word.yaml", "rond"},
		{"serve --round past.yaml", "want a time, such as"},
		{"serve --round past.yaml --reject 2", "allowed are 0 to 1"},
		{"serve", "--round"}, {"keys", "at least 1"},
		{"keys a/../b --dir keys --roster new.txt", "path"},
		{"receipts verify nowhere.json --server-key x", "nowhere.json"},
		// Classifiers.
		{"predict x.onnx photos", "x.onnx"}, {"predict nowhere.onnx photos", "nowhere.onnx"},
		{"predict cut.onnx photos", "cut.onnx"},
		{"evaluate client.onnx photos", "client.onnx"}, {"evaluate x.onnx", "CLASSIFIER"},
		{"calibrate client.onnx photos -o y.onnx", "client.onnx"},
		{"verify x.onnx --key bad.key", "bad.key"}, {"package x.onnx", "--output is missing"},
		{"onnx inspect text.txt", "text.txt"},
		{"onnx run x.onnx --input images=cut.npy --out o", "cut.npy"},
		{"onnx train x.onnx --images photos", "-o is not given"},
		{"bench round --closed-form --dataset digits --classes 5-9 --set corpus.classes=0-4 --seeds 1", "leave it out"},
		{"grid grid.yaml", "vary"}, {"run --dataset ./nowhere", "nowhere"},
		{"run --methods FPM", "FPM"},
		{"run --seeds 0", "seeds"},
		{"poool", "pool"},
	}, func(args ...string) (int, string) {
		var said bytes.Buffer
		code := execute(t.Context(), args, strings.NewReader(""), &said, &said)
		return code, said.String()
	})
}

// TestNoOutputIsAnInput walks every command.
func TestNoOutputIsAnInput(t *testing.T) {
	var commands []outputstest.Command
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		want := 0
		for want < 3 && c.Args != nil && c.Args(c, make([]string, want)) != nil {
			want++
		}
		commands = append(commands,
			outputstest.Command{Name: c.CommandPath(), Flags: c.Flags(), Args: want,
				Run: func(args ...string) (int, string) {
					var said bytes.Buffer
					code := execute(t.Context(), args, strings.NewReader(""), &said, &said)
					return code, said.String()
				}})
		for _, s := range c.Commands() {
			walk(s)
		}
	}
	walk(newRootCommand())
	outputstest.Check(t, commands)
}

// TestHostileArguments: no command lets a terminal obey a name, of a file that is not there, of a
// flag, or of a command.
func TestHostileArguments(t *testing.T) {
	const evil = "\x1b[2J\x1b]0;owned\x07\u202e\u009b31m\rname"
	dir := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", dir)
	t.Chdir(dir) // fmp man writes a folder of its pages
	var walk func(c *cobra.Command, path []string)
	walk = func(c *cobra.Command, path []string) {
		for _, more := range [][]string{{evil}, {"--" + evil},
			{filepath.Join(dir, evil), evil, evil, evil}, {evil, "--json"}} {
			args := append(append([]string(nil), path...), more...)
			var out strings.Builder
			execute(t.Context(), args, strings.NewReader(""), &out, &out)
			for _, line := range strings.Split(strings.ReplaceAll(out.String(), "\t", " "), "\n") {
				if !printable.Is(line) {
					t.Errorf("%q prints %q", args, line)
				}
			}
		}
		for _, sub := range c.Commands() {
			walk(sub, append(append([]string(nil), path...), sub.Name()))
		}
	}
	walk(newRootCommand(), nil)
}
