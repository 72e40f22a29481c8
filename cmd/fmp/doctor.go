package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"fmp/cmd/buildinfo"
	"fmp/featurize/dataset"
	"fmp/featurize/imagefile"
	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/engine"
	"fmp/onnx/engine/ort"
	"fmp/onnx/engine/pure"
	"fmp/onnx/printable"
	"fmp/pipeline/lab/experiment"
	"fmp/pipeline/settings"
)

// finding is one thing that doctor looked at. Detail and Advice may hold text of the system's, such
// as names of files. Advice is empty where nothing is to be done.
type finding struct {
	Name string `json:"name"`
	// "ok", "missing" (it is needed and not there) or "absent" (it is not needed)
	State  string `json:"state"`
	Detail string `json:"detail,omitempty"` // version, place, reason
	Advice string `json:"advice,omitempty"` // what to do where it is not there
}

const (
	// A needed thing that is missing makes the exit code 3; an absent one does not.
	stateOK      = "ok"
	stateMissing = "missing"
	stateAbsent  = "absent"
)

// diagnosis is the output of `fmp doctor --json`. Cores are those that Go uses, which a quota or
// GOMAXPROCS may make fewer than the machine's. Findings are in the order in which they are
// printed. Tried has the places that were looked at, also where a library was found.
type diagnosis struct {
	Program buildinfo.Info `json:"program"`
	Cores   int            `json:"cores"`
	// Library is the file that was found, and Tried are the places where it was looked for.
	Library   string               `json:"library,omitempty"`
	Version   string               `json:"onnxruntime,omitempty"`
	Tried     []string             `json:"library_tried"`
	Providers []ort.ProviderStatus `json:"providers,omitempty"`
	Data      []dataset.Status     `json:"data"`
	Findings  []finding            `json:"findings"`
	// Healthy says that nothing is missing that the settings need.
	Healthy bool `json:"healthy"`
}

// newDoctorCommand declares fmp doctor. That something is missing is told by the exit code alone,
// as its line is printed already. It runs without a library, data or network, and every fault that
// it meets is a line of its report. Wrong settings are an error of usage, as everywhere. The report
// is printed before the exit code is set, so that JSON is whole either way.
func newDoctorCommand() *cobra.Command {
	cfg := experiment.Default()
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say what is installed, what is missing and what to do about it",
		Long: `Look for everything that a run with these settings needs: the ONNX Runtime library and its execution
providers (each is made to run a small model), the pure engine, the data sets, the cache folder.
What is missing comes with what to do about it. The exit code is 3 where something that is needed is
missing, 0 otherwise; a data set that the settings do not name is not needed.`,
		Example: `  fmp doctor
  fmp doctor --dataset cifar10
  fmp doctor --json`,
		Args: noArgs,
	}
	bindSettings(cmd, &cfg, runAliases)
	jsonFlag(cmd, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		d := diagnose(cfg)
		err := show(cmd, d, d.print)
		if err == nil && !d.Healthy {
			return &silentError{exitMissing}
		}
		return err
	}
	return cmd
}

