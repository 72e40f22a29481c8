"""Writes the gradients that PyTorch's autograd gives for two models that PyTorch exported.

Development only: python torch_parity.py, with torch and onnx installed, writes cnn.onnx and attention.onnx, the models as
exported, and cnn_values.onnx and attention_values.onnx, which hold inputs, cotangents and gradients as initializers.
"""

import io
import os

import numpy as np
import onnx
import torch
from onnx import helper, numpy_helper

HERE = os.path.dirname(os.path.abspath(__file__))


class CNN(torch.nn.Module):
    def __init__(self):
        super().__init__()
        n = torch.nn
        self.body = n.Sequential(
            n.Conv2d(3, 6, 3, padding=1), n.BatchNorm2d(6), n.ReLU(), n.MaxPool2d(2),
            n.Conv2d(6, 8, 3, stride=2, padding=1, groups=2), n.BatchNorm2d(8), n.GELU(), n.AvgPool2d(2))
        self.skip = n.Conv2d(3, 8, 1, stride=8)
        self.head = n.Linear(8, 5)

    def forward(self, image):
        h = self.body(image)
        h = torch.nn.functional.hardswish(h + self.skip(image))
        return torch.log_softmax(self.head(h.mean((2, 3))), 1)


class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.attend = torch.nn.MultiheadAttention(8, 2, batch_first=True)
        self.norm = torch.nn.LayerNorm(8)
        self.feed = torch.nn.Linear(8, 8)

    def forward(self, query, context):
        h = self.norm(query + self.attend(query, context, context, need_weights=False)[0])
        return self.norm(h + torch.relu(self.feed(h)))


def write(name, model, inputs, dynamic, opset):
    torch.manual_seed(1)
    for p in model.parameters():
        # No two alike: the exporter would make one initializer of them.
        p.data.add_(0.1 * torch.randn_like(p))
    for m in model.modules():
        if isinstance(m, torch.nn.BatchNorm2d):
            m.running_mean.normal_(0, 0.3)
            m.running_var.uniform_(0.5, 2)
            m.weight.data.uniform_(0.5, 2)
            m.bias.data.normal_()
    model.eval()
    args = tuple(inputs.values())
    buffer = io.BytesIO()
    # Weights stay as they are named, so that gradients can be asked for by name.
    torch.onnx.export(model, args, buffer, input_names=list(inputs), output_names=["y"], dynamic_axes=dynamic, opset_version=opset,
                      do_constant_folding=False, training=torch.onnx.TrainingMode.PRESERVE, dynamo=False)
    with open(os.path.join(HERE, name + ".onnx"), "wb") as f:
        f.write(buffer.getvalue())
    exported = {t.name for t in onnx.load_from_string(buffer.getvalue()).graph.initializer}
    for v in args:
        v.requires_grad_()
    y = model(*args)
    cotangent = torch.randn_like(y)
    y.backward(cotangent)
    values = {"grad_y": cotangent, "y": y}
    for k, v in inputs.items():
        values[k], values["grad_" + k] = v, v.grad
    for k, p in model.named_parameters():
        if k in exported:
            values["grad_" + k] = p.grad
    tensors = [numpy_helper.from_array(v.detach().numpy().astype(np.float32), k) for k, v in sorted(values.items())]
    graph = helper.make_graph([], name + " values", [], [], tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), os.path.join(HERE, name + "_values.onnx"))
    print(name, sorted(values))


if __name__ == "__main__":
    torch.manual_seed(0)
    write("cnn", CNN(), {"image": torch.randn(2, 3, 16, 16)}, {"image": {0: "batch"}}, 11)
    write("attention", Attention(), {"query": torch.randn(2, 3, 8), "context": torch.randn(2, 5, 8)},
          {"query": {0: "batch", 1: "n"}, "context": {0: "batch", 1: "m"}}, 14)
