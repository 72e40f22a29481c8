package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/onnx/printable"
	"fmp/onnx/regularfile"
	"fmp/pipeline/client"
	"fmp/pipeline/federate"
	"fmp/pipeline/moments"
	"fmp/pipeline/privacy"
)

// uploadInfo is the description of an upload by inspect. Masses and ClassMass are in images.
type uploadInfo struct {
	Kind   string `json:"kind"`
	Bytes  int    `json:"bytes"`
	Round  uint64 `json:"round"`
	Client string `json:"client"`
	Model  string `json:"model"`
	// N counts images, calibration points among them; Size counts points of Dx numbers each.
	N         int                `json:"n"`
	Size      int                `json:"size"`
	Dx        int                `json:"dx"`
	C         int                `json:"classes"`
	Precision federate.Precision `json:"precision"`
	// Masses are images behind each point.
	Masses []float32 `json:"masses"`
	// ClassMass holds images by class, as far as an upload tells a client's labels.
	ClassMass []float64 `json:"class_mass"`
	// Calibration counts the images of n that are single ones, Scatter and Curve the numbers of
	// each.
	Calibration int `json:"calibration,omitempty"`
	Scatter     int `json:"scatter,omitempty"`
	Curve       int `json:"curve,omitempty"`
}

// modelInfo is the description of a model by inspect. Names are those of the classes; Inputs and
// Outputs are types with shapes.
type modelInfo struct {
	Kind    string   `json:"kind"`
	Digest  string   `json:"digest"`
	Dx      int      `json:"dx"`
	C       int      `json:"classes"`
	S       int      `json:"size"`
	Names   []string `json:"class_names,omitempty"`
	Inputs  []string `json:"inputs"`
	Outputs []string `json:"outputs"`
	// Extractor is the digest that compress, join and approve take, of a client graph that they
	// take. File is the maker's word alone: the manifest's sha256 of the extractor's file.
	Extractor string `json:"extractor_digest,omitempty"`
	File      string `json:"extractor_file,omitempty"`
	Licence   string `json:"licence,omitempty"`
	Usable    bool   `json:"usable"`        // by compress
	Why       string `json:"why,omitempty"` // it is not
}

// inspectCommand takes a file whose name ends in .onnx for a model, and any other for an upload. It
// reads files and sends nothing.
var inspectCommand = command{
	name: "inspect", args: "FILE", short: "Say what is in an upload or a model, after checking it",
	example: "  fmp-edge inspect shop-17.upload\n  fmp-edge " +
		"inspect shop-17.upload --model client.onnx\n  fmp-edge inspect client.onnx --json\n" +
		"  fmp-edge inspect shop-17.upload --explain",
	flags: func(f *pflag.FlagSet) func(context.Context, []string, io.Writer, io.Writer) error {
		model := f.String("model", "", "model that must have made the upload")
		explain := f.Bool("explain", false, "say in words what leaves the machine with an "+
			"upload, or with one that a client graph makes")
		asJSON := f.Bool("json", false, "print JSON")
		return func(_ context.Context, args []string, out, _ io.Writer) error {
			if len(args) != 1 {
				return usagef("inspect: %d files; want one upload or model", len(args))
			}
			if *explain && *asJSON {
				return usagef("inspect: --explain and --json are two formats; give one")
			}
			how := inLines
			if *explain {
				how = inWords
			} else if *asJSON {
				how = asData
			}
			if strings.EqualFold(filepath.Ext(args[0]), ".onnx") {
				return refused("inspect", inspectModel(args[0], how, out))
			}
			return refused("inspect", inspectUpload(args[0], *model, how, out))
		}
	},
}

// form is how inspect prints. The zero value is lines for people. --explain and --json exclude each
// other.
type form int

const (
	inLines form = iota
	inWords
	asData
)

