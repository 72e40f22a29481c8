package audit

import (
	"context"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"time"

	"fmp/featurize/imagefile"
	"fmp/models/rng"
	"fmp/onnx"
	"fmp/pipeline/client"
	"fmp/pipeline/lab/experiment"
	"fmp/pipeline/metric"
	"fmp/pipeline/privacy"
)

// Timed is the attack of a malicious server on one image of a client by the moment of its reply.
// The server makes graph and image for the purpose, knows every other image and the reply's content
// is of no use to it: half of the runs have the image, and it asks of each moment whether it was
// there. The moment of a reply is outside of differential privacy, which bounds its content alone.
type Timed struct {
	// Name describes the image, or the graph.
	Name string `json:"name"`
	// Refused is the reason for which the client does not run the graph; the rest is then empty.
	Refused string `json:"refused,omitempty"`
	Runs    int    `json:"runs"`
	// AtOnce is the attack on replies that leave as soon as they are made, Fixed that on those that
	// leave at a fixed time.
	AtOnce Moments `json:"at_once"`
	Fixed  Moments `json:"fixed"`
}

// Moments are an attack by the moments of replies. An AUC of 0.5 is chance. As the larger of two
// areas is taken, few runs give more than that by luck.
type Moments struct {
	// AUC is the area under the ROC curve of later replies, or of earlier ones where that is the
	// larger.
	AUC float64 `json:"auc"`
	// With and Without are the median times from start to reply with the image and without it, in
	// milliseconds.
	With    float64 `json:"with_ms"`
	Without float64 `json:"without_ms"`
}

// long is the size of the values on which a graph spends time for the image that is attacked, and
// deep how often.
const long, deep = 1 << 14, 40

// slow is an extractor that computes an operator many times on values that are one number for the
// image that is attacked, and another for all others. The result is multiplied by 0 and added, so
// that finite numbers leave the reply's content honest.
func slow(op string, target, other float32) behind {
	nodes := behind{
		node("Relu", []string{"white"}, "is"), // 1 for the image, 0 for others
		node("Cast", []string{"is"}, "chosen", onnx.IntAttr("to", int(onnx.Bool))),
		constant("target", onnx.Scalar(target)), constant("other", onnx.Scalar(other)),
		node("Where", []string{"chosen", "target", "other"}, "number"),
		constant("repeats", onnx.Vector[int64](1, long)),
		constant("small", onnx.Scalar[float32](1e-30)),
		constant("nothing", onnx.Scalar[float32](0)),
		node("Tile", []string{"number", "repeats"}, "slow0"),
	}
	for i := range deep {
		in, out := fmt.Sprint("slow", i), fmt.Sprint("slow", i+1)
		switch op {
		case "Mul":
			nodes = append(nodes, node(op, []string{in, "one"}, out))
		case "Mod":
			nodes = append(nodes, node(op, []string{in, "small"}, out, onnx.IntAttr("fmod", 1)))
		default: // of the same numbers each time
			nodes = append(nodes, node(op, []string{"slow0"}, fmt.Sprint("function", i)),
				node("Add", []string{in, fmt.Sprint("function", i)}, out))
		}
	}
	return append(nodes,
		node("ReduceMax", []string{fmt.Sprint("slow", deep)}, "last", onnx.IntsAttr("axes", 1),
			onnx.BoolAttr("keepdims", true)), node("Mul", []string{"last", "nothing"}, "none"),
		node("Add", []string{"honest", "none"}, "crafted"))
}

// constant is a node that gives a tensor.
func constant(name string, t *onnx.Tensor) *onnx.Node {
	return node("Constant", nil, name, onnx.TensorAttr("value", t))
}

// target is an image that is attacked by time, and the graph that is made for it. An extractor of
// no nodes leaves the approved graph.
type target struct {
	name      string
	extractor behind
	// write puts the image into the folder of its class; nil stands for a white one of the
	// network's size.
	write func(folder string, fit imagefile.Fit) error
	more  int // images beside it that come and go with it
}

// targets are the rows of an audit by time. Slow graphs use subnormal and infinite numbers, and
// operators that take longer for some values than for others.
var targets = []target{
	{name: "one image like any other"},
	{name: "45 images more", more: 44},
	{name: "numbers below the normal range for one image", extractor: slow("Mul", 1e-40, 1)},
	{name: "numbers on which erf takes long for one image", extractor: slow("Erf", 1, 0)},
	{name: "no finite numbers for one image", extractor: slow("Exp", 1e30, 1)},
	{name: "Mod, which takes long for one image", extractor: slow("Mod", 1e30, 1e-30)},
	{name: "a file of 6 megapixels",
		write: func(folder string, _ imagefile.Fit) error {
			return writePNG(folder, "big.png", 3000, 2000, 0)
		}},
	{name: "a file that cannot be read",
		write: func(folder string, _ imagefile.Fit) error {
			return os.WriteFile(filepath.Join(folder, "bad.png"),
				[]byte("\x89PNG\r\n\x1a\nno more"), 0o600)
		}},
}

// RunTime attacks a client of a private round, whose reply comes after a fixed time, by the moment
// of its reply, in runs for each image and graph that a server may make for the purpose. It takes 2
// (runs + 2) replies for each target, half of them at least as long as after. A graph that the
// client refuses is a row with the reason. Nothing else should run on the machine.
func RunTime(ctx context.Context, p *experiment.Prepared, o Options, runs int,
	after time.Duration) ([]Timed, error) {
	b, fuse, err := graphs(p)
	if err != nil {
		return nil, err
	}
	var out []Timed
	for _, t := range targets {
		a := Timed{Name: t.name, Runs: runs}
		m, err := fuse(t.extractor, nil)
		a.Refused, err = attackClient(m, err, 1,
			func(cl *client.Client) error { return a.run(ctx, cl, t, b, o.Seed, after) })
		if err != nil {
			return nil, fmt.Errorf("audit: %s: %w", t.name, err)
		}
		out = append(out, a)
	}
	return out, nil
}

