#!/bin/sh
# Rounds of which none, and 10 to 50%, of ten clients collude: docs/results/colluders.sh RUN makes one again, in docs/results/colluders/RUN.json:
# DATASET-ALPHA (digits, mnist, cifar10, cifar100: with the images of a client and the anchor that a round has by default), moments-ALPHA (of
# CIFAR-10, without a corpus) and open-ALPHA (20 classes of CIFAR-100 that neither extractor nor corpus has seen), with alpha 0, 0.1 or
# 0.5. Attacks, draws and settings were fixed before a run was scored.
set -eu
cd "$(dirname "$0")/../.."
name=${1:?name a run} draws=10
case $name in
digits-* | mnist-* | cifar10-* | cifar100-*) args="--closed-form --dataset ${name%-*} --set conjugate.samples=20" ;;
moments-*) args="--dataset cifar10 --set dataset.splits.corpus=0 --set conjugate.model=none --points 50 --set conjugate.samples=20" ;;
open-*) draws=3 args="--dataset cifar100 --set dataset.classes=40-59 --set dataset.splits.test=0.4 --set corpus.classes=0-39 --points 20
	--set conjugate.samples=10 --extractor docs/results/open/cifar100-0-39.onnx --set open.model=docs/results/open/cifar100-0-39-open.onnx" ;;
*) echo "no run $name" >&2; exit 2 ;;
esac
mkdir -p docs/results/colluders
# shellcheck disable=SC2086
"${FMP:-bin/fmp}" bench round --colluders $args --alpha "${name##*-}" --seeds "$draws" --json > "docs/results/colluders/$name.json.tmp"
mv "docs/results/colluders/$name.json.tmp" "docs/results/colluders/$name.json"
