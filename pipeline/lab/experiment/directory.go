package experiment

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/csv"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"go.yaml.in/yaml/v3"

	"fmp/featurize/yamlfile"
	"fmp/onnx/atomicfile"
	"fmp/onnx/regularfile"
	"fmp/onnx/sorting"
	"fmp/pipeline/settings"
)

// Files of a run directory.
const (
	ConfigFile  = "config.yaml"   // the resolved settings
	RunFile     = "run.json"      // Manifest
	JournalFile = "journal.jsonl" // finished cells of an unfinished run, in the order of completion
	ResultsFile = "results.jsonl" // all cells of a finished run, in the table's order
	CSVFile     = "results.csv"
	// seconds per cell and per tuned setting; in a file of its own because not reproducible
	TimingsFile = "timings.jsonl"
	TuningFile  = "tuning.json" // what the tuned protocol chose, and from which values
)

// Manifest is run.json: the sources of a run, so that it can be made again.
type Manifest struct {
	// Identity is the digest of everything that decides the figures; runs of equal identity are one
	// run.
	Identity string `json:"identity"`
	// Versions are those of the program, Go and the engine.
	Versions map[string]string `json:"versions"`
	// Files are the names, without folders, of the models given as files, by kind.
	Files map[string]string `json:"files,omitempty"`
	// Models and Data map names to sha256 digests. "spoiled" of Data says of how many test images
	// spoiled ones are made, the first; without it they are made of all.
	Models map[string]string `json:"models"`
	Data   map[string]string `json:"data"`
	// Sizes are counts of rows and features by name (test, clients, corpus, dx, classes).
	Sizes map[string]int `json:"sizes"`
	// Classes are the names of the classes.
	Classes []string `json:"classes,omitempty"`
	// Methods are those of a finished run, in its order; none where an earlier version made it.
	Methods []string `json:"methods,omitempty"`
	// SameImages says that the clients hold all images that there are for them, so that all repeats
	// have the same.
	SameImages bool `json:"same_images,omitempty"`
	// Untrained are the kinds of model that were not trained for this data and extractor.
	Untrained []string `json:"untrained,omitempty"`
	// Notes are remarks for readers of the results, such as a shipped model that does not fit.
	Notes []string `json:"notes,omitempty"`
}

// Identity returns the digest of the settings that decide the figures, of the models and of the
// data. It leaves out where results are written, the number of threads, the paths of library, data
// and models, and the treatment of unreadable images. Settings that are added later change it, and
// so make other runs of the kept ones, unless their default is left out of the JSON.
func Identity(c Config, models, data map[string]string) (string, error) {
	b, err := json.Marshal(struct {
		Config       Config
		Models, Data map[string]string
	}{c.deciding(), models, data}) // encoding/json writes maps in the order of their keys
	if err != nil {
		return "", fmt.Errorf("digest of the settings: %w", err)
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), nil
}

// deciding returns c without the settings that [Identity] leaves out.
func (c Config) deciding() Config {
	c.Output.Dir, c.Engine.Threads, c.Engine.Library, c.Dataset.Dir, c.Dataset.Bad,
		c.Extractor.Batch = "", 0, "", "", "", 0
	for _, path := range c.models() { // their digests are in the manifest's models
		*path = ""
	}
	if c.Privacy.Epsilon == 0 {
		c.Privacy = settings.Privacy{} // without private rounds none of it is read
	}
	c.Dataset.Name, c.Corpus.Dataset = label(c.Dataset.Name), label(c.Corpus.Dataset)
	c.Scores.Other = slices.Clone(c.Scores.Other)
	for i, name := range c.Scores.Other {
		c.Scores.Other[i] = label(name)
	}
	return c
}

// Directory is an open run directory. It is locked against other processes until closed. Done, Add,
// Tuned, Finish and Close are safe for concurrent use.
type Directory struct {
	Path string

	lock io.Closer  // nil before it is taken and after Close
	mu   sync.Mutex // guards the fields below
	// journal and timings are opened by the first line that is added.
	journal *os.File
	timings *os.File
	done    map[Cell]bool
	records []Record // in the order of completion
}

