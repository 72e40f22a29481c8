package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"fmp/onnx/atomicfile"
	"fmp/onnx/suggest"
	"fmp/pipeline/lab/experiment"
	"fmp/pipeline/lab/report"
	"fmp/pipeline/lab/rival"
)

// newResultsCommand groups the commands on run directories, and the one that cites methods.
// Of them show, export and plot write files, and the others only read.
func newResultsCommand() *cobra.Command {
	return group(&cobra.Command{
		Use:   "results",
		Short: "List, show, compare, plot and export finished runs; cite their methods",
		Example: `  fmp results list
  fmp results show runs/digits-*
  fmp results compare runs/digits-* --method FMP`,
	}, newResultsListCommand(), newResultsShowCommand(), newResultsCompareCommand(),
		newResultsReproducedCommand(), newResultsExportCommand(), newResultsPlotCommand(), newResultsMethodsCommand())
}

// listed is one line of `fmp results list`. Tables are those that the filter of the command lets
// through.
type listed struct {
	experiment.Summary
	Tables []report.Table `json:"tables"`
}

// resultsFilter leaves some of a run's records out. Both names are exact, in the case of the
// records; "" lets everything through.
type resultsFilter struct{ partition, protocol string }

// bind declares the flags; an empty one lets everything through.
func (f *resultsFilter) bind(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.partition, "partition", "",
		"only this partition, such as homogeneous or dirichlet-0.1")
	cmd.Flags().StringVar(&f.protocol, "protocol", "",
		"only this protocol: shared, tuned or calibrated")
	offers(cmd, "protocol", "shared", "tuned", "calibrated")
}

// check refuses a filter that lets nothing through of the records of all runs, which is a name
// misspelt more often than not. Runs without records have no names to compare with. Several runs
// are checked as one: a name that one of them has is no error. Names stand in the order of their
// first record.
func (f *resultsFilter) check(runs ...[]experiment.Record) error {
	var partitions, protocols []string
	for _, rs := range runs {
		for _, r := range rs {
			if !slices.Contains(partitions, r.Partition) {
				partitions = append(partitions, r.Partition)
			}
			if !slices.Contains(protocols, r.Protocol) {
				protocols = append(protocols, r.Protocol)
			}
		}
	}
	for _, x := range []struct {
		name, want string
		have       []string
	}{{"partition", f.partition, partitions}, {"protocol", f.protocol, protocols}} {
		if x.want != "" && len(x.have) > 0 && !slices.Contains(x.have, x.want) {
			return usageErrorf("--%s is %q; the runs have %s%s", x.name, x.want,
				strings.Join(x.have, ", "), suggest.DidYouMean(x.want, x.have))
		}
	}
	return nil
}

// drops reports whether the filter lets nothing of a partition and a protocol through. Fields are
// compared with "and": a record passes where both names are its own or empty.
func (f *resultsFilter) drops(partition, protocol string) bool {
	return f.partition != "" && partition != f.partition || f.protocol != "" &&
		protocol != f.protocol
}

// keep is the records that the filter lets through. rs stays as it is.
func (f *resultsFilter) keep(rs []experiment.Record) []experiment.Record {
	return slices.DeleteFunc(slices.Clone(rs),
		func(r experiment.Record) bool { return f.drops(r.Partition, r.Protocol) })
}

// tables summarises the records of the run in a folder that the filter lets through. Those of one
// protocol have figures of the other's, such as the raw NLL. The tables are made of all records and
// dropped afterwards for that reason.
func (f *resultsFilter) tables(dir string, rs []experiment.Record) ([]report.Table, error) {
	m, err := experiment.ReadManifest(dir)
	if err != nil {
		return nil, usageError(err)
	}
	ts, err := report.Tables(rs, m)
	return slices.DeleteFunc(ts,
		func(t report.Table) bool { return f.drops(t.Partition, t.Protocol) }), err
}

// runError adds to an error of reading the run at path which run was probably meant. It looks at
// the folders beside a path that is not there. The path is cleaned before it is compared, as the
// names beside it are clean. A folder that is there and holds no run keeps its own error.
func runError(path string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		if _, statErr := os.Stat(path); errors.Is(statErr, fs.ErrNotExist) {
			var beside []string
			if entries, err := os.ReadDir(filepath.Dir(path)); err == nil {
				for _, e := range entries {
					if e.IsDir() {
						beside = append(beside, filepath.Join(filepath.Dir(path), e.Name()))
					}
				}
			}
			return missingError(fmt.Errorf("there is no run directory %s (`fmp results list` "+
				"shows the runs)%s", path, suggest.DidYouMean(filepath.Clean(path), beside)))
		}
	}
	return usageError(err)
}

