"""Calibrated image classification from data that never leaves its owners: the client and its classifier, over libfmp (fmp.h).

    c = fmp.Classifier("classifier.onnx")
    for p in c.predict(["photo.jpg", "other.png"]):
        print(p.name, p.probability)
"""

import ctypes
import json
import operator
import os
import sys
from typing import NamedTuple, Optional

__all__ = ["Classifier", "Client", "Error", "Prediction", "version"]


class Error(Exception):
    """What the library says of an input that it refuses."""


class _Bytes(ctypes.Structure):
    _fields_ = [("data", ctypes.c_char_p), ("size", ctypes.c_size_t)]


class _Buffer(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("size", ctypes.c_size_t)]


class _Images(ctypes.Structure):
    _fields_ = [("items", ctypes.POINTER(_Bytes)), ("labels", ctypes.POINTER(ctypes.c_int32)), ("n", ctypes.c_size_t)]


class _Predictions(ctypes.Structure):
    _fields_ = [("classes", ctypes.c_size_t)] + [(name, ctypes.c_void_p) for name in
                                                 ("probabilities", "low", "high", "set", "disagreement")]


class _Upload(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("round", ctypes.c_uint64), ("precision", ctypes.c_char_p),
                ("at_least", ctypes.c_int32)]


class _Evaluation(ctypes.Structure):
    _fields_ = [("key", _Bytes), ("round", ctypes.c_uint64), ("server", ctypes.c_char_p), ("least", ctypes.c_int32),
                ("epsilon", ctypes.c_double), ("delta", ctypes.c_double)]


def _load():
    name = {"win32": "fmp.dll", "darwin": "libfmp.dylib"}.get(sys.platform, "libfmp.so")
    lib = ctypes.CDLL(os.path.join(os.path.dirname(os.path.abspath(__file__)), name))
    text, handle, error = ctypes.c_char_p, ctypes.c_uint64, ctypes.POINTER(ctypes.c_void_p)
    opened, images, buffer = ctypes.POINTER(handle), ctypes.POINTER(_Images), ctypes.POINTER(_Buffer)
    for function, arguments in {
        "fmp_classifier_open": [text, opened, error],
        "fmp_classifier_load": [text, ctypes.c_size_t, opened, error],
        "fmp_client_load": [text, ctypes.c_size_t, text, opened, error],
        "fmp_describe": [handle, error, error],
        "fmp_predict": [handle, images, ctypes.POINTER(_Predictions), error],
        "fmp_compress": [handle, images, ctypes.POINTER(_Upload), buffer, error],
        "fmp_evaluate": [handle, images, ctypes.POINTER(_Evaluation), buffer, error],
    }.items():
        getattr(lib, function).argtypes = arguments
        getattr(lib, function).restype = ctypes.c_int
    lib.fmp_version.restype = ctypes.c_void_p
    lib.fmp_close.argtypes, lib.fmp_close.restype = [handle], None
    lib.fmp_free.argtypes, lib.fmp_free.restype = [ctypes.c_void_p], None
    return lib


_lib = _load()
_process = os.getpid()


def _check_process():
    """Go's threads are not in a process that fork() made: a call there may wait for them for ever."""
    if os.getpid() != _process:
        raise Error('the library does not survive fork(): start workers by multiprocessing.get_context("spawn")')


def _text(pointer):
    """Takes over a text of the library's."""
    try:
        return ctypes.string_at(pointer).decode("utf-8", "replace")
    finally:
        _lib.fmp_free(pointer)


def _call(function, *arguments):
    _check_process()
    error = ctypes.c_void_p()
    if function(*arguments, ctypes.byref(error)) != 0:
        raise Error(_text(error) if error else "no message")


def _result(function, *arguments):
    out = _Buffer()
    _call(function, *arguments, ctypes.byref(out))
    try:
        return ctypes.string_at(out.data, out.size)
    finally:
        _lib.fmp_free(out.data)


def version():
    """The library's version."""
    _check_process()
    return _text(_lib.fmp_version())


def _read(image):
    if isinstance(image, (bytes, bytearray, memoryview)):
        return bytes(image)
    if isinstance(image, str) and "PRIVATE KEY" in image:
        raise ValueError("the text of a key is no path: give the path of its file, or bytes")  # a path's error would show it
    with open(os.fspath(image), "rb") as f:  # an integer would be a file descriptor, and closed
        return f.read()


def _number(name, value, most):
    """An integer: ctypes would take the last bits of a larger one."""
    value = operator.index(value)
    if not 0 <= value <= most:
        raise ValueError(f"{name} is {value}; allowed are 0 to {most}")
    return value


def _chars(name, text):
    """The bytes of a text, or None: C would end it at a NUL."""
    if not text:
        return None
    data = text if isinstance(text, bytes) else text.encode()
    if 0 in data:
        raise ValueError(f"{name} has a NUL: {data!r}")
    return data