// Open creates the directory of a run, or reopens one of the same identity and reads its finished
// cells. It returns an error, and leaves the directory alone, if it holds another run or files that
// are not a run's, or if another process has it open. The lock is taken before anything is read,
// where the folder exists. A folder that it made stays on an error.
func Open(path string, c Config, m Manifest) (_ *Directory, err error) {
	d := &Directory{Path: path, done: map[Cell]bool{}}
	if err := d.take(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.Close())
		}
	}()
	entries, err := os.ReadDir(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("run directory: %w", err)
	}
	// A folder without run.json may hold the leavings of a killed start, and nothing else.
	old, err := ReadManifest(path)
	switch {
	case err == nil && old.Identity != m.Identity:
		return nil, fmt.Errorf("run directory %s holds another run (%s): give --out "+
			"another folder, or the same settings to resume it%s", path,
			differences(path, old, c, m), modelsOf(old, m))
	case errors.Is(err, fs.ErrNotExist):
		if slices.ContainsFunc(entries,
			func(e os.DirEntry) bool { return !unfinished(e.Name(), RunFile) }) {
			return nil, fmt.Errorf("run directory %s holds files and no run: give --out a new or "+
				"empty folder", path)
		}
	case err != nil:
		return nil, err
	}
	if err := os.MkdirAll(path, 0o755); err != nil {
		return nil, fmt.Errorf("run directory: %w", err)
	}
	if d.lock == nil {
		if err := d.take(); err != nil {
			return nil, err
		}
	}
	if err := d.removeStale(entries); err != nil {
		return nil, err
	}
	// run.json is written first: a directory with it is a run, one without was never started.
	if old == nil {
		if err := writeJSON(d.file(RunFile), m); err != nil {
			return nil, err
		}
	}
	if err := d.writeConfig(c); err != nil {
		return nil, err
	}
	return d, d.readFinished()
}

// removeStale removes the temporary files of a killed program; no other process writes them, as the
// directory is locked.
func (d *Directory) removeStale(entries []fs.DirEntry) error {
	folders := []string{d.Path}
	for _, e := range entries {
		if e.IsDir() {
			folders = append(folders, d.file(e.Name()))
		}
	}
	for _, folder := range folders {
		if err := atomicfile.RemoveStale(folder, ".", 0); err != nil {
			return fmt.Errorf("run directory: %w", err)
		}
	}
	return nil
}

// writeConfig writes the settings, unless they are there. Settings that decide no figure may differ
// in a resumed run: the file keeps those of the first start.
func (d *Directory) writeConfig(c Config) error {
	if _, err := os.Stat(d.file(ConfigFile)); err == nil {
		return nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("run directory: %w", err)
	}
	y, err := yaml.Marshal(c.Portable())
	if err != nil {
		return fmt.Errorf("run directory: writing the settings: %w", err)
	}
	return atomicfile.WriteBytes(d.file(ConfigFile), y)
}

// readFinished reads the records of finished cells. A run that was killed between writing results
// and removing the journal has cells in both. The first record of a cell counts.
func (d *Directory) readFinished() error {
	for _, name := range []string{ResultsFile, JournalFile} {
		rs, _, err := readRecords(d.file(name))
		if err != nil {
			return err
		}
		for _, r := range rs {
			if !d.done[r.Cell] {
				d.done[r.Cell] = true
				d.records = append(d.records, r)
			}
		}
	}
	return nil
}

// take locks the folder for this process. A lock of a process that has ended is no obstacle. An
// absent folder is fs.ErrNotExist.
func (d *Directory) take() error {
	lock, ok, err := atomicfile.Lock(d.Path)
	if err != nil {
		return fmt.Errorf("run directory: %w", err)
	}
	if !ok {
		return fmt.Errorf("run directory %s: another fmp is at work in it; wait for that "+
			"one, or give --out another folder", d.Path)
	}
	d.lock = lock
	return nil
}

