#!/bin/sh
# Rounds with bad clients, lost clients, narrow types and membership: docs/results/federation.sh RUN makes one again, in
# docs/results/federation/RUN.json: cifar10-0, cifar10-0.1, cifar10-100, mnist-0, mnist-0.1, open-0, open-0.1. The first part of a name is
# the data set (open: 20 classes of CIFAR-100 that neither extractor nor corpus has seen), the second alpha, or the number of clients.
set -eu
cd "$(dirname "$0")/../.."
name=${1:?name a run}
case $name in
cifar10-100) args="--closed-form --dataset cifar10 --clients 100 --bad 20 --seeds 2" ;;
cifar10-*) args="--closed-form --dataset cifar10 --alpha ${name#*-} --seeds 5" ;;
mnist-*) args="--closed-form --dataset mnist --alpha ${name#*-} --seeds 5" ;;
open-*) args="--dataset cifar100 --set dataset.classes=40-59 --set dataset.splits.test=0.4 --set corpus.classes=0-39 --points 20 --alpha ${name#*-} --seeds 5
	--extractor docs/results/open/cifar100-0-39.onnx --set open.model=docs/results/open/cifar100-0-39-open.onnx" ;;
*) echo "no run $name" >&2; exit 2 ;;
esac
# shellcheck disable=SC2086
"${FMP:-bin/fmp}" bench round $args --json > "docs/results/federation/$name.json.tmp"
mv "docs/results/federation/$name.json.tmp" "docs/results/federation/$name.json"
