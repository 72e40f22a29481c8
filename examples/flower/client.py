"""A client of an fmp round for people whose images live in Python, or in Flower's.

    protoc -I REPOSITORY --include_imports --descriptor_set_out=upload.desc pipeline/federate/uploadpb/upload.proto
    python client.py --graph client.onnx --descriptor upload.desc --client shop-17 --round 1 --images images.npy --labels labels.npy -o shop-17.upload
    fmp-edge send https://server:8443 --key shop-17.key shop-17.upload

It needs numpy, onnxruntime and protobuf. The key stays with fmp-edge, which signs and sends; what is written here is what fmp-edge compress writes.
FMPClient is the same as a client of Flower: its one fit is the one upload, and it trains nothing.
"""
import argparse
import hashlib
import struct
import subprocess

import numpy as np
import onnxruntime
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory


def message(descriptor):
    """The message class Upload of a descriptor set that protoc wrote from upload.proto."""
    pool, files = descriptor_pool.DescriptorPool(), descriptor_pb2.FileDescriptorSet()
    with open(descriptor, "rb") as f:
        files.ParseFromString(f.read())
    for f in files.file:
        pool.Add(f)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("fmp.federate.Upload"))


def tensor(to, array):
    """Writes a float32 array as ONNX's TensorProto."""
    array = np.ascontiguousarray(array, np.float32)
    to.dims.extend(array.shape)
    to.data_type = 1
    to.raw_data = array.astype("<f4").tobytes()


def checksum(u):
    """sha256 of fields 1 to 11, as docs/formats.md has it."""
    h = hashlib.sha256(b"fmp.federate.Upload\n")
    numbers = lambda *v: h.update(struct.pack(f"<{len(v)}Q", *v))
    text = lambda b: (numbers(len(b)), h.update(b))
    numbers(u.format, u.round)
    text(u.client.encode())
    text(u.model)
    numbers(u.n, u.dx, u.classes, u.size)
    for name in ("points", "scale", "masses"):
        if not u.HasField(name):
            numbers(0)
            continue
        t = getattr(u, name)
        numbers(t.data_type, len(t.dims), *t.dims)
        text(t.raw_data)
    return h.digest()


def upload(graph, descriptor, client, round, images, labels):
    """images uint8 [n, H, W, Ch] of the graph's size, labels [n] -> the bytes of an upload."""
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    points, masses = session.run(["points", "masses"], {"images": images, "labels": labels.astype(np.int64)})
    held = masses > 0
    about = session.get_modelmeta().custom_metadata_map
    if about.get("fmp.class_means"):  # class means: of the classes that the client holds, labels exactly of that class
        points, masses = points[held], masses[held]
    classes = int(about["fmp.classes"])
    with open(graph, "rb") as f:
        model = hashlib.sha256(f.read()).digest()
    u = message(descriptor)(format=1, round=round, client=client, model=model, n=len(labels), dx=points.shape[1] - classes, classes=classes, size=len(points))
    tensor(u.points, points)
    tensor(u.masses, masses)
    u.checksum = checksum(u)
    return u.SerializeToString(deterministic=True)


try:
    import flwr.client

    class FMPClient(flwr.client.NumPyClient):
        """One round of Flower is one upload; the strategy gets nothing back but the number of images."""

        def __init__(self, server, key, path, **made_of):
            self.server, self.key, self.path, self.made_of = server, key, path, made_of

        def fit(self, parameters, config):
            with open(self.path, "wb") as f:
                f.write(upload(**self.made_of))
            subprocess.run(["fmp-edge", "send", self.server, "--key", self.key, self.path], check=True)
            return [], len(self.made_of["labels"]), {}
except ImportError:
    pass  # without Flower, upload is all that there is


if __name__ == "__main__":
    p = argparse.ArgumentParser(description="Write an upload")
    for name in ("graph", "descriptor", "client", "images", "labels"):
        p.add_argument("--" + name, required=True)
    p.add_argument("--round", type=int, required=True)
    p.add_argument("-o", "--output", required=True)
    a = p.parse_args()
    data = upload(a.graph, a.descriptor, a.client, a.round, np.load(a.images), np.load(a.labels))
    with open(a.output, "wb") as f:
        f.write(data)
    print(f"upload: {a.output} ({len(data)} bytes)")