def _images(images, labels=None):
    """Images are paths or the bytes of files."""
    if isinstance(images, (str, bytes, bytearray, memoryview, os.PathLike)):
        raise TypeError("give a list of images: paths, or the bytes of files")
    data = [_read(i) for i in images]
    items = (_Bytes * len(data))(*[_Bytes(d, len(d)) for d in data])
    numbers = None
    if labels is not None:
        labels = list(labels)
        if len(labels) != len(data):
            raise ValueError(f"{len(labels)} labels of {len(data)} images")
        numbers = (ctypes.c_int32 * len(data))(*labels)
    return _Images(items, numbers, len(data))


class Prediction(NamedTuple):
    """The prediction of one image. low and high are the ends of credible intervals; classes is the prediction set."""

    name: str
    probability: float
    probabilities: list
    low: Optional[list]
    high: Optional[list]
    classes: Optional[list]
    disagreement: float


class _Model:
    _handle = 0  # nothing open

    def _describe(self):
        text = ctypes.c_void_p()
        _call(_lib.fmp_describe, self._handle, ctypes.byref(text))
        for name, value in json.loads(_text(text)).items():
            setattr(self, "names" if name == "classes" else name, value)

    def _labels(self, labels):
        """Numbers of labels that may be names of classes."""
        numbers = {n: i for i, n in enumerate(self.names)}
        try:
            return [numbers[y] if isinstance(y, str) else _number("label", y, len(self.names) - 1) for y in labels]
        except KeyError as e:
            raise ValueError(f"label {e} is no class; classes are {self.names}") from None

    def close(self):
        if self._handle and os.getpid() == _process:
            _lib.fmp_close(self._handle)
        self._handle = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        self.close()


class Classifier(_Model):
    """The classifier of a federation: a path, or the bytes of the file."""

    def __init__(self, classifier):
        handle = ctypes.c_uint64()
        if isinstance(classifier, (bytes, bytearray)):
            _call(_lib.fmp_classifier_load, bytes(classifier), len(classifier), ctypes.byref(handle))
        else:
            _call(_lib.fmp_classifier_open, _chars("classifier", os.fsencode(classifier)), ctypes.byref(handle))
        self._handle = handle.value
        self._describe()

    def predict(self, images):
        """Classifies a list of images, paths or the bytes of files."""
        given, c = _images(images), len(self.names)
        floats = lambda n: (ctypes.c_float * n)()
        p, disagreement = floats(given.n * c), floats(given.n)
        low, high = (floats(given.n * c), floats(given.n * c)) if self.intervals else (None, None)
        sets = (ctypes.c_ubyte * (given.n * c))() if self.sets else None
        at = lambda a: None if a is None else ctypes.addressof(a)
        _call(_lib.fmp_predict, self._handle, ctypes.byref(given),
              ctypes.byref(_Predictions(c, at(p), at(low), at(high), at(sets), at(disagreement))))
        out = []
        for i in range(given.n):
            row = lambda a: None if a is None else list(a[i * c:(i + 1) * c])
            best = max(range(c), key=row(p).__getitem__)
            names = None if sets is None else [n for n, in_ in zip(self.names, row(sets)) if in_]
            out.append(Prediction(self.names[best], p[i * c + best], row(p), row(low), row(high), names, disagreement[i]))
        return out

    def evaluate(self, images, labels, key, round=0, server=None, least=0, epsilon=0.0, delta=1e-5):
        """Scores the classifier on labelled images; returns the signed counts (bytes of JSON). key: the file of the client's key."""
        given, secret = _images(images, self._labels(labels)), _read(key)
        how = _Evaluation(_Bytes(secret, len(secret)), _number("round", round, 2**64 - 1), _chars("server", server),
                          _number("least", least, 2**31 - 1), epsilon, delta)
        return _result(_lib.fmp_evaluate, self._handle, ctypes.byref(given), ctypes.byref(how))


class Client(_Model):
    """A client graph: a path, or the bytes of the file. approved: the SHA-256 of an extractor that may run on the images."""

    def __init__(self, graph, approved=None):
        handle, data = ctypes.c_uint64(), _read(graph)
        _call(_lib.fmp_client_load, data, len(data), _chars("approved", approved), ctypes.byref(handle))
        self._handle = handle.value
        self._describe()

    def compress(self, images, labels, name, round=0, precision="float32", at_least=0):
        """Makes the upload (bytes) of labelled images, as fmp-edge compress does."""
        given = _images(images, self._labels(labels))
        how = _Upload(_chars("name", name), _number("round", round, 2**64 - 1), _chars("precision", precision),
                      _number("at_least", at_least, 2**31 - 1))
        return _result(_lib.fmp_compress, self._handle, ctypes.byref(given), ctypes.byref(how))
