package main

import (
	"bytes"
	"image"
	"image/png"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/spf13/pflag"

	"fmp/cmd/internal/outputs/outputstest"
	"fmp/featurize/dataset"
	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/atomicfile"
	"fmp/onnx/build"
	"fmp/onnx/must"
	"fmp/onnx/npy"
	"fmp/onnx/printable"
	"fmp/pipeline/federate"
	"fmp/pipeline/federate/identity"
	"fmp/pipeline/point"
	"fmp/pipeline/privacy"
)

// TestWrong: wrong inputs are refused in one line, and nothing is written, changed or sent.
func TestWrong(t *testing.T) {
	made := map[string]string{"client.onnx": model(t, models.KindClient), "x.onnx": model(t, models.KindExtractor),
		"embedding.onnx": model(t, models.KindEmbedding), "private.onnx": privateGraph(t), "c.onnx": classifier(t),
		"foreign.onnx": foreign(t)}
	t.Chdir(t.TempDir())
	for to, from := range made {
		write(t, to, must.Get(os.ReadFile(from))(t))
	}
	must.Do(t, os.Mkdir("void", 0o700))
	must.Do(t, npy.Save("rows.npy", onnx.ZerosF32(3, 5)))
	must.Do(t, npy.Save("y.npy", onnx.Vector[int64](0, 1, 2)))
	picture := image.NewGray(image.Rect(0, 0, 8, 8))
	for _, p := range []string{"photos/1/a.png", "photos/2/b.png", "stray/1/a.png",
		"stray/eleven/b.png", "loose/a.png", "far/1/a.png",
		"twice/1/a.png", "grades/01/a.png"} {
		writePNG(t, p, picture)
	}
	for name, text := range map[string]string{"broken/1/a.png": "\x89PNG", "empty.csv": "",
		"words.csv": "path,label\n", "label.csv": "a.png,zebra\n",
		"number.csv": "photos/1/a.png,+1\n", "semi.csv": "a;1\n", "nul.csv": "a\x00b,1\n",
		"self.csv": "photos/1/a.png,1\n", "gone.csv": "gone.png,1\n",
		"again.csv": "photos/1/a.png,1\nphotos/./1/a.png,1\n",
		"both.csv":  "photos/1/a.png,1\nphotos/./1/a.png,2\n", "quote.csv": "\"photos/1/a.png,1\n",
		"bytes.csv": "\xff\xfe,1\n", "loop/1/text": "text",
		"cut/1/a.dcm": strings.Repeat("\x00", 128) + "DICM", "cut.onnx": "\x08",
		"not.upload": "nothing", "bad.key": "nothing", "open.key": "", "three.csv": "a,b,c\n",
		"text.txt": "text", "cut.npy": "\x93NUMPY", "signer.pub": "nothing", "heic/1/a.jxl": "\xff\x0a",
		"short.idx": "\x00\x00\x08\x03", "notes/1/a.txt": "GIF89a", "one.csv": "a.png\n",
		"ten.csv": "photos/1/a.png,10\n",
		"cut.idx": string(append(header(0x803, 2, 2, 2), make([]byte, 7)...)),
		"y.idx":   string(append(header(0x801, 2), 1, 2))} {
		write(t, name, []byte(text))
	}
	for link, to := range map[string]string{"far/1/out.png": "../../photos/1/a.png",
		"far/1/gone.png": "nowhere.png",
		"twice/2":        "1", "same.upload": "client.onnx", "loop/1/up": "..", "ledger": "spent"} {
		if err := os.Symlink(to, link); err != nil {
			t.Skip(err)
		}
	}
	k := must.Get(identity.New("a"))(t)
	must.Do(t, k.Save("a.key"))
	for link, to := range map[string]string{"hard.upload": "client.onnx", "hard.json": "a.key"} {
		must.Do(t, os.Link(to, link))
	}
	var sent atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { sent.Add(1) }))
	defer server.Close()
	const to, score = "compress --model client.onnx --client a -o ", "evaluate --model x.onnx --key a.key "
	const c, join = to + "a.upload ", "join https://127.0.0.1:9 --key a.key "
	const private = "compress --model private.onnx --client a -o a.upload photos "
	const embedded = "compress --model embedding.onnx --client a -o a.upload "
	const predict, plain = "predict --model c.onnx ", "would be a plain one"
	list := []outputstest.Wrong{
		// Names of classes and of files.
		{c + "--signed-by= photos", "--signed-by is empty"}, {c + "stray", `"eleven" is no class`},
		{c + "grades", `"01" is no class`}, {c + "loose", "a.png (in no folder of a class)"},
		{c + "far", "a link"}, {c + "far/1", "in no folder of a class"}, {c + "twice", "is in another class"},
		{c + "photos --class-numbers=maybe", "class-numbers"}, {c + "number.csv", `"+1" is no class`},
		{c + "number.csv --class-numbers", `"+1" is no number of a class`},
		{c + "label.csv", `"zebra" is no class`}, {c + "broken", "a.png"}, {c + "heic", "JPEG XL"},
		{c + "text.txt", "wants --labels"}, {c + "photos/1/a.png", "has no label"},
		{c + "empty.csv", "no images in the list"}, {c + "words.csv", "no images in the list"},
		{c + "semi.csv", "comma"}, {c + "nul.csv", "want the path of an image"}, {c + "gone.csv", "gone.png"},
		{c + "three.csv", "comma"}, {c + "nowhere", "nowhere"}, {c + "both.csv", "has another label above"},
		{c + "again.csv", "is in the list above"}, {c + "quote.csv", "comma"}, {c + "bytes.csv", "in UTF-16"},
		{c + "loop", "a link to a folder that it lies in"}, {c + "cut", "a.dcm"},
		{c + "/dev/null", "neither a folder nor a .csv"}, {c + "short.idx --labels short.idx", "labels"},
		{c + "photos --labels short.idx", "go with an IDX file"}, {c, "0 sources"},
		{c + "photos photos", "2 sources"},
		{c + "void", "has no images (JPEG, PNG, WebP"}, {c + "one.csv", "path,label"}, {c + "ten.csv", "record 1"},
		{c + "cut.idx --labels y.idx", "truncated"}, {c + "cut.idx --labels y.idx --count 3", "3 images are wanted"},
		{c + "notes", "(1 file was left out: 1/a.txt (no image))"},
		// Outputs.
		{to + "client.onnx photos", "too, which would be overwritten"},
		{to + "hard.upload photos", "too, which would be overwritten"},
		{score + "--output a.key photos", "would be overwritten"},
		{score + "--output hard.json photos", "would be overwritten"},
		{score + "--output r --ledger r --epsilon 1 photos", "would be overwritten"},
		{score + "--output r.seal --ledger r --epsilon 1 photos", "would be overwritten"},
		{score + "--output R --ledger r --epsilon 1 photos", "would be overwritten"},
		{score + "--output spent --ledger ledger --epsilon 1 photos", "would be overwritten"},
		{score + "--output spent.seal --ledger ledger --epsilon 1 photos", "would be overwritten"},
		{score + "--output ledger.seal --ledger ledger --epsilon 1 photos", "would be overwritten"},
		{c + "photos --epsilon 1 --ledger ./a.upload", "would be overwritten"},
		{to + "same.upload photos", "too, which would be overwritten"},
		{to + "self.csv self.csv", "too, which would be overwritten"},
		{to + "photos/1/a.png photos", "give the output another name"},
		{to + "photos/1/a.png self.csv --on-bad skip", "give the output another name"},
		{to + "photos photos", "it is a folder"}, {to + "/dev/null photos", "no regular file"},
		{to + "nowhere/a photos", "the folder nowhere is not there"},
		{to + "/proc/a photos", "cannot be written to"},
		{"compress --model client.onnx --client a photos", "--output is missing"},
		{to + "text.txt/a photos", "is no folder"},
		// Models and names.
		{"compress --model x.onnx --client a -o a.upload photos", `kind "extractor"`},
		{"compress --model cut.onnx --client a -o a.upload photos", "cut.onnx"},
		{"compress --model nowhere.onnx --client a -o a.upload photos", "nowhere.onnx"},
		{"compress --client a -o a.upload photos", "--model is missing"},
		{"compress --model client.onnx -o a.upload photos", "--client is missing"},
		{"compress --model client.onnx --client a/../c -o a.upload photos", "leads nowhere as a path"},
		{embedded + "photos", `kind "embedding"`}, {embedded + "--rows rows.npy --labels y.npy", "[3 5]"},
		{"compress --model foreign.onnx --client a -o a.upload photos", "fmp.kind"},
		{c + "--rows rows.npy --labels y.npy", `kind "client"`},
		{"compress --model photos --client a -o a.upload photos", "photos"},
		// Numbers and words.
		{c + "photos --round -1", "round"}, {c + "photos --precision int4", "int4"},
		{c + "photos --on-bad guess", "guess"}, {c + "photos --at-least 0", "--at-least 0"},
		{c + "photos --calibrate -1", "--calibrate -1"}, {c + "photos --threads 1e9", "threads"},
		{c + "photos --calibrate 101", "--calibrate 101"}, {c + "photos --threads -1", "--threads -1"},
		{c + "photos --max-pixels 0", "--max-pixels 0"}, {c + "photos --max-pixels 9", "--max-pixels"},
		{c + "photos --at-least 9", "no class has 9 images"},
		{c + "--rows cut.npy --labels cut.npy", "cut.npy"}, {c + "--rows cut.npy", "wants --labels"},
		{c + "photos --signed-by signer.pub", "signer.pub"}, {c + "photos --labels", "labels"},
		{c + "photos --colour", "colour"},
		// Private rounds.
		{private, "give --epsilon"}, {private + "--epsilon 0", "epsilon is 0"},
		{private + "--epsilon 50", "epsilon is 50"},
		{private + "--epsilon 1 --unit person", "example or client"}, {c + "photos --epsilon 1", plain},
		{private + "--epsilon 1 --noise two-servers", "points is 0"}, {c + "photos --reply-after 10s", plain},
		{private + "--epsilon 1 --on-bad fail", "--on-bad fail"},
		{c + "photos --delta 1e-6", "--delta is of private rounds"},
		{private + "--epsilon 1 --precision int8", "--precision is of plain uploads"},
		{private + "--epsilon 1 --at-least 2", "would tell of single ones"},
		{private + "--epsilon 1 --calibrate 2", "calibration points are single images"},
		{private + "--epsilon 1 --reply-after 1s", "allowed are 2s to 24h"},
		{private + "--epsilon 1 --reply-after 25h", "allowed are 2s to 24h"},
		// Other commands.
		{"inspect not.upload", "not.upload"}, {"inspect", "0 files"}, {"inspect cut.onnx", "cut.onnx"},
		{"inspect client.onnx --json --explain", "two formats"},
		{"send http://127.0.0.1:9 a.upload", "a.upload"},
		{"send https://127.0.0.1:9 --key a.key not.upload", "not.upload"},
		{"join https://127.0.0.1:9 photos", "--key is missing"},
		{"join ftp://127.0.0.1:9 --key a.key photos", "ftp"},
		{"join https://127.0.0.1:9 --key bad.key photos", "bad.key"}, {join + "--wait 0s photos", "--wait"},
		{"join https://127.0.0.1:9 --key nokey --wait 1ms photos", "--wait 1ms"},
		{"withdraw https://127.0.0.1:9 --key nokey --wait 1ms", "--wait 1ms"},
		{"evaluate --model x.onnx --key nokey --report-to https://127.0.0.1:9 --wait 1ms photos", "--wait 1ms"},
		{join + "--receipt a.key photos", "would be overwritten"}, {"key --client a a.key", "a.key"},
		{"key --client a/../b b.key", "path"}, {"key b.key", "--client"},
		{"predict --model client.onnx photos", "client"},
		{"predict --model x.onnx photos --json --csv", "two formats"},
		{predict + "broken --on-bad skip", "none of the images can be classified"},
		{predict + "photos --on-bad ignore", "--on-bad"},
		{predict, "give --model"}, {predict + "photos --reject 2", "--reject 2"}, {predict + "nowhere", "nowhere"},
		{"predict --model nowhere.onnx photos", "nowhere.onnx"}, {predict + "void", "has no images"},
		{predict + "photos --level 0.3", "allowed are 0.5"},
		{"page --model client.onnx -o client.onnx", "would be overwritten"},
		{"page --model private.onnx -o site", "states no budget"},
		{"page --model client.onnx -o none/site", "the folder"},
		{"page --model client.onnx --program void -o site", "make page writes"},
		{"page -o site", "want --model client.onnx"},
		{"page --model x.onnx -o site", `is of kind "extractor"`},
		{"page --model nowhere.onnx -o site", "no such file"},
		{"page --model private.onnx -o site photos", "nothing else; see fmp-edge"},
		{"evaluate --model x.onnx photos", "--key FILE"}, {score + "photos --least 1", "--least 1"},
		{score + "photos --epsilon 30", "epsilon is 30"}, {score + "photos --max-epsilon 1", "give --epsilon"},
		{score + "photos --delta 1e-6", "give --epsilon"},
		{score + "photos --ca ca.crt", "of --report-to"}, {score + "photos --wait 3s", "of --report-to"},
		{score + "photos --epsilon 1 --output o.report --least 5", "--least is of reports without noise"},
		{score + "photos --epsilon 1 --output o.report --on-bad fail", "--on-bad fail"},
		{score + "photos --epsilon 1 --output o.report --max-epsilon -1", "--max-epsilon -1"},
		{score + "photos --epsilon 1 --report-to https://127.0.0.1:9", "give --output FILE"},
		{score + "photos --epsilon 1 --json", "give --output FILE"},
		{"evaluate --model client.onnx --key a.key photos", "it is a client"},
		{"evaluate --model x.onnx --key bad.key photos", "bad.key"}, {"withdraw https://127.0.0.1:9", "--key"},
		{"withdraw http://server.example --key a.key", "https"}, {"approve nowhere.onnx", "nowhere.onnx"},
		{"bench --model x.onnx", "extractor"}, {"compres", "unknown command"},
	}
	for _, flag := range []string{"--max-pixels 100", "--on-bad skip", "--class-numbers", "--count 5", "--skip 3"} {
		const rows = " goes with images, and these are feature rows"
		name, _, _ := strings.Cut(flag, " ")
		for _, command := range []string{embedded + "--rows x --labels y ", predict + "x.npy ",
			score + "x.NPY --labels y.npy "} {
			if !strings.HasPrefix(command, score) || name != "--count" && name != "--skip" {
				list = append(list, outputstest.Wrong{command + flag, name + rows})
			}
		}
	}
	for i := range list {
		list[i][0] = strings.ReplaceAll(list[i][0], "https://127.0.0.1:9", server.URL)
	}
	outputstest.CheckWrong(t, list, both(t))
	if n := sent.Load(); n > 0 {
		t.Errorf("%d requests were sent", n)
	}
}

