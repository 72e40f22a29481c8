#!/bin/sh
# The commands of fmp 0.1.0 that made the files beside, in this folder. They are kept as that version wrote them: make none of them anew.
set -e
fmp fuse --dataset digits -o client.onnx
fmp fuse --dataset digits --upload private -o private.onnx
for i in 1 2; do
  fmp data synth -o shop-$i --photos --train 60 --test 20 --seed $i
  fmp-edge compress --model client.onnx --client shop-$i -o shop-$i.upload shop-$i/train
done
fmp pool shop-1.upload shop-2.upload --client-graph client.onnx -o classifier.onnx --posterior.samples 4
fmp merge shop-1.upload shop-2.upload -o all.part
fmp-edge compress --model private.onnx --client shop-1 --epsilon 4 --ledger ledger -o private.upload --round 7 --reply-after 0 shop-1/train
fmp sign --new-key key
fmp sign classifier.onnx --key key
fmp run --methods NCM,FMP --seeds 1 --dataset.test 200 --out run
cp shop-1/test/0/0010.jpg image.jpg
