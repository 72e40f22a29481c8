package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"fmp/featurize/dataset"
	"fmp/featurize/extractor"
	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/quantise"
	"fmp/pipeline/option"
	"fmp/pipeline/settings"
)

// quantising is one call of fmp onnx quantise. weightsOnly is bits, 0 for the static form; seconds
// is the time of each measurement.
type quantising struct {
	out, images, onBad string
	weightsOnly, least int
	calibrate, test    int
	method             string
	o                  quantise.Options
	x                  extractor.Options
	seconds            float64
}

// maxQuantiseBytes bounds the images that are held. They are held as the model takes them, in
// float32 mostly. It holds for calibration and test images together.
const maxQuantiseBytes = 2<<30 - 1

// quantisedReport is printed.
type quantisedReport struct {
	File        string `json:"file"`
	Bytes       int64  `json:"bytes"`
	BytesBefore int64  `json:"bytes_before"`
	// tensors stored in few bits, of --weights-only
	Weights int              `json:"weights,omitempty"`
	Static  *quantise.Report `json:"static,omitempty"`
	Test    *quantisedTest   `json:"test,omitempty"`
	Speed   []quantisedSpeed `json:"speed,omitempty"`
}

// quantisedTest compares the models on images that chose no range. Accuracies are nil where the
// outputs are not the folder's classes.
type quantisedTest struct {
	Images int `json:"images"`
	// share of images of the same likeliest class, or largest output
	Agree float64 `json:"agreement"`
	// squared error of the finite numbers of the first output of floats, as a share of their
	// variance between images
	Loss quantise.Loss `json:"loss"`
	// of the quantised model, where its outputs are the folder's classes
	Accuracy  *float64 `json:"accuracy,omitempty"`
	AccBefore *float64 `json:"accuracy_before,omitempty"` // of the model
}

// quantisedSpeed is the time of one image on one thread, in ms. A time of 0 stands beside an Error.
type quantisedSpeed struct {
	Engine string  `json:"engine"`
	Before float64 `json:"before_ms"`
	After  float64 `json:"after_ms"`
	Error  string  `json:"error,omitempty"`
}

