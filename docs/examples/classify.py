# Classifies photographs with a classifier of fmp pool: pip install onnxruntime pillow numpy
# python classify.py classifier.onnx photo.jpg ...
import json, sys
import numpy, onnxruntime
from PIL import Image, ImageOps

session = onnxruntime.InferenceSession(sys.argv[1])
grey = session.get_inputs()[0].shape[3] == 1
for name in sys.argv[2:]:
    photo = Image.open(name)
    negative = getattr(photo, "tag_v2", {}).get(262) == 0  # a TIFF whose 0 is white
    photo = ImageOps.exif_transpose(photo)
    if photo.mode.startswith("I"):  # grey of 16 bits, of which Pillow makes white
        grey16 = numpy.asarray(photo) >> 8
        photo = Image.fromarray((255 - grey16 if negative else grey16).astype("uint8"))
    photo = photo.convert("RGBA")
    photo = Image.alpha_composite(Image.new("RGBA", photo.size, "white"), photo).convert("L" if grey else "RGB")
    pixels = numpy.asarray(photo).reshape(1, photo.height, photo.width, -1)
    (probabilities,) = session.run(["probabilities"], {"images": pixels})
    print(json.dumps({"file": name, "probabilities": probabilities[0].tolist()}))