// both is how the program is run for its exit code and all that it prints.
func both(t *testing.T) func(args ...string) (int, string) {
	return func(args ...string) (int, string) {
		var said bytes.Buffer
		code := execute(t.Context(), args, &said, &said)
		return code, said.String()
	}
}

// TestNoOutputIsAnInput walks every command.
func TestNoOutputIsAnInput(t *testing.T) {
	var list []outputstest.Command
	for _, c := range commands() {
		f := pflag.NewFlagSet(c.name, pflag.ContinueOnError)
		c.flags(f)
		list = append(list, outputstest.Command{Name: "fmp-edge " + c.name, Flags: f, Args: 1, Run: both(t)})
	}
	outputstest.Check(t, list)
}

// TestBitsOfFlags: a number of more bits than a processor's int is refused, and not another number.
func TestBitsOfFlags(t *testing.T) {
	for _, c := range []struct {
		text string
		bits int
		want int // -1: refused
	}{{"2147483647", 32, 1<<31 - 1}, {"2147483648", 32, -1}, {"4294967297", 32, -1}, {"0x10", 32, 16},
		{"7", 64, 7}, {"9223372036854775808", 64, -1}, {"seven", 64, -1}} {
		f := pflag.NewFlagSet("x", pflag.ContinueOnError)
		n := f.Int("n", 1, "")
		if err := parse(f, []string{"--n", c.text}, c.bits); err == nil && *n != c.want || err != nil && c.want != -1 {
			t.Errorf("%s in %d bits: %d, %v; want %d", c.text, c.bits, *n, err, c.want)
		}
	}
}

