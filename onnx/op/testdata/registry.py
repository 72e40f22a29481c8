"""Writes the facts about operators that package op reads, from the registries of those who define them.

usage: registry.py > schemas.txt

Run by `go generate ./onnx/op`, by maintainers alone, when a new version of the standard is to be understood. Needs the
Python packages onnx (the standard's own registry) and onnxruntime (for the com.microsoft operators below). The format
is described at the head of what it writes.
"""

import numpy
import onnx
import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as runtime

# Operators of com.microsoft that exporters and quantisers write into files that are passed on.
MICROSOFT = """Attention BiasGelu DynamicQuantizeMatMul EmbedLayerNormalization FastGelu FusedConv FusedGemm FusedMatMul Gelu
GroupQueryAttention Inverse MatMulIntegerToFloat MatMulNBits MultiHeadAttention QGemm QLinearAdd QLinearAveragePool
QLinearConcat QLinearGlobalAveragePool QLinearLeakyRelu QLinearMul QLinearReduceMean QLinearSigmoid QLinearSoftmax
QLinearWhere QuickGelu RotaryEmbedding SkipLayerNormalization SkipSimplifiedLayerNormalization TransposeMatMul""".split()

# The words that string attributes may hold, which the registries tell in prose alone. An attribute is named by its
# operator and version, by its operator, or, where it has the same words everywhere, alone. They are those of all
# versions, which runtimes take in each; a mode of GridSample they take in its own versions only. "" is no word at all.
WORDS = """
Cast.round_mode CastLike.round_mode: up down nearest
CausalConvWithState.activation: none silu swish
BitShift.direction: LEFT RIGHT
DepthToSpace.mode SpaceToDepth.mode: DCR CRD
GRU.direction LSTM.direction RNN.direction: forward reverse bidirectional
Gelu.approximate: none tanh
GridSample16.mode: bilinear nearest bicubic
GridSample.mode: linear nearest cubic
ImageDecoder.pixel_format: RGB BGR Grayscale
LinearAttention.update_rule: linear gated delta gated_delta
NegativeLogLikelihoodLoss.reduction SoftmaxCrossEntropyLoss.reduction: none sum mean
Pad.mode: constant reflect edge wrap
Resize.coordinate_transformation_mode: half_pixel half_pixel_symmetric pytorch_half_pixel align_corners asymmetric \
tf_half_pixel_for_nn tf_crop_and_resize
Resize10.mode Upsample.mode: nearest linear
Resize.mode: nearest linear cubic
RoiAlign.coordinate_transformation_mode: half_pixel output_half_pixel
RoiAlign.mode: avg max
ScatterElements.reduction ScatterND.reduction: none add mul max min
StringNormalizer.case_change_action: NONE LOWER UPPER
TensorScatter.mode: linear circular
TfIdfVectorizer.mode: TF IDF TFIDF
ai.onnx.ml.CastMap.cast_to: TO_FLOAT TO_STRING TO_INT64
ai.onnx.ml.CastMap.map_form: DENSE SPARSE
ai.onnx.ml.Normalizer.norm: MAX L1 L2
aggregate_function: AVERAGE SUM MIN MAX
auto_pad: "" NOTSET SAME_UPPER SAME_LOWER VALID
keep_aspect_ratio_policy: stretch not_larger not_smaller
kernel_type: LINEAR POLY RBF SIGMOID
nearest_mode: round_prefer_floor round_prefer_ceil floor ceil
nodes_modes: BRANCH_LEQ BRANCH_LT BRANCH_GTE BRANCH_GT BRANCH_EQ BRANCH_NEQ LEAF
padding_mode: zeros border reflection
post_transform: NONE SOFTMAX LOGISTIC SOFTMAX_ZERO PROBIT
"""
WORDS = {name: line.partition(": ")[2] for line in WORDS.replace("\\\n", "").splitlines()
         for name in line.partition(": ")[0].split()}

# Defaults that the registries tell in prose alone, by operator, version and attribute.
DEFAULTS = {"Concat1.axis": "1"}

