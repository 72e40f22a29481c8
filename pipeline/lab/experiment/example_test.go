package experiment_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/pipeline/lab/experiment"
)

// The nearest class mean and FMP on two draws of ten clients with 20 printed digits each.
func ExampleCompare() {
	dir, err := os.MkdirTemp("", "run")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	eng, err := pure.New(engine.Options{Threads: 1})
	if err != nil {
		panic(err)
	}
	defer eng.Close()
	c := experiment.Default()
	c.Methods, c.Seeds, c.Dataset.Test, c.Scores.Coverage = []string{"NCM", "FMP"}, 2, 500, false
	c.Output.Dir = filepath.Join(dir, "digits")
	records, err := experiment.Compare(context.Background(), c, eng, nil)
	if err != nil {
		panic(err)
	}
	nll := map[string]float64{}
	for _, r := range records {
		nll[r.Method] += r.Scores.NLL / float64(c.Seeds)
	}
	fmt.Println(len(records), "records; FMP has the lower negative log-likelihood:",
		nll["FMP"] < nll["NCM"])
	// Output: 4 records; FMP has the lower negative log-likelihood: true
}