// diagnose looks for all that the settings need. A finding that is missing makes the diagnosis
// unhealthy, one that is absent does not. Lines are in the order of their importance: the library
// and its providers, the pure engine, data sets, the cache folder, the decoder of photographs, npm.
// No check ends the others. It takes as long as loading the library, and running a model of two
// numbers on each provider.
func diagnose(cfg experiment.Config) *diagnosis {
	d := &diagnosis{Program: buildinfo.Read(), Cores: runtime.GOMAXPROCS(0), Healthy: true}
	// One line that is missing is enough for exit code 3.
	add := func(f finding) {
		d.Findings = append(d.Findings, f)
		d.Healthy = d.Healthy && f.State != stateMissing
	}
	add(d.checkLibrary(cfg.Engine))
	for _, p := range d.Providers {
		f := finding{Name: "provider " + p.Name, State: stateOK, Detail: "runs models"}
		if !p.Works {
			// A provider that does not work is needed by no run but one whose settings name it.
			f.State, f.Detail = stateAbsent, p.Why
			// The settings name this provider, so that a run would fail.
			if p.Name == cfg.Engine.Provider {
				f.State, f.Advice = stateMissing, "set engine.provider to cpu, or engine.library "+
					"to a build of the ONNX Runtime with this provider"
			}
		}
		add(f)
	}
	add(checkPure(cfg.Engine))
	for _, f := range d.checkData(cfg.Dataset) {
		add(f)
	}
	add(checkCache())
	// The decoder is a program of the system's, and no image is decoded to look for it.
	heif := finding{Name: "decoder of " + imagefile.HEIFFormats, State: stateOK}
	var err error
	if heif.Detail, err = imagefile.HEIFDecoder(); err != nil {
		heif.State, heif.Detail, heif.Advice = stateAbsent,
			"only photographs of these formats need one", err.Error()
	}
	add(heif)
	// npm is not run: that it is on the PATH is all that is looked for.
	npm, err := exec.LookPath("npm")
	if err != nil {
		add(finding{Name: "npm", State: stateAbsent, Detail: "only `fmp setup` uses it",
			Advice: "install Node.js, if the ONNX Runtime is to be fetched"})
	} else {
		add(finding{Name: "npm", State: stateOK, Detail: npm})
	}
	return d
}

// checkLibrary loads the ONNX Runtime and runs a small model on every provider. A library that is
// not needed is absent at worst, as the pure engine runs in its place. It fills Library, Version,
// Tried and Providers. A provider that the library lists counts as working only where the small
// model gives the right numbers on it: drivers are often missing. Each provider gets an engine of
// its own. A process can load one library alone, so that no further one is tried.
func (d *diagnosis) checkLibrary(cfg settings.Engine) finding {
	f := finding{Name: "ONNX Runtime", State: stateOK}
	bad := stateAbsent // the pure engine takes its place
	if libraryIsNeeded(cfg) {
		bad = stateMissing
	}
	lib, tried, err := ort.FindLibrary(cfg.Library)
	// Also after an error: the places tell where a library could be put.
	d.Tried = tried
	if err != nil {
		f.State, f.Detail = bad, err.Error() // which says what to do
		return f
	}
	d.Library = lib
	if _, err := ort.New(ort.Options{Library: lib}); err != nil {
		f.State, f.Detail, f.Advice = bad, err.Error(),
			fmt.Sprintf("remove %s or set %s to another library", lib, ort.LibraryEnv)
		return f
	}
	d.Version = ort.Version()
	d.Providers = ort.Providers()
	for i := range d.Providers {
		p := &d.Providers[i]
		// Asked for alone it has failed already, and Why says how.
		if !p.Works {
			continue
		}
		// Two numbers leave nothing to be shared among threads.
		e, err := ort.New(ort.Options{Library: lib, Provider: p.Name, Threads: 1})
		if err == nil {
			err = selfTest(e)
		}
		if err != nil {
			p.Works, p.Why = false, err.Error()
		}
	}
	f.Detail = d.Version + " in " + lib
	return f
}

// checkPure runs the small model on the engine that needs no library. It is needed where the
// settings name it. A failure is a fault of the program, since this engine has no parts outside it.
// It is absent where other engines run, and missing where the setting engine.name is pure.
func checkPure(cfg settings.Engine) finding {
	f := finding{Name: "pure engine", State: stateOK,
		Detail: "runs models, slower than the ONNX Runtime"}
	e, err := pure.New(engine.Options{Threads: 1})
	if err == nil {
		err = selfTest(e)
	}
	if err != nil {
		f.State, f.Detail, f.Advice = stateAbsent, err.Error(),
			"please report this: it is a fault of the program"
		if cfg.Name == "pure" {
			f.State = stateMissing
		}
	}
	return f
}

