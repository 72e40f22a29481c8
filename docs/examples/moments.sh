#!/bin/sh
# A pretrained network, three sites and no image at the server: docs/extractors.md explains it.
set -eu
# A file of your own in EXTRACTOR; else one that stands for it, which knows the digits 0 to 5 alone.
EXTRACTOR=${EXTRACTOR:-extractor.onnx}
test -f "$EXTRACTOR" || fmp train patches --dataset digits --classes 0-5 -o "$EXTRACTOR"
# The server, once: no data set, no training.
fmp fuse --extractor "$EXTRACTOR" --class-names 6,7,8,9 -o client.onnx
# Stands for the photographs of three sites, and for some that nobody trained on.
for site in 1 2 3; do
  fmp data synth -o "site-$site" --photos --seed "$site" --train 150 --test 5
done
fmp data synth -o held-out --photos --seed 9 --train 10 --test 200
for other in 0 1 2 3 4 5; do
  rm -r site-?/train/$other held-out/test/$other
done
# Who has images says once that this network may see them; photographs are read by none that is unknown.
fmp-edge approve client.onnx
for site in 1 2 3; do
  fmp-edge compress --model client.onnx --client "site-$site" -o "site-$site.upload" "site-$site/train"
done
fmp pool site-*.upload --client-graph client.onnx -o classifier.onnx
fmp evaluate classifier.onnx held-out/test
fmp-edge predict --model classifier.onnx held-out/test/8