// unfinished reports whether name is a temporary file of atomicfile for the file of the given name
// ("": any file).
func unfinished(name, of string) bool {
	return strings.HasPrefix(name, "."+of) && strings.HasSuffix(name, ".tmp") ||
		name == atomicfile.LockFile
}

// file is the path of a file in the directory.
func (d *Directory) file(name string) string { return filepath.Join(d.Path, name) }

// Done reports whether a cell's figures are in the journal.
func (d *Directory) Done(c Cell) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.done[c]
}

// Finished reports whether the directory holds the results of a finished run.
func (d *Directory) Finished() bool {
	_, err := os.Stat(d.file(ResultsFile))
	return err == nil
}

// Took is the time of a cell: that of the clock, and that of the processor, 0 where other cells ran
// at the same time.
type Took struct{ Clock, Processor time.Duration }

// Add appends a finished cell to the journal and syncs it to disk: a machine that loses power loses
// no cell that was reported. A record that cannot be written is not counted as done. A cell must be
// added once.
func (d *Directory) Add(r Record, took Took) error {
	line, err := encodeRecords([]Record{r})
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.journal == nil {
		if d.journal, err = appendTo(d.file(JournalFile)); err != nil {
			return err
		}
	}
	if _, err := d.journal.Write(line); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	if err := d.journal.Sync(); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	if err := d.timed(timing{Cell: r.Cell, Seconds: took.Clock.Seconds(),
		Processor: took.Processor.Seconds()}); err != nil {
		return err
	}
	d.done[r.Cell] = true
	d.records = append(d.records, r)
	return nil
}

// Tuned records how long the tuning of a method for a partition took.
func (d *Directory) Tuned(partition, method string, took time.Duration) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.timed(timing{Cell: Cell{Partition: partition, Protocol: "tuned", Method: method},
		Tuning: true, Seconds: took.Seconds()})
}

// timing is a line of timings.jsonl: the time of a cell or, with Tuning, of tuning for all cells of
// a partition.
type timing struct {
	Cell
	Tuning  bool    `json:"tuning,omitempty"`
	Seconds float64 `json:"seconds"`
	// Processor is the processor time of a cell, where no other ran at the same time.
	Processor float64 `json:"processor_seconds,omitempty"`
}

// timed appends to the timings file. The caller holds mu. The file is not synced, since a line that
// is lost is a time alone.
func (d *Directory) timed(t timing) (err error) {
	if d.timings == nil {
		if d.timings, err = appendTo(d.file(TimingsFile)); err != nil {
			return err
		}
	}
	line, err := json.Marshal(t)
	if err != nil {
		return fmt.Errorf("timing of %s: %w", t.Cell, err)
	}
	if _, err := d.timings.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("timings: %w", err)
	}
	return nil
}

// Cost is the wall-clock time, in seconds, that one method took in a run: Tuning its settings, and
// Running and scoring all its cells. Work that methods share (fits, drawn points) counts for the
// method that ran first. Share is that of the sum over methods.
type Cost struct {
	Method  string  `json:"method"`
	Tuning  float64 `json:"tuning_seconds"`
	Running float64 `json:"running_seconds"`
	Share   float64 `json:"share"`
	// Processor is the processor time of all cells, 0 where it is not known of all.
	Processor float64 `json:"processor_seconds,omitempty"`
}