// newONNXQuantiseCommand declares fmp onnx quantise. Both models are compared on test images that
// chose no range. Static forms write QuantizeLinear and DequantizeLinear (ONNX operators), q =
// clamp(round(x/s) + z).
func newONNXQuantiseCommand() *cobra.Command {
	q := quantising{o: quantise.Defaults()}
	cfg := option.Default[engineSettings]()
	cmd := &cobra.Command{
		Use:   "quantise MODEL",
		Short: "Write a model that computes in bytes, or stores its weights in 8 or 4 bits",
		Long: `Write MODEL with unsigned bytes between its operators and signed bytes for its weights, which have a
scale for each output channel. The ranges of values are those on images of --images, a folder with
one folder of images for each class, or a data set by name. Normalisations are folded into
convolutions first. Half of the --calibrate images choose the ranges. The others measure the loss of
each output: its squared error as a share of its variance, which is about the mean over images of
each of its numbers. Where that of an output is above --loss, the layers that cost most stay in
float32: a share of --float at most, rounded up to whole layers. Layers whose input is infinite, 0
throughout or an output of MODEL stay in float32 too. An output whose shape depends on the images,
and differs in bytes, is refused: models are compared by their outputs.

A classifier, client graph or predictor of fmp is refused: quantise the extractor, and make the
client graph from it (fmp fuse --extractor).

With --weights-only the weights alone are stored in 8 or 4 bits, and the model computes in float32
as before. Other programs on the ONNX Runtime set session.qdq_matmulnbits_accuracy_level to 1 for
that: by itself it rounds what such weights multiply to bytes. Weights that other operators read too
stay in float32.

Weights in branches and in bodies of loops stay in float32, and so do optional inputs, such as those
of LoRA adapters. Ranges are taken with the defaults of these.

Printed are the loss and the agreement of both models on test images, the accuracy where the model's
outputs are the folder's classes, the sizes, and the time of one image on both engines. The loss
leaves out numbers that MODEL has infinite or NaN. It is infinite where OUT alone has such numbers,
which --json prints as null.

Where flags or a side-car file say how images are fed to MODEL, OUT.yaml says the same of the model
that is written.`,
		Example: `  fmp onnx quantise resnet18.onnx --images photos --preset imagenet \
    -o resnet18-bytes.onnx
  fmp onnx quantise extractor.onnx --images cifar10 --method percentile --percentile 99.9 \
    -o bytes.onnx
  fmp onnx quantise model.onnx --images photos --weights-only 4 -o four.onnx --json`,
		Args: exactArgs("MODEL"),
	}
	bindSettings(cmd, &cfg, hardwareAliases)
	f := cmd.Flags()
	outFlag(cmd, &q.out, "out", "", "file to write")
	f.StringVar(&q.images, "images", "",
		"`FOLDER` of images, one folder a class, or a data set by name")
	f.StringVar(&q.onBad, "on-bad", "fail", "images that cannot be read: fail, or skip")
	f.IntVar(&q.weightsOnly, "weights-only", 0, "store the weights alone in so many `BITS`, 8 or 4")
	f.IntVar(&q.least, "least", 1024,
		"elements that weights must have to be stored so, with --weights-only")
	f.IntVar(&q.calibrate, "calibrate", 128, "images for ranges and loss, 4 to 10000")
	f.IntVar(&q.test, "test", 500, "test images for agreement and accuracy, 1 to 100000")
	f.StringVar(&q.method, "method", string(q.o.Method),
		"how ranges are chosen: mse, percentile or minmax")
	f.Float64Var(&q.o.Percentile, "percentile", q.o.Percentile,
		"of the numbers of a value that its range holds, of --method percentile")
	f.IntVar(&q.o.Bits, "weight-bits", q.o.Bits,
		"of weights: 8, or 7 for the ONNX Runtime on x86 without VNNI, which saturates sums of 8")
	f.Float64Var(&q.o.Loss, "loss", q.o.Loss, "loss above which layers stay in float32")
	f.Float64Var(&q.o.Float, "float", q.o.Float,
		"share of the layers that may stay in float32 for their loss, 0 to 1, rounded up to "+
			"whole layers")
	f.Float64Var(&q.seconds, "seconds", 1, "how long to measure each engine and model, 0.01 to 600")
	preprocessingFlags(cmd, &q.x)
	jsonFlag(cmd, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return q.run(cmd, args[0], cfg.Engine)
	}
	return cmd
}

// unused returns an error where a flag is given that --weights-only, or its absence, leaves without
// a meaning. It tells the first such flag in the order of the list.
func (q *quantising) unused(f *pflag.FlagSet) error {
	wanted := map[string]bool{"least": q.weightsOnly != 0, "percentile": q.weightsOnly == 0 &&
		q.o.Method == quantise.Percentile}
	for _, name := range []string{"method", "loss", "float", "weight-bits"} {
		wanted[name] = q.weightsOnly == 0
	}
	for _, name := range []string{"least", "method", "percentile", "loss", "float", "weight-bits"} {
		if f.Changed(name) && !wanted[name] {
			return usageErrorf("--%s would be ignored: see --help for what it goes with", name)
		}
	}
	return nil
}

