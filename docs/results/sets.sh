#!/bin/sh
# Coverage and size of prediction sets from calibration points of clients: docs/results/sets.sh DATASET ALPHA makes one run again, in
# docs/results/sets/DATASET-ALPHA.json: mnist, cifar10 or cifar100, alpha 0 or 0.1. The 20 classes of CIFAR-100 have images for 120 a client.
# docs/results/sets.sh DATASET ALPHA false makes one with false points, in docs/results/sets/false-DATASET-ALPHA.json.
set -eu
cd "$(dirname "$0")/../.."
data=${1:?name a data set} alpha=${2:?give alpha} points=200
test "$data" != cifar100 || points=120
mkdir -p docs/results/sets
name=$data-$alpha kind=
if test "${3:-}" = false; then name=false-$name kind=--false; fi
"${FMP:-bin/fmp}" bench sets $kind --dataset "$data" --points "$points" --alpha "$alpha" --seeds 20 --seed 7 --threads 1 --json > "docs/results/sets/$name.json"
