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
// tables, with an error even, where they are known and something cannot be written.
func Write(dir string) ([]Table, error) {
	m, err := experiment.ReadManifest(dir)
	if err != nil {
		return nil, err
	}
	c, err := experiment.ReadConfig(dir)
	if err != nil {
		return nil, err
	}
	rs, err := experiment.ReadResults(dir)
	if err != nil {
		return nil, err
	}
	detail, err := experiment.ReadDetail(dir)
	if err != nil {
		return nil, err
	}
	tuned, err := experiment.ReadTuned(dir)
	if err != nil {
		return nil, err
	}
	costs, err := experiment.ReadCosts(dir)
	if err != nil {
		return nil, err
	}
	ts, err := Tables(rs, m)
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
	byTable, whole, err := figures(c, ts, rs, detail)
	if err != nil {
		return ts, err
	}
	images, err := imagesFigure(detail)
	if err != nil {
		return ts, err
	}
	for _, f := range slices.Concat(append([][]*Figure{whole, {images}}, byTable...)...) {
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
	return ts, atomicfile.Write(filepath.Join(dir, PageFile),
		(&run{c, m, ts, tuned, costs, detail, byTable, whole}).page)
}

// figures draws the figures of each table, and those of the whole run; nil where the records have
// none.
func figures(c experiment.Config, ts []Table, rs []experiment.Record,
	detail *experiment.Detail) (byTable [][]*Figure, whole []*Figure, err error) {
	for i := range ts {
		t := &ts[i]
		var own []*Figure
		for _, draw := range []func(*Table, []experiment.Record) (*Figure, error){methodsFigure,
			reliabilityFigure, bytesFigure, samplesFigure} {
			f, err := draw(t, rs)
			if err != nil {
				return nil, nil, err
			}
			own = append(own, f)
		}
		byTable = append(byTable, own)
	}
	for _, p := range c.Protocols() {
		f, err := alphaFigure(ts, p)
		if err != nil {
			return nil, nil, err
		}
		if f != nil && p == "tuned" {
			f.Title += ", settings tuned per method"
		}
		whole = append(whole, f)
	}
	f, err := viewFigure(detail)
	return byTable, append(whole, f), err
}
