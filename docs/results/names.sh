#!/bin/sh
# Rounds of some of the corpus's classes, the gate names of docs/results/gates.yaml: docs/results/names.sh ROW makes one of its rows again, in docs/results/one/names-ROW.
# FMP-one reads the corpus's images of the round's classes; FMP is the open form, which takes them for classes that the corpus lacks.
set -eu
cd "$(dirname "$0")/../.."
row=${1:?name a row}
case $row in
cifar10-2) classes=3,5 ;; # cats and dogs
cifar10-5) classes=0,3,5,8,9 ;;
mnist-5 | digits-5) classes=0-4 ;;
cifar100-5) classes=0-4 points=30 ;; # the data have 312 images of them for clients
*) echo "no row $row" >&2; exit 2 ;;
esac
exec "${FMP:-bin/fmp}" run --config closed --dataset "${row%-*}" --classes "$classes" --set posterior.scope=open ${points:+--points "$points"} --protocol shared --methods FMP,FMP-one --seed 301 \
  --set scores.hindsight=true --set engine.threads="${THREADS:-2}" --out "docs/results/one/names-$row"