// run checks flags and model, quantises, compares both models on test images, and writes the new
// one. Times are measured last. Flags, kind of model, side-car and images are checked before the
// engine is opened. An error before side.save leaves no file; one after it, of measuring times,
// leaves the model.
func (q *quantising) run(cmd *cobra.Command, path string, cfg settings.Engine) error {
	q.o.Method = quantise.Method(q.method)
	switch {
	case q.out == "":
		return usageErrorf("-o is not given; name the file to write")
	case q.images == "":
		return usageErrorf("--images is not given; name a folder with one folder of images for " +
			"each class, or a data set")
	case q.calibrate < 4 || q.calibrate > 10_000 || q.test < 1 || q.test > 100_000:
		return usageErrorf("--calibrate %d and --test %d; allowed are 4 to 10000 and 1 to 100000",
			q.calibrate, q.test)
	case q.o.Bits != 7 && q.o.Bits != 8:
		return usageErrorf("--weight-bits is %d; allowed are 7 and 8", q.o.Bits)
	}
	// Both have looked by then, and the first fault of the two is told.
	if err := cmp.Or(checkSeconds(q.seconds), q.unused(cmd.Flags())); err != nil {
		return err
	}
	m, manifest, err := quantisable(path)
	if err != nil {
		return err
	}
	side, err := newSidecar(cmd.Flags(), path, q.out, manifest, q.x, false)
	if err != nil {
		return err
	}
	// extractor.Feeder makes m one of float32; the file's types are told from this graph.
	was := m.Graph
	ds, batches, tests, err := q.read(cmd, path, m, manifest) // in float32 from here
	if err != nil {
		return err
	}
	e, err := openEngine(cmd.Context(), cfg, cfg.Threads, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	defer e.Close()
	report := quantisedReport{File: q.out}
	var to *onnx.Model
	if q.weightsOnly != 0 {
		to, report.Weights, err = quantise.Weights(m, q.weightsOnly, q.least)
	} else {
		p := newProgress(cmd.ErrOrStderr())
		q.o.Progress = func(done, all int) { p.report("quantising", done, all) }
		to, report.Static, err = quantise.Static(cmd.Context(), m, e, batches, q.o)
		p.close()
	}
	if err != nil {
		return usageError(fmt.Errorf("%s: %w", path, err))
	}
	// Programs that feed the model in half precision must feed the new one in float32.
	remark(cmd, retyped(was, to.Graph))
	if err := descends(to, path, "fmp onnx quantise"); err != nil {
		return err
	}
	if err := side.fits(to); err != nil {
		return err
	}
	// The comparison comes before the model is written, and its engine may be either.
	if report.Test, err = compareModels(cmd.Context(), e, m, to, tests, ds); err != nil {
		return usageError(err)
	}
	remark(cmd, untold(report.Test.Loss))
	if report.BytesBefore, report.Bytes, err = side.save(to, path, q.out); err != nil {
		return err
	}
	if err := q.time(cmd, cfg, m, to, tests[0], &report); err != nil {
		return err
	}
	return show(cmd, report, report.print)
}

// quantisable loads a model that is an extractor, or none of fmp's, and has an output of floats.
// The manifest of a model of another program has no kind.
func quantisable(path string) (*onnx.Model, models.Manifest, error) {
	m, manifest, err := models.Load(path)
	if err == nil {
		_, err = checkModel(m)
	}
	if err != nil {
		return nil, manifest, usageError(fmt.Errorf("%s: %w", path, err))
	}
	if k := manifest.Kind; k != "" && k != models.KindExtractor {
		return nil, manifest, usageErrorf("%s is of kind %q, which is not quantised: quantise its "+
			"extractor, and make the client graph from that (fmp fuse --extractor)", path, k)
	}
	if !slices.ContainsFunc(m.Graph.Outputs, func(v onnx.ValueInfo) bool {
		// which float32 takes the place of
		return isFloat32(v) || v.DType == onnx.Float16 || v.DType == onnx.BFloat16
	}) {
		return nil, manifest, usageErrorf("%s: no output is of float32, by which models are "+
			"compared; the model's outputs are %s", path, describeValues(m.Graph.Outputs))
	}
	return m, manifest, nil
}

// read returns batches of images for ranges, and the test images one by one, as the model takes
// them. Of N images those at floor(kN/n) are taken, for k from 0 to n-1. The images of ranges and
// test are parts of one data set that have none in common. Each is one batch, as the model takes
// it.
func (q *quantising) read(cmd *cobra.Command, path string, m *onnx.Model,
	manifest models.Manifest) (ds *dataset.Dataset, batches, tests []quantise.Batch, err error) {
	d := dataset.Options{Name: imagesNamed(q.images)}
	if d.Fit, err = extractor.Fit(path, q.x); err != nil {
		return nil, nil, nil, usageError(flagged{err})
	}
	if ds, err = loadForTraining(cmd, d, q.onBad); err != nil {
		return nil, nil, nil, err
	}
	if err := halve(ds); err != nil {
		return nil, nil, nil, usageError(err)
	}
	feed, notes, err := extractor.Feeder(path, m, manifest, q.x, ds.Train.Images)
	if err != nil {
		return nil, nil, nil, usageError(fmt.Errorf("%s: %w", path, flagged{err}))
	}
	for _, n := range notes {
		fmt.Fprintln(cmd.ErrOrStderr(), "fmp onnx quantise: "+n)
	}
	bytes := 0
	take := func(p *dataset.Labelled, n int) (out []quantise.Batch, err error) {
		n = min(n, p.N)
		for k := range n { // spread over all classes: folders are in their order
			im, _, err := p.Images.Load(cmd.Context(), k*p.N/n, k*p.N/n+1)
			if err != nil {
				return nil, err
			}
			b, err := feed(im)
			if err != nil {
				return nil, err
			}
			for _, t := range b {
				// The sum is checked after each image, so that it passes the bound by one image at
				// most.
				if bytes += t.Len() * t.DType.Size(); bytes > maxQuantiseBytes {
					return nil, fmt.Errorf("the images take more than %d bytes as the model "+
						"takes them; lower --calibrate and --test", maxQuantiseBytes)
				}
			}
			out = append(out, b)
		}
		return out, nil
	}
	if batches, err = take(&ds.Train, q.calibrate); err != nil {
		return nil, nil, nil, usageError(err)
	}
	// Every second image measures the loss: those of a folder are in the order of their classes.
	// quantise.Static divides a list in two halves, by its order.
	mixed := make([]quantise.Batch, 0, len(batches))
	for first := range 2 {
		for i := first; i < len(batches); i += 2 {
			mixed = append(mixed, batches[i])
		}
	}
	if tests, err = take(&ds.Test, q.test); err != nil {
		return nil, nil, nil, usageError(err)
	}
	if len(mixed) < 4 || len(tests) == 0 {
		return nil, nil, nil, usageErrorf("%s has %d images for ranges and %d for a test; want 4 "+
			"and 1 at least", q.images, len(mixed), len(tests))
	}
	return ds, mixed, tests, nil
}

// halve makes every second training image a test image where there are none. Every second one keeps
// the classes' shares, as a folder lists its images class by class. ds is changed: both parts are
// new, and share no image.
func halve(ds *dataset.Dataset) error {
	if ds.Test.N > 0 {
		return nil
	}
	var parts [2][]int
	for i := range ds.Train.N {
		parts[i%2] = append(parts[i%2], i)
	}
	train, err := ds.Train.Subset(parts[0])
	if err != nil {
		return err
	}
	test, err := ds.Train.Subset(parts[1])
	if err != nil {
		return err
	}
	ds.Train, ds.Test = *train, *test
	return nil
}

// isFloat32 reports whether a value is of float32.
func isFloat32(v onnx.ValueInfo) bool { return v.DType == onnx.Float32 }

// compareModels runs both models on test images, and compares their first output of float32.
// Agreement and accuracy are by the place of the largest number, the first of equals. Images are
// run one by one. With outputs a of N images and a' of the quantised model, agreement is the mean
// of [argmax a = argmax a']. Outputs of other sizes in the two models are an error.
func compareModels(ctx context.Context, e engine.Engine, before, after *onnx.Model,
	tests []quantise.Batch, ds *dataset.Dataset) (*quantisedTest, error) {
	var sessions [2]engine.Session
	for i, m := range []*onnx.Model{before, after} {
		s, err := e.Load(m)
		if err != nil {
			return nil, err
		}
		defer s.Close()
		sessions[i] = s
	}
	r := &quantisedTest{Images: len(tests)}
	var sums quantise.Sums
	var accuracy, accBefore float64
	width := 0
	for k, b := range tests {
		var out [2][]float32
		for i, s := range sessions {
			outputs := s.Outputs()
			// quantisable and the Feeder leave one output of float32 at least.
			name := outputs[max(0, slices.IndexFunc(outputs, isFloat32))].Name
			got := map[string]*onnx.Tensor{name: nil}
			if err := s.Run(ctx, b, got); err != nil {
				return nil, err
			}
			t := got[name]
			out[i] = t.F32()
			// In a fixed batch the others are copies of the image.
			if items := itemsOf(before, b); len(t.Shape) > 0 && t.Shape[0] == items {
				out[i] = out[i][:len(out[i])/items]
			}
		}
		if len(out[0]) == 0 || len(out[0]) != len(out[1]) {
			return nil, fmt.Errorf("the first output of float32 has %d and %d numbers; want the "+
				"same, and some", len(out[0]), len(out[1]))
		}
		width = len(out[0])
		// The first is the model's, by whose variance the error is measured.
		sums.Add(out[0], out[1])
		// It is the image that take chose as the k-th.
		label := ds.Test.Labels[k*ds.Test.N/len(tests)]
		was, is := largest(out[0]), largest(out[1])
		r.Agree += indicator(was == is)
		accBefore += indicator(was == label) / float64(len(tests))
		accuracy += indicator(is == label) / float64(len(tests))
	}
	// A sum of ones is exact, so that full agreement is exactly 1.
	r.Agree /= float64(len(tests))
	if width == len(ds.Classes) {
		r.Accuracy, r.AccBefore = &accuracy, &accBefore
	}
	r.Loss = sums.Loss()
	return r, nil
}

// untold says why a loss is no number.
func untold(loss quantise.Loss) []string {
	switch {
	case math.IsInf(float64(loss), 0):
		return []string{"the loss is infinite: on test images the quantised model has infinite " +
			"numbers or NaN where MODEL's are finite"}
	case math.IsNaN(float64(loss)):
		return []string{"the loss cannot be told: on test images MODEL's output has no finite " +
			"numbers that differ between images"}
	}
	return nil
}

// indicator is 1 for true, a summand of a share.
func indicator(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// largest returns the place of the largest number, the first of equals. A NaN in the first place
// stays the largest, as no comparison with it is true.
func largest(v []float32) int {
	at := 0
	for i, x := range v {
		if x > v[at] {
			at = i
		}
	}
	return at
}

// time measures both models on both engines. An engine that lacks an operator, or is not installed,
// has its error in place of times. Times are medians on one thread, of one image of the batch that
// a model takes. It returns an error of an interrupt alone.
func (q *quantising) time(
	cmd *cobra.Command, cfg settings.Engine, before, after *onnx.Model, one quantise.Batch,
	r *quantisedReport,
) error {
	for _, name := range []string{"pure", "ort"} {
		c := cfg
		c.Name, c.Threads = name, 1
		// The pure engine refuses the providers of the other.
		if name == "pure" {
			c.Provider, c.Library = "", ""
		}
		line := quantisedSpeed{Engine: name}
		for _, m := range []struct {
			model *onnx.Model
			to    *float64
		}{{before, &line.Before}, {after, &line.After}} {
			b, err := benchEngine(cmd, c, m.model, one, itemsOf(m.model, one),
				time.Duration(q.seconds*float64(time.Second)))
			if err != nil {
				if cmd.Context().Err() != nil {
					return err
				}
				// The first of both models' errors stands for the engine.
				line.Error = cmp.Or(line.Error, err.Error())
				continue
			}
			*m.to = b.Median / float64(itemsOf(m.model, one))
		}
		r.Speed = append(r.Speed, line)
	}
	return nil
}

// print writes the size, the layers in float32, loss and agreement, and a line of times an engine.
func (r *quantisedReport) print(w io.Writer) error {
	fmt.Fprintf(w, "%s: %d bytes (%d before)\n", r.File, r.Bytes, r.BytesBefore)
	if s := r.Static; s != nil {
		fmt.Fprintf(w, "%d of %d layers in bytes, %d normalisations folded; loss %.4f "+
			"(%.4f with all layers in bytes that can be)\n", s.Layers-len(s.Float), s.Layers,
			s.Folded, s.Loss, s.All)
		for _, l := range s.Float {
			line(w, "in float32: %s\n", l)
		}
	} else {
		fmt.Fprintf(w, "%d tensors of weights stored in few bits\n", r.Weights)
	}
	t := r.Test
	fmt.Fprintf(w, "%d test images: agreement %.3f, ", t.Images, t.Agree)
	if math.IsNaN(float64(t.Loss)) {
		fmt.Fprint(w, "loss not known")
	} else {
		fmt.Fprintf(w, "loss %.4f", t.Loss)
	}
	if t.AccBefore != nil {
		fmt.Fprintf(w, ", accuracy %.3f (%.3f before)", *t.Accuracy, *t.AccBefore)
	}
	fmt.Fprintln(w)
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tab, "engine\tbefore, ms\tafter, ms\ttimes as fast")
	for _, s := range r.Speed {
		if s.Error != "" {
			fmt.Fprintf(tab, "%s\t%s\n", s.Engine, s.Error)
			continue
		}
		fmt.Fprintf(tab, "%s\t%.2f\t%.2f\t%.2f\n", s.Engine, s.Before, s.After, s.Before/s.After)
	}
	return tab.Flush()
}