// evil is a name that a terminal would obey: it clears the screen, sets the title, turns the
// direction of the text and begins a line.
const evil = "\x1b[2J\x1b]0;owned\x07\u202e\u009b31m\r\nfmp-edge: signed by the ward.png"

// shown fails where what a command printed has characters that a terminal obeys.
func shown(t *testing.T, args []string, text string) {
	t.Helper()
	for _, line := range strings.Split(strings.ReplaceAll(text, "\t", " "), "\n") {
		if !printable.Is(line) {
			t.Errorf("%q prints %q", args, line)
		}
	}
}

// TestHostileNames: no command lets a terminal obey a name of a file, a class, a client or a
// server.
func TestHostileNames(t *testing.T) {
	dir := t.TempDir()
	graph := model(t, models.KindClient)
	photos := filepath.Join(dir, "photos")
	var b bytes.Buffer
	must.Do(t, png.Encode(&b, image.NewGray(image.Rect(0, 0, 8, 8))))
	for _, name := range []string{"0/" + evil, "0/good.png", "0/" + evil + ".txt",
		"1/broken" + strings.ReplaceAll(evil, "\n", "")} {
		data := b.Bytes()
		if strings.Contains(name, "broken") {
			data = data[:40]
		}
		if err := atomicfile.WriteBytes(filepath.Join(photos, name), data); err != nil {
			t.Skip(err) // a file system without such names
		}
	}
	other := filepath.Join(dir, "other", evil)
	must.Do(t, os.MkdirAll(other, 0o755))
	list := filepath.Join(dir, "list.csv")
	must.Do(t, os.WriteFile(list, []byte("\"photos/0/good.png\",\""+evil+"\"\n"), 0o600))
	out := filepath.Join(dir, "up")
	runs := [][]string{
		{"compress", "--model", graph, "--client", "a", "-o", out, photos},
		{"compress", "--model", graph, "--client", "a", "-o", out, "--on-bad", "skip", photos},
		{"compress", "--model", graph, "--client", "a", "-o", out, "--on-bad", "skip",
			"--json", photos},
		{"compress", "--model", graph, "--client", "a", "-o", out, filepath.Join(dir, "other")},
		{"compress", "--model", graph, "--client", "a", "-o", out, list},
		{"compress", "--model", graph, "--client", evil, "-o", out, photos},
		{"inspect", out}, {evil}, {"help", evil},
	}
	for _, c := range commands() { // each with hostile arguments of every kind
		runs = append(runs, []string{c.name, evil}, []string{c.name, evil, evil},
			[]string{c.name, "--" + evil, "x"},
			[]string{c.name, "--key", evil, "--model", evil, "--client", evil, evil},
			[]string{c.name, "--json", filepath.Join(dir, evil)},
			[]string{c.name, "https://" + evil, "--key", evil, photos}, []string{c.name, "--help"})
	}
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(dir, "config"))
	for _, args := range runs {
		var stdout, stderr strings.Builder
		execute(t.Context(), args, &stdout, &stderr)
		shown(t, args, stdout.String())
		shown(t, args, stderr.String())
		if args[0] == "compress" && len(args) > 4 &&
			strings.Contains(stderr.String(), "\nfmp-edge: signed by") {
			t.Errorf("%q: a name begins a line: %s", args, stderr.String())
		}
	}
	if st, err := os.Stat(out); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the upload: %v, %v; want mode 0600", st, err)
	}
}