// newResultsListCommand declares fmp results list. Names of filters are looked for in all runs of
// the folder, so that a misspelt one is told. A name that no data set has is a line on standard
// error and an empty list, and no error.
func newResultsListCommand() *cobra.Command {
	var dataset, method string
	var filter resultsFilter
	cmd := &cobra.Command{
		Use: "list [DIR]",
		Short: "List the runs in a folder (default: runs): date, data set, extractor, methods, " +
			"one method's figures",
		Long: `List the runs in a folder and below it: when figures were last written, of which data set and
extractor, which methods, and, for each partition of the clients and each protocol, the figures of
one method (--method). A run that cannot be read is named at the end (exit code 2).`,
		Example: `  fmp results list
  fmp results list grids/points --dataset mnist --method CANN --protocol tuned`,
		Args: rangeArgs(0, 1, "DIR"),
	}
	jsonFlag(cmd, "print JSON: the runs with all their tables")
	cmd.Flags().StringVar(&dataset, "dataset", "", "only runs of this data set")
	cmd.Flags().StringVar(&method, "method", "FMP", "the method whose figures are shown")
	filter.bind(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		root := "runs"
		if len(args) > 0 {
			root = args[0]
		}
		if _, err := os.Stat(root); errors.Is(err, fs.ErrNotExist) {
			return missingError(fmt.Errorf("there is no folder %s here; fmp run makes a run in "+
				"runs, and fmp results list DIR looks elsewhere", root))
		}
		runs, unread := experiment.List(root)
		var datasets []string
		for _, r := range runs {
			datasets = append(datasets, r.Dataset)
		}
		if dataset != "" && !slices.Contains(datasets, dataset) {
			fmt.Fprintf(cmd.ErrOrStderr(), "no run in %s is of data set %q%s\n", root, dataset,
				suggest.DidYouMean(dataset, datasets))
		}
		var records [][]experiment.Record
		for _, r := range runs {
			records = append(records, r.Records)
		}
		// A name may be misspelt, or of a run that cannot be read.
		if err := filter.check(records...); err != nil {
			return errors.Join(err, unread)
		}
		method, err := lookupMethod(method, records...)
		if err != nil {
			return errors.Join(err, unread)
		}
		out := []listed{}
		for _, r := range runs {
			if dataset != "" && r.Dataset != dataset {
				continue
			}
			// A run that had no records before the filter stays in the list: it may have just
			// begun.
			all := len(r.Records)
			ts, err := filter.tables(r.Path, r.Records)
			if err != nil {
				unread = errors.Join(unread,
					experiment.Unread(root, fmt.Errorf("run directory %s: %w", r.Path, err)))
				continue
			}
			if r.Records = filter.keep(r.Records); len(r.Records) == 0 && all > 0 {
				continue
			}
			out = append(out, listed{r, ts})
		}
		return cmp.Or(tabulate(cmd, out, func(w io.Writer) { runLines(w, out, method) }),
			usageError(unread))
	}
	return cmd
}

// runLines lists runs with one method's figures. A run without the method has one line, without
// figures. A method with several tables, by partition and protocol, has a line for each. Method
// names are compared without case. Up to three methods are named, and more are counted, to keep the
// line short. ACC, ECE and NLL are means over repeats.
func runLines(w io.Writer, runs []listed, method string) {
	fmt.Fprintf(w,
		"run\tdate\tdata set\textractor\tmethods\tpartition\tsettings\t%s ACC\tECE\tNLL\n", method)
	for _, r := range runs {
		methods := strings.Join(r.Methods, ",")
		if n := len(r.Methods); n > 3 {
			methods = fmt.Sprintf("%d methods", n)
		}
		run := fmt.Sprintf("%s\t%s\t%s\t%s\t%s", r.Path, r.Date.Format(time.DateOnly), r.Dataset,
			r.Extractor, methods)
		if r.Finished < r.Cells {
			run += fmt.Sprintf(" (%d of %d cells done)", r.Finished, r.Cells)
		}
		shown := false
		for _, t := range r.Tables {
			for _, row := range t.Rows {
				if strings.EqualFold(row.Method, method) {
					fmt.Fprintf(w, "%s\t%s\t%s\t%.4f\t%.4f\t%.4f\n", run, t.Partition,
						t.Protocol, row.ACC.Mean, row.ECE.Mean, row.NLL.Mean)
					shown = true
				}
			}
		}
		if !shown {
			fmt.Fprintf(w, "%s\t\t\t\t\t\n", run)
		}
	}
}

