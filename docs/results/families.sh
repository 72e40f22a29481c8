#!/bin/sh
# The families that families.yaml fixed before any was scored, behind extractors of 30 classes of CIFAR-100, tuned on 10 others: docs/results/families.sh SPLIT SEED
# FAMILY makes one run again, in docs/results/families/FAMILY/SPLIT-SEED. The extractor (minutes) and its open predictor are made first where they are missing.
set -eu
cd "$(dirname "$0")/../.."
split=${1:?name a split} seed=${2:?give the seed of the extractor} family=${3:?name a family}
fmp=${FMP:-bin/fmp}
models=${MODELS:-build/families}
classes() { awk -v s="split: $split" -v k="$1:" '$0 ~ s"$" {on=1} on && $1==k {gsub(/.*\[|\]| /, ""); print; exit}' docs/results/families.yaml; }
# Digits: extractor and corpus are of one source, tasks of another. No split of classes: SPLIT is 0. Seed 1 is the extractor that comes with the program.
# METHODS and OUT choose other methods and another folder: OUT=docs/results/misses METHODS=FMP has FMP alone, with the distance of misses from intervals.
# scikit-learn's digits are the folder digits8x8 of the data (docs/digits8x8 writes it).
case $family in
digits-mnist) tasks=mnist corpus=digits ;;
digits-drawn) tasks=digits corpus=mnist ;;
digits-8x8) tasks=digits8x8 corpus=mnist ;;
*) corpus= ;;
esac
out=${OUT:-docs/results/families}
hindsight=${HINDSIGHT:-true} others=,ANN,NCM,LDA,PLDA,Regression,FedCGS,GH-LDA,GH-QDA,Fed3R,FedPFT,PRIOR
case $family/$split-$seed in
cifar100-5/[235]-1) hindsight=${HINDSIGHT:-false} others= ;; # kept of FMP's forms alone
esac
methods=${METHODS:-FMP,FMP-mean,FMP-Laplace,FMP-joint$others}
if test -n "$corpus"; then
	model= ; mkdir -p "$models"
	if test "$seed" != 1; then
		model=$models/$corpus-$seed
		test -f "$model.onnx" || $fmp train extractor --dataset "$corpus" --seed "$seed" -o "$model.onnx"
		test -f "$model-open.onnx" || $fmp train open --dataset "$corpus" --extractor "$model.onnx" -o "$model-open.onnx"
	fi
	exec "$fmp" run --config open --dataset "$tasks" --set dataset.classes=0 --set dataset.splits.test=0 --set corpus.dataset="$corpus" --set corpus.classes=0 \
		${model:+--extractor "$model.onnx" --set open.model="$model-open.onnx"} --points 5 --set scores.hindsight=true --methods "$methods" \
		--out "$out/$family/0-$seed"
fi
if test "$family" = pretrained; then
	learned=$(classes extractor) model=$models/pretrained-$split
	lite0="--extractor ${EXTRACTOR:?the ONNX file of EfficientNet-Lite0, cut at its features} --set extractor.mean=0.49804 --set extractor.std=0.50196 --set extractor.batch=32"
	mkdir -p "$models"
	# shellcheck disable=SC2086
	test -f "$model-open.onnx" || $fmp train open --dataset cifar100 --classes "$learned" --unlearned-classes "$(classes tuning)" $lite0 -o "$model-open.onnx"
	# shellcheck disable=SC2086
	exec "$fmp" run --config open --dataset cifar100 --classes "$(classes tasks)" --set corpus.classes="$learned" $lite0 --set open.model="$model-open.onnx" --points 5 \
		--set tuning.classes="$(classes tuning)" --set tuning.tasks=4 ${REPEATS:+--set seeds=$REPEATS} --set scores.hindsight="$hindsight" --methods "${METHODS:-FMP,FMP-mean,ANN,NCM,LDA,PLDA,Regression,FedCGS,Fed3R,PRIOR}" \
		--out "$out/$family/$split-$seed"
fi
learned=$(classes extractor) tuning=$(classes tuning) tasks=$(classes tasks)
model=$models/$split-$seed
mkdir -p "$models"
if ! test -f "$model.onnx"; then
	$fmp train extractor --dataset cifar100 --classes "$learned" --exclude-classes "$tuning,$tasks" --epochs 20 --mirror --seed "$seed" -o "$model-full.onnx"
	$fmp onnx half "$model-full.onnx" -o "$model.onnx"
fi
test -f "$model-open.onnx" || $fmp train open --dataset cifar100 --classes "$learned" --unlearned-classes "$tuning" --extractor "$model.onnx" -o "$model-open.onnx"
args="--dataset cifar100 --classes $tasks --set corpus.classes=$learned"
case $family in
cifar100-20) ;;
cifar100-20-few) args="$args --points 5" ;;
cifar100-5) args="--set dataset.splits.test=0 --dataset cifar100 --classes $(echo "$tasks" | cut -d, -f1-5) --set corpus.classes=$learned" ;;
cifar10-10) args="--dataset cifar10 --set dataset.classes=0 --set dataset.splits.test=0 --set corpus.dataset=cifar100 --set corpus.classes=$learned --points 10" ;;
clients-100) args="$args --clients 100" ;;
*) echo "no family $family" >&2; exit 2 ;;
esac
# shellcheck disable=SC2086
exec "$fmp" run --config open --extractor "$model.onnx" --set open.model="$model-open.onnx" $args --set tuning.classes="$tuning" --set tuning.tasks=8 --set scores.hindsight="$hindsight" \
	--methods "$methods" --out "$out/$family/$split-$seed"
