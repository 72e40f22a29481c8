#!/bin/sh
# The ablation of the page of results, on CIFAR-10: run from the root of the repository with bin/fmp built. Models
# go to the folder given (default: ablation-models), runs to docs/results/ablation. Run again, it goes on where it
# was stopped. The kept runs are of the program at commit 611aaa1, whose FMP is today's row FMP-ISAB, and the page reads
# them by that name: check that commit out to make them again.
set -e
models=${1:-ablation-models}
extractor=assets/models/cifar10/extractor.onnx
mkdir -p "$models"

# train NAME PREDICTOR-FLAGS -- EMBEDDING-FLAGS: 1000 steps each.
train() {
	name=$1
	shift
	predictor= embedding= part=predictor
	for a in "$@"; do
		if [ "$a" = -- ]; then part=embedding
		elif [ $part = predictor ]; then predictor="$predictor $a"
		else embedding="$embedding $a"; fi
	done
	p=$models/$name-predictor.onnx e=$models/$name-embedding.onnx
	common="--dataset cifar10 --extractor $extractor --steps 1000"
	# shellcheck disable=SC2086
	test -f "$p" || bin/fmp train predictor $common $predictor -o "$p"
	# shellcheck disable=SC2086
	test -f "$e" || bin/fmp train embedding $common --predictor "$p" $embedding -o "$e"
}

# run NAME FLAGS: ten repeats.
run() {
	name=$1
	shift
	bin/fmp run --dataset cifar10 --seeds 10 --methods MP,FMP,PRIOR --out "docs/results/ablation/$name" "$@"
}

trained() {
	name=$1
	shift
	run "$name" --predictor "$models/$name-predictor.onnx" --embedding "$models/$name-embedding.onnx" "$@"
}

run default
run samples-5 --samples 5
run samples-80 --samples 80
run fresh-25 --fresh 25
run fresh-400 --fresh 400
run weights-constant --set embedding.weights=constant
run untrained-embedding --embedding untrained
run untrained --embedding untrained --predictor untrained

train steps-1000 --
trained steps-1000
train published --published -- --published
trained published
train labels-fixed --set tasks.labels=fixed -- --set tasks.labels=fixed
trained labels-fixed --set tasks.labels=fixed
# The same predictor as steps-1000, and uploads of other sizes.
for s in 5 20; do
	test -f "$models/size-$s-predictor.onnx" || cp "$models/steps-1000-predictor.onnx" "$models/size-$s-predictor.onnx"
	train size-$s -- --set embedding.size=$s
	trained size-$s
done