// chosenParts are the columns and rows of tables that a reader asks for. report.Choose checks the
// names, and an unknown one is an error.
type chosenParts struct{ columns, rows []string }

// bind declares the flags; none of a kind means all.
func (c *chosenParts) bind(cmd *cobra.Command) {
	cmd.Flags().StringSliceVar(&c.columns, "columns", nil, "only these columns of tables, in "+
		"this order, such as ACC,NLL,joint random (a name's own comma is left out)")
	cmd.Flags().StringSliceVar(&c.rows, "rows", nil,
		"only these methods in tables, in this order within their groups")
	offers(cmd, "columns", report.ColumnNames()...)
	offers(cmd, "rows", rival.Names()...)
}

// newResultsShowCommand declares fmp results show. A report that cannot be written is told, and the
// tables are printed nevertheless. Notes are of three sources: the manifest, the records' scopes,
// and tuned settings at an end of their grid.
func newResultsShowCommand() *cobra.Command {
	var wide bool
	var parts chosenParts
	cmd := &cobra.Command{
		Use: "show RUN",
		Short: "Print a run's tables again, and write its report anew where its folder " +
			"can be written to",
		Example: `  fmp results show runs/digits-*
  fmp results show runs/digits-* --columns ACC,NLL --rows FMP,FedCGS`,
		Args: exactArgs("RUN"),
	}
	jsonFlag(cmd, "print JSON")
	bindWide(cmd, &wide)
	parts.bind(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		m, err := experiment.ReadManifest(args[0])
		if err != nil {
			return runError(args[0], err)
		}
		ts, err := report.Write(args[0])
		// report.Write returns tables beside an error where they are known and a file cannot be
		// written.
		if ts == nil && err != nil {
			return usageError(err)
		}
		if err != nil { // a folder that cannot be written to, say
			fmt.Fprintf(cmd.ErrOrStderr(), "fmp: the report is as it was: %v\n", err)
		}
		rs, err := experiment.ReadResults(args[0])
		if err != nil {
			return usageError(err)
		}
		tuned, err := experiment.ReadTuned(args[0])
		if err != nil {
			return usageError(err)
		}
		if ts, err = report.Choose(ts, parts.columns, parts.rows); err != nil {
			return usageError(err)
		}
		out := &runOutput{Directory: args[0], Identity: m.Identity,
			Notes:  slices.Concat(m.Notes, experiment.ScopeNotes(rs), tuned.EdgeNotes()),
			Tables: ts, wide: wide}
		return show(cmd, out, out.print)
	}
	return cmd
}

// newResultsCompareCommand declares fmp results compare. With m differences, each interval has the
// confidence 1 - .05/m (Bonferroni), so that all hold together with 95%. It bounds the probability
// of any miss by the sum of all (Boole's inequality), whatever their dependence.
func newResultsCompareCommand() *cobra.Command {
	var wide bool
	var method string
	cmd := &cobra.Command{
		Use:   "compare RUN...",
		Short: "Paired differences with intervals: of methods in one run, or of several runs",
		Long: `With one run: the differences of one method (--method) to all others, paired over repeats that share
their clients. With several runs of the same seed, data and federation: each method's figures in the
first less those in each other. With several differences the intervals of one partition, protocol
and column hold together with 95% (Bonferroni); --correct none gives each its own.`,
		Example: `  fmp results compare runs/digits-* --method FMP
  fmp results compare runs/mnist-* --method CANN --protocol tuned
  fmp results compare runs/with-masses runs/constant-weights`,
		Args: rangeArgs(1, 0, "RUN"),
	}
	var filter resultsFilter
	var correct string
	filter.bind(cmd)
	jsonFlag(cmd, "print JSON")
	bindWide(cmd, &wide)
	cmd.Flags().StringVar(&method, "method", "FMP",
		"the method that others are compared with (one run)")
	cmd.Flags().StringVar(&correct, "correct", "bonferroni",
		"correction of intervals for several differences: bonferroni or none")
	offers(cmd, "correct", "bonferroni", "none")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if correct != "bonferroni" && correct != "none" {
			return usageErrorf("--correct is %q; allowed are bonferroni and none", clip(correct))
		}
		if len(args) > 1 && cmd.Flags().Changed("method") {
			return usageErrorf("--method is for the methods of one run; several are " +
				"compared method by method")
		}
		runs, err := filter.read(args)
		if err != nil {
			return err
		}
		if method, err = lookupMethod(method, runs...); err != nil {
			return err
		}
		var ds []report.Difference
		if len(args) > 1 {
			// The first run is the one that the others are compared with.
			ds, err = report.CompareRuns(args, filter.keep, correct != "none")
		} else {
			var m *experiment.Manifest
			if m, err = experiment.ReadManifest(args[0]); err == nil {
				ds, err = report.CompareMethods(filter.keep(runs[0]), m, method, correct != "none")
			}
		}
		if err != nil {
			return usageError(err)
		}
		return show(cmd, ds, func(w io.Writer) error { return report.DifferencesText(w, ds, wide) })
	}
	return cmd
}

