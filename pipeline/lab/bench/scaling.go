package bench

import (
	"context"
	"fmt"
	"io"

	"fmp/models"
	"fmp/models/rng"
	"fmp/onnx/engine"
	"fmp/pipeline/erm"
	"fmp/pipeline/federate"
	"fmp/pipeline/pool"
	"fmp/pipeline/shipped"
)

// walls are works whose time or memory could grow out of bounds with their size. Nobody is beside
// them.
func walls() (out []Work) {
	alone := func(name string,
		make func(ctx context.Context, b *Bench) (do func() error, end io.Closer, err error)) {
		out = append(out, Work{name, func(ctx context.Context, b *Bench) ([]Contender, error) {
			do, end, err := make(ctx, b)
			if err != nil {
				return nil, err
			}
			c := Timed("fmp", do)
			if end != nil {
				c.Close = end.Close
			}
			return []Contender{c}, nil
		}})
	}
	// points, features and classes
	for _, s := range [][3]int{{200, 1024, 10}, {2000, 1024, 10}, {2000, dx, 100}, {5000, dx, 1000},
		// A million points of 64 features are half a gigabyte in float64.
		{1_000_000, dx, 10}} {
		alone(fmt.Sprintf("one fit, %d points of %d features, %d classes", s[0], s[1], s[2]),
			func(ctx context.Context, _ *Bench) (func() error, io.Closer, error) {
				do, err := Fit(ctx, s[0], s[1], s[2])
				return do, nil, err
			})
	}
	for _, fresh := range []int{100, 1000, 10_000} {
		alone(fmt.Sprintf("one draw of %d points by attention, given 100", fresh),
			func(ctx context.Context, b *Bench) (func() error, io.Closer, error) {
				return Draw(ctx, b.Engine, fresh)
			})
	}
	for _, uploads := range []int{10_000, 100_000} {
		alone(fmt.Sprintf("%d uploads of 10 points pooled, 20 heads", uploads),
			func(ctx context.Context, b *Bench) (func() error, io.Closer, error) {
				do, err := pooling(ctx, b.Engine, uploads)
				return do, nil, err
			})
	}
	return out
}

// Fit returns one fit to n points of d features and k classes. The points are drawn before: the
// function that is returned fits alone.
func Fit(ctx context.Context, n, d, k int) (func() error, error) {
	p, err := fitProblem(FitSize{N: n, D: d + 1, C: k}, false)
	if err != nil {
		return nil, err
	}
	return func() error {
		_, err := erm.SolveAll(ctx, []*erm.Problem{p},
			erm.Options{Tolerance: tolerance, Threads: 1})
		return err
	}, nil
}

// Draw returns one draw of fresh points by CIFAR-10's predictor, given 100, and a resource to be
// closed after it. Noise and given points are made before, outside of the time. On an error behind
// the predictor's loading, the closer is returned beside the error.
func Draw(ctx context.Context, e engine.Engine, fresh int) (func() error, io.Closer, error) {
	p, err := predictor(e)
	if err != nil {
		return nil, nil, err
	}
	noise, err := p.Noise(rng.New(1, "scaling", "noise"), 1, fresh)
	if err != nil {
		return nil, p, err
	}
	r := rng.New(1, "scaling", "seen")
	seen := labelled(r, classMeans(r, dx, classes), 100, dx, classes)
	return func() error {
		_, err := p.Draw(ctx, seen, noise, 1)
		return err
	}, p, nil
}

// pooling returns the posterior of a round of the given number of uploads of CIFAR-10's embedding,
// a point for each class. Ten points of weight 2 are the 20 images that an upload states. Uploads
// are in memory before the time begins: reading and checking files is not measured. The function
// may be called again, and does the whole work each time.
func pooling(ctx context.Context, e engine.Engine, uploads int) (func() error, error) {
	graph, client, err := shipped.Load("cifar10", models.KindEmbedding)
	if err != nil {
		return nil, err
	}
	r := rng.New(1, "scaling", "uploads")
	means := classMeans(r, dx, classes)
	us := make([]pool.Upload, uploads)
	for i := range us {
		us[i].Upload = &federate.Upload{Client: fmt.Sprint("client ", i), N: 20,
			Points: labelled(r, means, classes, dx, classes)}
		for k := range classes {
			us[i].Points.W[k] = 2
		}
	}
	round, err := pool.New(us, graph, client,
		pool.Options{Predictor: "untrained", Samples: 20, Threads: 1})
	if err != nil {
		return nil, err
	}
	return func() error {
		_, err := round.Posterior(ctx, e)
		return err
	}, nil
}
