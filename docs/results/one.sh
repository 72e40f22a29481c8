#!/bin/sh
# One posterior on the rows of docs/results/gates.yaml: docs/results/one.sh ROW makes one of them again, in docs/results/one/ROW. ROW is closed-mnist, closed-cifar10,
# closed-cifar100, moments-RUN of a run of docs/results/pretrained.sh (for EXTRACTOR), or a run of docs/results/open.sh. Tasks are those of docs/results/closed,
# pretrained and open, repeat by repeat; nothing is trained or tuned, and no kappa is known.
set -eu
cd "$(dirname "$0")/../.."
row=${1:?name a row}
models="--extractor docs/results/open/cifar100-0-39.onnx --set open.model=docs/results/open/cifar100-0-39-scale.onnx"
cifar10="--dataset cifar10 --set dataset.classes=0 --set dataset.splits.test=0 --set corpus.dataset=cifar100"
case $row in
closed-*) args="--config closed --dataset ${row#closed-}" ;;
cifar100-20) args="--config open $models" ;;
cifar100-10) args="--config open $models --classes 40-49" ;;
cifar100-5) args="--config open $models --classes 40-44" ;;
cifar10-10) args="--config open $models $cifar10 --points 10" ;;
cifar10-40) args="--config open $models $cifar10 --points 40" ;;
digits) args="--config open --dataset digits --set dataset.classes=0 --set dataset.splits.test=0 --set corpus.dataset=mnist --set corpus.classes=0" ;;
points-5) args="--config open $models --points 5" ;;
clients-100) args="--config open $models --clients 100" ;;
moments-*)
  dataset=${row#moments-}
  args="--dataset ${dataset%-*} --extractor ${EXTRACTOR:?the ONNX file of EfficientNet-Lite0} --set extractor.mean=0.49804 --set extractor.std=0.50196 --points ${dataset##*-}
    --set dataset.splits.extractor=0.02 --set dataset.splits.corpus=0 --set dataset.splits.clients=0.98 --dataset.test 2000 --partition both --alpha 0.1 --clients 10
    --set scores.hindsight=true --set scores.coverage=false --seeds 10 --set extractor.batch=32" protocol=calibrated ;;
*) echo "no row $row" >&2; exit 2 ;;
esac
# shellcheck disable=SC2086
exec "${FMP:-bin/fmp}" run $args --protocol "${protocol:-shared}" --methods FMP-one --set scores.hindsight=true --set engine.threads="${THREADS:-2}" --out "docs/results/one/$row"