// ReadCosts sums up the timings of a run directory, most expensive method first; nil where it has
// none. A cell that was computed twice counts twice: both times were spent.
func ReadCosts(dir string) ([]Cost, error) {
	b, err := readOptional(filepath.Join(dir, TimingsFile), "timings")
	if b == nil {
		return nil, err
	}
	at, unknown := map[string]int{}, map[string]bool{}
	var out []Cost
	total := 0.
	for line := range bytes.Lines(b) {
		var t timing
		if line[len(line)-1] != '\n' {
			break // a line cut short when the run was stopped
		}
		if err := parseJSON(line, &t); err != nil {
			return nil, fmt.Errorf("%s: %w; remove it: it holds times alone",
				filepath.Join(dir, TimingsFile), err)
		}
		i, ok := at[t.Method]
		if !ok {
			i = len(out)
			at[t.Method], out = i, append(out, Cost{Method: t.Method})
		}
		if total += t.Seconds; t.Tuning {
			out[i].Tuning += t.Seconds
			continue
		}
		out[i].Running += t.Seconds
		out[i].Processor += t.Processor
		if t.Processor == 0 {
			unknown[t.Method] = true
		}
	}
	for i := range out {
		if unknown[out[i].Method] {
			out[i].Processor = 0
		}
		if total > 0 {
			out[i].Share = (out[i].Tuning + out[i].Running) / total
		}
	}
	sorting.Stably(out, func(a, b Cost) int { return cmp.Compare(b.Share, a.Share) })
	return out, nil
}

