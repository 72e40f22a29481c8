package report

import (
	"io"
	"path/filepath"

	"fmp/onnx/atomicfile"
	"fmp/pipeline/experiment"
)

// Files that [Write] adds to a run directory.
const (
	MarkdownFile = "table.md"
	LaTeXFile    = "table.tex"
)

// Write adds tables to a finished run directory and returns them.
func Write(dir string) ([]Table, error) {
	m, err := experiment.ReadManifest(dir)
	if err != nil {
		return nil, err
	}
	rs, err := experiment.ReadResults(dir)
	if err != nil {
		return nil, err
	}
	ts, err := Tables(rs, m.Sizes["classes"])
	if err != nil {
		return nil, err
	}
	for _, f := range []struct {
		name  string
		write func(io.Writer, []Table) error
	}{{MarkdownFile, Markdown}, {LaTeXFile, LaTeX}} {
		if err := atomicfile.Write(filepath.Join(dir, f.name), func(w io.Writer) error { return f.write(w, ts) }); err != nil {
			return nil, err
		}
	}
	return ts, nil
}
