package main

import (
	"bytes"
	"image"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/spf13/pflag"

	"fmp/cmd/internal/outputs/outputstest"
	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/must"
	"fmp/onnx/npy"
	"fmp/pipeline/federate/identity"
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
		"twice/2":        "1", "same.upload": "client.onnx", "loop/1/up": ".."} {
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
		{join + "--receipt a.key photos", "would be overwritten"}, {"key --client a a.key", "a.key"},
		{"key --client a/../b b.key", "path"}, {"key b.key", "--client"},
		{"predict --model client.onnx photos", "client"},
		{"predict --model x.onnx photos --json --csv", "two formats"},
		{predict + "broken --on-bad skip", "none of the images can be read"},
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
