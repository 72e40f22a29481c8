#!/bin/sh
# From three folders of photographs to a classifier and what it is worth: docs/federation.md explains each line.
set -eu
# The server, once: what every client needs, in one file.
fmp fuse --dataset digits -o client.onnx
# Stands for the photographs of three shops (PNG and JPEG, some lying on their side), and for some that nobody trained on.
for shop in 1 2 3; do
  fmp data synth -o "shop-$shop" --photos --seed "$shop" --train 40 --test 5
done
fmp data synth -o held-out --photos --seed 9 --train 10 --test 300
# At each shop: one upload.
for shop in 1 2 3; do
  fmp-edge compress --model client.onnx --client "shop-$shop" -o "shop-$shop.upload" "shop-$shop/train"
done
# The server: three uploads become one file that predicts.
fmp pool shop-*.upload --client-graph client.onnx -o classifier.onnx
fmp evaluate classifier.onnx held-out/test --report evaluation.html --card card.md
# At the shops again, without the ONNX Runtime.
fmp-edge predict --model classifier.onnx --reject 0.9 shop-1/test
test -s evaluation.html
test -s card.md