// appendTo opens a file of lines for appending, after cutting off an incomplete last line. A cut
// line is of a write that was stopped, whose cell is computed again. The file is read whole.
func appendTo(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(f)
	if err == nil {
		end := int64(bytes.LastIndexByte(data, '\n') + 1)
		if err = f.Truncate(end); err == nil {
			_, err = f.Seek(end, io.SeekStart)
		}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

// Finish writes results.jsonl and results.csv in the order of cells and removes the journal. It
// returns the records. A missing cell is an error. The journal is removed last, so that a program
// that is killed on the way finds every cell again. Each file is replaced whole. A second call for
// the same cells changes no file.
func (d *Directory) Finish(cells []Cell) ([]Record, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	rs := sortRecords(d.records, cells)
	if len(rs) != len(cells) {
		return nil, fmt.Errorf("run directory %s: %d of %d cells are finished; run the same "+
			"command again to finish the rest", d.Path, len(rs), len(cells))
	}
	data, err := encodeRecords(rs)
	if err != nil {
		return nil, err
	}
	lines := [][]string{CSVHeading()}
	for _, r := range rs {
		lines = append(lines, r.CSV())
	}
	var table bytes.Buffer
	if err := csv.NewWriter(&table).WriteAll(lines); err != nil {
		return nil, fmt.Errorf("writing CSV: %w", err)
	}
	for _, f := range []struct {
		name string
		data []byte
	}{{ResultsFile, data}, {CSVFile, table.Bytes()}} {
		if was, err := os.ReadFile(d.file(f.name)); err == nil && bytes.Equal(was, f.data) {
			continue // a finished run is not rewritten
		}
		if err := atomicfile.WriteBytes(d.file(f.name), f.data); err != nil {
			return nil, err
		}
	}
	if err := d.writeMethods(MethodsOf(rs)); err != nil {
		return nil, err
	}
	if err := d.close(); err != nil {
		return nil, err
	}
	if err := os.Remove(d.file(JournalFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("run directory: %w", err)
	}
	return rs, nil
}

// writeMethods writes the methods of a finished run into run.json, unless they are there. A later
// version may have more methods: by their list it knows that nothing lacks.
func (d *Directory) writeMethods(methods []string) error {
	m, err := ReadManifest(d.Path)
	if err != nil || slices.Equal(m.Methods, methods) {
		return err
	}
	m.Methods = methods
	return writeJSON(d.file(RunFile), m)
}

// Close closes the journal and releases the lock. The journal stays, so that the run can be
// resumed. A second call does nothing.
func (d *Directory) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	err := d.close()
	if d.lock != nil {
		err = errors.Join(err, d.lock.Close())
		d.lock = nil
	}
	return err
}

// close closes the files of lines; the caller holds mu.
func (d *Directory) close() error {
	var errs []error
	for _, f := range []**os.File{&d.journal, &d.timings} {
		if *f != nil {
			errs = append(errs, (*f).Close())
			*f = nil
		}
	}
	return errors.Join(errs...)
}

// maxFile bounds the size of a file in a run directory: 1 GiB.
const maxFile = 1 << 30

// readFile reads and parses a file that every run directory has. Anything but a regular file is
// refused. Errors name the folder and the file.
func readFile[T any](dir, name string, parse func([]byte) (T, error)) (v T, err error) {
	data, err := regularfile.ReadFile(filepath.Join(dir, name), maxFile)
	if err != nil {
		return v, fmt.Errorf("run directory %s: %w", dir, err)
	}
	if v, err = parse(data); err != nil {
		return v, fmt.Errorf("run directory %s: %s: %w", dir, name, err)
	}
	return v, nil
}

// ReadManifest reads run.json of a run directory.
func ReadManifest(dir string) (*Manifest, error) { return readFile(dir, RunFile, parseManifest) }

// parseManifest reads run.json. Keys of later versions are ignored.
func parseManifest(data []byte) (*Manifest, error) {
	m := new(Manifest)
	return m, parseJSON(data, m)
}

// parseJSON reads a value. A value of another kind is told in the words of JSON: types of Go say
// nothing to the reader of a file.
func parseJSON(data []byte, v any) error {
	err := json.Unmarshal(data, v)
	var kind *json.UnmarshalTypeError
	if errors.As(err, &kind) {
		return fmt.Errorf("byte %d: %s is of another kind: a JSON %s", kind.Offset,
			cmp.Or(kind.Field, "the whole"), kind.Value)
	}
	return err
}

// ReadConfig reads the resolved settings of a run directory.
func ReadConfig(dir string) (Config, error) { return readFile(dir, ConfigFile, ParseConfig) }

// ParseConfig reads a complete set of settings, as config.yaml holds it. Those that an earlier
// version did not know have their defaults, by which later versions do the same.
func ParseConfig(data []byte) (Config, error) {
	c := Default()
	err := yamlfile.Decode(data, &c)
	return c, err
}

// ReadResults reads the records of a finished run, those of methods from outside ([OutsideFile])
// last. Results that lack cells, as after a copy that was cut off, are an error. It takes no lock:
// files of a finished run change by replacement alone.
func ReadResults(dir string) ([]Record, error) {
	path := filepath.Join(dir, ResultsFile)
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("run directory %s has no results: %w; a run that was stopped is "+
			"finished by running it again", dir, err)
	}
	m, err := ReadManifest(dir)
	if err != nil {
		return nil, err
	}
	c, err := ReadConfig(dir)
	if err != nil {
		return nil, err
	}
	rs, whole, err := readRecords(path)
	if err != nil {
		return nil, err
	}
	if lacks := c.lacking(m.Methods, rs); !whole || len(rs) == 0 || len(lacks) > 0 {
		return nil, fmt.Errorf("%s: the file is damaged: %d records are whole, %d or more are "+
			"missing; fmp run with the settings of %s and --out %s computes them", path, len(rs),
			max(1, len(lacks)), ConfigFile, dir)
	}
	more, err := readOutside(dir)
	if err != nil {
		return nil, err
	}
	if lacks := c.lacking(nil, slices.Concat(rs, more)); len(lacks) > 0 {
		return nil, fmt.Errorf("%s: the file is damaged: it lacks %s; remove it, and score the "+
			"predictions again", filepath.Join(dir, OutsideFile), lacks[0])
	}
	return append(rs, more...), nil
}

// readRecords reads a file of records, where there is one. It is not whole if its last line is cut.
func readRecords(path string) (rs []Record, whole bool, err error) {
	data, err := readOptional(path, "results")
	if err != nil {
		return nil, false, err
	}
	if rs, err = parseRecords(data); err != nil {
		return nil, false, fmt.Errorf("%s: %w", path, err)
	}
	return rs, len(data) == 0 || data[len(data)-1] == '\n', nil
}

// readOptional reads a file that a run directory may lack; nil without an error where it does.
func readOptional(path, what string) ([]byte, error) {
	data, err := regularfile.ReadFile(path, maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return data, nil
}

// writeJSON writes an indented file that is either whole or as it was.
func writeJSON(path string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return atomicfile.WriteBytes(path, append(b, '\n'))
}

// modelsOf says that a run needs its own models, where the requested one has others; "" otherwise.
// Which of several models differs does not matter to the text.
func modelsOf(old *Manifest, m Manifest) string {
	for k, is := range m.Models {
		if old.Models[k] != is {
			return fmt.Sprintf(" and its own models: those of fmp %s, or the files that its "+
				"settings name", cmp.Or(old.Versions["fmp"], "of its day"))
		}
	}
	return ""
}

// same are the [differences] of two runs whose settings, engines, models and data are the same.
const same = "its identity differs"

// differences describes briefly how the run in a directory differs from the requested one. Four
// differences are named at most. Settings come first, then engines, models and data. It is for an
// error message: the identity alone decides, and a difference that this text misses makes it
// [same].
func differences(dir string, old *Manifest, c Config, m Manifest) string {
	var out []string
	if was, err := ReadConfig(dir); err == nil {
		a, b := flatten(was.deciding()), flatten(c.Portable().deciding())
		keys := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
		slices.Sort(keys)
		x, y := was.Federation.Partition == "homogeneous", c.Federation.Partition == "homogeneous"
		for _, k := range slices.Compact(keys) {
			// Of two partitions that differ so, one alone reads alpha.
			if a[k] != b[k] && (k != "federation.alpha" || x == y) {
				out = append(out, fmt.Sprintf("%s is %s there and %s here", k, told(a, k), told(b, k)))
			}
		}
	}
	for _, k := range []string{"engine", "onnxruntime"} { // features have other bits by another
		if was, is := old.Versions[k], m.Versions[k]; was != is && was != "" && is != "" {
			out = append(out, fmt.Sprintf("%s is %s there and %s here", k, was, is))
		}
	}
	for _, d := range []struct {
		text    string
		was, is map[string]string
	}{{"%s is", old.Models, m.Models}, {"data %s are", old.Data, m.Data}} {
		keys := slices.AppendSeq(slices.Collect(maps.Keys(d.was)), maps.Keys(d.is))
		slices.Sort(keys)
		for _, k := range slices.Compact(keys) {
			if d.was[k] != d.is[k] {
				out = append(out, fmt.Sprintf(d.text+" %.12s there and %.12s here", k,
					cmp.Or(d.was[k], "none"), cmp.Or(d.is[k], "none")))
			}
		}
	}
	if len(out) == 0 {
		return same
	}
	if len(out) > 4 {
		out = append(out[:4], fmt.Sprintf("and %d more", len(out)-4))
	}
	return strings.Join(out, "; ")
}

// told is a setting's value in words. A file leaves some out that have their defaults.
func told(settings map[string]string, key string) string {
	v, ok := settings[key]
	if !ok {
		return "its default"
	}
	return cmp.Or(v, "empty")
}

// flatten returns the settings as text, by dotted key. Settings that cannot be encoded have none.
func flatten(c Config) map[string]string {
	out := map[string]string{}
	b, err := yaml.Marshal(c)
	if err != nil {
		return out
	}
	var tree map[string]any
	if yaml.Unmarshal(b, &tree) != nil {
		return out
	}
	var walk func(prefix string, v any)
	walk = func(prefix string, v any) {
		if m, ok := v.(map[string]any); ok {
			for k, e := range m {
				walk(strings.TrimPrefix(prefix+"."+k, "."), e)
			}
			return
		}
		out[prefix] = fmt.Sprint(v)
	}
	walk("", tree)
	return out
}
