#!/bin/sh
# Intervals of rounds of moments beside a softmax regression on all rows: docs/results/moments.sh ROW makes docs/results/intervals/moments-ROW. ROW is
# DATA-CLASSES-POINTS, behind EfficientNet-Lite0 (EXTRACTOR) with its kappa, or DATA-CLASSES-POINTS-unknown without. small-CLASSES-POINTS-unknown is CIFAR-10 behind a network of 64
# features (SMALL). Seed 81: of no other run.
set -eu
cd "$(dirname "$0")/../.."
row=${1:?name a row}
kappa="--kappa 0.73,0.1" rest=${row%-unknown}
if test "$rest" != "$row"; then kappa=""; fi
points=${rest##*-} of=${rest%-*} data=${rest%%-*}
case $data in
small) data=cifar10 at="--extractor ${SMALL:?the ONNX file of a network of 64 features} --set extractor.mean=0.4914,0.4822,0.4465 --set extractor.std=0.2470,0.2435,0.2616 --set dataset.splits.extractor=0.5 --set dataset.splits.clients=0.3" ;;
*) at="--extractor ${EXTRACTOR:?the ONNX file of EfficientNet-Lite0} --set extractor.mean=0.49804 --set extractor.std=0.50196 --set extractor.batch=32 --set dataset.splits.extractor=0.02" ;;
esac
case $row in
small-*) ;;
cifar10-*) at="$at --set dataset.splits.clients=0.3" ;;
mnist-*) at="$at --set dataset.splits.clients=0.15" ;;
*) at="$at --set dataset.splits.clients=0.98" ;;
esac
# shellcheck disable=SC2086
exec "${FMP:-bin/fmp}" run --dataset "$data" --classes "0-$((${of##*-} - 1))" $at --set dataset.splits.corpus=0 --dataset.test 2000 --points "$points" --partition both --alpha 0.1 \
  --clients 10 $kappa --set conjugate.model=none --set open.model=none --set federation.calibration=0 --methods FMP --protocol shared --seeds 3 --seed 81 --set engine.threads="${THREADS:-2}" --out "docs/results/intervals/moments-$row"
