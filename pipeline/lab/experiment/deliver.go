package experiment

import (
	"fmt"
	"os"
	"path/filepath"

	"fmp/onnx/atomicfile"
)

// delivered names the files of a finished run that another machine's directory needs, run.json
// first. Settings are not among them: each machine has its own threads and paths.
var delivered = []string{RunFile, TuningFile, TimingsFile, CSVFile, ResultsFile}

// Files returns the files of a finished run that [Deliver] takes, by name. They are held in memory,
// each of 1 GiB at most.
func (d *Directory) Files() (map[string][]byte, error) {
	out := map[string][]byte{}
	for _, name := range delivered {
		data, err := readOptional(d.file(name), "run directory")
		if err != nil {
			return nil, err
		}
		if data != nil { // else a run without tuning
			out[name] = data
		}
	}
	return out, nil
}

// Deliver writes the files of a run made elsewhere into a directory that has none, which [Open]
// then finds finished. Files of a run with another identity than m, the manifest of the run with
// settings c here, are refused, and nothing of them is written. The results come last, as a run
// with results is a finished one. Files of other names are ignored, so that a worker chooses no
// path. An error on the way leaves a run without results, which is delivered or run again.
func Deliver(path string, files map[string][]byte, c Config, m Manifest) error {
	made, err := parseManifest(files[RunFile])
	if err != nil {
		return fmt.Errorf("run directory %s: %s of a worker: %w", path, RunFile, err)
	}
	if made.Identity != m.Identity {
		return fmt.Errorf("run directory %s: a worker made another run (%s): give it the "+
			"data, models and release of this machine", path, differences(path, made, c, m))
	}
	if err := os.MkdirAll(path, 0o755); err != nil {
		return fmt.Errorf("run directory: %w", err)
	}
	for _, name := range delivered {
		if data, ok := files[name]; ok {
			if err := atomicfile.WriteBytes(filepath.Join(path, name), data); err != nil {
				return err
			}
		}
	}
	return nil
}
