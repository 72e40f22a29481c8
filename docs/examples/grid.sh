#!/bin/sh
# All combinations of some settings. A grid that was stopped goes on where it was when the line is given again.
set -eu
cat > samples.yaml <<'YAML'
settings:
  seeds: 2
  dataset: {test: 500}
  federation: {clients: 5}
  methods: [FMP]
vary:
  posterior.samples: [1, 10]
YAML
fmp grid samples.yaml --out grids/samples
fmp results list grids/samples
fmp results export grids/samples/* -o figures.csv
head -n 3 figures.csv