// The attacks of a server on its clients: client graphs that it makes for the purpose.

// canary returns 40 images with labels of which the last is bright all over, as no other is.
func canary() (pixels []uint8, labels []int) {
	im, labels := blobs(40)
	for i := range im.At(39) {
		im.At(39)[i] = 255
	}
	return im.Pix, labels
}

// attackGraph writes the client graph of a private round behind the digits' extractor, with nodes
// put between the extractor and what follows: they read the features "honest" and "bright" [n, 1],
// +1 for the canary and -1 for every other image, and give the features.
func attackGraph(t *testing.T, nodes ...*onnx.Node) string {
	t.Helper()
	m, _ := must.Get2(models.Load(privateGraph(t)))(t)
	g := m.Graph
	at := slices.IndexFunc(g.Nodes, func(n *onnx.Node) bool { return n.Outputs[0] == "features" })
	g.Nodes[at].Outputs[0] = "honest"
	g.Initializers["attack/most"] = onnx.Scalar[float32](0.9)
	g.Initializers["attack/least"] = onnx.Scalar[float32](-1)
	g.Initializers["attack/axes"] = onnx.Vector[int64](1, 2)
	g.Initializers["attack/scale"] = onnx.Scalar[float32](10)
	nodes = append([]*onnx.Node{
		{Op: "ReduceMean", Inputs: []string{"image"}, Outputs: []string{"mean"},
			Attrs: []onnx.Attr{onnx.IntsAttr("axes", 1, 2, 3), onnx.BoolAttr("keepdims", false)}},
		{Op: "Unsqueeze", Inputs: []string{"mean", "attack/axis"}, Outputs: []string{"column"}},
		{Op: "Sub", Inputs: []string{"column", "attack/most"}, Outputs: []string{"above"}},
		{Op: "Sign", Inputs: []string{"above"}, Outputs: []string{"bright"}},
	}, nodes...)
	g.Initializers["attack/axis"] = onnx.Vector[int64](1)
	for i, n := range nodes {
		n.Name = "attack" + string(rune('a'+i))
	}
	g.Nodes = slices.Insert(g.Nodes, at+1, nodes...)
	g.Values = nil
	return saved(t, m)
}