// inspectUpload checks an upload as a server would, as one of the model if that is given, and
// prints its account. ClassMass[c] is sum_k w_k y_kc over points of mass w and shares y of the
// classes, and one for each calibration point of the class. The model says dx and the number of
// classes, and the number of points where they are no class means. Without a model only the
// upload's own numbers are checked.
func inspectUpload(path, model string, how form, out io.Writer) error {
	want := federate.Expect{}
	// A model pins the digest and the sizes; the round and the client may be any.
	if model != "" {
		_, f, err := readModel(model, models.KindClient, models.KindEmbedding)
		if err != nil {
			return err
		}
		want = federate.Expect{Model: f.Digest, Dx: f.PointWidth(), C: f.C}
		if !f.ClassMeans { // of which a client sends those that it has
			want.S = f.S
		}
	}
	data, err := regularfile.ReadFile(path, federate.MaxBytes)
	if err != nil {
		return err
	}
	if federate.IsRelease(data) {
		want.Unsalted = true // its owner reads it
		r, err := federate.DecodeRelease(data, want)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		w := released{Upload: path, Bytes: len(data), Client: r.Client, Round: r.Round,
			Model: r.Model, Classes: r.Sums.Classes, Coordinates: r.Sums.K, Budget: r.Budget}
		if r.Budget.Noise == privacy.Local {
			w.Noise = r.Budget.NoiseSteps(w.Classes)
		}
		switch how {
		case asData:
			return printable.WriteJSON(out, w)
		case inWords:
			return inFull(out, explainRelease(w, r.Share != nil), path)
		}
		_, err = fmt.Fprintf(out, "private:   %d bytes, valid\nclient:    %s, round %d\n"+
			"model:     sha256 %s\nsums:      %d classes of %d coordinates, noise of "+
			"%d steps added here\nspent:     %v\n", w.Bytes, w.Client, w.Round, w.Model, w.Classes,
			w.Coordinates, w.Noise, w.Budget)
		return err
	}
	u, err := federate.Decode(data, want)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	s := u.Points
	i := uploadInfo{Kind: "upload", Bytes: len(data), Round: u.Round, Client: u.Client,
		Model: u.Model, N: u.Images(), Size: s.N, Dx: s.Dx, C: s.C, Precision: u.Precision,
		Masses: s.W, ClassMass: make([]float64, s.C)}
	// A point of class means is of one class, and one of an embedding has a share of each.
	for k := range s.N {
		s.Shares(k, func(c int, p float32) { i.ClassMass[c] += float64(p) * float64(s.W[k]) })
	}
	for _, y := range singles(u) {
		i.ClassMass[y]++
	}
	i.Calibration = i.N - u.N
	if u.Within != nil {
		i.Scatter = len(u.Within.Data)
	}
	if u.Curve != nil {
		i.Curve = moments.Temperatures
	}
	switch how {
	case asData:
		return printable.WriteJSON(out, i)
	case inWords:
		return inFull(out, explainUpload(i, u), path)
	}
	beside := ""
	if i.Scatter+i.Curve > 0 {
		beside = fmt.Sprintf("beside:    scatter of %d numbers, curve of %d\n", i.Scatter, i.Curve)
	}
	_, err = fmt.Fprintf(out, "upload:    %d bytes, valid\nclient:    %s, round %d\nmodel:     "+
		"sha256 %s\npoints:    %d of dx %d and %d classes, %s, from n = %d%s\nmasses:    "+
		"%.4g\nby class:  %.4g\n%s", i.Bytes, i.Client, i.Round, i.Model, i.Size, i.Dx, i.C,
		i.Precision, i.N, ofCalibration(i.Calibration), i.Masses, i.ClassMass, beside)
	return err
}

// inFull prints an explanation, and the folders that the upload's classes come from. The folders
// are told where their table lies beside the upload.
func inFull(out io.Writer, text, upload string) error {
	folders, err := explainFolders(upload)
	if err != nil {
		return err
	}
	_, err = io.WriteString(out, text+folders)
	return err
}

// inspectModel prints a model's account; in words it must be a client graph. A model that compress
// would not take is no error: the reason is printed.
func inspectModel(path string, how form, out io.Writer) error {
	if how == inWords {
		c, err := openClient(path, 1)
		if err != nil {
			return err
		}
		_, err = io.WriteString(out, explainGraph(c))
		return err
	}
	m, f, err := models.Load(path)
	if err != nil {
		return err
	}
	i := modelInfo{Kind: f.Kind, Digest: f.Digest, Dx: f.Dx, C: f.C, S: f.S, Names: f.Classes,
		Inputs:  describe(m.Graph.Inputs),
		Outputs: describe(m.Graph.Outputs), File: f.Extractor, Licence: f.Licence}
	// Of an embedding there is no client, and no extractor to describe.
	c, why := unusable(path, m, f)
	i.Why, i.Usable = why, why == ""
	extractor := ""
	if c != nil {
		i.Extractor, extractor = c.Parsed.Extractor, "extractor: "+described(c)+"\n"
	}
	if how == asData {
		return printable.WriteJSON(out, i)
	}
	usable := "yes"
	if !i.Usable {
		usable = "no: " + i.Why
	}
	if i.Kind == "" {
		_, err = fmt.Fprintf(out,
			"model:     sha256 %s\ninputs:    %s\noutputs:   %s\ncompress:  %s\n", i.Digest,
			strings.Join(i.Inputs, ", "), strings.Join(i.Outputs, ", "), usable)
		return err
	}
	_, err = fmt.Fprintf(out, "model:     kind %q, sha256 %s\nsizes:     dx %d, %d classes, %d "+
		"points an upload\nclasses:   %s\ninputs:    %s\noutputs:   %s\n%scompress:  %s\n",
		i.Kind, i.Digest, i.Dx, i.C, i.S, strings.Join(i.Names, ", "), strings.Join(i.Inputs, ", "),
		strings.Join(i.Outputs, ", "), extractor, usable)
	return err
}

// describe returns types with shapes, in the order of the values.
func describe(vs []onnx.ValueInfo) []string {
	var out []string
	for _, v := range vs {
		out = append(out, v.Type())
	}
	return out
}

// unusable returns why compress would not take a model, empty where it would, and the client of a
// graph that it would take. m is loaded, and a client graph is opened again from path.
// One thread suffices, since no image is computed.
func unusable(path string, m *onnx.Model, f models.Manifest) (*client.Client, string) {
	switch f.Kind {
	case models.KindClient:
		c, err := openClient(path, 1)
		if err != nil {
			return nil, err.Error()
		}
		return c, ""
	case models.KindEmbedding:
		e, err := pure.New(engine.Options{Threads: 1})
		// It is loaded and not run: an operator that the engine lacks is told at load.
		if err == nil {
			_, err = e.Load(m)
		}
		if err != nil {
			return nil, err.Error()
		}
	case "":
		return nil, "it does not say what it is (it has no property fmp.kind); fmp fuse makes a " +
			"client graph of an extractor and an embedding"
	default:
		return nil, "it is neither a client graph nor an embedding"
	}
	return nil, ""
}
