# Classifies photographs of a camera that no client has: pip install onnxruntime pillow numpy
# python adapt.py classifier.onnx folder photo.png ...   folder: photographs of that camera, of one size, without labels
import json, pathlib, sys
import numpy, onnxruntime
from PIL import Image, ImageOps

session = onnxruntime.InferenceSession(sys.argv[1])
mode = "L" if session.get_inputs()[0].shape[3] == 1 else "RGB"

def read(name):
    photo = Image.open(name)
    negative = getattr(photo, "tag_v2", {}).get(262) == 0  # a TIFF whose 0 is white
    photo = ImageOps.exif_transpose(photo)
    if photo.mode.startswith("I"):  # grey of 16 bits, of which Pillow makes white
        grey16 = numpy.asarray(photo) >> 8
        photo = Image.fromarray((255 - grey16 if negative else grey16).astype("uint8"))
    photo = photo.convert("RGBA")
    photo = Image.alpha_composite(Image.new("RGBA", photo.size, "white"), photo).convert(mode)
    return numpy.atleast_3d(numpy.asarray(photo))[None]

camera = numpy.concatenate([read(name) for name in sorted(pathlib.Path(sys.argv[2]).iterdir())])
(shift,) = session.run(["estimated_shift"], {"images": camera})
for name in sys.argv[3:]:
    (probabilities,) = session.run(["probabilities"], {"images": read(name), "shift": shift})
    print(json.dumps({"file": name, "probabilities": probabilities[0].tolist()}))
