package main

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"fmp/cmd/internal/outputs"
	"fmp/models"
	"fmp/models/serving"
	"fmp/onnx/regularfile"
	"fmp/onnx/serde"
)

// maxCard is the largest model card in bytes. A card is read into memory whole.
const maxCard = 4 << 20

// packageRun is a run of fmp package: its flags. options takes over the contents of card and key
// once run has checked them.
type packageRun struct {
	options serving.Options
	// out is a new folder. card and key are files, "" for none.
	out, card, key string
	notice         noticeFlags
}

// newPackageCommand declares fmp package. The signature is the one beside the classifier: no flag
// names another.
func newPackageCommand() *cobra.Command {
	var o packageRun
	cmd := &cobra.Command{
		Use:   "package CLASSIFIER",
		Short: "Package a classifier for model servers: a Triton repository and an OCI image",
		Long: `Write a classifier in the forms that model servers take, into a new folder:

  triton/             a model repository of NVIDIA Triton: NAME/config.pbtxt, with dynamic batching
                      and instance groups, and NAME/VERSION/model.onnx
  oci/                an OCI image layout: the repository under /models for linux/amd64 and
                      linux/arm64, tagged with the version
  sbom.cdx.json       bill of materials in CycloneDX 1.6: the model, its digest, licence and origin,
                      and its extractor
  card.md             the model card of --card, as fmp evaluate --card writes it; it must state the
                      model's sha256
  model.onnx.sig      the model's signature, with --signed-by

The documents are also referrers of the image, which a registry lists beside it. Inputs, outputs and
shapes are those of the graph. The folder is written whole or not at all; equal input gives equal
bytes.

With --signed-by the signature CLASSIFIER.sig is verified with that key and goes into the package.`,
		Example: `  fmp package classifier.onnx -o package
  fmp package classifier.onnx -o package --card card.md --signed-by signer.pem.pub --model-version 2
  tritonserver --model-repository=package/triton
  oras cp -r --from-oci-layout package/oci:1 registry.example/classifier:1`,
		Args: exactArgs("a CLASSIFIER"),
	}
	fl := cmd.Flags()
	fl.StringVarP(&o.out, "output", "o", "", "new `FOLDER` for the package")
	outputs.Made(fl, "output")
	fl.StringVar(&o.options.Name, "name", "classifier", "`NAME` of the model in the repository")
	fl.StringVar(&o.options.Version, "model-version", "1",
		"`NUMBER` of the version, and tag of the image")
	fl.IntVar(&o.options.Batch, "batch", 64, "largest number of images that are classified at once")
	fl.DurationVar(&o.options.Delay, "delay", time.Millisecond,
		"how long an image waits for others, 0 to 1s")
	fl.IntVar(&o.options.Instances, "instances", 1,
		"number of copies of the model that run at the same time")
	fl.BoolVar(&o.options.GPU, "gpu", false, "run the copies on the GPU")
	o.notice.bind(cmd)
	fl.StringVar(&o.card, "card", "", "model card, a `FILE` in Markdown")
	fl.StringVar(&o.key, "signed-by", "",
		"public key `FILE` (PEM, P-256) of the signer of CLASSIFIER.sig")
	jsonFlag(cmd, "print what was written as JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if o.out == "" {
			return usageErrorf("package: --output is missing: a new folder")
		}
		return o.run(cmd, args[0])
	}
	return cmd
}

// run writes the package. Before that the notice is heeded, the card must state the model's sha256,
// and the signature must hold. The bytes that are read here are those that the card is compared
// with, and those that are packed. A card for another model and a signature that does not hold
// leave no folder behind.
// The order is: notice, model, card, signature, folder. A fault of the model or of an option is a
// usage error.
func (o *packageRun) run(cmd *cobra.Command, path string) error {
	if err := o.notice.heed(path); err != nil {
		return err
	}
	data, err := regularfile.ReadFile(path, serde.MaxFileBytes)
	if err != nil {
		return usageError(fmt.Errorf("package: %w", err))
	}
	if o.card != "" {
		if o.options.Card, err = regularfile.ReadFile(o.card, maxCard); err != nil {
			return usageError(fmt.Errorf("package: card: %w", err))
		}
		// The digest anywhere in the text counts, as cards are free text.
		if of := models.DigestBytes(data); !bytes.Contains(o.options.Card, []byte(of)) {
			return usageErrorf("package: %s: it does not state the sha256 of %s, %s: make it with "+
				"fmp evaluate %s IMAGES --card", o.card, path, of, path)
		}
	}
	if o.key != "" {
		if _, o.options.Signature, err = verifiedBundle(o.key, signatureFile(path),
			path); err != nil {
			return fmt.Errorf("package: %w", err)
		}
	}
	p, err := serving.Write(o.out, data, o.options)
	if err != nil {
		return usageError(fmt.Errorf("package: %s: %w", path, err))
	}
	return say(cmd,
		p, "repository: %s\nimage:      %s:%s\ndocuments:  %s\nmodel:      %s, sha256 %s\n",
		p.Repository, p.Layout, p.Tag, strings.Join(p.Documents, ", "), p.Name, p.Model)
}