// selfTest runs a small model whose answer is known. The model is y = x + x. With x = [1, 2] the
// answer [2, 4] is exact in float32, so that it is compared without a tolerance. An error says
// which step failed or which numbers came out. The session is closed, and the engine is the
// caller's to close.
func selfTest(e engine.Engine) error {
	b := build.New("selftest")
	x := b.Input("x", onnx.Float32, 2)
	b.Output("y", b.Add(x, x))
	m, err := b.Model()
	if err != nil {
		return err
	}
	s, err := e.Load(m)
	if err != nil {
		return err
	}
	defer s.Close()
	out, err := engine.Eval(s, map[string]*onnx.Tensor{"x": onnx.Vector[float32](1, 2)})
	if err != nil {
		return err
	}
	if y := out["y"].F32(); len(y) != 2 || y[0] != 2 || y[1] != 4 {
		return fmt.Errorf("2 x [1 2] came out as %v", y)
	}
	return nil
}

// checkData lists the data sets; the one that the settings name is needed. A name that is none of
// the known is looked for as a folder. Only the place of files is looked at: images are neither
// counted nor decoded. There is a line for each data set, in the order of dataset.List, and one
// more for a folder that the settings name.
func (d *diagnosis) checkData(cfg settings.Dataset) []finding {
	d.Data = dataset.List(cfg.Dir)
	var out []finding
	named := false
	for _, s := range d.Data {
		f := finding{Name: "data " + s.Name, State: stateOK, Detail: s.Where}
		// Names are compared as they are given: a path of the same folder has a line of its own.
		named = named || s.Name == cfg.Name
		if !s.Present {
			f.State, f.Detail, f.Advice = stateAbsent, "", s.Missing
			if s.Name == cfg.Name {
				f.State = stateMissing
			}
		}
		out = append(out, f)
	}
	if !named {
		f := finding{Name: "data " + cfg.Name, State: stateOK}
		p, err := dataset.Find(cfg.Name, cfg.Dir)
		// Without a folder the detail is empty, and the advice has the places that were searched.
		if f.Detail = p; err != nil {
			f.State, f.Advice = stateMissing, err.Error()
		}
		out = append(out, f)
	}
	return out
}

// checkCache sees whether the cache folder can be written. It makes the folder, as a run would, and
// a file that it removes again. Writing is the only test that heeds permissions and read-only
// mounts alike. Features and the library of fmp setup lie there. The folder stays behind, and the
// file does not.
func checkCache() finding {
	f := finding{Name: "cache folder", State: stateOK}
	lib, err := ort.CacheDir()
	// ort.CacheDir is fmp/onnxruntime/VERSION, of which fmp is two levels up.
	dir := filepath.Dir(filepath.Dir(lib))
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	var probe *os.File
	if err == nil {
		// The name begins with a dot and is random, so that it meets no file of a run beside it.
		probe, err = os.CreateTemp(dir, ".doctor-*")
	}
	if err == nil {
		// A file that can be made and not removed is a fault too.
		err = errors.Join(probe.Close(), os.Remove(probe.Name()))
	}
	if f.Detail = dir; err != nil {
		f.State, f.Detail, f.Advice = stateMissing, err.Error(),
			"make it writable, or set XDG_CACHE_HOME to a folder that is"
	}
	return f
}

