package experiment

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"fmp/onnx"
	"fmp/onnx/atomicfile"
	"fmp/onnx/dense"
	"fmp/onnx/npy"
	"fmp/onnx/sorting"
	"fmp/pipeline/lab/rival"
	"fmp/pipeline/lab/score"
	"fmp/pipeline/metric"
	"fmp/pipeline/posterior"
)

// OutsideFile holds, in a run directory, the records of methods from outside this program, in the
// format of [ResultsFile].
const OutsideFile = "outside.jsonl"

// Outside describes predictions of a method that is not part of this program. Predictions are
// another's file, and every number of it is checked before it is scored.
type Outside struct {
	// Path is a .npz file with an array for every task of the run, of its name: probabilities (N x
	// C, or S x N x C for S posterior samples) of the N rows of test.npz, or, as NAME-heads, heads
	// on the features (S x (dx+1) x C, the bias last). All tasks have one kind and one S. An array
	// test_sha256, where there is one, holds the digest of test.npz (32 bytes, uint8), which must
	// be that of the run.
	Path string
	// Name is the method's name in tables, Group its group; default one-shot federated.
	Name  string
	Group rival.Group
	// UploadBytes is the size of a client's upload, in bytes, as its author states it; 0: not
	// stated.
	UploadBytes float64
	// Replace says that figures that the run has under this name may be replaced.
	Replace bool
	Threads int
}

