// The program classes measures a round of many classes behind wide features, step by step:
// training, one upload, pooling, one prediction. Each step runs in a process of its own on one
// thread, and is given with its processor time and its largest memory.
//
//	go run ./docs/figures/classes -classes 10,1000 -features 64,1280
//
// Features are drawn from a seed. A step that refuses its work is given with its reason.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"fmp/onnx/engine"
	"fmp/onnx/engine/ort"
	"fmp/pipeline/lab/bench"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "classes:", err)
		os.Exit(1)
	}
}

// run measures the steps at all numbers of classes and features. With -step it is the process of
// one step, whose row the first process prints. Steps behind one that refuses are left out, as they
// have no files to read.
func run() error {
	classes := flag.String("classes", "10,100,1000", "numbers of classes")
	features := flag.String("features", "64,512,1280", "numbers of features")
	rows := flag.Int("rows", 40_000, "rows of the corpus, and of all clients")
	clients := flag.Int("clients", 100, "clients")
	images := flag.Int("images", 1, "rows to predict")
	steps := flag.Int("steps", 300, "steps of the first phase of training")
	samples := flag.Int("samples", 0, "posterior samples; 0: the default")
	only := flag.String("steps-only", "train,upload,pool,predict", "steps to run")
	dir := flag.String("dir", "",
		"folder of the files that steps hand on; default: a new one, removed")
	step := flag.String("step", "", "run this step in this process")
	flag.Parse()
	if *step != "" {
		c, err := strconv.Atoi(*classes)
		if err != nil {
			return err
		}
		dx, err := strconv.Atoi(*features)
		if err != nil {
			return err
		}
		return one(&bench.Classes{Dir: *dir, C: c, Dx: dx, Rows: *rows, Clients: *clients,
			Images: *images, Steps: *steps, Samples: *samples}, *step)
	}
	fmt.Println("| classes | features | step | processor time, s | wall time, s | memory, MB | " +
		"|\n| ---: | ---: | --- | ---: | ---: | ---: | --- |")
	for _, c := range strings.Split(*classes, ",") {
		for _, d := range strings.Split(*features, ",") {
			at := *dir
			if at == "" {
				var err error
				if at, err = os.MkdirTemp("", "classes"); err != nil {
					return err
				}
			}
			for _, s := range strings.Split(*only, ",") {
				// A process of its own has no memory of another step's. Flags given later win over
				// those of the command line.
				ok, err := measure(c, d, s,
					append(os.Args[1:], "-classes", c, "-features", d, "-dir", at, "-step", s))
				if err != nil {
					return err
				}
				if !ok {
					break
				}
			}
			if *dir == "" {
				if err := os.RemoveAll(at); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// measure runs a step in a process of its own and prints its row; it reports whether the step
// succeeded. Linux gives the largest memory in KiB.
func measure(c, d, step string, args []string) (bool, error) {
	self, err := os.Executable()
	if err != nil {
		return false, err
	}
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
	var said, bad strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &bad
	start := time.Now()
	err = cmd.Run()
	wall := time.Since(start)
	if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended {
		return false, err
	}
	s := cmd.ProcessState
	note := strings.TrimSpace(said.String())
	if err != nil {
		note = "refused: " + strings.TrimPrefix(strings.SplitN(strings.TrimSpace(bad.String()),
			"\n", 2)[0], "classes: ")
	}
	fmt.Printf("| %s | %s | %s | %.2f | %.2f | %d | %s |\n", c, d, step, (s.UserTime() +
		s.SystemTime()).Seconds(), wall.Seconds(), s.SysUsage().(*syscall.Rusage).Maxrss/1000, note)
	return err == nil, nil
}

// one runs a step here.
func one(c *bench.Classes, step string) error {
	runtime.GOMAXPROCS(1)
	ctx := context.Background()
	eng, err := ort.New(ort.Options{Threads: 1})
	if err != nil {
		return err
	}
	defer eng.Close()
	eng = engine.Under(ctx, eng)
	c.Engine = eng
	switch step {
	case "train":
		return c.Train(ctx)
	case "upload":
		n, err := c.Upload(ctx)
		fmt.Printf("%.2f MB the largest", float64(n)/1e6)
		return err
	case "pool":
		n, err := c.Pool(ctx)
		fmt.Printf("classifier of %.1f MB", float64(n)/1e6)
		return err
	case "predict":
		accuracy, nll, err := c.Predict(ctx)
		fmt.Printf("%d rows, accuracy %.4f, NLL %.4f", c.Images, accuracy, nll)
		return err
	}
	return fmt.Errorf("step %q; there are train, upload, pool and predict", step)
}