// released compresses the first n images for a private round whose server adds the noise, so that
// the sums come as they are, and returns them; nil where nothing was written.
func sumsOf(t *testing.T, graph string, n int) *federate.Release {
	t.Helper()
	dir := t.TempDir()
	pixels, labels := canary()
	writeIDX(t, dir, pixels[:n*side*side], labels[:n])
	out := filepath.Join(dir, "upload")
	if code, log := said(t, "compress", "--model", graph, "--client", t.Name(), "-o", out, "--epsilon", "1",
		"--"+yesFlag, digestOf(t, graph), "--noise", "trusted", filepath.Join(dir, "images"), "--labels",
		filepath.Join(dir, "labels")); code != exitOK {
		t.Log(log)
		return nil
	}
	return must.Get(federate.DecodeRelease(must.Get(os.ReadFile(out))(t), federate.Expect{}))(t)
}

// moved returns by how much the canary moves the sums.
func moved(t *testing.T, graph string) float64 {
	t.Helper()
	with, without := sumsOf(t, graph, 40), sumsOf(t, graph, 39)
	if with == nil || without == nil {
		t.Fatalf("uploads with and without the image: %v and %v; want both, as absence tells",
			with != nil, without != nil)
	}
	var square float64
	for i, v := range with.Sums.Values {
		square += math.Pow(float64(v-without.Sums.Values[i]), 2)
	}
	return math.Sqrt(square)
}

