#!/bin/sh
# Calibration points in open scope: docs/results/calibrated.sh SPLIT SEED FAMILY N makes one run again, in docs/results/calibrated/FAMILY/SPLIT-SEED-N. The tasks are those
# of docs/results/families.sh, to the last image; each client has N further images that choose temperature and penalty. FMP alone, without tuning.
set -eu
cd "$(dirname "$0")/../.."
split=${1:?name a split} seed=${2:?give the seed of the extractor} family=${3:?name a family} n=${4:?how many points a client}
fmp=${FMP:-bin/fmp}
models=${MODELS:-build/families}
classes() { awk -v s="split: $split" -v k="$1:" '$0 ~ s"$" {on=1} on && $1==k {gsub(/.*\[|\]| /, ""); print; exit}' docs/results/families.yaml; }
tasks=$(classes tasks)
args="--dataset cifar100 --classes $tasks"
model=$models/$split-$seed
case $family in
digits-mnist) args="--dataset mnist" corpus=digits ;;
digits-drawn) args="--dataset digits" corpus=mnist ;;
digits-8x8) args="--dataset digits8x8" corpus=mnist ;;
*) corpus= ;;
esac
if test -n "$corpus"; then
	args="$args --set dataset.classes=0 --set dataset.splits.test=0 --set corpus.dataset=$corpus --set corpus.classes=0 --points 5"
	if test "$seed" != 1; then model=$models/$corpus-$seed; else model= ; fi
else
	args="$args --set corpus.classes=$(classes extractor)"
fi
case $family in
cifar100-20-few) args="$args --points 5" ;;
cifar100-5) args="--set dataset.splits.test=0 --dataset cifar100 --classes $(echo "$tasks" | cut -d, -f1-5) --set corpus.classes=$(classes extractor)" ;;
cifar10-10) args="--dataset cifar10 --set dataset.classes=0 --set dataset.splits.test=0 --set corpus.dataset=cifar100 --set corpus.classes=$(classes extractor) --points 10" ;;
esac
# shellcheck disable=SC2086
exec "$fmp" run --config open ${model:+--extractor "$model.onnx" --set open.model="$model-open.onnx"} $args --protocol shared --methods FMP \
	--set posterior.calibrate="$n" --out "docs/results/calibrated/$family/$split-$seed-$n"
