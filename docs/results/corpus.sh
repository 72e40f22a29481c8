#!/bin/sh
# The runs of a corpus beside moments behind a pretrained network: docs/results/corpus.sh RUN makes one of them again, in docs/results/corpus/RUN. RUN is
# TASKS-KIND-POINTS: tasks of cifar10 or cifar100 (20 classes); a corpus of like images (other ones of the same classes) or of other classes (20 to 59 of
# CIFAR-100); images a client of 10, 20, 200 or 1000. TASKS-KIND-POINTS-without has the same clients' images and no corpus.
# EXTRACTOR is the file of docs/results/pretrained.sh, and so is its kappa.
set -eu
cd "$(dirname "$0")/../.."
name=${1:?name a run}
run=${name%-without}
points=${run##*-} kind=${run#*-}
tasks=${name%%-*} kind=${kind%-*} seeds=3
case $kind in
like) # clients' images are the last nine tenths of the file in both
  splits="--set dataset.splits.extractor=0.02 --set dataset.splits.corpus=0.08 --set dataset.splits.clients=0.9"
  [ "$run" = "$name" ] || splits="--set dataset.splits.extractor=0.1 --set dataset.splits.corpus=0 --set dataset.splits.clients=0.9" ;;
other) # all training images of the tasks' classes are clients'; the parts are of the corpus's images
  splits="--set corpus.dataset=cifar100 --set corpus.classes=20-59 --set dataset.splits.extractor=0.02 --set dataset.splits.corpus=0.12"
  [ "$run" = "$name" ] || splits="--set corpus.dataset=cifar100 --set corpus.classes=20-59 --set dataset.splits.extractor=0.02 --set dataset.splits.corpus=0" ;;
*) echo "no run $name" >&2; exit 2 ;;
esac
case $points in 10 | 20) seeds=5 ;; esac
# shellcheck disable=SC2086
exec "${FMP:-bin/fmp}" run --dataset "$tasks" --extractor "${EXTRACTOR:?the ONNX file of EfficientNet-Lite0}" --set extractor.mean=0.49804 --set extractor.std=0.50196 \
  $splits --set conjugate.model=none --set open.model=none --dataset.test 2000 --points "$points" --partition both --alpha 0.1 --clients 10 --methods FMP --kappa 0.73,0.1 \
  --set protocol=calibrated --set scores.hindsight=false --set scores.coverage=false --seeds "$seeds" --set engine.threads="${THREADS:-2}" --set extractor.batch=32 \
  --out docs/results/corpus/"$name"
