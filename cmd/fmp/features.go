package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"fmp/featurize"
	"fmp/pipeline/corpus"
	"fmp/pipeline/option"
)

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
		got, err := corpus.Store(cmd.Context(), source(cfg.Dataset, cfg.Extractor, cfg.Engine), eng,
			i, n, bar.report)
		if err != nil {
			return usageError(err)
		}
		bar.close()
		remark(cmd, got.Notes)
		text := fmt.Sprintf("%s: features of images %d to %d of %d", got.Path, got.From,
			got.To-1, got.Total)
		switch {
		case got.From == got.To:
			text = fmt.Sprintf("shard %s is empty: there are fewer chunks of images than shards", shard)
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

// remark prints the remarks of a data set, which name the images that are left out.
func remark(cmd *cobra.Command, notes []string) {
	for _, n := range notes {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: note: %s\n", cmd.CommandPath(), n)
	}
}

// parseShard reads i/N.
func parseShard(text string) (i, n int, err error) {
	a, b, ok := strings.Cut(text, "/")
	i, err = strconv.Atoi(a)
	n, err2 := strconv.Atoi(b)
	if !ok || err != nil || err2 != nil || i < 0 || i >= n || n > featurize.MaxShards {
		return 0, 0, usageErrorf(
			"--shard is %q; want i/N with i from 0 to N-1 and N at most %d, such as 3/16", clip(text),
			featurize.MaxShards)
	}
	return i, n, nil
}

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
