"""Runs models where our users do: ONNX's own checker and onnxruntime's Python package.

usage: other_runtimes.py DIR

For every DIR/NAME.onnx: checks it, feeds DIR/NAME.in/*.npy and writes DIR/NAME.python/OUTPUT.npy. Ends with code 3
where onnx, onnxruntime or numpy is not installed. For development only; the tests call it.
"""

import pathlib
import sys

try:
    import numpy
    import onnx
    import onnxruntime
except ImportError as missing:
    print(missing)
    sys.exit(3)

folder = pathlib.Path(sys.argv[1])
for path in sorted(folder.glob("*.onnx")):
    onnx.checker.check_model(str(path), full_check=True)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    feeds = {f.stem: numpy.load(f) for f in (folder / (path.stem + ".in")).glob("*.npy")}
    out = folder / (path.stem + ".python")
    out.mkdir()
    for meta, value in zip(session.get_outputs(), session.run(None, feeds)):
        numpy.save(out / (meta.name + ".npy"), value)
