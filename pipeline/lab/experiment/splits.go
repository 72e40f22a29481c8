package experiment

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/npy"
	"fmp/onnx/regularfile"
	"fmp/pipeline/task"
)

// SplitsFile is the manifest in a folder of splits.
const SplitsFile = "manifest.json"

// Files of splits beside those of the tasks.
const (
	corpusSplit = "corpus.npz"
	tuningSplit = "tuning.npz"
	testSplit   = "test.npz"
)

// splitsFormat names the layout of splits in their manifest.
const splitsFormat = "fmp-splits/1"

// Splits is the manifest of a run's tasks as files, from which a method outside this program makes
// predictions. It is written last: a folder with a manifest has had all of its files.
type Splits struct {
	Format string `json:"format"`
	// Identity is that of the run.
	Identity string   `json:"identity"`
	Dataset  string   `json:"dataset"`
	Classes  []string `json:"classes"`
	// Features is dx, Test the number of test rows, Clients those of a task.
	Features int `json:"features"`
	Test     int `json:"test"`
	Clients  int `json:"clients"`
	// Rows are the numbers of rows of the files corpus.npz and tuning.npz (of the setting
	// tuning.classes), where there are such. OpenScope says that their labels are of other classes
	// than the tasks'.
	Rows      map[string]int `json:"rows"`
	OpenScope bool           `json:"open_scope,omitempty"`
	Tasks     []SplitTask    `json:"tasks"`
	// Digests are the sha256 digests of the files, by name.
	Digests map[string]string `json:"digests"`
}

// SplitTask is one task: the clients of one partition in one repeat.
type SplitTask struct {
	// Name is the task's name, that of its array of predictions; File its file.
	Name      string  `json:"name"`
	File      string  `json:"file"`
	Partition string  `json:"partition"`
	Alpha     float64 `json:"alpha"`
	Repeat    int     `json:"repeat"`
}

// splitTasks returns the tasks of a run.
func (c *Config) splitTasks() []SplitTask {
	var out []SplitTask
	for _, p := range c.Partitions() {
		for r := range c.Seeds {
			name := fmt.Sprintf("%s-%d", p.Name(), r)
			out = append(out, SplitTask{Name: name, File: "task-" + name + ".npz",
				Partition: p.Name(), Alpha: p.Alpha, Repeat: r})
		}
	}
	return out
}

// ExportSplits writes every task of a run to the new or empty folder path: task-NAME.npz (rows of
// all clients: features, labels, client; calibration points likewise), corpus.npz (features,
// labels), test.npz (features alone) and, last, the manifest. It writes [HeldFile] to the run
// directory. Of a folder with the run's own splits, files that are gone or changed are made again.
// The folder is checked before anything is written. The tasks are those that the run draws, from
// the same streams. An error in a new folder leaves files without a manifest, which a second call
// writes anew.
func ExportSplits(ctx context.Context, p *Prepared, dir *Directory, path string) error {
	there, err := splitsThere(path, p)
	if err != nil {
		return err
	}
	h, err := p.hold(ctx, dir)
	if err != nil {
		return err
	}
	c, bank := &p.Config, p.Data.Clients
	if there != nil {
		if whole, err := there.whole(path, h); err != nil || whole {
			return err
		}
	}
	m := &Splits{Format: splitsFormat, Identity: p.Manifest.Identity, Dataset: c.Dataset.Label(),
		Classes:  p.Manifest.Classes,
		Features: bank.Dx, Test: len(p.Data.TestLabels), Clients: c.Federation.Clients,
		OpenScope: c.OpenScope(), Tasks: c.splitTasks(),
		Rows: map[string]int{}, Digests: map[string]string{}}
	// Digests are of the files as they were written, read back.
	save := func(name string, arrays map[string]*onnx.Tensor) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		file := filepath.Join(path, name)
		if err := npy.SaveArchive(file, arrays); err != nil {
			return err
		}
		m.Digests[name], err = fileDigest(file)
		return err
	}
	if err := os.MkdirAll(path, 0o755); err != nil {
		return fmt.Errorf("splits: %w", err)
	}
	for _, t := range m.Tasks {
		rows, beside, err := c.draw(bank, Partition{Alpha: t.Alpha}, t.Repeat)
		if err != nil {
			return err
		}
		arrays := rowArrays(bank, rows, "")
		maps.Copy(arrays, rowArrays(bank, beside, "calibration_"))
		if err := save(t.File, arrays); err != nil {
			return err
		}
	}
	for name, b := range map[string]*task.Bank{corpusSplit: p.Data.Corpus,
		tuningSplit: p.Data.Tuning} {
		if b == nil {
			continue
		}
		m.Rows[name] = b.Len()
		if err := save(name, map[string]*onnx.Tensor{"features": onnx.NewTensor(b.Features,
			b.Len(), b.Dx), "labels": indices(b.Labels)}); err != nil {
			return err
		}
	}
	if err := save(testSplit, h.tests()); err != nil {
		return err
	}
	return writeJSON(filepath.Join(path, SplitsFile), m)
}

