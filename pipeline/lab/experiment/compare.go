package experiment

import (
	"context"
	"errors"

	"fmp/onnx/engine"
	"fmp/pipeline/option"
)

// Compare runs the comparison of methods that c asks for, and returns a record of scores for each
// method, partition and repeat. The run directory is c.Output.Dir, which must not be empty; with
// the same settings Compare goes on where an earlier call was stopped. The engine must use one
// thread per operator, so that figures do not depend on the machine. progress may be nil. Settings
// are checked first, then data and models are loaded, and the directory is opened last: no earlier
// error leaves a folder. The caller keeps the engine.
func Compare(ctx context.Context, c Config, eng engine.Engine,
	progress Progress) (rs []Record, err error) {
	if c.Output.Dir == "" {
		return nil, option.Violation("output.dir", `""`, "the path of a folder",
			"name the run directory")
	}
	if err := c.Validate(); err != nil {
		return nil, err
	}
	p, err := (*Shared)(nil).Prepare(ctx, c, eng, map[string]string{"engine": eng.Name()}, progress)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	dir, err := Open(c.Output.Dir, p.Config, p.Manifest)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	return Run(ctx, p.Config, p.Data, p.Tools, dir, progress)
}
