package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/pflag"

	"fmp/pipeline/client"
)

// approvedFlag is where the extractors are listed that may run on this owner's images.
func approvedFlag(f *pflag.FlagSet) *string {
	return f.String("approved", "", "file of the extractors that may run on the images (default: fmp/approved in the user's folder for "+
		"configuration)")
}

func approvedFile(flag string) (client.Approved, error) {
	if flag != "" {
		return client.Approved{Path: flag}, nil
	}
	path, err := client.DefaultFile("approved", "--approved")
	return client.Approved{Path: path}, err
}

// described is the description of an extractor for the owner of the images that it is to run on.
func described(c *client.Client) string {
	a := c.Apart
	from := ""
	if name, ok := client.Shipped[a.Extractor]; ok {
		from = fmt.Sprintf(", which comes with this program (%s)", name)
	}
	return fmt.Sprintf("sha256 %s%s: %d nodes with %d constants turn %d numbers of an image into %d features", a.Extractor, from, a.Nodes,
		a.Numbers, a.Pixels, c.Manifest.Dx)
}

// trust returns an error unless the extractor of a client graph may run on the images: one that comes with this program, one that was
// approved, or the first for a scope, which is said and written down.
func trust(c *client.Client, graph, scope, file string, log io.Writer) error {
	if _, ok := client.Shipped[c.Apart.Extractor]; ok {
		return nil
	}
	approved, err := approvedFile(file)
	if err != nil {
		return err
	}
	remedy := fmt.Sprintf("nothing was read and nothing sent; if it is meant: fmp-edge approve %s", graph)
	first, err := c.Trust(approved, scope)
	var changed *client.ChangedError
	switch {
	case errors.Is(err, client.ErrImage):
		return fmt.Errorf("the extractor %s: %w; %s", described(c), err, remedy)
	case errors.As(err, &changed):
		return fmt.Errorf("%w; %s", changed, remedy)
	case err != nil:
		return fmt.Errorf("approved extractors: %w", err)
	case first:
		fmt.Fprintf(log, "fmp-edge: extractor: %s; trusted from now on for %s, another will be refused (%s)\n", described(c), scope,
			approved.Path)
	}
	return nil
}

var approveCommand = command{
	name: "approve", args: "GRAPH", short: "Let the extractor of a client graph run on this owner's images",
	example: `  fmp-edge approve client.onnx

The graph is taken apart as for compress, and the digest of its extractor is added to the file of approved ones. The first extractor
of a server is trusted without it; one that comes later in its place, and one whose features could be the images themselves, is not.`,
	flags: func(f *pflag.FlagSet) func(context.Context, []string, io.Writer, io.Writer) error {
		file := approvedFlag(f)
		return func(_ context.Context, args []string, out, _ io.Writer) error {
			if len(args) != 1 {
				return usagef("approve: %d arguments; want one client graph", len(args))
			}
			c, err := openClient(args[0], 0)
			if err != nil {
				return refused("approve", err)
			}
			approved, err := approvedFile(*file)
			if err == nil {
				err = approved.Add(c.Apart.Extractor)
			}
			if err != nil {
				return fmt.Errorf("approve: %w", err)
			}
			_, err = fmt.Fprintf(out, "approved: %s\nin:       %s\n", described(c), approved.Path)
			return err
		}
	},
}
