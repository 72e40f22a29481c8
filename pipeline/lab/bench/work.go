package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"

	"fmp/models"
	"fmp/models/rng"
	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/dense"
	"fmp/onnx/engine"
	"fmp/onnx/npy"
	"fmp/pipeline/erm"
	"fmp/pipeline/metric"
	"fmp/pipeline/point"
	"fmp/pipeline/sample"
	"fmp/pipeline/shipped"
)

// Work is one row of the table. The contenders, and the data of their work, are made when the row
// is measured.
type Work struct {
	Name string
	// contenders returns ours and the available others.
	contenders func(ctx context.Context, b *Bench) ([]Contender, error)
}

// Bench is the setup in which works are measured. Everything runs on one thread. It holds no state
// of a measurement, and one may serve several works in turn.
type Bench struct {
	Peers  Peers         // used if they are Ready
	Engine engine.Engine // with one thread
	// Data is the folder of data sets; empty means the default.
	Data string
}

// Sizes of the works: those of a CIFAR-10 task.
const (
	dx, classes = 64, 10
	penalty     = 3
	tolerance   = 1e-6
)

// Works returns the rows of the table, in order. Inputs of networks are drawn here; graphs and
// other data are made when a row is measured.
func Works() []Work {
	works := []Work{{"product of 512 x 512 matrices, float64, 0.27 GFLOP", products}}
	fit := func(name, kind string, d, shared, own, count int) {
		works = append(works, Work{name, func(ctx context.Context, b *Bench) ([]Contender, error) {
			return fits(ctx, b, kind, d, shared, own, count)
		}})
	}
	for _, n := range []int{100, 300, 1000} {
		fit(fmt.Sprintf("one fit, %d points", n), "fit", dx, n, 0, 1)
	}
	for _, s := range [][2]int{{1000, 512}, {1000, 1280}, {10_000, 512}} {
		fit(fmt.Sprintf("one wide fit, %d points of %d features", s[0], s[1]), "fit",
			s[1], s[0], 0, 1)
	}
	fit("80 heads, 100 pooled + 200 drawn points", "heads", dx, 100, 200, 80)
	works = append(works, Work{"10,000 points predicted by 200 heads", predictions})
	for _, n := range nets() {
		works = append(works, Work{n.name, n.engines})
	}
	for _, n := range nets() {
		if strings.Contains(n.name, "one image") && !strings.Contains(n.name, "ViT") {
			works = append(works, Work{n.name + ", in bytes", n.quantised})
		}
	}
	works = append(works,
		Work{fmt.Sprintf("features of %d images, extractor of CIFAR-10, %d at once", images,
			atOnce), features},
		Work{fmt.Sprintf("training step of that extractor, batch %d", trainBatch), trainingStep},
		Work{fmt.Sprintf("training step of a predictor, %d tasks", taskBatch), predictorStep},
		Work{fmt.Sprintf("training step of an embedding, %d tasks", taskBatch), embeddingStep},
		Work{"Table I on CIFAR-10, one repeat, shared settings, from cached features", tableI})
	return append(works, walls()...)
}

// Measure measures the contenders of w as [Measure] does. It closes them in every case. An error of
// closing is returned where there is no other. The names in errors are those of the work and of the
// contender.
func (b *Bench) Measure(ctx context.Context, w Work, runs, before int) (_ []Result, err error) {
	all, err := w.contenders(ctx, b)
	defer func() {
		for _, c := range all {
			if c.Close != nil {
				if e := c.Close(); err == nil {
					err = e
				}
			}
		}
	}()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", w.Name, err)
	}
	r, err := Measure(ctx, runs, before, all)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", w.Name, err)
	}
	return r, nil
}

// labelled returns n points of d features and k classes in turn, N(mean, I) each, with weight 1. A
// row of the set is d features and k shares of the classes, of which that of its own is 1. means is
// [k, d], row-major.
func labelled(r *rand.Rand, means []float32, n, d, k int) *point.Set {
	s := point.New(n, d, k)
	for i := range n {
		row := s.Row(i)
		rng.Normal(r, row[:d])
		for j := range d {
			row[j] += means[i%k*d+j]
		}
		row[d+i%k] = 1
	}
	return s
}

// classMeans returns the means of k classes, as far apart as an extractor's: with ten, four of five
// points are classified correctly. A number of the result, [k, d], is N(0, 4/d): a mean has an
// expected squared length of 4, whatever d is.
func classMeans(r *rand.Rand, d, k int) []float32 {
	m := make([]float32, k*d)
	rng.Normal(r, m)
	for i := range m {
		m[i] *= 2 / float32(math.Sqrt(float64(d)))
	}
	return m
}

