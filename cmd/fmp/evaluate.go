package main

import (
	"fmt"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"

	"fmp/onnx/atomicfile"
	"fmp/pipeline/evaluate"
	"fmp/pipeline/lab/report"
	"fmp/pipeline/settings"
)

func newEvaluateCommand() *cobra.Command {
	var page, card string
	var asJSON bool
	var images imageFlags
	cfg := settings.Default[engineSettings]()
	cmd := &cobra.Command{
		Use:   "evaluate CLASSIFIER IMAGES",
		Short: "Score a classifier on labelled images: is it right, are its probabilities true?",
		Long: `Print what the classifier is worth on images that no client had: accuracy with its interval, calibration error (ECE),
negative log-likelihood, Brier score, recall and precision by class, the confusion matrix, the error rate where only
the surest images are answered, and the images that it is surest and least sure of.

IMAGES is a folder with one folder of images a class, named by the class or its number, a .csv of path,label,
an IDX file with --labels, or, for a classifier of feature rows, a .npy with --labels. --report writes a page with
diagrams and the images, which needs no network; --card a model card in Markdown.`,
		Example: `  fmp evaluate classifier.onnx test/
  fmp evaluate classifier.onnx test/ --report evaluation.html --card card.md
  fmp evaluate classifier.onnx t10k-images-idx3-ubyte --labels t10k-labels-idx1-ubyte --json`,
		Args: exactArgs("a CLASSIFIER", "IMAGES"),
	}
	s := bindSettings(cmd, &cfg, engineAliases)
	images.bind(cmd)
	fl := cmd.Flags()
	fl.StringVar(&page, "report", "", "write a self-contained page to this `FILE` (.html)")
	fl.StringVar(&card, "card", "", "write a model card to this `FILE` (.md)")
	fl.BoolVar(&asJSON, "json", false, "print JSON")
	wantFolders(cmd, "report", "card")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := s.resolve(); err != nil {
			return err
		}
		c, closeAll, err := openClassifier(cmd, cfg, args[0])
		if err != nil {
			return err
		}
		defer closeAll()
		e := evaluate.New(c)
		bad, err := classifyPath(cmd, c, args[1], images, false, e.Add)
		if err != nil {
			return err
		}
		r, err := e.Result(len(bad))
		if err != nil {
			return usageError(err)
		}
		title := filepath.Base(args[0])
		for _, f := range []struct {
			path  string
			write func(io.Writer) error
		}{
			{page, func(w io.Writer) error { return report.EvaluationPage(w, title+" on "+filepath.Base(args[1]), r) }},
			{card, func(w io.Writer) error {
				return report.Card(w, title, fmt.Sprintf("%d images of %s", r.Images, filepath.Base(args[1])), r)
			}},
		} {
			if f.path != "" {
				if err := atomicfile.Write(f.path, f.write); err != nil {
					return err
				}
			}
		}
		if asJSON {
			return printJSON(cmd.OutOrStdout(), r)
		}
		return report.EvaluationText(cmd.OutOrStdout(), r)
	}
	return cmd
}