// read reads finished runs, and checks that they hold the filter's columns. Records come in the
// order of the directories, whole: the filter is only checked here.
func (f *resultsFilter) read(dirs []string) ([][]experiment.Record, error) {
	var runs [][]experiment.Record
	for _, dir := range dirs {
		rs, err := experiment.ReadResults(dir)
		if err != nil {
			return nil, runError(dir, err)
		}
		runs = append(runs, rs)
	}
	return runs, f.check(runs...)
}

// newResultsExportCommand declares fmp results export. Files of a run's own report are no output:
// they would be lost. The guard looks for run.json beside the file, and not for the runs in the
// arguments alone.
func newResultsExportCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "export RUN...",
		Short: "Write runs as CSV, Markdown, LaTeX (booktabs) or Parquet",
		Long: `Write the figures of runs to one file; its extension says how: .csv and .parquet hold one line a
repeat and method, .md and .tex the tables of means. Settings in which the runs differ are columns
of the lines, and stand in the titles of the tables. --columns and --rows are for tables.`,
		Example: `  fmp results export runs/* -o all.parquet
  fmp results export grids/points/* --columns ACC,ECE,NLL,upload --rows ANN,FedCGS,FMP -o table.tex
  fmp results export runs/digits-* --protocol tuned -o table.tex`,
		Args: rangeArgs(1, 0, "RUN"),
	}
	outFlag(cmd, &file, "output", "", "file to write: .csv, .md, .tex or .parquet (required)")
	var filter resultsFilter
	filter.bind(cmd)
	var show chosenParts
	show.bind(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ext := strings.ToLower(filepath.Ext(file))
		if len(show.columns)+len(show.rows) > 0 && (ext == ".csv" || ext == ".parquet") {
			return usageErrorf("--columns and --rows: %s holds all lines whole; leave them out, "+
				"or write tables, .md or .tex", ext)
		}
		own := []string{experiment.CSVFile, report.MarkdownFile, report.LaTeXFile}
		if _, err := os.Stat(filepath.Join(filepath.Dir(file), experiment.RunFile)); err == nil &&
			slices.Contains(own, filepath.Base(file)) {
			return usageErrorf("--output %s: it is the run's own file, which would be "+
				"overwritten: give another name", file)
		}
		runs, err := filter.read(args)
		if err != nil {
			return err
		}
		// values[i] belongs to args[i], and each has one text a key.
		keys, values, err := experiment.Varied(args)
		if err != nil {
			return usageError(err)
		}
		var tables []report.Table
		for i, a := range args {
			ts, err := filter.tables(a, runs[i])
			if err != nil {
				return err
			}
			runs[i] = filter.keep(runs[i])
			for k := range ts {
				ts[k].Varied = experiment.Brief(keys, values[i])
			}
			tables = append(tables, ts...)
		}
		if tables, err = report.Choose(tables, show.columns, show.rows); err != nil {
			return usageError(err)
		}
		all := &report.Runs{Names: args, Records: runs, Keys: keys, Values: values}
		if err := writeAs(file, map[string]func(io.Writer) error{
			".csv":     func(w io.Writer) error { return report.CSV(w, all) },
			".parquet": func(w io.Writer) error { return report.Parquet(w, all) },
			".md":      func(w io.Writer) error { return report.Markdown(w, tables) },
			".tex":     func(w io.Writer) error { return report.LaTeX(w, tables) },
		}); err != nil {
			return err
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", file, map[bool]string{true: "1 run",
			false: fmt.Sprintf("%d runs", len(args))}[len(args) == 1])
		return err
	}
	return cmd
}

