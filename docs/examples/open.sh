#!/bin/sh
# A model from elsewhere, and classes of which the server has no image: docs/extractors.md explains it.
set -eu
# Stands for the model from elsewhere. It and the server's corpus know the digits 0 to 5 alone.
fmp train patches --dataset digits --classes 0-5 -o extractor.onnx
fmp train open --dataset digits --classes 0-5 --extractor extractor.onnx --steps 60 -o open.onnx
# What clients get: uploads of the classes 6 to 9.
fmp fuse --dataset digits --classes 0-5 --extractor extractor.onnx --set open.model=open.onnx --class-names 6,7,8,9 -o client.onnx
# Stands for the photographs of three shops, and for some that nobody trained on.
for shop in 1 2 3; do
  fmp data synth -o "shop-$shop" --photos --seed "$shop" --train 60 --test 10
done
fmp data synth -o held-out --photos --seed 9 --train 10 --test 400
for known in 0 1 2 3 4 5; do
  rm -r shop-?/train/$known held-out/test/$known
done
# Who has images says once that this network may see them; photographs are read by none that is unknown.
fmp-edge approve client.onnx
for shop in 1 2 3; do
  fmp-edge compress --model client.onnx --client "shop-$shop" -o "shop-$shop.upload" "shop-$shop/train"
done
fmp pool shop-*.upload --client-graph client.onnx --predictor open.onnx -o classifier.onnx
fmp evaluate classifier.onnx held-out/test
fmp-edge predict --model classifier.onnx held-out/test/8
