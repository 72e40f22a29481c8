#!/bin/sh
# Private rounds on classes that neither extractor nor corpus has seen: 20 classes of CIFAR-100 behind docs/results/open/cifar100-0-39.onnx, by the number k of
# coordinates that are released. docs/results/privacy/open.sh K EPSILON makes docs/results/privacy/open/k=K,epsilon=EPSILON again, and the predictor
# docs/results/privacy/open/private-K.onnx where it is not there.
set -eu
cd "$(dirname "$0")/../../.."
k=${1:?number of coordinates}
epsilon=${2:?epsilon}
here=docs/results/privacy/open
extractor=docs/results/open/cifar100-0-39.onnx
fmp=${FMP:-bin/fmp}
mkdir -p "$here"
if ! test -f "$here/private-$k.onnx"; then
	"$fmp" train private --dataset cifar100 --classes 0-39 --extractor $extractor --coordinates "$k" -o "$here/private-$k.onnx"
	rm "$here/private-$k.onnx.jsonl" "$here/private-$k.onnx.svg"
fi
exec "$fmp" run --config privacy --dataset cifar100 --classes 40-59 --set dataset.splits.test=0.4 --set corpus.classes=0-39 --extractor $extractor \
	--set open.model=docs/results/open/cifar100-0-39-open.onnx --privacy.model "$here/private-$k.onnx" --privacy.epsilon "$epsilon" \
	--methods FMP,FMP-DP,FMP-DP-plugin --out "$here/k=$k,epsilon=$epsilon"
