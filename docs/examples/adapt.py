# Classifies photographs of a camera that no client has: pip install onnxruntime pillow numpy
# python adapt.py classifier.onnx folder photo.png ...   folder: photographs of that camera, of one size, without labels
import json, pathlib, sys
import numpy, onnxruntime
from PIL import Image

session = onnxruntime.InferenceSession(sys.argv[1])
mode = "L" if session.get_inputs()[0].shape[3] == 1 else "RGB"
read = lambda name: numpy.atleast_3d(numpy.asarray(Image.open(name).convert(mode)))[None]
camera = numpy.concatenate([read(name) for name in sorted(pathlib.Path(sys.argv[2]).iterdir())])
(shift,) = session.run(["estimated_shift"], {"images": camera})
for name in sys.argv[3:]:
    (probabilities,) = session.run(["probabilities"], {"images": read(name), "shift": shift})
    print(json.dumps({"file": name, "probabilities": probabilities[0].tolist()}))
