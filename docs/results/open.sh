#!/bin/sh
# The runs in open scope: tasks on classes that neither extractor nor corpus has seen. docs/results/open.sh RUN makes one of
# them again, in docs/results/open/RUN: cifar100-20, cifar100-10, cifar100-5, cifar10-10, cifar10-40, digits, points-5, cifar100-5-hmc, cifar10-10-hmc, clients-100. The extractor
# learned classes 0 to 39 of CIFAR-100 in 40 minutes on a busy machine:
#   fmp train extractor --dataset cifar100 --classes 0-39 --exclude-classes 40-59 --epochs 20 --mirror -o cifar100-0-39.onnx
#   fmp onnx half cifar100-0-39.onnx -o docs/results/open/cifar100-0-39.onnx
#   fmp train open --dataset cifar100 --classes 0-39 --extractor docs/results/open/cifar100-0-39.onnx -o docs/results/open/cifar100-0-39-open.onnx
set -eu
cd "$(dirname "$0")/../.."
name=${1:?name a run}
models="--extractor docs/results/open/cifar100-0-39.onnx --set open.model=docs/results/open/cifar100-0-39-scale.onnx"
cifar10="--dataset cifar10 --set dataset.classes=0 --set dataset.splits.test=0 --set corpus.dataset=cifar100"
few="--set tuning.tasks=4" # in place of the 16 of assets/configs/open.yaml
case $name in
cifar100-20) args="$models $few" ;;
cifar100-10) args="$models --classes 40-49" ;;
cifar100-5) args="$models --classes 40-44 $few" ;;
cifar10-10) args="$models $cifar10 --points 10" ;;
cifar10-40) args="$models $cifar10 --points 40 $few" ;;
digits) args="--dataset digits --set dataset.classes=0 --set dataset.splits.test=0 --set corpus.dataset=mnist --set corpus.classes=0" ;;
points-5) args="$models --points 5" ;;
cifar100-5-hmc) args="$models --classes 40-44 $few --methods FMP,BNN,CBNN" ;;
cifar10-10-hmc) args="$models $cifar10 --points 10 $few --methods FMP,BNN,CBNN" ;;
# Of 100 clients' own samples, 2,000 fits a task and setting, CFMP's tuning alone would take an hour; MP's likewise a quarter of one.
clients-100) args="$models --clients 100 $few --methods ANN,CANN,FMP,FMP-mean,NCM,LDA,PLDA,Regression,FedCGS,GH-LDA,GH-QDA,Fed3R,FedPFT,PRIOR" ;;
*) echo "no run $name" >&2; exit 2 ;;
esac
# shellcheck disable=SC2086
exec "${FMP:-bin/fmp}" run --config open $args --out "docs/results/open/$name"
