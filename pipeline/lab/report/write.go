package report

import (
	"io"
	"path/filepath"
	"slices"

	"fmp/onnx/atomicfile"
	"fmp/pipeline/lab/experiment"
)

// Files that [Write] adds to a run directory. Plots are written to the folder [PlotsDir], each as
// SVG and PNG.
const (
	MarkdownFile = "table.md"
	LaTeXFile    = "table.tex"
	PageFile     = "report.html"
	PlotsDir     = "plots"
)

// Write adds tables, plots and the self-contained page to a finished run directory. It returns the
// tables, with an error even, where they are known and something cannot be written. Files are
// replaced as a whole, the page last; plots that a run has no more are left. An error of the page
// leaves the tables and plots that were written. All files of the run are read before any is
// written, so that a damaged one leaves the folder as it was.
func Write(dir string) ([]Table, error) {
	r := &run{}
	var err error
	if r.manifest, err = experiment.ReadManifest(dir); err != nil {
		return nil, err
	}
	if r.config, err = experiment.ReadConfig(dir); err != nil {
		return nil, err
	}
	rs, err := experiment.ReadResults(dir)
	if err != nil {
		return nil, err
	}
	if r.detail, err = experiment.ReadDetail(dir); err != nil {
		return nil, err
	}
	if r.tuned, err = experiment.ReadTuned(dir); err != nil {
		return nil, err
	}
	if r.costs, err = experiment.ReadCosts(dir); err != nil {
		return nil, err
	}
	ts, err := Tables(rs, r.manifest)
	if err != nil {
		return nil, err
	}
	for _, f := range []struct {
		name  string
		write func(io.Writer, []Table) error
	}{{MarkdownFile, Markdown}, {LaTeXFile, LaTeX}} {
		if err := atomicfile.Write(filepath.Join(dir, f.name),
			func(w io.Writer) error { return f.write(w, ts) }); err != nil {
			return ts, err
		}
	}
	r.tables = ts
	if err := r.figures(rs); err != nil {
		return ts, err
	}
	images, err := imagesFigure(r.detail)
	if err != nil {
		return ts, err
	}
	for _, f := range slices.Concat(append([][]*Figure{r.whole, {images}}, r.byTable...)...) {
		if f == nil {
			continue
		}
		if err := atomicfile.Write(filepath.Join(dir, PlotsDir, f.Name+".svg"), f.SVG); err != nil {
			return ts, err
		}
		if err := atomicfile.Write(filepath.Join(dir, PlotsDir, f.Name+".png"), f.PNG); err != nil {
			return ts, err
		}
	}
	return ts, atomicfile.Write(filepath.Join(dir, PageFile), r.page)
}

// figures draws the figures of each table, and those of the whole run; nil where the records have
// none. byTable has the order of the tables. The first that cannot be drawn is the error.
func (r *run) figures(rs []experiment.Record) error {
	for i := range r.tables {
		var own []*Figure
		for _, draw := range []func(*Table, []experiment.Record) (*Figure, error){methodsFigure,
			reliabilityFigure, bytesFigure, samplesFigure} {
			f, err := draw(&r.tables[i], rs)
			if err != nil {
				return err
			}
			own = append(own, f)
		}
		r.byTable = append(r.byTable, own)
	}
	for _, p := range r.config.Protocols() {
		f, err := alphaFigure(r.tables, p)
		if err != nil {
			return err
		}
		if f != nil && p == "tuned" {
			f.Title += ", settings tuned per method"
		}
		r.whole = append(r.whole, f)
	}
	f, err := viewFigure(r.detail)
	r.whole = append(r.whole, f)
	return err
}
