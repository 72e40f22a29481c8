package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"

	"fmp/cmd/internal/outputs"
	"fmp/onnx/atomicfile"
	"fmp/onnx/regularfile"
	"fmp/pipeline/federate/wire"
	"fmp/pipeline/page"
)

// pageCommand writes a folder for any web server. Visitors save their uploads, as no server of a
// round takes them there.
// Nothing is written before the client graph is known to serve.
var pageCommand = command{
	name: "page", args: "",
	short: "Write a folder with the client for browsers, to be shown by any web server",
	example: "  fmp-edge page --model client.onnx --round 7 -o site\n  fmp-edge page --model " +
		"client.onnx --program bin/page -o site\n\nThe page computes an upload in the browser " +
		"and saves it as a file, which fmp pool reads and fmp-edge send sends.",
	flags: func(f *pflag.FlagSet) func(context.Context, []string, io.Writer, io.Writer) error {
		model := f.String("model", "", "client graph that the page's visitors use")
		output := f.StringP("output", "o", "",
			"`FOLDER` to write to; files of the same names are replaced")
		outputs.Made(f, "output")
		program := f.String("program", "",
			"`FOLDER` that make page wrote (default: page, beside this program)")
		round := f.Uint64("round", 0, "number of the round")
		return func(_ context.Context, args []string, out, _ io.Writer) error {
			if len(args) > 0 || *model == "" || *output == "" {
				return usagef("page: want --model client.onnx and -o FOLDER, and nothing else; " +
					"see fmp-edge page --help")
			}
			return refused("page", writePage(*output, *program, *model, *round, out))
		}
	},
}

// writePage writes the program, the client graph and the number of the round. A client graph of
// private rounds is refused, as a folder states no budget. The program is the folder that make page
// wrote; "" is the one beside this program. The client graph is opened as compress opens it, so
// that a graph that visitors could not use is refused here.
func writePage(output, program, model string, round uint64, out io.Writer) error {
	if program == "" {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		program = filepath.Join(filepath.Dir(self), "page")
	}
	cl, err := openClient(model, 1)
	if err != nil {
		return err
	}
	// An upload of a private round needs the budget that a server states.
	if cl.Private() {
		return fmt.Errorf("page: %s is the client graph of a private round, and a folder states "+
			"no budget; use fmp serve --page", model)
	}
	// Browsers take a graph of that size at most from a server too.
	graph, err := regularfile.ReadFile(model, wire.MaxGraph)
	if err != nil {
		return err
	}
	if err := atomicfile.HasFolder(output); err != nil {
		return err
	}
	files, size, err := page.WriteFolder(output, program, graph, round)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "page: %s (%d files, %d bytes; SHA256SUMS has their digests): round "+
		"%d, client graph sha256 %s\n", output, files, size, round, cl.Manifest.Digest)
	return err
}
