"""Differentiates models by onnx-ad (pip install onnx-ad==0.3.0), for foreign_test.go.

foreign.py FOLDER reads lines "NUMBER MODEL" and writes FOLDER/NUMBER.adj.onnx and FOLDER/NUMBER.fwd.onnx, where it can.
"""
import sys

import onnx
import onnx_ad

for line in sys.stdin:
    number, path = line.rstrip("\n").split(" ", 1)
    for name, derive in ("adj", onnx_ad.reverse), ("fwd", onnx_ad.forward):
        try:
            model = derive(onnx.load(path), layout="onnx")
            onnx.save(model, f"{sys.argv[1]}/{number}.{name}.onnx")
        except Exception as refused:  # its own ways of saying that it has no rule
            print(path, name, type(refused).__name__, file=sys.stderr)
