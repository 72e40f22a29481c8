#!/bin/sh
# Makes conjugate predictor, the letter's predictor and embedding, and client graph of one data set behind its extractor, as
# they are shipped:
#
#     assets/train.sh DATASET [KIND...]    (digits, digits-color, mnist, cifar10, cifar100; default: all kinds)
#
# KIND is conjugate (half a minute), predictor, embedding (tens of minutes) or client.
# Wants zstd for the last. Run from the root of the repository, with bin/fmp built and assets/models/DATASET/extractor.onnx there.
# Logs and drawings of the trainings go to docs/results/training. Run again, it goes on where it was stopped.
set -e
data=${1:?name a data set}
shift
kinds=${*:-conjugate predictor embedding client}
conjugate=
case $data in
digits | digits-color) steps="--steps 1000" ;;
# With the penalty 0.1 that suits MNIST the heads of the trainings are all but unbounded, and the predictor learns
# little; trained with 1 and used with 0.1 it does best.
mnist) steps="--steps 1000 --l2 1" conjugate="--shrinkage 1" ;;
cifar100) steps="--steps 1000 --l2 5" ;;
cifar10) steps="--l2 5" ;;
*) echo "$data is none of digits, digits-color, mnist, cifar10, cifar100" >&2; exit 2 ;;
esac
dir=assets/models/$data
extractor=$dir/extractor.onnx
licence=$(head -n 1 LICENSE)
test -f "$extractor" || { echo "$extractor is missing; fmp train extractor --dataset $data makes it" >&2; exit 1; }
logs=docs/results/training
mkdir -p "$logs"
for kind in $kinds; do
	if test "$kind" = client; then
		bin/fmp fuse --dataset "$data" --extractor "$extractor" --set conjugate.model="$dir/conjugate.onnx" --upload class-means -o "$dir/client.onnx"
		zstd -q -f -19 --patch-from="$extractor" "$dir/client.onnx" -o "$dir/client.onnx.zst" # what it adds to the extractor
		rm "$dir/client.onnx"
		continue
	fi
	case $kind in
	conjugate) extra=$conjugate ;;
	predictor) extra=$steps ;;
	*) extra="$steps --predictor $dir/predictor.onnx" ;;
	esac
	# shellcheck disable=SC2086
	bin/fmp train "$kind" --dataset "$data" --extractor "$extractor" $extra --licence "$licence" -o "$dir/$kind.onnx"
	mv "$dir/$kind.onnx.jsonl" "$logs/$data-$kind.jsonl"
	mv "$dir/$kind.onnx.svg" "$logs/$data-$kind.svg"
done
