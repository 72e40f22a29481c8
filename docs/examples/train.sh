#!/bin/sh
# A predictor and an embedding trained behind the shipped extractor, far too briefly to be good, then used.
set -eu
fmp train predictor --dataset digits --steps 5 --batch 2 -o predictor.onnx
fmp train embedding --dataset digits --predictor predictor.onnx --steps 5 --batch 2 -o embedding.onnx
fmp onnx inspect embedding.onnx
fmp run --predictor predictor.onnx --embedding embedding.onnx --clients 5 --seeds 1 --samples 5 --dataset.test 500 \
  --methods FMP,PRIOR --out runs/trained
