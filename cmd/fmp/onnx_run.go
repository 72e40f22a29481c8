package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"fmp/cmd/internal/outputs"
	"fmp/onnx"
	"fmp/onnx/atomicfile"
	"fmp/onnx/conformance"
	"fmp/onnx/engine"
	"fmp/onnx/npy"
	"fmp/onnx/printable"
	"fmp/onnx/regularfile"
	"fmp/onnx/serde"
	"fmp/pipeline/option"
)

const onnxRunHelp = `Run an ONNX model once. Each --input names an input of the model and a file with its value: a .npy
file (any order and byte order), or a .pb file (a serialised TensorProto). Every output is written
to DIR/NAME.npy, all of them or none; characters of a name that a file name should not have become
"_". What was written is listed on standard output.

A model may hold a loop that never ends: --time-limit bounds what a model from elsewhere may take.`

// newONNXRunCommand declares fmp onnx run. The places of its outputs are claimed before an input is
// read, so that no input is overwritten. The order is: flags, model, outputs' places, adapter,
// inputs, engine, run, writing. An adapter's value of an input is overridden by none: the same name
// in --input is given twice.
func newONNXRunCommand() *cobra.Command {
	var inputs, wanted []string
	var dir, format, adapter string
	var limit time.Duration
	cfg := option.Default[engineSettings]()
	cmd := &cobra.Command{
		Use:   "run MODEL --input NAME=FILE ... --out DIR",
		Short: "Run an ONNX model on tensors from files",
		Long:  onnxRunHelp,
		Example: `  fmp onnx run model.onnx --input image=batch.npy --out results
  fmp onnx run model.onnx --input a=a.npy --input b=b.pb --output y --format pb --out results \
    --engine pure`,
		Args: exactArgs("MODEL"),
	}
	bindSettings(cmd, &cfg, engineAliases)
	flags := cmd.Flags()
	flags.StringArrayVar(&inputs, "input", nil,
		"input `NAME=FILE`; give one for every input of the model")
	flags.StringArrayVar(&wanted, "output", nil,
		"write the output `NAME` only; may be given several times")
	flags.StringVar(&adapter, "adapter", "",
		"LoRA adapter `FILE` (.onnx_adapter): values of the model's optional inputs")
	flags.StringVar(&dir, "out", "", "`DIR` to write the outputs to; made where it is missing")
	outputs.Made(flags, "out")
	flags.StringVar(&format, "format", "npy", "npy, or pb (TensorProto)")
	flags.DurationVar(&limit, "time-limit", 0,
		"`TIME` after which the model is given up, 30s say (exit code 1); 0 for none")
	jsonFlag(cmd, "list what was written as JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if dir == "" {
			return usageErrorf("--out is missing; name the folder for the outputs")
		}
		if format != "npy" && format != "pb" {
			return usageErrorf("--format is %q; allowed are npy, pb", format)
		}
		m, err := serde.Load(args[0])
		if err != nil {
			return usageError(err)
		}
		files, release, err := claimOutputs(m, wanted, dir, format, args[0])
		if err != nil {
			return usageError(err)
		}
		defer release()
		feeds, err := readAdapter(m, adapter)
		if err == nil {
			err = readFeeds(m, inputs, feeds)
		}
		if err != nil {
			return usageError(err)
		}
		if limit < 0 {
			return usageErrorf("--time-limit is %v; allowed are 0 (none) and up", limit)
		}
		ctx, cancel := limited(cmd.Context(), limit)
		defer cancel()
		e, err := openEngine(ctx, cfg.Engine, cfg.Engine.Threads, cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		// A fault of the run is the user's: the model or its inputs are.
		results, err := evalWithin(ctx, e, m, feeds, wanted)
		if err != nil {
			if ctx.Err() != nil {
				return fmt.Errorf("model %s: %w", args[0], context.Cause(ctx))
			}
			return usageError(err)
		}
		written, err := writeTensors(dir, files, results)
		if err != nil {
			return err
		}
		return tell(cmd, written, func(b *strings.Builder) {
			for _, x := range written {
				line(b, "%s: %s%v -> %s\n", x.Name, x.DType, x.Shape, x.File)
			}
		})
	}
	return cmd
}

// limited returns a context that ends after a time, 0 for none. Its cause says that the limit ended
// it. The limit counts from the opening of the engine to the end of the run.
func limited(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	if limit == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, limit, fmt.Errorf("it did not end within --time-limit "+
		"%v; allow more, or see whether the model has a loop that never ends", limit))
}