// writeAs writes the file of --output in the form that its extension names. The extension is
// compared without case. The file is there whole or not at all. forms has at least one entry, whose
// keys begin with a dot.
func writeAs(file string, forms map[string]func(io.Writer) error) error {
	write := forms[strings.ToLower(filepath.Ext(file))]
	if ends := suggest.Or(slices.Sorted(maps.Keys(forms))...); file == "" {
		return usageErrorf("give --output, a file that ends in %s", ends)
	} else if write == nil {
		return usageErrorf("--output is %q; name a file that ends in %s", clip(file), ends)
	}
	return atomicfile.Write(file, write)
}

// described is a method as `fmp results methods --json` tells it. Title tells the method in words,
// and Cite names its paper.
type described struct {
	Name  string `json:"name"`
	Group string `json:"group"`
	Title string `json:"title"`
	Cite  string `json:"cite"`
	// Tuned are the settings that the tuned protocol chooses, with the values that it tries.
	Tuned []tunedSetting `json:"tuned,omitempty"`
	// Corpus is "needs" or "reads" of a method that has to do with the server's own images.
	Corpus string `json:"corpus,omitempty"`
}

// tunedSetting is a setting that the tuned protocol chooses among values.
type tunedSetting struct {
	Name   string    `json:"name"`
	Values []float64 `json:"values"`
}

// describe tells a method by its own account ([rival.Info]). The first tuned setting is Param with
// its Grid; More has the others.
func describe(m rival.Method) described {
	i := m.Info()
	d := described{Name: i.Name, Group: string(i.Group), Title: i.Title, Cite: i.Cite}
	if i.Param != "" {
		d.Tuned = append(d.Tuned, tunedSetting{i.Param, i.Grid})
	}
	for _, p := range i.More {
		d.Tuned = append(d.Tuned, tunedSetting{p.Name, p.Grid})
	}
	switch {
	case i.NeedsCorpus:
		d.Corpus = "needs"
	case i.ReadsCorpus:
		d.Corpus = "reads"
	}
	return d
}

// newResultsMethodsCommand declares fmp results methods. Names are taken in any case. An unknown
// name is an error, and nothing is printed.
func newResultsMethodsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "methods [METHOD...]",
		Short: "Say what each method does, which settings are tuned, and which paper to cite",
		Long: `Say what each method of the table does and which paper it is from. Tuned settings are those that
the tuned protocol chooses, beside the temperature, on images that are not scored. The values are
those that it tries. Default: all methods, in the order of the table.`,
		Example: `  fmp results methods
  fmp results methods FedCGS GH-LDA --json`,
		Args: cobra.ArbitraryArgs,
		ValidArgsFunction: cobra.FixedCompletions(rival.Names(),
			cobra.ShellCompDirectiveNoFileComp),
	}
	jsonFlag(cmd, "print JSON: a list of methods")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		methods := rival.All()
		if len(args) > 0 {
			methods = nil
			for _, name := range args {
				m, err := rival.Lookup(name)
				if err != nil {
					return usageError(err)
				}
				methods = append(methods, m)
			}
		}
		var out []described
		for _, m := range methods {
			out = append(out, describe(m))
		}
		return tell(cmd, out, func(b *strings.Builder) { printMethods(b, out) })
	}
	return cmd
}

// printMethods prints a paragraph for each method.
func printMethods(b *strings.Builder, methods []described) {
	for _, d := range methods {
		fmt.Fprintf(b, "%s (%s): %s\n    %s\n", d.Name, d.Group, d.Title, d.Cite)
		for _, p := range d.Tuned {
			fmt.Fprintf(b, "    tuned: %s, one of %s\n", p.Name,
				strings.ReplaceAll(strings.Trim(fmt.Sprint(p.Values), "[]"), " ", ", "))
		}
		if d.Corpus != "" {
			fmt.Fprintf(b, "    %s a corpus of the server\n", d.Corpus)
		}
	}
}

