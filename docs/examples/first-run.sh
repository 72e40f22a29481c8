#!/bin/sh
# The table of four methods on the embedded digits, small: 5 clients of 10 images, two repeats.
set -eu
fmp run --clients 5 --points 10 --seeds 2 --samples 5 --dataset.test 500 --methods ANN,CANN,FMP,PRIOR --out runs/first
# The figures as a program reads them.
head -n 1 runs/first/results.csv
fmp results show runs/first