// print writes a line for each finding, its state in colour on a terminal. Details are made
// printable: they quote names of files and texts of libraries. Colours are used on a terminal
// alone, unless NO_COLOR is set. The column of states is padded before it is coloured, since escape
// sequences would count as characters.
func (d *diagnosis) print(out io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "fmp %s (%s, %s), %d cores\n", d.Program.Version, d.Program.Go,
		d.Program.Platform, d.Cores)
	color := wantColor(out)
	out = coloured(out)
	for _, f := range d.Findings {
		// 8 columns hold the longest state, missing, and a space.
		state := fmt.Sprintf("%-8s", f.State)
		if color {
			state = map[string]string{stateOK: "\x1b[32m", stateMissing: "\x1b[31m",
				stateAbsent: "\x1b[33m"}[f.State] + state + "\x1b[0m"
		}
		text := printable.Line(f.Detail)
		if text != "" && f.Advice != "" {
			text += ": "
		}
		fmt.Fprintf(&b, "%s %-18s %s\n", state, f.Name, text+f.Advice)
	}
	if d.Healthy {
		b.WriteString("everything that these settings need is there\n")
	} else {
		b.WriteString("something that is needed is missing: see the lines above\n")
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// newSetupCommand declares fmp setup. A library of the user's own that is missing or does not work
// is an error: fetching another would hide it. A library that works elsewhere, as one of the
// system's, is enough: nothing is fetched. One in the cache folder goes on to ort.Fetch, which
// compares its digest and leaves it alone or fetches it again. All errors mean that the library is
// not there, and the exit code is 3. Nothing half fetched is put in its place. It is the one
// command here that uses the network.
func newSetupCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "setup",
		Short: "Fetch the ONNX Runtime library, once, and verify it",
		Long: `Fetch the ONNX Runtime ` + ort.PinnedVersion + ` for this platform with npm into the folder for caches
($XDG_CACHE_HOME/fmp/onnxruntime, or the system's), check it against the digest recorded in this
program, and put it in place. What is there already is checked and left alone. Nothing is fetched
where ONNXRUNTIME_LIB names a library of your own, or the system has one that works.`,
		Example: "  fmp setup",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// stdout stays empty, as the command makes no result but the file.
			say := func(s string) { fmt.Fprintln(cmd.ErrOrStderr(), "fmp setup: "+s) }
			cache, err := ort.CacheDir()
			if err != nil {
				return missingError(err)
			}
			lib, _, err := ort.FindLibrary("")
			// Without the variable a library that is not found is the usual case, and is fetched.
			if err != nil && os.Getenv(ort.LibraryEnv) != "" {
				return missingError(err)
			}
			// A library of the program's own folder, of the system or of the variable is tried as
			// it is.
			if err == nil && filepath.Dir(lib) != cache {
				if _, err := ort.New(ort.Options{Library: lib}); err != nil {
					return missingError(err)
				}
				say("nothing to fetch: the ONNX Runtime " + ort.Version() + " in " + lib + " works")
				return nil
			}
			_, err = ort.Fetch(cmd.Context(), say)
			return missingError(err)
		},
	}
}

// newManCommand declares fmp man. Equal programs write equal pages. The page of each command is a
// file of its own, and pages of commands that are no more stay in DIR. An error while writing
// leaves the pages written before it. The format is checked before the folder is made.
func newManCommand() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "man DIR",
		Short: "Write the manual pages of all commands",
		Long: `Write one page for every command to DIR, which is made where it is missing: manual pages for man(1),
or Markdown. Point $MANPATH at the folder above DIR, if DIR is called man1, to read them with man.`,
		Example: "  fmp man ~/.local/share/man/man1\n  fmp man --format markdown docs/commands",
		Args:    exactArgs("DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if format != "man" && format != "markdown" {
				return usageErrorf("--format is %q; allowed are man, markdown", format)
			}
			dir := args[0]
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return fmt.Errorf("writing manual pages: %w", err)
			}
			root := cmd.Root()
			root.DisableAutoGenTag = true // the same program gives the same pages
			var err error
			if format == "markdown" {
				err = doc.GenMarkdownTree(root, dir)
			} else {
				// The day of the source, so that the same program gives the same pages.
				day, terr := time.Parse(time.RFC3339, buildinfo.Read().Time)
				if terr != nil {
					day = time.Unix(0, 0).UTC()
				}
				err = doc.GenManTree(root,
					&doc.GenManHeader{Title: "FMP", Section: "1", Source: "fmp",
						Manual: "Federated martingale posteriors",
						Date:   &day}, dir)
			}
			if err != nil {
				return fmt.Errorf("writing manual pages to %s: %w", dir, err)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&format, "format", "man", "man or markdown")
	return cmd
}

// newVersionCommand declares fmp version. Version and commit are those that the Go toolchain, or
// the build, recorded in the file of the program (package buildinfo). It reads no settings and
// opens no engine, so that it works where nothing else does.
func newVersionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version of this program, and the commit that it was built from",
		Example: "  fmp version --json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := buildinfo.Read()
			return say(cmd, v, "fmp %v\n", v)
		},
	}
	jsonFlag(cmd, "print JSON")
	return cmd
}