// fits measures fits to count sets of own points each, together with shared points, of d features.
// Ours holds the shared points once for all fits; peers get each set whole, as they have no such
// call. Without own points there is one fit, to the shared ones. Of a set of n points peers read x
// [n, d + 1], y [n, classes] and w [n]. Peers stop by a measure of their own, where [FitContenders]
// has one for all.
func fits(ctx context.Context, b *Bench, kind string, d, shared, own,
	count int) ([]Contender, error) {
	r := rng.New(1, "bench", kind, shared)
	means := classMeans(r, d, classes)
	pooled, err := erm.FromSets(penalty, labelled(r, means, shared, d, classes))
	if err != nil {
		return nil, err
	}
	var mine []*erm.Problem
	whole := []*erm.Problem{pooled}
	if own > 0 {
		whole = nil
		drawn, err := b.drawn(ctx, labelled(r, means, shared, d, classes), own, count)
		if err != nil {
			return nil, err
		}
		for _, set := range drawn {
			p, err := erm.FromSets(penalty, set)
			if err != nil {
				return nil, err
			}
			// Peers have no call for shared points: their problem is the joined one, q.
			mine = append(mine, p)
			q := *p
			q.N += pooled.N
			// slices without spare capacity: the joined points must not be written behind the own
			// ones
			q.X, q.Y, q.W = append(q.X[:len(q.X):len(q.X)], pooled.X...),
				append(q.Y[:len(q.Y):len(q.Y)], pooled.Y...),
				append(q.W[:len(q.W):len(q.W)], pooled.W...)
			whole = append(whole, &q)
		}
	}
	opt := erm.Options{Tolerance: tolerance, Threads: 1}
	out := []Contender{Timed("fmp", func() error {
		if own == 0 {
			_, err := erm.SolveAll(ctx, whole, opt)
			return err
		}
		_, err := erm.SolveShared(ctx, pooled, mine, opt)
		return err
	})}
	files := map[string]*onnx.Tensor{"l2": onnx.NewTensor([]float64{penalty}),
		"count": onnx.NewTensor([]int64{int64(len(whole))})}
	for i, p := range whole {
		files[fmt.Sprint("x", i)] = onnx.NewTensor(p.X, p.N, p.D())
		files[fmt.Sprint("y", i)] = onnx.NewTensor(p.Y, p.N, p.C)
		files[fmt.Sprint("w", i)] = onnx.NewTensor(p.W, p.N)
	}
	return b.with(ctx, out, files, peer{kind + ":lbfgs", "scikit-learn, lbfgs"},
		peer{kind + ":newton-cg", "scikit-learn, newton-cg"},
		peer{kind + ":scipy", "scipy, L-BFGS-B"})
}

// drawn returns count sets of fresh points given seen, from CIFAR-10's predictor. One call of the
// predictor draws all sets, each from noise of its own.
func (b *Bench) drawn(ctx context.Context, seen *point.Set, fresh,
	count int) ([]*point.Set, error) {
	if b.Engine == nil {
		return nil, errors.New("no engine to draw points with")
	}
	p, err := predictor(b.Engine)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	noise, err := p.Noise(rng.New(1, "bench", "noise"), count, fresh)
	if err != nil {
		return nil, err
	}
	return p.Draw(ctx, seen, noise, count)
}

// predictor returns CIFAR-10's predictor by attention.
func predictor(e engine.Engine) (*sample.Predictor, error) {
	m, _, err := shipped.Load("cifar10", models.KindPredictor)
	if err != nil {
		return nil, err
	}
	return sample.New(e, m)
}

// with adds peers, which work on files, to out. On an error it returns those that were started, for
// the caller to close. Peers that are not at hand are in out too, without Once. Peers are started
// in the order of the list. Their files are removed on every way out.
func (b *Bench) with(ctx context.Context, out []Contender, files map[string]*onnx.Tensor,
	peers ...peer) ([]Contender, error) {
	dir, err := saved(files)
	defer os.RemoveAll(dir) // peers have read the files once they are started
	if err != nil {
		return out, err
	}
	for _, p := range peers {
		c, err := b.Peers.start(ctx, p, dir)
		if err != nil {
			return out, err
		}
		out = append(out, c)
	}
	return out, nil
}

// saved writes files to a new folder, which the caller removes. The folder is returned with an
// error too, as it may exist.
func saved(files map[string]*onnx.Tensor) (dir string, err error) {
	if dir, err = os.MkdirTemp("", "fmp-bench-"); err != nil {
		return "", err
	}
	for name, t := range files {
		// peers read settings as scalars; weights stay a vector, even that of one point
		if len(t.Shape) == 1 && t.Shape[0] == 1 && name != "w0" {
			t.Shape = []int{} // a scalar
		}
		if err := npy.Save(filepath.Join(dir, name+".npy"), t); err != nil {
			return dir, err
		}
	}
	return dir, nil
}