// splitsThere returns the manifest in the folder, where it is of a run of this identity. A folder
// with other files is an error; parts of splits that were stopped are written again. Nothing of a
// folder is removed. No manifest and no error means that the files may be written.
func splitsThere(path string, p *Prepared) (*Splits, error) {
	entries, err := os.ReadDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("splits: %w", err)
	}
	if data, err := regularfile.ReadFile(filepath.Join(path, SplitsFile), maxFile); err == nil {
		var m Splits
		if json.Unmarshal(data, &m) == nil && m.Identity == p.Manifest.Identity {
			return &m, nil
		}
	}
	known := []string{corpusSplit, tuningSplit, testSplit}
	for _, t := range p.Config.splitTasks() {
		known = append(known, t.File)
	}
	for _, e := range entries {
		if !slices.Contains(known, e.Name()) &&
			!slices.ContainsFunc(known, func(of string) bool { return unfinished(e.Name(), of) }) {
			return nil, fmt.Errorf("splits: folder %s holds %s, which is not of this run's "+
				"splits: give a new or empty folder", path, e.Name())
		}
	}
	return nil, nil
}

// whole reports whether the folder has all files of the splits unchanged. Splits whose test rows
// are not the given ones are an error: their predictions would be scored against other images. A
// file that cannot be read counts as changed.
func (m *Splits) whole(path string, h *held) (bool, error) {
	sum, err := h.digest()
	if err != nil {
		return false, err
	}
	if m.Digests[testSplit] != hex.EncodeToString(sum) {
		return false, fmt.Errorf("splits: folder %s holds those of another run directory, "+
			"with other test rows or another order of them: give a new or empty folder", path)
	}
	for name, want := range m.Digests {
		if got, err := fileDigest(filepath.Join(path, name)); err != nil || got != want {
			return false, nil
		}
	}
	return true, nil
}

// rowArrays returns the rows of the given clients: features [n, dx], labels [n] and client [n]. The
// last two are int64. There are none where there are no rows. Rows are client by client, and are
// copied.
func rowArrays(bank *task.Bank, of [][]int, prefix string) map[string]*onnx.Tensor {
	var features []float32
	var labels, client []int
	for m, rows := range of {
		for _, i := range rows {
			features = append(features, bank.Row(i)...)
			labels, client = append(labels, bank.Labels[i]), append(client, m)
		}
	}
	if len(labels) == 0 {
		return nil
	}
	return map[string]*onnx.Tensor{prefix + "features": onnx.NewTensor(features, len(labels),
		bank.Dx), prefix + "labels": indices(labels), prefix + "client": indices(client)}
}

// indices is a vector of class or client indices.
func indices(of []int) *onnx.Tensor {
	out := make([]int64, len(of))
	for i, v := range of {
		out[i] = int64(v)
	}
	return onnx.Vector(out...)
}

// fileDigest returns the sha256 digest of a file in hexadecimal digits.
func fileDigest(path string) (string, error) {
	data, err := regularfile.ReadFile(path, maxSplit)
	if err != nil {
		return "", fmt.Errorf("splits: %w", err)
	}
	return models.DigestBytes(data), nil
}

// maxSplit bounds the size of a file of splits, in bytes: 16 GiB. A file is read whole to be
// hashed, and so takes as much memory.
const maxSplit = 16 << 30