// TestOneImageMovesOneRow: a graph that turns the features of all images round that run together
// with one of them moves the sums by no more than the sensitivity.
func TestOneImageMovesOneRow(t *testing.T) {
	graph := attackGraph(t,
		&onnx.Node{Op: "ReduceMax", Inputs: []string{"bright"}, Outputs: []string{"any"},
			Attrs: []onnx.Attr{onnx.IntsAttr("axes", 0), onnx.BoolAttr("keepdims", true)}},
		&onnx.Node{Op: "Mul", Inputs: []string{"honest", "any"}, Outputs: []string{"turned"}},
		&onnx.Node{Op: "Mul", Inputs: []string{"turned", "attack/scale"},
			Outputs: []string{"features"}},
	)
	b := privacy.Budget{Unit: privacy.Example, Relation: privacy.AddRemove}
	if d, most := moved(t, graph), b.Sensitivity(10); d > most {
		t.Errorf("one image moves the sums by %.0f steps, %.1f times the sensitivity", d, d/most)
	}
}

// TestNoAbsence: a graph that divides by zero, or fails, for one image makes that image a row of
// zeros that counts, and the upload is there.
func TestNoAbsence(t *testing.T) {
	graph := attackGraph(t,
		&onnx.Node{Op: "Add", Inputs: []string{"bright", "attack/least"}, Outputs: []string{"zero"}},
		&onnx.Node{Op: "Div", Inputs: []string{"honest", "zero"}, Outputs: []string{"features"}},
	)
	if d := moved(t, graph); d != privacy.CountSteps {
		t.Errorf("the image moves the sums by %v; want %d, its count alone", d, privacy.CountSteps)
	}
}