// products measures matrix products, as an indication of the machine's speed: 2 n^3 operations
// each, of which the name gives the billions. gonum's product is cut into blocks of 32 x 32, of
// which each runs on the caller's goroutine.
func products(ctx context.Context, b *Bench) ([]Contender, error) {
	const n = 512
	m := func(name string) blas64.General {
		g := blas64.General{Rows: n, Cols: n, Stride: n, Data: make([]float64, n*n)}
		r := rng.New(1, "bench", name)
		for i := range g.Data {
			g.Data[i] = r.NormFloat64()
		}
		return g
	}
	x, y, z := m("x"), m("y"), m("z")
	out := []Contender{
		Timed("fmp", func() error {
			dense.Gemm(blas.NoTrans, blas.NoTrans, 1, x, y, 0, z)
			return nil
		}),
		Timed("gonum", func() error {
			for i := 0; i < n; i += 32 { // below the size from which gonum uses several threads
				rows := blas64.General{Rows: 32, Cols: n, Stride: n, Data: x.Data[i*n:]}
				for j := 0; j < n; j += 32 {
					blas64.Gemm(blas.NoTrans, blas.NoTrans, 1, rows,
						blas64.General{Rows: n, Cols: 32, Stride: n, Data: y.Data[j:]}, 0,
						blas64.General{Rows: 32, Cols: 32, Stride: n, Data: z.Data[i*n+j:]})
				}
			}
			return nil
		}),
	}
	return b.with(ctx, out, map[string]*onnx.Tensor{"x": onnx.NewTensor(x.Data, n, n),
		"y": onnx.NewTensor(y.Data, n, n)}, peer{"product", "numpy"})
}

// predictions measures the mean of the softmaxes of features times heads, ours and that of a graph.
// The graph has the heads side by side: column s C + c of its weights is class c of head s. It
// holds 64 x 2,000 weights, in both types for graphs.
func predictions(ctx context.Context, b *Bench) ([]Contender, error) {
	const points, samples = 10_000, 200
	r := rng.New(1, "bench", "predict")
	features := make([]float32, points*dx)
	rng.Normal(r, features)
	heads := make([]erm.Theta, samples)
	for s := range heads {
		heads[s] = erm.NewTheta(dx+1, classes)
		for i := range heads[s].W {
			heads[s].W[i] = 0.3 * r.NormFloat64()
		}
	}
	out := []Contender{Timed("fmp", func() error {
		_, err := metric.Predict(ctx, heads, features, 1)
		return err
	})}
	weights, bias := make([]float64, dx*samples*classes), make([]float64, samples*classes)
	for s, h := range heads {
		for j := range dx {
			copy(weights[(j*samples+s)*classes:], h.Row(j))
		}
		copy(bias[s*classes:], h.Row(dx))
	}
	wide, err := predictionGraph(b.Engine, dense.As[float64](features), weights, bias)
	if err != nil {
		return out, err
	}
	narrow, err := predictionGraph(b.Engine, features, dense.As[float32](weights),
		dense.As[float32](bias))
	return append(out, wide, narrow), err
}

// predictionGraph is the work of [predictions] as a graph of one type of numbers on an engine. With
// the weights W_s and the bias c_s of head s it computes 1/S sum_s softmax(x W_s + c_s), 100 rows a
// call.
func predictionGraph[T float32 | float64](e engine.Engine, features, weights,
	bias []T) (Contender, error) {
	const atOnce = 100
	g := build.New("heads")
	x := g.Input("x", onnx.TypeOf[T](), atOnce, dx)
	z := g.Op("Gemm", []build.Ref{x, g.Param("w", onnx.NewTensor(weights, dx, len(bias))),
		g.Param("c", onnx.NewTensor(bias, len(bias)))})
	g.Output("p", g.ReduceMean(g.Softmax(g.Reshape(z, -1, len(bias)/classes, classes), 2), false,
		1))
	m, err := g.Model()
	if err != nil {
		return Contender{}, err
	}
	s, err := e.Load(m)
	if err != nil {
		return Contender{}, err
	}
	name := fmt.Sprintf("%s, %v, %d points at once", e.Name(), onnx.TypeOf[T](), atOnce)
	c := Timed(name, func() error {
		for rows := range slices.Chunk(features, atOnce*dx) {
			x := onnx.NewTensor(rows, atOnce, dx)
			if _, err := engine.Eval(s, map[string]*onnx.Tensor{"x": x}); err != nil {
				return err
			}
		}
		return nil
	})
	c.Close = s.Close
	return c, nil
}
