#!/bin/sh
# Clients who each hold few classes (Dirichlet 0.1): FMP beside averaging, on the same tasks, with the paired
# difference and its interval.
set -eu
fmp run --partition dirichlet --alpha 0.1 --clients 5 --points 20 --seeds 3 --samples 5 --dataset.test 500 \
  --methods CANN,FMP --out runs/skewed
fmp results compare runs/skewed --method FMP
