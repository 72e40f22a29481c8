"""Writes the operator tests of the Python package onnx as folders: model.onnx, test_data_set_K/input_I.pb and output_I.pb.

usage: collect.py FOLDER

Run by `make testdata`. The package makes its tests of single operators (node) and of small models (simple) from NumPy; pytorch-converted and
pytorch-operator lie in it and are copied. FOLDER appears whole or not at all.
"""

import pathlib
import shutil
import sys

import numpy
import onnx
from onnx import TensorProto, numpy_helper
from onnx.backend.test import cmd_tools
from onnx.backend.test.case import model, node


def proto(value, info):
    """The value of an input or output as the message that its declared type asks for."""
    if isinstance(value, TensorProto):
        return value
    kind = info.type.WhichOneof("value")
    write = {"map_type": numpy_helper.from_dict, "sequence_type": numpy_helper.from_list, "optional_type": numpy_helper.from_optional}.get(kind)
    return write(value, info.name) if write else numpy_helper.from_array(numpy.asarray(value), info.name)


def write(folder, case):
    folder.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(case.model.SerializeToString())
    graph = case.model.graph
    for k, (inputs, outputs) in enumerate(case.data_sets):
        data = folder / ("test_data_set_%d" % k)
        data.mkdir()
        for word, values, infos in (("input", inputs, graph.input), ("output", outputs, graph.output)):
            for i, (value, info) in enumerate(zip(values, infos)):
                (data / ("%s_%d.pb" % (word, i))).write_bytes(proto(value, info).SerializeToString())


def main(out):
    work = out.with_name(out.name + ".part")
    shutil.rmtree(work, ignore_errors=True)
    for case in node.collect_testcases() + model.collect_testcases():
        if case.kind != "real":
            write(work / case.kind / case.name, case)
    for kind in ("pytorch-converted", "pytorch-operator"):
        shutil.copytree(pathlib.Path(cmd_tools.DATA_DIR) / kind, work / kind)
    shutil.rmtree(out, ignore_errors=True)
    work.rename(out)
    print("%d tests of onnx %s in %s" % (len(list(out.rglob("model.onnx"))), onnx.__version__, out))


main(pathlib.Path(sys.argv[1]))
