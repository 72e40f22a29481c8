#!/bin/sh
# The runs whose settings are tuned on classes that neither the extractor of open.sh nor the tasks have: docs/results/fair.sh RUN makes one of them
# again, in docs/results/fair/RUN: cifar10-10, cifar100-5.
set -eu
cd "$(dirname "$0")/../.."
name=${1:?name a run}
case $name in
cifar10-10) args="--dataset cifar10 --set dataset.classes=0 --set dataset.splits.test=0 --set corpus.dataset=cifar100 --points 10 --set tuning.classes=40-59" ;;
cifar100-5) args="--classes 40-44 --set tuning.classes=45-59" ;;
*) echo "no run $name" >&2; exit 2 ;;
esac
# shellcheck disable=SC2086
exec "${FMP:-bin/fmp}" run --config open --extractor docs/results/open/cifar100-0-39.onnx --set open.model=docs/results/open/cifar100-0-39-scale.onnx $args \
  --methods FMP,FMP-mean,NCM,LDA,PLDA,Regression,FedCGS,GH-LDA,Fed3R --set tuning.tasks=8 --set scores.coverage=false --set scores.hindsight=true --out "docs/results/fair/$name"
