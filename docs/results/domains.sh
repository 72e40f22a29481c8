#!/bin/sh
# Clients as domains: docs/results/domains.sh FAMILY DATA POINTS ALPHA makes one run of families.yaml again, in docs/results/domains.
set -eu
cd "$(dirname "$0")/../.."
family=${1:?name the domains} data=${2:?name a data set} points=${3:?how many images a client} alpha=${4:?alpha, 0 for homogeneous}
out=docs/results/domains/$family-$data-$alpha.json
${FMP:-bin/fmp} bench domains --domains "$family" --dataset "$data" --points "$points" --alpha "$alpha" --seeds 3 --seed 7 --json >"$out.part"
mv "$out.part" "$out"
