package main

import (
	"bytes"
	"image"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"fmp/assets/assetstest"
	"fmp/cmd/internal/outputs/outputstest"
	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/must"
	"fmp/onnx/npy"
	"fmp/onnx/printable"
)

// TestWrong: wrong inputs are refused in one line, and nothing is written or changed.
func TestWrong(t *testing.T) {
	client, extractor := assetstest.File(t, "digits", models.KindClient),
		assetstest.File(t, "digits", models.KindExtractor)
	add, net := addModel(t), saveNet(t, onnx.ZerosF32(192, 4))
	bytes8 := build.New("bytes")
	eighths := &onnx.Graph{Name: "eighths", Nodes: []*onnx.Node{{Op: "Cast", Inputs: []string{"x"},
		Outputs: []string{"y"}, Attrs: []onnx.Attr{onnx.IntAttr("to", int(onnx.Float8E4M3FN))}}},
		Inputs:  []onnx.ValueInfo{{Name: "x", DType: onnx.Float32, Shape: onnx.Shape("n", 2)}},
		Outputs: []onnx.ValueInfo{{Name: "y", DType: onnx.Float8E4M3FN, Shape: onnx.Shape("n", 2)}}}
	pixels := bytes8.Cast(bytes8.Input("x", onnx.Uint8, "n", 1, 8, 8), onnx.Float32)
	bytes8.Output("y", bytes8.MatMul(bytes8.Op("Flatten", []build.Ref{pixels}), bytes8.Param("w", onnx.ZerosF32(64, 10))))
	doubles := build.New("doubles")
	doubles.Output("y", doubles.MatMul(doubles.Cast(doubles.Input("x", onnx.Float64, "n", 3), onnx.Float32),
		doubles.Param("w", onnx.ZerosF32(3, 7))))
	layers, examples := trainingFiles(t)
	t.Chdir(t.TempDir())
	var picture bytes.Buffer
	must.Do(t, png.Encode(&picture, image.NewGray(image.Rect(0, 0, 8, 8))))
	files := map[string]string{"cut.onnx": "\x08", "not.upload": "nothing", "bad.key": "nothing",
		"text.txt": "text", "round.yaml": "round: 1\n",
		"word.yaml": "rond: 1\n", "side.yaml": "rond: 1\n", "named.yaml": "output: gone\n", "in.yaml/a": "",
		"past.yaml":  "round: 1\nclient_graph: client.onnx\nroster: roster.txt\ndeadline: soon\n",
		"roster.txt": "nobody\n", "grid.yaml": "vary: 1\n",
		"plain/config.yaml": "dataset: {name: nowhere}\n",
		"settings.yaml":     "extractor:\n  model: x.onnx\n", "key.yaml": "extractr:\n  model: x.onnx\n",
		"cut.npy": "\x93NUMPY", "photos/1/a.png": picture.String(), "photos/2/b.png": picture.String(),
		"stray/zebra/a.png": picture.String(), "not.part": "nothing", "bad.npy": "not numpy", "bad.pb": "\xff\xff\xff",
		"token": "a token of the test's own", "short.token": "guess", "read.token": "a token of the test's own"}
	for name, from := range map[string]string{"client.onnx": client, "x.onnx": extractor, "add.onnx": add,
		"side.onnx": extractor, "named.onnx": extractor, "net.onnx": net, "layers.onnx": layers, "rows.npz": examples,
		"eighths.onnx": saved(t)(onnx.NewModel(eighths), nil), "bounds.onnx": saved(t)(twoBounds(), nil),
		"bytes.onnx": saved(t)(bytes8.Model()), "doubles.onnx": saved(t)(doubles.Model())} {
		data := must.Get(os.ReadFile(from))(t)
		files[name] = string(data)
	}
	for name, text := range files {
		must.Do(t, os.MkdirAll(filepath.Dir(name), 0o755))
		must.Do(t, os.WriteFile(name, []byte(text), 0o600))
	}
	must.Do(t, os.Chmod("read.token", 0o644)) // by other users
	must.Do(t, os.Mkdir("void", 0o700))
	must.Do(t, os.MkdirAll("onto/sum_ab.npy", 0o700))
	for name, a := range map[string]*onnx.Tensor{"a.npy": onnx.ZerosF32(3, 2), "wide.npy": onnx.ZerosF32(3, 5),
		"f64.npy": onnx.NewTensor(make([]float64, 6), 3, 2)} {
		must.Do(t, npy.Save(name, a))
	}
	twos, endless := onnx.ZerosF32(20, 7), onnx.ZerosF32(20, 3)
	for i := range 20 {
		twos.F32()[i*7] = 2
	}
	endless.F32()[5] = float32(math.Inf(1))
	archive(t, "sums.npz", onnx.ZerosF32(20, 3), twos)
	archive(t, "endless.npz", endless, twos)
	archive(t, "endless64.npz", onnx.NewTensor(slices.Concat(make([]float64, 59), []float64{math.NaN()}), 20, 3), twos)
	archive(t, "three.npz", onnx.ZerosF32(20, 3), onnx.ZerosF32(20, 3))
	ran(t, "data", "synth", "-o", "short", "--train", "20", "--test", "20")
	must.Do(t, os.Truncate("short/train-images-idx3-ubyte", 5000))
	const over, serve, away = "would be overwritten", "serve --round round.yaml ", "is not loopback"
	const run, shard = "run --out results --dataset ", "features --dataset digits --shard "
	const notIt = "it is a client; want the classifier"
	const own = "train extractor --dataset nowhere -o y.onnx --"
	const given, pair = "--tls-cert a.crt --tls-key token ", "--tls-cert a.crt --tls-key a.key "
	const add2, both = "onnx run add.onnx --out o ", "--input a=a.npy --input b=a.npy "
	const quantise = "onnx quantise x.onnx --images digits -o q.onnx --seconds .01 --calibrate 4 --test 1 "
	const fit, tune = "onnx train layers.onnx -o t.onnx --engine pure ", "onnx train net.onnx -o t.onnx --images "
	const rows, fuse = fit + "--data rows.npz ", "fuse --engine pure --extractor net.onnx -o f.onnx "
	outputstest.CheckWrong(t, []outputstest.Wrong{
		// Outputs that are inputs, also those that settings name.
		{"fuse --extractor x.onnx --class-names a,b -o x.onnx", over},
		{"fuse --config settings.yaml --class-names a,b -o x.onnx", "give the output another name"},
		{"fuse --config settings.yaml --class-names a,b -o settings.yaml", over},
		{"pool not.upload --client-graph client.onnx -o client.onnx", over},
		{"pool not.upload --state new.onnx -o new.onnx", over},
		{"pool not.upload --signed-by= -o new.onnx", "--signed-by is empty"},
		{"pool not.upload --with-samples -o new.npy", "--with-samples is an output of classifiers"},
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
		{"onnx half x.onnx -o photos", "it is a folder"}, {"onnx half x.onnx -o in", "it is a folder"},
		// Side-cars.
		{"onnx half x.onnx -o word", "it is no side-car"}, {"onnx half side.onnx -o h.onnx", "side-car side.yaml"},
		{"onnx half named.onnx -o named", "the input named.yaml"},
		{"onnx half named.onnx -o h.onnx --least 1", "\"gone\""},
		{"onnx quantise x.onnx --images digits -o word", "it is no side-car"},
		{"onnx train net.onnx -o word --images digits", "it is no side-car"},
		{"train extractor --from net.onnx --dataset digits -o word", "it is no side-car"},
		{"train extractor --dataset digits -o side", "cannot be: side-car side.yaml"},
		{"train patches --dataset digits -o side", "cannot be: side-car side.yaml"},
		{"onnx train net.onnx -o side --data rows.npz", "cannot be: side-car side.yaml"},
		{"onnx train net.onnx -o named --data rows.npz", "named.yaml would say"},
		{"onnx half x.onnx", "-o is not given"},
		{"data show --dataset ./photos --out photos/1/a.png", "give the output another name"},
		{"results export nowhere -o a.csv", "nowhere"},
		// The client graph.
		{"fuse --extractor x.onnx -o y.onnx", "--class-names"},
		{"fuse --extractor nowhere.onnx --class-names a,b -o y.onnx", "nowhere.onnx"},
		{"fuse --extractor x.onnx --class-names a,a -o y.onnx", "each another"},
		{"fuse --extractor x.onnx --class-names a -o y.onnx", "two names or more"},
		{"fuse --extractor nowhere.onnx --class-names a,b --upload private -o y.onnx", "wants uploads of class means"},
		{"fuse --extractor nowhere.onnx --class-names a,a --upload class-means -o y.onnx", "each another"},
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
		{"predict client.onnx photos", notIt}, {"predict nowhere.onnx photos", "nowhere.onnx"},
		{"predict cut.onnx photos", "cut.onnx"},
		{"evaluate client.onnx photos", notIt}, {"evaluate x.onnx", "CLASSIFIER"},
		{"calibrate client.onnx photos -o y.onnx", notIt},
		{"calibrate x.onnx photos", "--out is not given"},
		{"calibrate x.onnx photos -o y.onnx --by-class --proportions equal", "give one of the two"},
		{"calibrate x.onnx photos -o y.onnx --scaling best", "--scaling is"},
		{"calibrate x.onnx photos -o y.onnx --score best", "--score is"},
		{"verify x.onnx --key bad.key", "bad.key"}, {"package x.onnx", "--output is missing"},
		{"onnx inspect text.txt", "text.txt"}, {"onnx check text.txt", "not an ONNX model"},
		{"onnx run x.onnx --input images=cut.npy --out o", "cut.npy"},
		{"onnx train x.onnx --images photos", "-o is not given"},
		{"bench round --alpha -1", "fmp: bench round: --alpha is -1"},
		{"bench round --closed-form --dataset digits --classes 5-9 --set corpus.classes=0-4 --seeds 1", "leave it out"},
		// Tensors.
		{"onnx run add.onnx --out onto " + both, `output "sum/ab": onto/sum_ab.npy is a folder`},
		{"onnx run eighths.onnx --out o --input x=a.npy", `output "y": .npy files hold no float8e4m3fn; give --format pb`},
		{"onnx run bounds.onnx --out o --input x=a.npy --engine pure", `the model is at fault: node "bound" (Clip): input 1`},
		{"onnx quantise bytes.onnx --images digits --preset 0-1 -o q.onnx", "leave --mean, --std and --preset out"},
		{fit + "--data sums.npz --loss contrastive", `"target" is of shape [20 7]; --loss contrastive wants class numbers`},
		{"onnx run --out o", "wants MODEL"}, {"onnx run nowhere.onnx --out o", "nowhere.onnx"},
		{"onnx run cut.onnx --out o", "cut.onnx"}, {"onnx run add.onnx " + both, "--out is missing"},
		{add2 + "--input a=a.npy", "no --input for b (float32[n,2])"},
		{add2 + "--input c=a.npy", `no input "c"; the model's inputs are a (float32[n,2]), b`},
		{add2 + "--input a=a.npy --input a=a.npy", "given twice"}, {add2 + "--input a.npy", "want NAME=FILE"},
		{add2 + "--input a=wide.npy --input b=a.npy", "float32[3 5]"},
		{add2 + "--input a=f64.npy --input b=a.npy", "float64[3 2]"},
		{add2 + "--input a=bad.npy --input b=a.npy", "not a .npy file"},
		{add2 + "--input a=bad.pb --input b=a.npy", "bad.pb"},
		{add2 + "--input a=a.csv --input b=a.npy", "allowed are .npy and .pb"},
		{add2 + both + "--output z", "outputs are sum/ab"}, {add2 + both + "--format csv", "allowed are npy, pb"},
		{add2 + both + "--engine gpu", "engine.name"}, {add2 + both + "--provider tpu", "engine.provider"},
		{add2 + both + "--engine ort --library gone.so", "gone.so"},
		{"onnx bench add.onnx --batch 0", "--batch is 0"}, {"onnx bench add.onnx --dim n", "want NAME=N"},
		{"onnx bench add.onnx --dim n=200000000", "make --batch or --dim smaller"},
		{"onnx bench add.onnx --dim n=2000000000", "more than"}, {"onnx bench add.onnx --seconds 0", "--seconds is 0"},
		{"onnx bench add.onnx --dim n=3 --dim n=4", "given twice"},
		{"onnx bench add.onnx --dim rows=3", "no input has a size called"},
		{"onnx bench add.onnx --engine fast", "auto, ort, pure and both"},
		{"onnx grad add.onnx --wrt a", "-o is not given"}, {"onnx grad add.onnx --wrt nope -o g.onnx", `"nope"`},
		{"onnx grad nowhere.onnx --wrt a -o g.onnx", "nowhere.onnx"},
		{quantise + "--method best", `method "best"`}, {quantise + "--weights-only 3", "3 bits"},
		{quantise + "--calibrate 3", "--calibrate 3"}, {quantise + "--weight-bits 0", "--weight-bits is 0"},
		{quantise + "--weights-only 8 --weight-bits 7", "--weight-bits would be ignored"},
		{quantise + "--percentile 99", "--percentile would be ignored"}, {quantise + "--least 9", "--least would be"},
		{quantise + "--seconds 0", "--seconds is 0"}, {quantise + "--images ./nowhere", "nowhere"},
		// Data sets.
		{"data show --dataset ./short", "truncated"}, {"data show --part both", "train and test"},
		{"data show --dataset mnist --dataset.dir void", "fmp data pull mnist"},
		{"data show --dataset ./short --seed 3", "--seed is for drawn data sets"},
		{"data show --dataset digits -o sheet.jpg", "a contact sheet is a PNG"},
		{"data show --dataset cifar-10 --dataset.dir void", "did you mean cifar10?"},
		{"extractors pull resnet", "none that can be fetched"},
		{"data pull imagenet", "mnist, cifar10 or cifar100"}, {"data pull minst", "did you mean mnist?"},
		{"data pull mnist --data-dir void", "did you mean --dataset.dir?"}, {"data pull", "name of a data set"},
		{"data import short --dataset.dir void", "truncated"}, {"data import nowhere --dataset.dir void", "nowhere"},
		{"data import short --name CIFAR10 --dataset.dir void", "of the kind cifar10"}, {"data lst", "list"},
		{"data synth", "--out"}, {"data synth -o text.txt", "is a file"},
		{"data synth -o short --photos", "holds files"},
		{"data synth -o void --variant letters", "digits-color"}, {"data synth -o void --train -3", "-3"},
		{"data synth -o void --train 0", "--train 0"}, {"data synth -o void --test 0", "--test 0"},
		{"data synth -o void --train 0 --test 0", "--train 0"}, {"score a.npy", "say with --run"},
		{"train open --steps 0 --batch 0 --noises 0 --validate-every 0", "--steps 0"},
		{"audit plain --time 1", "the run is not private"},
		// Runs.
		{run + "minst", "did you mean mnist?"}, {run + "cifar10 --dataset.dir void", "fmp data pull cifar10"},
		{run + "digits --alpha 0.1", "--partition dirichlet"}, {run + "./short", "truncated"},
		{run + "digits --extractor nowhere.onnx", "nowhere.onnx"},
		{"features --shard= --dataset digits", "--shard is empty"}, {shard + "3", "i/N"}, {shard + "a/3", "i/N"},
		{shard + "3/3", "i/N"}, {shard + "-1/3", "i/N"}, {shard + "0/0", "i/N"}, {shard + "1/100001", "i/N"},
		{shard + "1/2/3", "i/N"},
		// Trainings.
		{"train predctor", "did you mean predictor?"}, {"train predictor extra", "no arguments"},
		{"train embedding --stps 3", "--steps"}, {"train embedding --seeds 3", "--seeds"}, {"train patches", "--out"},
		{"train open --set posterior.samples=3", "does not read"},
		{"train open --set federation.points=3", "does not read"},
		{"train conjugate --set erm.l2=3", "does not read"},
		{"train predictor --set federation.alpha=1", "does not read"},
		{"train private --clients 3", "--clients"}, {"train extractor --steps 100 -o y.onnx", "give --epochs"},
		{"train predictor --steps many", `--steps is "many"; want a whole number`},
		{"train predictor --latent -4", "latent is -4; allowed are 0 to 105"},
		{"train predictor --dim 5", "dim is 5; allowed are 43 to"},
		{"train extractor --from x.onnx --aux-share 0.3 -o y.onnx", "--aux-share is given without --aux"},
		{own + "lora=8", "goes with --from"}, {own + "preset=imagenet", "goes with --from"},
		{own + "mean=1", "goes with --from"}, {own + "std=1", "goes with --from"},
		{own + "layout=NHWC", "goes with --from"}, {own + "side=64", "goes with --from"},
		{own + "aux-share=0.3", "without --aux"}, {own + "aux-classes=3", "without --aux"},
		{own + "aux-out=o.onnx", "without --aux"},
		// Servers: off loopback nothing listens without a certificate and the readers' token, workers come
		// in with a token alone, and no secret stands on the command line.
		{serve + "--listen :8443", away}, {serve + "--listen 0.0.0.0:8443 --token-file token", away},
		{serve + "--listen [::]:8443 " + pair, away},
		{serve + "--listen 192.0.2.1:8443 --tls-self-signed --token-file token", away},
		{serve + "--listen :8443 --token-file short.token " + given, "want 16 to"},
		{serve + "--listen :8443 --token-file read.token " + given, "chmod 600 read.token"},
		{serve + "--tls-cert a.crt --tls-key read.token", "chmod 600 read.token"},
		{serve + "--nats-listen 127.0.0.1:4222 --nats-token-file read.token", "chmod 600 read.token"},
		{serve + "--tls-cert a.crt", "--tls-cert with --tls-key"},
		{serve + "--tls-self-signed " + pair, "--tls-cert with --tls-key"},
		{serve + "--nats-listen :4222 --nats-token-file token", "want an address of loopback"},
		{serve + "--nats-listen 127.0.0.1:4222", "want an address of loopback"},
		{serve + "--nats nats://user:password@n1:4222", "holds a password"},
		{serve + "--workers", "want --nats-listen"},
		{serve + "--merge", "want --nats-listen"}, {serve + "--nats-replicas 3", "allowed are 1 to 5"},
		// Trainings of any model.
		{fit, "give one of"}, {rows + "--held-out 1", "allowed are 0 to below 1"},
		{rows + "--freeze .* --head keep --classes 7", "no weights are trained"},
		{rows + "--head old", "allowed are auto"}, {rows + "--rate-of fc", "want REGEXP=FACTOR"},
		{rows + "--classes 2", "--classes is 2"}, {rows + "--optimizer adam", "adamw and sgd"},
		{rows + "--output z", "its outputs are y"},
		{rows + "--epochs 0", "1 epoch and up"}, {rows + "--batch 0", "--batch 0"}, {rows + "--clip -1", "--clip -1"},
		{rows + "--optimizer sgd --momentum 2", "--momentum 2"},
		{rows + "--momentum 0.5", "goes with --optimizer"}, {rows + "--patience -1", "--patience -1"},
		{rows + "--loss mse --head add", "--head goes with --loss cross-entropy, and"},
		{rows + "--loss contrastive --head new", "--head goes with --loss cross-entropy"},
		{rows + "--loss mse --classes 3", "--classes goes with --loss cross-entropy or con"},
		{rows + "--rate 0", "--rate 0; allowed are above 0"},
		{rows + "--preset imagenet", "goes with --images"}, {rows + "--side 9", "--side goes with"},
		{rows + "--head keep", "is float32[n,7] and the data has 3"},
		{rows + "--freeze zzz", `--freeze "zzz" fits no`}, {rows + "--rate-of q=1", `--rate-of "q=1" fits`},
		{fit + "--data layers.onnx", "want an archive"}, {fit + "--data sums.npz", "of sum 2; want prob"},
		{fit + "--data sums.npz --loss binary", "want numbers from 0"},
		{fit + "--data endless.npz --loss mse", "want finite"},
		{"onnx train doubles.onnx -o t.onnx --engine pure --data endless64.npz --loss mse", "row 19 of \"x\" has"},
		{rows + "--loss mse", `"target" is of shape [60] and output "y" is float32[n,7]; want numbers of the output's sh`},
		{rows + "--loss binary", "; target[:, None] of NumPy is a column"},
		{fit + "--data three.npz", "[20 3] and output \"y\" is float32[n,7]; want class numbers of one axis, or prob"},
		{tune + "none --loss hinge", `loss "hinge"; allowed`}, {tune + "none --lora -3", "--lora -3"},
		{tune + "./void", "holds neither"}, {tune + "none", "known names are"},
		{tune + "none --freeze (", "error parsing regexp"}, {tune + "./photos --classes 3", "--classes goes with"},
		// Words.
		{fuse + "--upload moments", "class"}, {fuse + "--class-names a,b --bytes 10", "bytes"},
		{fuse + "--class-names a,b --extractor.std 0.5", "std"}, {fuse + "--class-names a,b --extractor.mean 0.5", "mean"},
		{"onnx half x.onnx -o h.onnx --least -5", "--least is -5"},
		{"fuse --embeding x", "--embeding"}, {"fuse --set federation.clients=3", "does not read"},
		{"pool --rows=0.5", `--rows is "0.5"; want true or false`},
		{"onnx run --time-limit 5", `--time-limit is "5"; want a time such as 90s`},
		{"vresion", "did you mean version?"}, {"onnx zzzzzzzz", "fmp onnx --help"},
		{"help onnx rnu", "did you mean run?"}, {"version --jsn", "did you mean --json?"},
		{"version extra", "takes no arguments"}, {"completion bsh", "did you mean bash?"},
		{"results export", "at least 1 argument (RUN)"}, {"results compare", "at least 1 argument (RUN)"},
		{"results list a b", "at most 1 argument (DIR)"}, {"verify", "wants 1 argument (MODEL)"},
		{"man", "DIR"}, {"man x --format html", "man, markdown"},
		{"run --partition dirichlt", "federation.partition=dirichlet, say"},
		{"grid grid.yaml", "vary"}, {"run --dataset ./nowhere", "nowhere"},
		{"run --methods FPM", "did you mean FMP?"},
		{"run --seeds 0", "seeds"},
		{"poool", "pool"},
	}, everything(t))
}

