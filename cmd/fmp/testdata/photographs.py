"""Photographs through other runtimes, for TestPhotographsAgree: decode FOLDER writes the pixels of each file beside it, onnxruntime FOLDER
MODEL and tritonclient FOLDER ADDRESS write the probabilities. Exits with 3 where a package is missing."""

import json
import pathlib
import sys

try:
    import numpy as np

    if sys.argv[1] == "decode":
        from PIL import Image, ImageOps
    elif sys.argv[1] == "onnxruntime":
        import onnxruntime
    else:
        import tritonclient.http as triton
except ImportError as e:
    print(f"needs the Python packages numpy, pillow, onnxruntime and tritonclient[http]: {e}")
    sys.exit(3)

folder = pathlib.Path(sys.argv[2])


def pixels(path):
    return np.load(str(path) + ".npy")


files = sorted(p for p in folder.iterdir() if p.suffix in (".png", ".jpg"))
if sys.argv[1] == "decode":
    for p in files:
        x = np.asarray(ImageOps.exif_transpose(Image.open(p)).convert("RGB"))[None]
        np.save(str(p) + ".npy", x)
        (folder / (p.name + ".shape")).write_text(json.dumps(x.shape))
        (folder / (p.name + ".raw")).write_bytes(x.tobytes())
    sys.exit()
if sys.argv[1] == "onnxruntime":
    session = onnxruntime.InferenceSession(sys.argv[3])
    ask = lambda x: session.run(["probabilities"], {"images": x})[0]
else:
    client = triton.InferenceServerClient(sys.argv[3])

    def ask(x):
        given = triton.InferInput("images", list(x.shape), "UINT8")
        given.set_data_from_numpy(x)
        return client.infer("classifier", [given]).as_numpy("probabilities")


answers = {p.name: ask(pixels(p))[0].tolist() for p in files}
(folder / (sys.argv[1] + ".json")).write_text(json.dumps(answers))
