package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

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