// everything is how the program is run for its exit code and all that it prints.
func everything(t *testing.T) func(args ...string) (int, string) {
	return func(args ...string) (int, string) {
		var said bytes.Buffer
		code := execute(t.Context(), args, strings.NewReader(""), &said, &said)
		return code, said.String()
	}
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
			outputstest.Command{Name: c.CommandPath(), Flags: c.Flags(), Args: want, Run: everything(t)})
		for _, s := range c.Commands() {
			walk(s)
		}
	}
	walk(newRootCommand(nil))
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
			_, out := everything(t)(args...)
			for _, line := range strings.Split(strings.ReplaceAll(out, "\t", " "), "\n") {
				if !printable.Is(line) {
					t.Errorf("%q prints %q", args, line)
				}
			}
		}
		for _, sub := range c.Commands() {
			walk(sub, append(append([]string(nil), path...), sub.Name()))
		}
	}
	walk(newRootCommand(nil), nil)
}

// twoBounds is a Clip whose lower bound is two numbers.
func twoBounds() *onnx.Model {
	value := func(name string) []onnx.ValueInfo {
		return []onnx.ValueInfo{{Name: name, DType: onnx.Float32, Shape: onnx.Shape("n", 2)}}
	}
	return onnx.NewModel(&onnx.Graph{Name: "bounds", Inputs: value("x"), Outputs: value("y"),
		Nodes:        []*onnx.Node{{Name: "bound", Op: "Clip", Inputs: []string{"x", "low"}, Outputs: []string{"y"}}},
		Initializers: map[string]*onnx.Tensor{"low": onnx.Vector[float32](0, 1)}})
}
