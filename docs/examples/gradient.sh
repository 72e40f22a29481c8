#!/bin/sh
# Somebody's ONNX model, looked at, differentiated and measured. Here it is the extractor of the drawn digits.
set -eu
model=$(dirname "$0")/../../assets/models/digits/extractor.onnx
fmp onnx inspect "$model"
fmp onnx grad "$model" --output features --wrt image -o gradient.onnx
fmp onnx check gradient.onnx
fmp onnx bench "$model" --batch 8
