#!/bin/sh
# One posterior on the rows of docs/results/gates.yaml: docs/results/one.sh ROW makes one of them again, in docs/results/one/ROW. ROW is closed-mnist, closed-cifar10,
# closed-cifar100, moments-RUN of a run of docs/results/pretrained.sh (for EXTRACTOR), or a run of docs/results/open.sh. Tasks are those of docs/results/closed,
# pretrained and open, repeat by repeat; nothing is trained or tuned, and no kappa is known. families-FAMILY-SEED is a family of digits of docs/results/families.sh, whose
# models are in MODELS for seeds other than 1, where today's form and rivals run beside it, and families-pretrained-SPLIT one behind EXTRACTOR.
set -eu
cd "$(dirname "$0")/../.."
row=${1:?name a row}
models="--extractor docs/results/open/cifar100-0-39.onnx --set open.model=docs/results/open/cifar100-0-39-scale.onnx"
cifar10="--dataset cifar10 --set dataset.classes=0 --set dataset.splits.test=0 --set corpus.dataset=cifar100"
case $row in
closed-*) args="--config closed --dataset ${row#closed-}" ;;
cifar100-20) args="--config open $models" ;;
cifar100-10) args="--config open $models --classes 40-49" ;;
cifar100-5) args="--config open $models --classes 40-44" ;;
cifar10-10) args="--config open $models $cifar10 --points 10" ;;
cifar10-40) args="--config open $models $cifar10 --points 40" ;;
digits) args="--config open --dataset digits --set dataset.classes=0 --set dataset.splits.test=0 --set corpus.dataset=mnist --set corpus.classes=0" ;;
points-5) args="--config open $models --points 5" ;;
clients-100) args="--config open $models --clients 100" ;;
moments-*)
  dataset=${row#moments-}
  args="--dataset ${dataset%-*} --extractor ${EXTRACTOR:?the ONNX file of EfficientNet-Lite0} --set extractor.mean=0.49804 --set extractor.std=0.50196 --points ${dataset##*-}
    --set dataset.splits.extractor=0.02 --set dataset.splits.corpus=0 --set dataset.splits.clients=0.98 --dataset.test 2000 --partition both --alpha 0.1 --clients 10
    --set scores.coverage=false --seeds 10 --set extractor.batch=32" protocol=calibrated ;;
unknown-*) # unknown-DATA-CLASSES-POINTS: no calibration points, four clients; ten of 20 images. Seed 11: of no other run. FMP has the discriminant
  # with the kappa of an extractor of which nothing is known (0.85, deviation 0.25)
  points=${row##*-} rest=${row%-*} data=${row#unknown-} data=${data%-*-*} methods=FMP,FMP-one clients=4
  if test "$points" = 20; then clients=10; fi
  args="--dataset $data --classes ${rest##*-} --extractor ${EXTRACTOR:?the ONNX file of EfficientNet-Lite0} --set extractor.mean=0.49804 --set extractor.std=0.50196 --points $points
    --set dataset.splits.extractor=0.02 --set dataset.splits.corpus=0 --set dataset.splits.clients=0.98 --dataset.test 2000 --partition both --alpha 0.1 --clients $clients
    --set federation.calibration=0 --set extractor.kappa=0.85,0.25 --set scores.coverage=false --seeds 10 --seed 11 --set extractor.batch=32" ;;
many-*) # many-DATA-CLIENTS-POINTS: all test images, no calibration points, five repeats. Seed 51: of no other run
  points=${row##*-} rest=${row%-*} data=${row#many-} data=${data%-*-*}
  args="--dataset $data --classes 0-9 --extractor ${EXTRACTOR:?the ONNX file of EfficientNet-Lite0} --set extractor.mean=0.49804 --set extractor.std=0.50196 --points $points
    --set dataset.splits.extractor=0.02 --set dataset.splits.corpus=0 --set dataset.splits.clients=0.98 --dataset.test 0 --partition both --alpha 0.3 --clients ${rest##*-}
    --set federation.calibration=0 --set scores.coverage=false --seeds 5 --seed 51 --set extractor.batch=32" ;;
corpora-*) # corpora-DATA-KIND-POINTS, or the same clients without the corpus (-without): no calibration points, ten clients, all test images, five repeats. Seed 61: of
  # no other run. A corpus is like (other images of the classes), other (20 to 59 of CIFAR-100) or unlike (MNIST); few and fewother
  # (150 images) and some and someother (600) have seed 71
  run=${row%-without} points=${run##*-} rest=${row#corpora-} data=${rest%%-*} kind=${run%-*} kind=${kind##*-} classes=0-9
  if test "$data" = cifar100; then classes=0-19; fi
  case $kind in
  like) parts="0.02 0.08 0.9" of= ;;
  other) parts="0.02 0.12 0.5" of="--set corpus.dataset=cifar100 --set corpus.classes=20-59" ;;
  unlike) parts="0.02 0.08 0.5" of="--set corpus.dataset=mnist --set corpus.classes=0-9" ;;
  few | some)
    of='' seed=71
    case $data-$kind in
    cifar10-few) parts="0.095 0.005 0.9" ;;
    cifar100-few) parts="0.085 0.015 0.9" ;;
    *) parts="0.08 0.02 0.9" ;;
    esac ;;
  fewother) parts="0.02 0.03 0.5" of="--set corpus.dataset=cifar100 --set corpus.classes=20-29" seed=71 ;; # of 20 to 59, 150 images leave classes without one
  someother) parts="0.02 0.03 0.5" of="--set corpus.dataset=cifar100 --set corpus.classes=20-59" seed=71 ;;
  *) echo "no row $row" >&2; exit 2 ;;
  esac
  # shellcheck disable=SC2086
  set -- $parts
  if test "$row" != "$run"; then case $kind in like | few | some) set -- 0.1 0 0.9 ;; *) set -- 0.02 0 0.5 ;; esac; fi
  args="--dataset $data --classes $classes --extractor ${EXTRACTOR:?the ONNX file of EfficientNet-Lite0} --set extractor.mean=0.49804 --set extractor.std=0.50196 --points $points
    --set dataset.splits.extractor=$1 --set dataset.splits.corpus=$2 --set dataset.splits.clients=$3 $of --set conjugate.model=none --set open.model=none --dataset.test 0
    --partition both --alpha 0.3 --clients 10 --set federation.calibration=0 --set scores.coverage=false --seeds 5 --seed ${seed:-61} --set extractor.batch=32" ;;
