package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"fmp/cmd/buildinfo"
	"fmp/onnx/engine/ort"
)

func newSetupCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "setup",
		Short: "Fetch the ONNX Runtime library, once, and verify it",
		Long: `Fetch the ONNX Runtime ` + ort.PinnedVersion + ` for this platform with npm into the folder for caches
($XDG_CACHE_HOME/fmp/onnxruntime, or the system's), check it against the digest recorded in this
program, and put it in place. What is there already is checked and left alone. Nothing is fetched
where ONNXRUNTIME_LIB names a library of your own, or the system has one that works.`,
		Example: "  fmp setup",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			say := func(s string) { fmt.Fprintln(cmd.ErrOrStderr(), "fmp setup: "+s) }
			cache, err := ort.CacheDir()
			if err != nil {
				return missingError(err)
			}
			lib, _, err := ort.FindLibrary("")
			if err != nil && os.Getenv(ort.LibraryEnv) != "" {
				return missingError(err)
			}
			if err == nil && filepath.Dir(lib) != cache {
				if _, err := ort.New(ort.Options{Library: lib}); err != nil {
					return missingError(err)
				}
				say("nothing to fetch: the ONNX Runtime " + ort.Version() + " in " + lib + " works")
				return nil
			}
			_, err = ort.Fetch(cmd.Context(), say)
			return missingError(err)
		},
	}
}

func newManCommand() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "man DIR",
		Short: "Write the manual pages of all commands",
		Long: `Write one page for every command to DIR, which is made where it is missing: manual pages for man(1),
or Markdown. Point $MANPATH at the folder above DIR, if DIR is called man1, to read them with man.`,
		Example: "  fmp man ~/.local/share/man/man1\n  fmp man --format markdown docs/commands",
		Args:    exactArgs("DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if format != "man" && format != "markdown" {
				return usageErrorf("--format is %q; allowed are man, markdown", format)
			}
			dir := args[0]
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return fmt.Errorf("writing manual pages: %w", err)
			}
			root := cmd.Root()
			root.DisableAutoGenTag = true // the same program gives the same pages
			var err error
			if format == "markdown" {
				err = doc.GenMarkdownTree(root, dir)
			} else {
				// The day of the source, so that the same program gives the same pages.
				day, terr := time.Parse(time.RFC3339, buildinfo.Read().Time)
				if terr != nil {
					day = time.Unix(0, 0).UTC()
				}
				err = doc.GenManTree(root,
					&doc.GenManHeader{Title: "FMP", Section: "1", Source: "fmp",
						Manual: "Federated martingale posteriors",
						Date:   &day}, dir)
			}
			if err != nil {
				return fmt.Errorf("writing manual pages to %s: %w", dir, err)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&format, "format", "man", "man or markdown")
	return cmd
}

func newVersionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version of this program, and the commit that it was built from",
		Example: "  fmp version --json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := buildinfo.Read()
			return say(cmd, v, "fmp %v\n", v)
		},
	}
	jsonFlag(cmd, "print JSON")
	return cmd
}