// outputFile is where an output goes.
// Its path has the file name that is made of the output's name, below the folder of --out.
type outputFile struct{ name, path string }

// outputFiles returns the files of the wanted outputs, or of all, in the order of the model's.
// Names of files are made unique in that order, so that they depend on the outputs that are wanted.
// An unknown name is an error, as is a type that .npy files do not hold.
func outputFiles(m *onnx.Model, wanted []string, dir,
	format string) (files []outputFile, err error) {
	for _, name := range wanted {
		if _, ok := m.Graph.Output(name); !ok {
			return nil, fmt.Errorf("--output %s: the model's outputs are %s", name,
				describeValues(m.Graph.Outputs))
		}
	}
	taken := map[string]bool{}
	for _, o := range m.Graph.Outputs {
		if len(wanted) == 0 || slices.Contains(wanted, o.Name) {
			// A type that is not inferred is told when the tensor is written.
			if format == "npy" && o.DType != onnx.Undefined && !npy.Holds(o.DType) {
				return nil, fmt.Errorf("output %q: .npy files hold no %v; give --format pb", o.Name,
					o.DType)
			}
			files = append(files,
				outputFile{o.Name, filepath.Join(dir, fileName(o.Name, "."+format, taken))})
		}
	}
	return files, nil
}

// claimOutputs returns the files of the outputs, and makes it an error to read one of them until
// release is called. It is one where that is the model, which has been read. Only regular files may
// be replaced.
func claimOutputs(m *onnx.Model, wanted []string, dir, format, model string) (files []outputFile,
	release func(), err error) {
	if files, err = outputFiles(m, wanted, dir, format); err != nil {
		return nil, nil, err
	}
	read, err := os.Stat(model)
	if err != nil {
		return nil, nil, err
	}
	var there []fs.FileInfo
	for _, f := range files {
		info, err := os.Stat(f.path)
		if err != nil {
			continue // not there yet, or the writing will complain of it
		}
		if !info.Mode().IsRegular() {
			return nil, nil, fmt.Errorf("output %q: %s is a folder or another thing that is no "+
				"file; move it away, or give another --out", f.name, f.path)
		}
		if os.SameFile(info, read) {
			return nil, nil, fmt.Errorf("%s: %w", model, regularfile.ErrOutput)
		}
		there = append(there, info)
	}
	return files, regularfile.Guard(there), nil
}

// evalWithin loads and runs a model once. Where ctx is done and the engine does not stop within a
// second, which a single long operator does not, it is left behind, with all that it holds. The
// engine is closed in either case, by the goroutine that runs it. Both results are written by that
// goroutine before done is closed, and read after it alone. After a time-out they are not read,
// since the goroutine may still write them.
func evalWithin(ctx context.Context, e engine.Engine, m *onnx.Model, feeds map[string]*onnx.Tensor,
	outputs []string) (map[string]*onnx.Tensor, error) {
	var results map[string]*onnx.Tensor
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer e.Close()
		if err = faultless(e, m); err != nil {
			return
		}
		var s engine.Session
		if s, err = e.Load(m); err != nil {
			return
		}
		defer s.Close()
		results, err = engine.Eval(s, feeds, outputs...)
	}()
	select {
	case <-done:
		return results, err
	case <-ctx.Done():
	}
	select {
	case <-done:
		return results, err
	// Engines stop between operators, and mostly end within this second.
	case <-time.After(time.Second):
		return nil, context.Cause(ctx)
	}
}

// faultless reports the fault that fmp onnx check finds in a model for the pure engine, which would
// refuse some node or end in the midst. Other engines check models themselves. Parts that are not
// known here are left to the engine.
func faultless(e engine.Engine, m *onnx.Model) error {
	if e.Name() != "pure" {
		return nil
	}
	if _, err := checkModel(onnx.Clone(m)); err != nil && !errors.Is(err, onnx.ErrUnknown) {
		return fmt.Errorf("the model is at fault: %w; correct it, or export it again", err)
	}
	return nil
}