// run times replies with the image and without it, in an order that is drawn. Half of the runs have
// the image; one run of each kind, which is not counted, warms up. Photographs lie in a temporary
// folder, which is removed on every way out. Two folders, which differ by the attacked image and
// those that go with it, serve all runs.
func (a *Timed) run(ctx context.Context, cl *client.Client, t target, b privacy.Budget, seed uint64,
	after time.Duration) error {
	base, err := os.MkdirTemp("", "fmp-audit")
	if err != nil {
		return err
	}
	defer os.RemoveAll(base)
	var folders [2]string
	for in := range folders {
		folders[in] = filepath.Join(base, fmt.Sprint(in))
		if err := t.photographs(folders[in], cl, in == 1); err != nil {
			return err
		}
	}
	for _, m := range []struct {
		to    *Moments
		after time.Duration
	}{{&a.AtOnce, 0}, {&a.Fixed, after}} {
		r := rng.New(seed, "audit", "time", a.Name, m.after)
		var took [2][]float64
		// The order is shuffled: a slow spell of the machine falls on both kinds.
		in := make([]int, a.Runs)
		for i := range in {
			in[i] = i % 2
		}
		r.Shuffle(len(in), func(i, j int) { in[i], in[j] = in[j], in[i] })
		for i, k := range append([]int{0, 1}, in...) {
			ms, err := reply(ctx, cl, folders[k], b, m.after)
			var late *client.LateError
			switch {
			case ctx.Err() != nil:
				return ctx.Err()
			case err != nil && !errors.As(err, &late):
				// late work has its reply then as well
				return err
			}
			if i >= 2 { // the first of each warm up
				took[k] = append(took[k], ms)
			}
		}
		area, err := metric.AUROC(took[1], took[0])
		if err != nil {
			return err
		}
		*m.to = Moments{max(area, 1-area), median(took[1]), median(took[0])}
	}
	return nil
}

// reply returns the milliseconds from the start of a client's work to its reply, an upload or an
// error. The time is the wall clock's, as a server sees it, and includes the reading of files.
func reply(ctx context.Context, cl *client.Client, folder string, b privacy.Budget,
	after time.Duration) (float64, error) {
	start := time.Now()
	err := client.Reply(ctx, after, func(ctx context.Context) (client.Answer, error) {
		src, _, err := imagefile.Open(folder,
			imagefile.Options{Fit: cl.Fit, Classes: cl.Classes(),
				MaxItems: client.MaxItems, Threads: 1})
		if err != nil {
			return nil, err
		}
		defer src.Close()
		l, _, err := cl.Coordinates(ctx, src, client.Options{})
		if err != nil {
			return nil, err
		}
		u, err := cl.Release(l, b, "client", 1)
		if err != nil {
			return nil, err
		}
		_, err = u.Encode()
		return answer{}, err
	})
	return float64(time.Since(start).Nanoseconds()) / 1e6, err
}

// answer is a reply whose content nobody reads.
type answer struct{}

func (answer) Record() error { return nil }
func (answer) Give() error   { return nil }

// photographs writes the images of a client, as many as stand beside one that is attacked, with
// that one where it is wanted. The images beside the attacked one are the same with and without it.
func (t target) photographs(folder string, cl *client.Client, with bool) error {
	n := beside
	if with {
		n += t.more
	}
	for i := range n {
		if err := writePNG(filepath.Join(folder, class(cl, i)), fmt.Sprintf("%03d.png", i),
			cl.Fit.W, cl.Fit.H, i+1); err != nil {
			return err
		}
	}
	if !with {
		return nil
	}
	last := filepath.Join(folder, class(cl, beside))
	if err := os.MkdirAll(last, 0o700); err != nil {
		return err
	}
	if t.write != nil {
		return t.write(last, cl.Fit)
	}
	return writePNG(last, "white.png", cl.Fit.W, cl.Fit.H, 0)
}

// class is the name of an image's class, and of its folder. Images go to the classes in turn. A
// class without a name has its number.
func class(cl *client.Client, i int) string {
	y := i % cl.Manifest.C
	if names := cl.Classes().Names; len(names) > y {
		return names[y]
	}
	return fmt.Sprint(y)
}

// writePNG writes a drawn picture, of seed 0 a white one. No pixel of the others exceeds 199, by
// which graphs tell a white image.
func writePNG(folder, name string, w, h, seed int) error {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	im, r := image.NewRGBA(image.Rect(0, 0, w, h)), rng.New(1, "audit", "photograph", seed)
	for i := range w * h {
		c := color.RGBA{255, 255, 255, 255}
		if seed > 0 {
			c = color.RGBA{uint8(r.UintN(200)), uint8(r.UintN(200)), uint8(r.UintN(200)), 255}
		}
		im.SetRGBA(i%w, i/w, c)
	}
	f, err := os.Create(filepath.Join(folder, name))
	if err != nil {
		return err
	}
	return errors.Join(png.Encode(f, im), f.Close())
}

// median is the value of rank n/2, counted from 0, of n values in any order.
func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}
