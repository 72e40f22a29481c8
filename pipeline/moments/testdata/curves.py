"""Writes curves.json: curves of random rows, by the reference.

    python3 curves.py PATH/TO/one_posterior.py > curves.json

For development only. No image's log-likelihood lies below -32 nats, at which the program stops.
"""
import importlib.util
import json
import sys

import numpy as np

spec = importlib.util.spec_from_file_location('one_posterior', sys.argv[1])
ref = importlib.util.module_from_spec(spec)
spec.loader.exec_module(ref)

cases = []
for n, d, C, seed in ((14, 12, 4, 1), (18, 30, 5, 2), (16, 3, 3, 3)):
    g = np.random.default_rng(seed)
    y = g.integers(0, C, n)
    x = (g.normal(size=(C, d))[y] * .6 + g.normal(size=(n, d)) * np.geomspace(.3, 2, d)).astype(np.float32).astype(float)
    own, _ = ref.own_curves(x, y, C, 0)
    cases.append(dict(k=d, c=C, rows=x.ravel().tolist(), labels=y.tolist(), own=own.tolist()))
json.dump(cases, sys.stdout)
