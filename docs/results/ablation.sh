#!/bin/sh
# The ablations of the page of results: run from the root of the repository with bin/fmp built. Models go to the folder
# given (default: ablation-models), runs to docs/results/ablation. Run again, it goes on where it was stopped. Some minutes
# on two idle cores. OUT names another folder: the kept runs of the paper's predictor state open.model default, and are not gone on with. The runs in closed scope (fmp run --config closed) are what the conjugate predictor's are compared with.
set -e
models=${1:-ablation-models}
mkdir -p "$models"

# run NAME DATASET METHODS FLAGS: ten repeats of homogeneous and skewed clients.
run() {
	name=$1 data=$2 methods=$3
	shift 3
	bin/fmp run --config closed --protocol shared --dataset "$data" --methods "$methods" --out "${OUT:-docs/results/ablation}/$name" "$@"
}

# The conjugate predictor without its latent, and with coordinates and metric left what the moments of the corpus say.
for data in mnist cifar10 cifar100; do
	run "latent-none-$data" $data FMP --set conjugate.latent=none
	test -f "$models/$data-fixed.onnx" || bin/fmp train conjugate --dataset $data --fixed-metric -o "$models/$data-fixed.onnx"
	run "metric-fixed-$data" $data FMP --set conjugate.model="$models/$data-fixed.onnx"
done

# The paper's predictor, on CIFAR-10. PRIOR shuffles its uploads where FMP has neither of its predictors.
isab() {
	name=$1
	shift
	run "$name" cifar10 MP,FMP-ISAB,PRIOR --conjugate.model none --set open.model=none "$@"
}

# short NAME FLAGS: a predictor of 300 steps, trained as assets/train.sh does but for the flags, on uploads of class means.
short() {
	name=$1
	shift
	p=$models/$name.onnx
	test -f "$p" || bin/fmp train predictor --dataset cifar10 --l2 5 --noises 4 --rate 2e-3 --steps 300 "$@" -o "$p"
	case $name in
	labels-fixed) isab "$name" --predictor "$p" --embedding untrained --set tasks.labels=fixed ;;
	*) isab "$name" --predictor "$p" --embedding untrained ;;
	esac
}

isab default
isab samples-1 --samples 1
isab samples-80 --samples 80
isab fresh-25 --fresh 25
isab fresh-400 --fresh 400
isab weights-constant --set embedding.weights=constant
isab untrained-embedding --embedding untrained
isab untrained --embedding untrained --predictor untrained

short both --latent 16
short latent --latent 16 --joint -1
short joint
short neither --joint -1
short published --latent 16 --published
short labels-fixed --latent 16 --set tasks.labels=fixed
