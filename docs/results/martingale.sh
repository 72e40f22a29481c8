#!/bin/sh
# Predictive resampling of FMP-ISAB and FMP-one: docs/results/martingale.sh DATASET makes docs/results/martingale/DATASET.json, with even clients, and
# DATASET-0.1.json at alpha = 0.1. Ten images a client, ten clients, five repeats, 40 paths of ten batches of 100 draws.
set -eu
cd "$(dirname "$0")/../.."
data=${1:?name a data set}
mkdir -p docs/results/martingale
for alpha in 0 0.1; do
  name=$data
  [ $alpha = 0 ] || name=$data-$alpha
  "${FMP:-bin/fmp}" bench martingale --dataset "$data" --points 10 --alpha $alpha --seeds 5 --paths 40 --batches 10 --batch 100 --json > "docs/results/martingale/$name.json"
done
