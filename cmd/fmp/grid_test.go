package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"fmp/onnx/atomicfile"
	"fmp/onnx/must"
	"fmp/pipeline/federate/store"
	"fmp/pipeline/lab/experiment"
	"fmp/pipeline/lab/report"
)

// programEnv makes the test binary be the program, for tests that kill it.
const programEnv = "BE_THE_PROGRAM"

// testsDir is a folder of the whole run of the tests.
var testsDir string

func TestMain(m *testing.M) {
	if os.Getenv(programEnv) != "" {
		os.Unsetenv(programEnv)
		main()
	}
	// what clients approve and spend in tests stays out of the user's folder
	dir, err := os.MkdirTemp("", "fmp-config")
	if err != nil {
		panic(err)
	}
	testsDir = dir
	os.Setenv("XDG_CONFIG_HOME", dir)
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// pictureGrid writes a grid of four runs, both protocols, on a folder of pictures, and returns its
// file.
func pictureGrid(t *testing.T, seeds int, methods string) string {
	t.Helper()
	place := t.TempDir()
	data := filepath.Join(place, "photos")
	pictures(t, data)
	p := filepath.Join(place, "grid.yaml")
	text := fmt.Sprintf(`settings:
  dataset: {name: %q, splits: {extractor: 0.3, clients: 0.3}}
  extractor: {model: %q, mean: [0.5], std: [0.5]}
  federation: {clients: 2, partition: both, alpha: [0.5]}
  predictor: {model: untrained, fresh: 10}
  embedding: {model: untrained}
  posterior: {samples: 3}
  tuning: {tasks: 1, points: 10}
  protocol: both
  seeds: %d
  methods: [%s]
vary:
  federation.points: [5, 6]
  seed: [1, 2]
`, data, randomExtractor(t), seeds, methods)
	must.Do(t, os.WriteFile(p, []byte(text), 0o644))
	return p
}

// gridNames are the run directories of pictureGrid.
var gridNames = []string{"points=5,seed=1", "points=5,seed=2", "points=6,seed=1", "points=6,seed=2"}

// sameFigures compares all files with figures of two run directories.
func sameFigures(t *testing.T, a, b string) {
	t.Helper()
	for _, name := range []string{experiment.ResultsFile, experiment.CSVFile, experiment.TuningFile,
		report.MarkdownFile, report.LaTeXFile} {
		if !bytes.Equal(read(t, filepath.Join(a, name)), read(t, filepath.Join(b, name))) {
			t.Errorf("%s differs between %s and %s", name, a, b)
		}
	}
}

// stamps are the times at which the files below a folder were written.
func stamps(t *testing.T, root string) map[string]time.Time {
	t.Helper()
	out := map[string]time.Time{}
	if err := filepath.WalkDir(root, func(p string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		st, err := e.Info()
		if err == nil {
			out[p] = st.ModTime()
		}
		return err
	}); err != nil || len(out) == 0 {
		t.Fatalf("%d files: %v", len(out), err)
	}
	return out
}

// lines counts finished lines of a file of every run below a folder.
func lines(t *testing.T, root, name string) int {
	t.Helper()
	n := 0
	for _, run := range gridNames {
		b, err := os.ReadFile(filepath.Join(root, run, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		n += bytes.Count(b, []byte("\n"))
	}
	return n
}

// killGrid kills the program at work on a grid once it has made a number of its cells, and leaves
// at the end of each journal the beginning of a line, as a cell killed half-way does at worst.
func killGrid(t *testing.T, file, killed string, threads, target, total int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, must.Get(os.Executable())(t), "grid", file,
		"--threads", fmt.Sprint(threads), "--out", killed)
	cmd.Env = append(os.Environ(), programEnv+"=1")
	var said bytes.Buffer
	cmd.Stderr = &said
	must.Do(t, cmd.Start())
	for lines(t, killed, experiment.TimingsFile) < target && ctx.Err() == nil {
		time.Sleep(2 * time.Millisecond)
	}
	must.Do(t, cmd.Process.Kill())
	if err := cmd.Wait(); err == nil || ctx.Err() != nil {
		t.Fatalf("the program was not killed at work (%v): %s", err, said.String())
	}
	done := lines(t, killed, experiment.TimingsFile)
	if done < target || done >= total {
		t.Fatalf("killed at %d of %d cells", done, total)
	}
	journals := must.Get(filepath.Glob(filepath.Join(killed, "*", experiment.JournalFile)))(t)
	for _, j := range journals {
		b := read(t, j)
		b = b[:bytes.LastIndexByte(b, '\n')+1]
		must.Do(t, os.WriteFile(j, append(b, `{"partition":"homogeneous","method":"FMP","acc":0.9`...),
			0o644))
	}
}

// TestGrid: a grid has the bytes of single runs, on any number of threads, also where it was killed
// and made again. A cell is made once, and of a finished grid nothing is.
func TestGrid(t *testing.T) {
	if testing.Short() {
		t.Skip("starts the program several times and kills it: half a minute")
	}
	emptyCache(t)
	const seeds = 2
	file, place := pictureGrid(t, seeds, "LBNN, ANN, CANN, FMP, PRIOR"), t.TempDir()
	whole, killed := filepath.Join(place, "whole"), filepath.Join(place, "killed")
	ran(t, "grid", file, "--threads", "3", "--out", whole)
	total := lines(t, whole, experiment.ResultsFile)
	if want := len(gridNames) * 2 * 2 * seeds * 5; total != want {
		t.Fatalf("%d cells; want %d", total, want)
	}

	const kills, threads = 3, 2
	for k := range kills {
		killGrid(t, file, killed, threads, (k+1)*total/(kills+1), total)
	}
	out, _ := ran(t, "grid", file, "--threads", "1", "--out", killed)
	if !strings.Contains(out, "FMP") {
		t.Errorf("printed %s", out)
	}
	timed := 0
	for _, name := range gridNames {
		sameFigures(t, filepath.Join(whole, name), filepath.Join(killed, name))
		// A cell that was done again would have two timings. A kill between figures and timing
		// loses the latter. Tuning has timings of its own.
		seen := map[experiment.Cell]int{}
		for line := range bytes.Lines(read(t, filepath.Join(killed, name, experiment.TimingsFile))) {
			var c struct {
				experiment.Cell
				Tuning bool
			}
			must.Do(t, json.Unmarshal(line, &c))
			if c.Tuning {
				continue
			}
			if seen[c.Cell]++; seen[c.Cell] > 1 {
				t.Errorf("%s: %s was done twice", name, c.Cell)
			}
		}
		timed += len(seen)
	}
	if timed < total-kills*threads {
		t.Errorf("timings of %d of %d cells", timed, total)
	}
	for _, i := range []int{0, 3} { // two single runs are enough
		one, single := filepath.Join(whole, gridNames[i]), filepath.Join(place, "single", gridNames[i])
		// The directory's settings name no places: the models and images are given again.
		runs := must.Get(must.Get(experiment.ParseGrid(read(t, file)))(t).Runs())(t)
		c := runs[i].Config
		ran(t, "run", "--config", filepath.Join(one, experiment.ConfigFile), "--dataset",
			c.Dataset.Name, "--extractor", c.Extractor.Model, "--threads", "2", "--out", single)
		sameFigures(t, one, single)
	}
	before := stamps(t, killed)
	out, errs := ran(t, "grid", file, "--threads", "2", "--out", killed, "--json")
	var all []runOutput
	if err := json.Unmarshal([]byte(out), &all); err != nil || len(all) != len(gridNames) ||
		len(all[0].Tables) != 4 {
		t.Errorf("%v, %d runs: %s", err, len(all), errs)
	}
	if strings.Count(errs, "was done before") != len(gridNames) {
		t.Errorf("a finished grid said %s", errs)
	}
	for p, was := range before {
		if now, err := os.Stat(p); err != nil || !now.ModTime().Equal(was) {
			t.Errorf("%s was written again", p)
		}
	}
}

func TestTwoProgramsDoNotShareARunDirectory(t *testing.T) {
	dir := t.TempDir()
	c := experiment.Default()
	id := must.Get(experiment.Identity(c, nil, nil))(t)
	d := must.Get(experiment.Open(dir, c, experiment.Manifest{Identity: id}))(t)
	must.Fail(experiment.Open(dir, c, experiment.Manifest{Identity: id}))(t, "another fmp", "a second one")
	must.Do(t, d.Close())
	d = must.Get(experiment.Open(dir, c, experiment.Manifest{Identity: id}))(t)
	must.Do(t, d.Close())
}

func TestGridGoesOnAfterARunThatFails(t *testing.T) {
	emptyCache(t)
	file, out := pictureGrid(t, 1, "ANN, FMP"), t.TempDir()
	b := read(t, file)
	// Half of the runs ask for more points than there are.
	must.Do(t, os.WriteFile(file, bytes.Replace(b, []byte("[5, 6]"), []byte("[5, 6000]"), 1), 0o644))
	code, stdout, errs := runFMP(t, "grid", file, "--threads", "2", "--out", out)
	if code != exitUsage || !strings.Contains(errs, "2 of 4 runs failed") ||
		!strings.Contains(errs, "points=6000,seed=2: FAILED") {
		t.Errorf("exit code %d: %s", code, errs)
	}
	if !strings.Contains(stdout, "points=5,seed=1") || !strings.Contains(stdout, "points=5,seed=2") ||
		strings.Contains(stdout, "6000") {
		t.Errorf("printed %s", stdout)
	}
	stdout, _ = ran(t, "grid", file, "--out", out, "--dry-run")
	if strings.Count(stdout, "8 of 8 cells done") != 2 && strings.Count(stdout, " 0 of ") != 2 {
		t.Errorf("printed %s", stdout)
	}
}

// TestGridWorkers: runs that workers make, one of which is killed at its first, have the figures of
// those made here, and a run that had begun here goes on here.
func TestGridWorkers(t *testing.T) {
	if testing.Short() {
		t.Skip("waits until a killed worker has been silent")
	}
	emptyCache(t)
	place := t.TempDir()
	file := pictureGrid(t, 1, "ANN, CANN")
	here, there := filepath.Join(place, "here"), filepath.Join(place, "there")
	ran(t, "grid", file, "--threads", "2", "--out", here)
	address, token := freeAddress(t), filepath.Join(place, "token")
	must.Do(t, os.WriteFile(token, []byte("a token of the test's own\n"), 0o600))
	worker := func() (*exec.Cmd, *bufio.Scanner) {
		w := exec.Command(os.Args[0], "worker", "--nats", "nats://"+address, "--nats-token-file", token,
			"--threads", "1")
		w.Env = append(os.Environ(), programEnv+"=1")
		log := must.Get(w.StderrPipe())(t)
		must.Do(t, w.Start())
		t.Cleanup(func() {
			_ = w.Process.Kill()
			_ = w.Wait()
		})
		return w, bufio.NewScanner(log)
	}
	go func() {
		for range 600 { // until the queue is there
			if c, err := net.Dial("tcp", address); err == nil {
				c.Close()
				break
			}
			time.Sleep(50 * time.Millisecond)
		}
		dying, log := worker()
		for log.Scan() {
			if strings.Contains(log.Text(), "job taken") {
				_ = dying.Process.Kill()
				break
			}
		}
		_, log = worker()
		for log.Scan() { // so that it does not wait for a reader
		}
	}()
	must.Do(t, os.CopyFS(filepath.Join(there, gridNames[2]),
		os.DirFS(filepath.Join(here, gridNames[2]))))
	ran(t, "grid", file, "--threads", "2", "--out", there, "--workers", "--nats-listen",
		address, "--nats-token-file", token)
	for _, name := range gridNames {
		sameFigures(t, filepath.Join(here, name), filepath.Join(there, name))
	}
	refused(t, exitUsage, "--nats-listen", "grid", file, "--workers")
}

// TestGridNameOnce: commands that begin at once have one name, in a new folder and while a queue
// has the lock of the folder.
func TestGridNameOnce(t *testing.T) {
	for i := range 10 {
		dir := filepath.Join(t.TempDir(), queueFolder)
		var queue io.Closer = io.NopCloser(nil) // of a folder that is not there
		if i%2 == 1 {
			must.Do(t, os.Mkdir(dir, 0o700))
			queue, _ = must.Get2(atomicfile.Lock(dir))(t)
		}
		names, start := make([]string, 8), make(chan bool)
		var g errgroup.Group
		for i := range names {
			g.Go(func() (err error) {
				<-start
				names[i], err = gridName(dir)
				return err
			})
		}
		close(start)
		must.Do(t, g.Wait())
		must.Do(t, queue.Close())
		if len(names[0]) < 26 || len(slices.Compact(slices.Clone(names))) != 1 {
			t.Errorf("one grid has the names %q", names)
		}
	}
}

// TestGridJobs: a grid's jobs are its own, one for each of its runs, and are found again when it
// goes on; none is given where there is no engine to take it back.
func TestGridJobs(t *testing.T) {
	g := must.Get(experiment.ParseGrid([]byte("settings: {dataset: {name: digits}}\n" +
		"vary: {engine.threads: [1, 2]}\n")))(t)
	w := gridWork{runs: must.Get(g.Runs())(t)}
	for i := range w.runs {
		w.runs[i].Config.Output.Dir = filepath.Join(t.TempDir(), "no run")
	}
	st := must.Get(store.Open(t.Context(), "fmp-grid", store.Options{Dir: t.TempDir()}))(t)
	t.Cleanup(func() { st.Close() })
	jobs := map[string]int{}
	one, other := t.TempDir(), t.TempDir()
	for _, place := range []string{one, other, one} {
		must.Do(t, w.give(t.Context(), st, filepath.Join(place, queueFolder)))
		for _, j := range w.jobs {
			jobs[j.ID]++
		}
	}
	if len(jobs) != 4 {
		t.Errorf("two grids of two runs have the jobs %v", jobs)
	}

	place := t.TempDir()
	file, token := filepath.Join(place, "grid.yaml"), filepath.Join(place, "token")
	must.Do(t, os.WriteFile(token, []byte("a token of the test's own\n"), 0o600))
	must.Do(t, os.WriteFile(file, []byte("settings: {dataset: {name: digits}, engine: {name: ort, "+
		"library: /nowhere}}\nvary: {seed: [1]}\n"), 0o600))
	out := filepath.Join(place, "out")
	refused(t, exitMissing, "/nowhere", "grid", file, "--out", out, "--workers", "--nats-listen",
		freeAddress(t), "--nats-token-file", token)
	if _, err := os.Stat(out); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("runs were given away without an engine: %v", err)
	}
}
