"""Logistic regression on all clients' rows: python3 logistic.py SPLITS PREDICTIONS.npz (needs scikit-learn)."""
import json
import sys

import numpy as np
from sklearn.linear_model import LogisticRegression

splits, out = sys.argv[1:]
test = np.load(f"{splits}/test.npz")["features"]
predictions = {}
for task in json.load(open(f"{splits}/manifest.json"))["tasks"]:
    rows = np.load(f"{splits}/{task['file']}")
    fit = LogisticRegression(C=0.1, max_iter=1000).fit(rows["features"], rows["labels"])
    predictions[task["name"]] = fit.predict_proba(test)
np.savez(out, **predictions)