// readFeeds reads the value of every input of m from the given NAME=FILE pairs to feeds. Those of
// optional inputs become the model's defaults. feeds may hold values already, such as an adapter's;
// it is changed, and so is m by defaults. After an error both are of no use.
func readFeeds(m *onnx.Model, pairs []string, feeds map[string]*onnx.Tensor) error {
	for _, p := range pairs {
		name, path, ok := strings.Cut(p, "=")
		if !ok || path == "" {
			return fmt.Errorf("--input %s: want NAME=FILE", p)
		}
		_, input := m.Graph.Input(name)
		optional := slices.ContainsFunc(m.Graph.Optional,
			func(v onnx.ValueInfo) bool { return v.Name == name })
		if !input && !optional {
			hint := fmt.Sprintf("the model's inputs are %s",
				describeValues(slices.Concat(m.Graph.Inputs, m.Graph.Optional)))
			return fmt.Errorf("--input %s: the model has no input %q; %s", p, name, hint)
		}
		if feeds[name] != nil {
			return fmt.Errorf("--input %s: %q is given twice", p, name)
		}
		// Type and shape are the engine's to check.
		t, err := loadTensor(path)
		if err != nil {
			return fmt.Errorf("--input %s: %w", name, err)
		}
		if optional {
			if err := m.Graph.SetDefault(name, t); err != nil {
				return fmt.Errorf("--input %s: %w", name, err)
			}
			continue
		}
		feeds[name] = t
	}
	var missing []onnx.ValueInfo
	for _, in := range m.Graph.Inputs {
		if feeds[in.Name] == nil {
			missing = append(missing, in)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("no --input for %s; give --input NAME=FILE.npy for each",
			describeValues(missing))
	}
	return nil
}

// readAdapter returns the values that an adapter, which may be none, has of inputs of m. Those of
// optional inputs become the model's defaults. A name that is neither an input nor an optional one
// is an error: the adapter is of another model.
func readAdapter(m *onnx.Model, path string) (map[string]*onnx.Tensor, error) {
	feeds := map[string]*onnx.Tensor{}
	if path == "" {
		return feeds, nil
	}
	tensors, err := serde.LoadAdapter(path)
	if err != nil {
		return nil, fmt.Errorf("--adapter: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(tensors)) {
		if _, ok := m.Graph.Input(name); ok {
			feeds[name] = tensors[name]
		} else if err := m.Graph.SetDefault(name, tensors[name]); err != nil {
			return nil, fmt.Errorf("--adapter %s: %w; the model's optional inputs: %s", path, err,
				describeValues(m.Graph.Optional))
		}
	}
	return feeds, nil
}

// describeValues lists values with their types.
// Names come from the model, so that each is made printable on one line.
func describeValues(vs []onnx.ValueInfo) string {
	if len(vs) == 0 {
		return "none"
	}
	var parts []string
	for _, v := range vs {
		parts = append(parts, printable.Line(fmt.Sprintf("%s (%s)", v.Name, v.Type())))
	}
	return strings.Join(parts, ", ")
}

// loadTensor reads a .npy file, or a serialised TensorProto from a .pb file. The extension alone
// decides, without regard to case.
func loadTensor(path string) (*onnx.Tensor, error) {
	switch ext := strings.ToLower(filepath.Ext(path)); ext {
	case ".npy":
		t, err := npy.Load(path)
		if errors.Is(err, regularfile.ErrOutput) { // another format would not help
			return nil, fmt.Errorf("%s: %w", path, regularfile.ErrOutput)
		}
		return t, err
	case ".pb":
		return conformance.ReadTensor(path)
	default:
		return nil, fmt.Errorf("%s: the extension %q is not known; allowed are "+
			".npy and .pb", path, ext)
	}
}

// writtenTensor says which tensor went to which file. File is relative to the working folder where
// --out is so.
type writtenTensor struct {
	Name  string `json:"name"`
	DType string `json:"dtype"`
	Shape []int  `json:"shape"`
	File  string `json:"file"`
}

// writeTensors writes tensors to their files in dir: all of them, or, where anything fails, none.
// They are written to a folder within dir and renamed from there, so that a reader meets none in
// part. A folder that was made for them is removed again with them.
func writeTensors(dir string, files []outputFile,
	tensors map[string]*onnx.Tensor) (written []writtenTensor, err error) {
	made := false
	if _, serr := os.Stat(dir); os.IsNotExist(serr) {
		made = true
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("writing outputs: %w", err)
	}
	// Everything goes to a folder beside its place first, so that a full disk leaves nothing
	// behind. Folders of programs that were killed within the last hour stay: one may be at work.
	if err := atomicfile.RemoveStale(dir, ".outputs-", time.Hour); err != nil {
		return nil, fmt.Errorf("writing outputs: %w", err)
	}
	tmp, err := os.MkdirTemp(dir, ".outputs-*.tmp")
	if err != nil {
		return nil, fmt.Errorf("writing outputs: %w", err)
	}
	defer func() {
		// Where old files could not be put back they lie in tmp alone, which then stays.
		if !errors.Is(err, errNotPutBack) {
			os.RemoveAll(tmp)
		}
		if err != nil && made {
			os.Remove(dir)
		}
	}()
	for _, f := range files {
		t, to := tensors[f.name], filepath.Join(tmp, filepath.Base(f.path))
		if filepath.Ext(to) == ".pb" {
			err = savePB(to, f.name, t)
		} else {
			err = npy.Save(to, t)
		}
		if err != nil {
			return nil, fmt.Errorf("writing output %q: %w", f.name, err)
		}
		written = append(written, writtenTensor{f.name, t.DType.String(), t.Shape, f.path})
	}
	return written, putAll(tmp, written)
}

// errNotPutBack says that files which outputs had replaced could not be put back; they are kept.
var errNotPutBack = errors.New("the outputs before it stay")

// putAll renames files in tmp to their places: all of them, or, where one cannot be, none. Files
// that were there are kept in tmp meanwhile. A link keeps the old file while its place has the new
// one; it costs no space. The order is that of written; on an error those before it are undone,
// this one among them. It is atomic against faults, and not against a reader who looks between two
// renames.
func putAll(tmp string, written []writtenTensor) (err error) {
	kept := filepath.Join(tmp, "kept")
	if err := os.Mkdir(kept, 0o700); err != nil {
		return fmt.Errorf("writing outputs: %w", err)
	}
	for i, w := range written {
		name := filepath.Base(w.File)
		was := filepath.Join(kept, name)
		if info, serr := os.Lstat(w.File); serr == nil && info.IsDir() {
			err = errors.New("it is a folder")
		} else if lerr := os.Link(w.File, was); lerr != nil && serr == nil {
			err = os.Rename(w.File, was) // a file system without links
		}
		if err == nil {
			err = os.Rename(filepath.Join(tmp, name), w.File)
		}
		if err == nil {
			continue
		}
		if link := (*os.LinkError)(nil); errors.As(err, &link) {
			err = link.Err // without the name in tmp
		}
		var lost error
		// A place that had a file gets it back, and one that had none is emptied.
		for _, back := range written[:i+1] {
			was := filepath.Join(kept, filepath.Base(back.File))
			if _, serr := os.Lstat(was); serr == nil {
				lost = errors.Join(lost, os.Rename(was, back.File))
			} else if back.File != w.File {
				lost = errors.Join(lost, os.Remove(back.File))
			}
		}
		if lost != nil {
			return fmt.Errorf("writing output %q: %s: %w; %w: the files that were there are in "+
				"%s: %w", w.Name, w.File, err, errNotPutBack, kept, lost)
		}
		return fmt.Errorf("writing output %q: %s: %w; none is written", w.Name, w.File, err)
	}
	return nil
}

// savePB writes a serialised TensorProto; equal tensors have equal bytes. The file is of the
// protobuf message alone, without a length before it.
func savePB(path, name string, t *onnx.Tensor) error {
	p, err := serde.TensorToProto(name, t)
	if err != nil {
		return err
	}
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(p)
	if err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o644)
}

// fileName is a file name for the value of that name: no folders, nothing hidden, nothing that a
// shell or a file system would take amiss. A name that is taken gets a number. Names that differ by
// case alone are taken for one, as some file systems do. A name is cut to 150 bytes, which leaves
// room for number and extension within the usual 255. taken is changed: the name is in it, in lower
// case.
func fileName(name, ext string, taken map[string]bool) string {
	clean := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.',
			r == '_', r == '-':
			return r
		}
		return '_'
	}, name)
	if len(clean) > 150 {
		clean = clean[:150]
	}
	if clean == "" || clean[0] == '.' || clean[0] == '-' {
		clean = "_" + strings.TrimLeft(clean, ".-")
	}
	file := clean + ext
	for i := 2; taken[strings.ToLower(file)]; i++ {
		file = fmt.Sprintf("%s.%d%s", clean, i, ext)
	}
	taken[strings.ToLower(file)] = true
	return file
}
