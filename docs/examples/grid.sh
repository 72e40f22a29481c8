#!/bin/sh
# All combinations of some settings. A grid that was stopped goes on where it was when the line is given again.
set -eu
grid=$(dirname "$0")/samples.yaml
fmp grid "$grid" --dry-run
fmp grid "$grid" --out grids/samples
fmp results list grids/samples
fmp results export grids/samples/* -o figures.csv
head -n 3 figures.csv