HEAD = """# What every operator is: facts from the registries of onnx {onnx} and onnxruntime {ort}, written by
# testdata/registry.py. Do not edit.
#
# An operator's version begins with its name (with its domain, if that is not the standard one) and the operator set
# that introduced the version. The lines below it:
#   in, out   the formal parameters, NAME:TYPE. After the name ? marks an optional one, *N a variadic one of at least
#             N values, *N~ one whose values may differ in type. TYPE is a type variable, or a type.
#   VARIABLE: the element types that a type variable stands for
#   attr      NAME KIND, then ! where it is required, or = and the default, then "of" and the words that it may hold
# "deprecated" stands behind a version that says no more than that the operator is gone.
"""


def element(name):
    """The name of a type as package onnx writes it; others keep the standard's."""
    if name.startswith("tensor(") and name.endswith(")"):
        name = name[len("tensor("):-1]
        return {"float": "float32", "double": "float64"}.get(name, name)
    return name.replace(" ", "")


def option(value):
    return str(value).split(".")[-1].split(":")[0]


def parameters(formals, least):
    words = []
    for i, p in enumerate(formals):
        kind, name = option(p.option), p.name.replace(" ", "_")
        if "Optional" in kind:
            name += "?"
        elif "Variadic" in kind:
            name += "*%d" % max(0, least - i) + ("" if p.is_homogeneous else "~")
        words.append(name + ":" + element(p.type_str))
    return " ".join(words)


def literal(value):
    if isinstance(value, bytes):
        return '"%s"' % value.decode()
    return str(numpy.float32(value)) if isinstance(value, float) else str(value)


def default(attribute):
    value = onnx.helper.get_attribute_value(attribute)
    return " ".join(map(literal, value)) if not isinstance(value, bytes) and hasattr(value, "__iter__") else literal(value)


class Formal:
    """A formal parameter of onnxruntime with the names that onnx uses."""

    def __init__(self, p):
        self.name, self.option, self.type_str, self.is_homogeneous = p.name, p.option, p.typeStr, p.isHomogeneous


def lines(s, name, formal=lambda p: p, value=lambda a: a.default_value):
    yield "%s %d%s" % (name, s.since_version, " deprecated" if s.deprecated else "")
    if s.deprecated:
        return
    for word, formals, least in (("in", s.inputs, s.min_input), ("out", s.outputs, s.min_output)):
        text = parameters([formal(p) for p in formals], least)
        if text:
            yield "  %s %s" % (word, text)
    for t in s.type_constraints:
        yield "  %s: %s" % (t.type_param_str, " ".join(sorted(element(a) for a in t.allowed_type_strs)))
    for key in sorted(s.attributes):
        a = s.attributes[key]
        text = "  attr %s %s" % (key, option(a.type).lower())
        if a.required:
            text += " !"
        elif value(a) is not None and value(a).name:
            text += " = " + default(value(a))
        elif "%s%d.%s" % (name, s.since_version, key) in DEFAULTS:
            text += " = " + DEFAULTS["%s%d.%s" % (name, s.since_version, key)]
        words = [w for w in ("%s%d.%s" % (name, s.since_version, key), "%s.%s" % (name, key), key) if w in WORDS]
        if words and "STRING" in str(a.type):
            text += " of " + WORDS[words[0]]
        yield text


def attribute(a):
    p = onnx.AttributeProto()
    p.ParseFromString(a._default_value)
    return p


print(HEAD.format(onnx=onnx.__version__, ort=onnxruntime.__version__), end="")
history = {}
for s in onnx.defs.get_all_schemas_with_history():
    if s.domain in ("", "ai.onnx.ml") and "experimental" not in option(s.support_level).lower():
        history.setdefault((s.domain + "." + s.name).lstrip("."), []).append(s)
for name in sorted(history):
    versions = sorted(history[name], key=lambda s: s.since_version)
    for s in versions:
        print("\n".join(lines(s, name)))
microsoft = {s.name: s for s in runtime.get_all_operator_schema() if s.domain == "com.microsoft"}
for name in MICROSOFT:
    print("\n".join(lines(microsoft[name], "com.microsoft." + name, Formal, attribute)))
