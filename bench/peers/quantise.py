"""Quantises a network with onnxruntime's own tool, for BenchmarkNetwork of onnx/integers: quantise.py MODEL.onnx OUT.onnx

The output is a QDQ network: unsigned bytes between operators, signed weights with a scale for each channel, ranges from four images of noise.
"""

import sys
import tempfile

import numpy as np
import onnx
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process


class Noise(CalibrationDataReader):
    """Returns four images of normal noise."""

    def __init__(self, model):
        first = onnx.load(model).graph.input[0]
        shape = [d.dim_value or 1 for d in first.type.tensor_type.shape.dim]
        draw = np.random.default_rng(0)
        self.images = iter([{first.name: draw.standard_normal(shape).astype(np.float32)} for _ in range(4)])

    def get_next(self):
        return next(self.images, None)


if __name__ == "__main__":
    source, out = sys.argv[1:]
    with tempfile.NamedTemporaryFile(suffix=".onnx") as ready:
        quant_pre_process(source, ready.name, skip_symbolic_shape=True)
        quantize_static(ready.name, out, Noise(ready.name), quant_format=QuantFormat.QDQ, per_channel=True,
                        activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8)
