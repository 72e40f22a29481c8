#!/bin/sh
# A whole round: three clients turn labelled images into uploads with the program for small machines, and the server
# turns the uploads into samples of the posterior.
set -eu
fmp fuse --dataset digits -o client.onnx
for shop in 1 2 3; do
  # Stands for a client's own images: a folder with one folder of PNG or JPEG files a class does as well.
  fmp data synth -o "shop-$shop" --seed "$shop" --train 40 --test 10
  fmp-edge compress --model client.onnx --client "shop-$shop" -o "shop-$shop.upload" \
    "shop-$shop/train-images-idx3-ubyte" --labels "shop-$shop/train-labels-idx1-ubyte"
done
fmp-edge inspect shop-1.upload --model client.onnx
fmp pool shop-*.upload --client-graph client.onnx -o posterior.npy