// outsideName matches names without blanks, bars and commas, which would end a cell of some table.
var outsideName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._+-]{0,39}$`)

// maxMembers bounds the posterior samples of predictions from outside. Probabilities of as many
// samples are held in memory at once.
const maxMembers = 1000

// check returns an error for a name that tables could not tell from others. Names are compared with
// the program's own without regard to case.
func (o *Outside) check() error {
	if !outsideName.MatchString(o.Name) {
		return fmt.Errorf("name %q: want 1 to 40 letters, digits and . _ + -, the first a "+
			"letter or digit", o.Name)
	}
	if _, err := rival.Lookup(o.Name); err == nil {
		return fmt.Errorf("name %q: a method of this program has that name; give another", o.Name)
	}
	if !slices.Contains([]rival.Group{rival.Local, rival.Centralised, rival.OneShot,
		rival.Baseline}, o.Group) {
		return fmt.Errorf("group %q: allowed are %q, %q, %q and %q", o.Group, rival.Local,
			rival.Centralised, rival.OneShot, rival.Baseline)
	}
	if !(o.UploadBytes >= 0) || o.UploadBytes > 1<<40 {
		return fmt.Errorf("upload of %v bytes: allowed are 0 to 2^40", o.UploadBytes)
	}
	return nil
}

// ScoreOutside scores predictions of a method from outside on the tasks of a finished run, and
// keeps the records in [OutsideFile], under each protocol of the run. It returns notes for readers.
// Predictions are checked and scored for all tasks before the file of records is touched: an error
// leaves it as it was. Scores are the same under each protocol, which does not reach a method from
// outside.
func ScoreOutside(ctx context.Context, dir string, o Outside) (notes []string, err error) {
	o.Group = cmp.Or(o.Group, rival.OneShot)
	if err := o.check(); err != nil {
		return nil, fmt.Errorf("predictions %s: %w", o.Path, err)
	}
	c, err := ReadConfig(dir)
	if err != nil {
		return nil, err
	}
	// The records are read for their checks alone: a run is finished before others join it.
	if _, err := ReadResults(dir); err != nil {
		return nil, err
	}
	d := &Directory{Path: dir}
	// The lock keeps fmp run, and another scoring, out of the directory.
	if err := d.take(); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	h, err := readHeld(dir)
	if err != nil {
		return nil, err
	}
	if len(h.Labels) >= metric.Neighbours {
		if h.Batches, err = batches(c, h.Features, h.dx); err != nil {
			return nil, err
		}
	}
	tasks := c.splitTasks()
	arrays, digest, err := o.read(h, tasks)
	if err != nil {
		return nil, err
	}
	tied, err := h.ties(arrays)
	if err != nil {
		return nil, fmt.Errorf("predictions %s: %w", o.Path, err)
	}
	if !tied {
		notes = append(notes, fmt.Sprintf("nothing ties the order of the rows of %s to this "+
			"run's test.npz: an array %q with that file's sha256 in it would",
			filepath.Base(o.Path), tieArray))
	}
	var rs []Record
	for _, t := range tasks {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		r, err := o.score(ctx, h, arrays, t)
		if err != nil {
			return nil, fmt.Errorf("predictions %s: %w", o.Path, err)
		}
		r.Dataset, r.Origin = c.Dataset.Label(),
			fmt.Sprintf("%s, sha256 %s", filepath.Base(o.Path), digest)
		for _, protocol := range c.Protocols() {
			r.Protocol = protocol
			rs = append(rs, *r)
		}
	}
	return notes, o.keep(d, rs)
}

// ties reports whether predictions carry the digest of the splits' test rows; another one is an
// error. Heads alone have no rows to be tied.
func (h *held) ties(arrays map[string]*onnx.Tensor) (bool, error) {
	if arrays[tieArray] == nil {
		for name := range arrays {
			if !strings.HasSuffix(name, headsSuffix) {
				return false, nil
			}
		}
		return true, nil
	}
	got, err := array[uint8](arrays, tieArray, 1)
	if err != nil {
		return false, err
	}
	want, err := h.digest()
	if err != nil {
		return false, err
	}
	if !bytes.Equal(got, want) {
		return false, fmt.Errorf("array %q is %x and the run's test.npz has %x: they were made "+
			"from the splits of another run directory, whose rows may be other images; predict "+
			"from this one's (--export-splits)", tieArray, got, want)
	}
	return true, nil
}

// read reads the arrays of predictions, one for each task, and the digest of their file. The bytes
// that it takes are bounded by the largest predictions that the run can have. A task with both
// kinds of array, or with none, is an error, as is an array of no task. Shapes and values are
// checked later.
func (o *Outside) read(h *held, tasks []SplitTask) (map[string]*onnx.Tensor, string, error) {
	// Eight bytes a number: of each task maxMembers samples, with a row of C numbers for each test
	// image and for each row of a head.
	most := int64(8*len(tasks)*maxMembers) * int64(h.classes) * int64(len(h.Labels)+h.dx+1)
	arrays, err := npy.LoadArchiveWithin(o.Path, min(most, maxPredictions))
	if err != nil {
		return nil, "", err
	}
	digest, err := fileDigest(o.Path)
	if err != nil {
		return nil, "", err
	}
	known, first := []string{tieArray}, ""
	for i, t := range tasks {
		_, p := arrays[t.Name]
		_, heads := arrays[t.Name+headsSuffix]
		if p == heads {
			return nil, "", fmt.Errorf("predictions %s: task %s: want one array, %q with "+
				"probabilities or %q with heads", o.Path, t.Name, t.Name, t.Name+headsSuffix)
		}
		known = append(known, t.Name, t.Name+headsSuffix)
		switch is := kindOf(arrays[t.Name], arrays[t.Name+headsSuffix]); {
		case i == 0:
			first = is
		case is != first:
			return nil, "", fmt.Errorf("predictions %s: task %s has %s, and task %s has %s: means "+
				"over both would be of neither; give all tasks one kind and one number of samples",
				o.Path, tasks[0].Name, first, t.Name, is)
		}
	}
	for name := range arrays {
		if !slices.Contains(known, name) {
			return nil, "", fmt.Errorf("predictions %s: array %q is of no task of the run; tasks "+
				"are %q to %q", o.Path, name, tasks[0].Name, tasks[len(tasks)-1].Name)
		}
	}
	return arrays, digest, nil
}

// kindOf names the kind and number of samples of a task's predictions, one of which is nil. Figures
// of joint predictions and of intervals are of these.
func kindOf(p, heads *onnx.Tensor) string {
	of, t := "probabilities", p
	if p == nil {
		of, t = "heads", heads
	}
	n := 1
	if len(t.Shape) == 3 {
		n = t.Shape[0]
	}
	return fmt.Sprintf("%s of S = %d", of, n)
}

const (
	// headsSuffix ends the name of an array of heads.
	headsSuffix = "-heads"
	// tieArray is the array of predictions with the digest of test.npz.
	tieArray = "test_sha256"
	// maxPredictions bounds the arrays of predictions, in bytes.
	maxPredictions = 8 << 30
	// sumTolerance is how far the sum of a row of probabilities may lie from 1.
	sumTolerance = 1e-4
)

// score scores the predictions for one task. Heads are scored as the program's own, with coverage
// and by their number; probabilities without heads have neither.
func (o *Outside) score(ctx context.Context, h *held, arrays map[string]*onnx.Tensor,
	t SplitTask) (*Record, error) {
	out := &Record{Cell: Cell{Partition: t.Partition, Repeat: t.Repeat, Method: o.Name},
		Alpha: t.Alpha, Group: string(o.Group), UploadBytes: o.UploadBytes}
	if a := arrays[t.Name+headsSuffix]; a != nil {
		e, err := heads(a, h.dx+1, h.classes)
		if err != nil {
			return nil, fmt.Errorf("array %q: %w", t.Name+headsSuffix, err)
		}
		scored, err := h.Score(ctx, nil, &posterior.Result{Ensembles: []posterior.Ensemble{e}},
			o.Threads)
		if err != nil && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			return nil, fmt.Errorf("array %q: probabilities of its heads: %w; smaller weights do not "+
				"overflow", t.Name+headsSuffix, err)
		}
		out.Scores, out.BySamples, out.Coverage = scored.Scores, scored.First, scored.Coverage
		return out, nil
	}
	p, err := h.probabilities(arrays[t.Name])
	if err != nil {
		return nil, fmt.Errorf("array %q: %w", t.Name, err)
	}
	out.Scores, err = score.Probabilities(p, h.Labels, h.Batches)
	return out, err
}

// samples returns the finite numbers of an array of at most [maxMembers] posterior samples of rows
// x columns, or of one, and the number of samples; want says in words which shape is wanted. Those
// of an array of float64 are not copied. The tensor's data are not written.
func samples(t *onnx.Tensor, rows, columns int, want string) (v []float64, n int, err error) {
	shape := t.Shape
	if len(shape) == 2 {
		shape = []int{1, shape[0], shape[1]}
	}
	if len(shape) != 3 || shape[0] < 1 || shape[0] > maxMembers || shape[1] != rows ||
		shape[2] != columns {
		return nil, 0, fmt.Errorf("shape %v; want %s with S of at most %d", t.Shape,
			want, maxMembers)
	}
	switch of := t.Data.(type) {
	case []float64:
		v = of
	case []float32:
		v = dense.As[float64](of)
	default:
		return nil, 0, fmt.Errorf("elements of type %v; want float32 or float64", t.DType)
	}
	if !finite(v) {
		return nil, 0, fmt.Errorf("a number is not finite")
	}
	return v, shape[0], nil
}

// probabilities returns the probabilities of each posterior sample, in the order of the test
// images. Rows are divided by their sums. The array has the rows of the splits: its row i is that
// of test image order[i]. The tolerance admits softmaxes in float32, and dividing by the sum takes
// their rounding out.
func (h *held) probabilities(t *onnx.Tensor) ([]*metric.Probabilities, error) {
	n := len(h.Labels)
	v, members, err := samples(t, n, h.classes,
		fmt.Sprintf("%d x %d, or S x %[1]d x %d", n, h.classes))
	if err != nil {
		return nil, err
	}
	var out []*metric.Probabilities
	for s := range members {
		p := &metric.Probabilities{N: n, C: h.classes, P: make([]float64, n*h.classes)}
		for i := range n {
			from := v[(s*n+i)*h.classes:][:h.classes]
			sum := 0.0
			for _, x := range from {
				if x < 0 {
					return nil, fmt.Errorf("row %d has a probability of %v; want none "+
						"below 0", i, x)
				}
				sum += x
			}
			if math.Abs(sum-1) > sumTolerance {
				return nil, fmt.Errorf("row %d sums to %v; want 1 to within %v: give "+
					"probabilities, not logits", i, sum, sumTolerance)
			}
			to := p.Row(h.order[i])
			for c, x := range from {
				to[c] = x / sum
			}
		}
		out = append(out, p)
	}
	return out, nil
}

// heads returns the heads of an array of S x D x C, or D x C: a weight for every feature, and the
// bias last. They share the memory of an array of float64.
func heads(t *onnx.Tensor, d, classes int) (posterior.Ensemble, error) {
	v, members, err := samples(t, d, classes,
		fmt.Sprintf("S x %d x %d, a weight for every feature and the bias last,", d, classes))
	if err != nil {
		return nil, err
	}
	var out posterior.Ensemble
	for s := range members {
		out = append(out, posterior.Theta{D: d, C: classes, W: v[s*d*classes:][:d*classes]})
	}
	return out, nil
}

// keep adds records to [OutsideFile], in place of those of the same name. Records of another file,
// group or size under that name are refused unless Replace is set. A file that would be as it was
// is not written. The directory is locked by the caller. The file is replaced whole or not at all,
// and its records are in the order of names.
func (o *Outside) keep(d *Directory, rs []Record) error {
	all, err := readOutside(d.Path)
	if err != nil {
		return err
	}
	same := func(r Record) bool { return r.Method == o.Name }
	if i := slices.IndexFunc(all,
		func(r Record) bool { return !same(r) && strings.EqualFold(r.Method, o.Name) }); i >= 0 {
		return fmt.Errorf("run directory %s: it has figures under the name %s, which differs "+
			"from %s in its case alone; give another name", d.Path, all[i].Method, o.Name)
	}
	if i := slices.IndexFunc(all, same); i >= 0 && !o.Replace && (all[i].Origin != rs[0].Origin ||
		all[i].Group != rs[0].Group || all[i].UploadBytes != rs[0].UploadBytes) {
		return fmt.Errorf("run directory %s: it has figures under the name %s, from %s (%s, "+
			"uploads of %v bytes); give another name, or --replace", d.Path, o.Name, all[i].Origin,
			all[i].Group, all[i].UploadBytes)
	}
	all = append(slices.DeleteFunc(all, same), rs...)
	sorting.Stably(all, func(a, b Record) int { return cmp.Compare(a.Method, b.Method) })
	data, err := encodeRecords(all)
	if err != nil {
		return err
	}
	if was, err := os.ReadFile(d.file(OutsideFile)); err == nil && slices.Equal(was, data) {
		return nil
	}
	return atomicfile.WriteBytes(d.file(OutsideFile), data)
}

// readOutside reads the records of methods from outside; none where there is no such file. A record
// of a method of this program, or without an origin, is an error. The file is another's to edit, so
// that each record is checked as if it were new.
func readOutside(dir string) ([]Record, error) {
	path := filepath.Join(dir, OutsideFile)
	rs, whole, err := readRecords(path)
	if err != nil {
		return nil, err
	}
	if !whole {
		return nil, fmt.Errorf("%s: the file is damaged: its last line is cut; remove it, "+
			"and score the predictions again", path)
	}
	for _, r := range rs {
		if o := (Outside{Name: r.Method, Group: rival.Group(r.Group)}); r.Origin == "" ||
			o.check() != nil {
			return nil, fmt.Errorf("%s: the record of %s is of no method from outside",
				path, r.Cell)
		}
	}
	return rs, nil
}
