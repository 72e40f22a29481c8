#!/bin/sh
# The runs of uploads of moments behind a pretrained network, without a corpus: docs/results/pretrained.sh RUN makes one of them again (flags go on behind RUN), in
# docs/results/pretrained/RUN: cifar10-10, cifar10-20, cifar10-200, cifar10-1000, cifar10-2900, cifar10-200-clients-50, cifar10-20-alphas, cifar100-20,
# cifar100-20-alphas, cifar10-1000-regression, which has fewer repeats since a softmax regression on 10,000 rows takes minutes, cifar10-20-unknown, which
# does not know kappa, cifar100-190-published, the setting of FedPFT in Flower's baselines (50 clients, alpha = 0.1, all images at hand; without ANN,
# whose fit to 9,500 images with all settings in hindsight takes 25 minutes of processor time), and cifar100-190-homogeneous, the same homogeneous.
# EXTRACTOR is EfficientNet-Lite0 for 128 x 128 pixels, cut at its 1,280 features. Its kappa was learned from classes that no task has:
#   fmp fuse --dataset cifar100 --classes 20-59 --extractor "$EXTRACTOR" --set extractor.mean=0.49804 --set extractor.std=0.50196 --class-names a,b -o client.onnx
# cifar10-fedcgs and cifar100-fedcgs are the clients and alpha of FedCGS's own script (30 clients, alpha = 0.1, all images at hand, 60 classes of CIFAR-100,
# whose kappa is not known), in docs/results/published. cifar10-fedcgs-0.05 and cifar10-fedcgs-0.5 have that script's other alphas.
# MEAN and STD are how another EXTRACTOR is fed.
# ONCE=1 makes one repeat on one thread, with homogeneous clients and nothing in hindsight, for the processor seconds of each method, in docs/results/seconds.
set -eu
cd "$(dirname "$0")/../.."
name=${1:?name a run}
shift
case $name in
cifar10-*) data=cifar10 points=${name#cifar10-} ;;
cifar100-*) data=cifar100 points=${name#cifar100-} ;;
*) echo "no run $name" >&2; exit 2 ;;
esac
classes="" kappa="--kappa 0.73,0.1" alpha=0.1 partition=both clients=10 methods=FMP,ANN,CANN,FedCGS,Fed3R seeds=10 hindsight=true
case $name in
*-unknown) kappa="" points=${points%-unknown} methods=FMP ;;
cifar10-200) methods=FMP,ANN,FedCGS ;;
cifar10-1000) methods=FMP,FedCGS ;;
cifar10-2900) methods=FMP,FedCGS seeds=2 ;;
cifar10-1000-regression) points=1000 methods=FMP,ANN seeds=3 ;;
cifar100-190-published) points=190 clients=50 methods=FMP,FedPFT,FedCGS,Fed3R seeds=3 partition=dirichlet ;;
cifar10-fedcgs | cifar10-fedcgs-0.*) points=980 clients=30 methods=FMP,FedCGS,GH-LDA,GH-QDA,Fed3R seeds=1 partition=dirichlet hindsight=false ;;
cifar100-fedcgs) points=980 clients=30 methods=FMP,FedCGS,Fed3R seeds=1 partition=dirichlet hindsight=false classes=0-59 kappa="" ;;
cifar100-190-homogeneous) points=190 clients=50 methods=FMP,FedPFT,FedCGS,Fed3R seeds=3 partition=homogeneous ;;
cifar10-200-clients-50) points=200 clients=50 methods=FMP,FedCGS ;;
cifar10-20-alphas | cifar100-20-alphas) points=20 alpha=0.05,0.5 ;;
esac
[ "$name" = "${name#*-fedcgs-}" ] || alpha=${name##*-}
[ "$partition" = homogeneous ] || partition="$partition --alpha $alpha"
out=docs/results/pretrained/$name
[ "$name" = "${name%-fedcgs*}" ] || out=docs/results/published/$name
if [ -n "${ONCE:-}" ]; then
  partition=homogeneous out=docs/results/seconds/$name hindsight=false seeds=1 THREADS=1
fi
# shellcheck disable=SC2086
exec "${FMP:-bin/fmp}" run --dataset $data ${classes:+--classes $classes} --extractor "${EXTRACTOR:?the ONNX file of EfficientNet-Lite0}" --extractor.mean "${MEAN:-0.49804}" --extractor.std "${STD:-0.50196}" \
  --set dataset.splits.extractor=0.02 --set dataset.splits.corpus=0 --set dataset.splits.clients=0.98 --dataset.test 2000 --points "$points" \
  --partition $partition --clients "$clients" --methods $methods $kappa --set protocol=calibrated --set scores.hindsight=$hindsight --set scores.coverage=false --seeds "$seeds" \
  --set engine.threads="${THREADS:-2}" --set extractor.batch=32 --out "$out" "$@"
