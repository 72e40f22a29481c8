"""The nearest class mean on the splits of a run, as fmp's NCM computes it: python3 ncm.py SPLITS PREDICTIONS.npz (needs numpy)."""
import json
import sys

import numpy as np

splits, out = sys.argv[1:]
manifest = json.load(open(f"{splits}/manifest.json"))
classes = len(manifest["classes"])
corpus = np.load(f"{splits}/corpus.npz")
test = np.load(f"{splits}/test.npz")["features"].astype(float)


def means(x, y, classes):
    """Means of the classes; a class without rows has the mean of all."""
    return np.stack([x[y == c].mean(0) if (y == c).any() else x.mean(0) for c in range(classes)])


# s^2 is the mean variance of a feature within the corpus's classes, whose means cost as many degrees of freedom.
h, y = corpus["features"].astype(float), corpus["labels"]
variance = ((h - means(h, y, y.max() + 1)[y]) ** 2).sum() / (len(h) - y.max() - 1) / h.shape[1]

predictions = {}
for task in manifest["tasks"]:
    rows = np.load(f"{splits}/{task['file']}")
    mu = means(rows["features"].astype(float), rows["labels"], classes)
    # Classes without rows have the same mean and must tie, which those of a matrix product need not.
    logit = np.stack([-((test - m) ** 2).sum(1) / 2 for m in mu], 1) / variance
    p = np.exp(logit - logit.max(1, keepdims=True))
    predictions[task["name"]] = p / p.sum(1, keepdims=True)
# fmp score checks that the rows are those of its own test.npz.
predictions["test_sha256"] = np.frombuffer(bytes.fromhex(manifest["digests"]["test.npz"]), np.uint8)
np.savez(out, **predictions)
