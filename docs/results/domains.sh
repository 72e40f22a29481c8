#!/bin/sh
# Clients as domains: docs/results/domains.sh FAMILY DATA POINTS ALPHA [lite0] makes one run of families.yaml again, in docs/results/domains. With lite0 clients upload
# moments behind EXTRACTOR, which is EfficientNet-Lite0 for 128 x 128 pixels, cut at its 1,280 features; its kappa is that of pretrained.sh.
# The domains of digits want scikit-learn's in the folder digits8x8 of the data (docs/digits8x8 writes it).
set -eu
cd "$(dirname "$0")/../.."
family=${1:?name the domains} data=${2:?name a data set} points=${3:?how many images a client} alpha=${4:?alpha, 0 for homogeneous}
out=docs/results/domains/$family-$data${5:+-$5}-$alpha.json behind=--closed-form
if [ "${5:-}" = lite0 ]; then
  behind="--extractor ${EXTRACTOR:?the ONNX file of EfficientNet-Lite0} --set extractor.mean=0.49804 --set extractor.std=0.50196 --set extractor.batch=32 --kappa 0.73,0.1
    --set dataset.splits.extractor=0.02 --set dataset.splits.corpus=0 --set dataset.splits.clients=0.98"
fi
# shellcheck disable=SC2086
${FMP:-bin/fmp} bench domains --domains "$family" --dataset "$data" --points "$points" --alpha "$alpha" --seeds 3 --seed 7 $behind --json >"$out.part"
mv "$out.part" "$out"