// newResultsPlotCommand declares fmp results plot. Runs that differ in a further setting are
// refused: a line would join points of two experiments. All of it is checked before the file is
// written: axis, column, rows and further settings.
func newResultsPlotCommand() *cobra.Command {
	var file, x, y string
	var rows []string
	var filter resultsFilter
	cmd := &cobra.Command{
		Use:   "plot RUN...",
		Short: "Draw a figure of runs against a setting in which they differ, such as a grid's",
		Long: `Draw one figure of several runs, a line for each method, against a setting in which alone the
runs differ (fmp grid makes such runs). Along dataset.name they may also differ in the data sets'
own parts, extractors, models and suited settings, such as federation.points. A panel is as wide as
a column of a journal, 3.5 inches; the colours can be told apart with every kind of colour vision.
--output ends in .svg (vectors) or .png.`,
		Example: `  fmp results plot grids/points/* --x federation.points --y NLL -o points.svg
  fmp results plot grids/points/* --x federation.points --y ECE --rows FMP,FedCGS \
    --partition homogeneous -o points.svg`,
		Args: rangeArgs(2, 0, "RUN"),
	}
	f := cmd.Flags()
	outFlag(cmd, &file, "output", "", "file to write: .svg or .png (required)")
	f.StringVar(&x, "x", "", "`setting` along the axis, such as federation.points (default: the "+
		"one in which the runs differ)")
	f.StringVar(&y, "y", "NLL", "`column` of the tables that is drawn")
	f.StringSliceVar(&rows, "rows", nil, "only these methods")
	filter.bind(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		runs, err := filter.read(args)
		if err != nil {
			return err
		}
		keys, err := differing(args)
		if err != nil {
			return usageError(err)
		}
		// The only setting in which the runs differ needs no naming.
		if x == "" && len(keys) == 1 {
			x = keys[0]
		}
		if x == "" {
			return usageErrorf("say with --x along which setting; the runs differ in %s",
				cmp.Or(strings.Join(keys, ", "), "none"))
		}
		var at []report.At
		for i, dir := range args {
			// Values are texts; report.Lines decides whether they are numbers along the axis.
			value, known, err := experiment.Setting(dir, x)
			if err == nil && value == "" {
				err = fmt.Errorf("--x is %q, which is no setting%s", clip(x),
					suggest.DidYouMean(x, known))
			}
			if err != nil {
				return usageError(err)
			}
			ts, err := filter.tables(dir, runs[i])
			if err != nil {
				return err
			}
			if ts, err = report.Choose(ts, nil, rows); err != nil {
				return usageError(err)
			}
			at = append(at, report.At{Value: value, Tables: ts})
		}
		if keys = apart(keys, x); len(keys) > 0 {
			return usageErrorf("plotting against %s: a line would join runs "+
				"that differ in other settings too: %s; name runs that differ in this one alone", x,
				strings.Join(keys, ", "))
		}
		figure, err := report.Lines(at, x, y)
		if err != nil {
			return usageError(err)
		}
		if err := writeAs(file, map[string]func(io.Writer) error{".png": figure.PNG,
			".svg": figure.SVG}); err != nil {
			return err
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %s. %s\n", file, figure.Title, figure.Caption)
		return err
	}
	return cmd
}

// differing returns the settings in which runs differ: those that decide a figure, and the data
// set, which a table has in its title and a line has not. The data set is one of them where names
// differ, or digests of images that no setting accounts for. Settings that decide no figure, such
// as threads and paths, are none of them. Names and images are compared with those of the first
// run.
func differing(dirs []string) ([]string, error) {
	keys, _, err := experiment.Varied(dirs)
	if err != nil {
		return nil, err
	}
	var names, images []string
	for _, dir := range dirs {
		c, err := experiment.ReadConfig(dir)
		if err != nil {
			return nil, err
		}
		m, err := experiment.ReadManifest(dir)
		if err != nil {
			return nil, err
		}
		names, images = append(names, c.Dataset.Name), append(images, m.Data["images"])
	}
	differ := func(of []string) bool {
		return slices.ContainsFunc(of, func(v string) bool { return v != of[0] })
	}
	// how many images are taken, and of which classes, are settings
	own := slices.ContainsFunc(keys,
		func(k string) bool { return strings.HasPrefix(k, "dataset.") })
	if differ(names) || differ(images) && !own {
		keys = append(keys, "dataset.name")
	}
	return keys, nil
}

// apart returns the keys of settings that must not differ along setting x. Models follow the
// extractor that they are made behind, and a data set has settings of its own: its parts, its
// extractor, and those with a value that suits it ([option.FillDefaults]). keys stays as it is.
// These settings follow from the data set or the extractor, so that a line along either may have
// them differ.
func apart(keys []string, x string) []string {
	return slices.DeleteFunc(slices.Clone(keys), func(k string) bool {
		model := strings.HasSuffix(k, ".model")
		of := model || strings.HasPrefix(k, "extractor.") ||
			strings.HasPrefix(k, "dataset.splits.") || slices.Contains([]string{"dataset.classes",
			"erm.l2", "federation.points", "predictor.fresh"}, k)
		return k == x || x == "dataset.name" && of || x == "extractor.model" && model
	})
}
