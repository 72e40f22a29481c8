#!/bin/sh
# The runs that compare posteriors around one point estimate in open scope, behind the extractor of open.sh: docs/results/posterior.sh RUN makes one
# of them again, in docs/results/posterior/RUN: cifar100-20, cifar10-10, points-5, cifar100-5. Where classes are left that neither the extractor nor the
# tasks have, settings are tuned on those (tuning.classes). With learned- before its name a run is of FMP alone, with the open predictor that carries the share of the
# fit's uncertainty: the same, made anew by the same command of open.sh.
set -eu
cd "$(dirname "$0")/../.."
name=${1:?name a run}
open=cifar100-0-39-open.onnx methods=FMP,FMP-mean,FMP-Laplace,FMP-joint coverage=false
case $name in
learned-*) open=cifar100-0-39-scale.onnx methods=FMP coverage=true ;;
esac
models="--extractor docs/results/open/cifar100-0-39.onnx --set open.model=docs/results/open/$open"
case ${name#learned-} in
cifar100-20) args="" ;;
cifar10-10) args="--dataset cifar10 --set dataset.classes=0 --set dataset.splits.test=0 --set corpus.dataset=cifar100 --points 10 --set tuning.classes=40-59" ;;
points-5) args="--points 5" ;;
cifar100-5) args="--classes 40-44 --set tuning.classes=45-59" ;;
*) echo "no run $name" >&2; exit 2 ;;
esac
# shellcheck disable=SC2086
exec "${FMP:-bin/fmp}" run --config open $models $args --methods $methods --set tuning.tasks=8 --set scores.coverage=$coverage --out "docs/results/posterior/$name"