families-pretrained-*)
  classes() { awk -v s="split: ${row##*-}" -v k="$1:" '$0 ~ s"$" {on=1} on && $1==k {gsub(/.*\[|\]| /, ""); print; exit}' docs/results/families.yaml; }
  args="--config open --dataset cifar100 --classes $(classes tasks) --set corpus.classes=$(classes extractor) --extractor ${EXTRACTOR:?the ONNX file of EfficientNet-Lite0}
    --set extractor.mean=0.49804 --set extractor.std=0.50196 --set extractor.batch=32 --set open.model=untrained --points 5" ;;
families-*)
  family=${row#families-} seed=${row##*-} corpus=mnist
  case $family in
  digits-mnist-*) tasks=mnist corpus=digits ;;
  digits-drawn-*) tasks=digits ;;
  digits-8x8-*) tasks=digits8x8 ;;
  *) echo "no row $row" >&2; exit 2 ;;
  esac
  args="--config open --dataset $tasks --set dataset.classes=0 --set dataset.splits.test=0 --set corpus.dataset=$corpus --set corpus.classes=0 --points 5"
  if test "$seed" = 1; then args="$args --set open.model=untrained"; else
    model=${MODELS:-build/families}/$corpus-$seed protocol=tuned methods=FMP,FMP-one,LDA,PLDA,Fed3R,NCM
    args="$args --extractor $model.onnx --set open.model=$model-open.onnx"
  fi ;;
*) echo "no row $row" >&2; exit 2 ;;
esac
# shellcheck disable=SC2086
exec "${FMP:-bin/fmp}" run $args --protocol "${protocol:-shared}" --methods "${methods:-FMP-one}" --set scores.hindsight=true --set engine.threads="${THREADS:-2}" --out "docs/results/one/$row"