// TestUnsteady: a graph whose work depends on what is in an image is refused before an image is
// read.
func TestUnsteady(t *testing.T) {
	graph := attackGraph(t,
		&onnx.Node{Op: "Relu", Inputs: []string{"bright"}, Outputs: []string{"one"}},
		&onnx.Node{Op: "NonZero", Inputs: []string{"one"}, Outputs: []string{"places"}},
		&onnx.Node{Op: "Cast", Inputs: []string{"places"}, Outputs: []string{"numbers"},
			Attrs: []onnx.Attr{onnx.IntAttr("to", int(onnx.Float32))}},
		&onnx.Node{Op: "ReduceSum", Inputs: []string{"numbers"}, Outputs: []string{"sum"}},
		&onnx.Node{Op: "Add", Inputs: []string{"honest", "sum"}, Outputs: []string{"features"}},
	)
	refuses(t, exitUsage, "must not depend on what is in an image", "compress", "--model", graph, "--client",
		"a", "-o", filepath.Join(t.TempDir(), "u"), "--epsilon", "1", t.TempDir())
}

// pixelExtractor replaces the extractor by one that returns the pixels.
func pixelExtractor(t *testing.T) string {
	t.Helper()
	b := build.New("pixels")
	b.Output("features", b.Reshape(b.Input("image", onnx.Float32, "batch", 1, side, side), 0, side*side))
	x := must.Get(b.Model())(t)
	c := models.ConjugateConfig{Dx: side * side, C: 10, K: 2}
	values := map[string]*onnx.Tensor{}
	for name, shape := range map[string][]int{models.ConjCentre: {c.Dx}, models.ConjRadius: {},
		models.ConjMap:    {c.Dx, c.K},
		models.ConjOrigin: {c.K}, models.ConjLogLambda: {c.K}, models.ConjMetric: {c.K, c.K},
		models.ConjWidening: {}} {
		values[name] = onnx.ZerosF32(shape...)
	}
	for _, set := range []string{models.ConjSample, models.ConjMean, models.ConjInterval} {
		for _, n := range []string{models.ConjLogRho, models.ConjLogTau, models.ConjLogB,
			models.ConjLogitGamma, models.ConjO1, models.ConjO2} {
			values[set+n] = onnx.ZerosF32()
		}
	}
	values[models.ConjRadius] = onnx.Scalar[float32](1e6) // next to no softening
	e := must.Get(models.ConjugateEmbedding(must.Get(models.NewConjugate(c, values))(t), true))(t)
	ef := must.Get(models.ReadManifest(e))(t)
	return saved(t, must.Get(models.ClientGraph(x, models.Manifest{}, e, ef,
		models.Preprocessing{Height: side, Width: side, Channels: 1}))(t))
}

// recovered counts the images that stand in an upload, pixel by pixel.
func recovered(set *point.Set, im *dataset.Images, labels []int) (found int) {
	for k := range set.N {
		for i := range labels {
			far := 0.0
			for j, v := range im.At(i) {
				far = max(far, math.Abs(float64(set.Row(k)[j])-float64(v)/255))
			}
			if far < 1e-3 {
				found++
			}
		}
	}
	return found
}

// TestPixels: a graph whose features are the pixels themselves is not trusted at first sight.
func TestPixels(t *testing.T) {
	refuses(t, exitUntrusted, "can hide all of an image", "compress", "--model", pixelExtractor(t), "--client", "a",
		"-o", filepath.Join(t.TempDir(), "upload"), photosOf(t, 8))
}

// TestOtherTail: a graph that makes something else of the features than class means is refused, and
// the node is named.
func TestOtherTail(t *testing.T) {
	dir := photosOf(t, 8)
	m, _ := must.Get2(models.Load(model(t, models.KindClient)))(t)
	at := slices.IndexFunc(m.Graph.Nodes,
		func(n *onnx.Node) bool { return n.Op == "MatMul" && n.Name == "matmul" })
	m.Graph.Nodes[at].Inputs[1] = m.Graph.Nodes[at-2].Inputs[0] // features that are not softened
	refuses(t, exitUsage, "want Div", "compress", "--model", saved(t, m), "--client", "a", "-o",
		filepath.Join(t.TempDir(), "u"), dir)
}
