"""Makes parity.json: the outputs of the PyTorch reference for the weights of our own ONNX files.

    go test ./models -run TestParity -write-models /tmp/parity      (fails where parity.json is missing yet)
    python3 models/testdata/parity.py REFERENCE_FOLDER /tmp/parity models/testdata/parity.json

REFERENCE_FOLDER holds fmp_torch.py. For developers only; nothing of the program runs it.
"""
import json
import sys

import numpy as np
import onnx
import torch
from onnx import numpy_helper

folder, models, target = sys.argv[1:]
sys.path.insert(0, folder)
import fmp_torch as ref  # noqa: E402

DX, C, S, EXTRA, N = 5, 3, 4, 7, 6
torch.manual_seed(5)


def weights(name):
    graph = onnx.load(f'{models}/{name}.onnx').graph
    return {t.name: torch.tensor(numpy_helper.to_array(t).copy()) for t in graph.initializer}


def linear(layer, w, name):
    layer.weight.data = w[name + '/weight'].T.contiguous()
    if layer.bias is not None:
        layer.bias.data = w[name + '/bias']


def block(mab, w, name):
    for part in ('q', 'k', 'v', 'o') + (('r',) if f'{name}/r/weight' in w else ()):
        linear(getattr(mab, part), w, f'{name}/{part}')
    mab.beta.data = w[name + '/beta']


def lift(module, w):
    linear(module.mlp[0], w, 'lift/mlp0')
    linear(module.mlp[2], w, 'lift/mlp1')


def points():
    y = torch.nn.functional.one_hot(torch.randint(C, (2, N)), C).float()
    return torch.cat([torch.randn(2, N, DX), y], -1)


def arrays(**kw):
    return {k: {'Shape': list(v.shape), 'Data': [float(x) for x in v.detach().flatten()]} for k, v in kw.items()}


def main():
    cases = {}
    w, p = weights('predictor'), ref.Predictor(DX, C, EXTRA)
    lift(p.g, w)
    block(p.m0, w, 'inner')
    block(p.m1, w, 'outer')
    p.decode.kappa.data = w['decode/kappa']
    z, e = points(), torch.randn(2, 5, p.d)
    cases['predictor'] = {'Inputs': arrays(points=z, weights=torch.ones(2, N), noise=e), 'Outputs': arrays(drawn=p(z, e))}

    for name, mass in (('embedding', True), ('embedding_constant', False)):
        w, m = weights(name), ref.Embedding(DX, C, S, EXTRA, mass)
        lift(m.f, w)
        block(m.m, w, 'pool')
        m.S.data = w['pool/seeds']
        m.decode.kappa.data = w['decode/kappa']
        z = points()
        compressed, masses = m(z)
        cases[name] = {'Inputs': arrays(points=z, weights=torch.ones(2, N)),
                       'Outputs': arrays(compressed=compressed, masses=masses)}
    with open(target, 'w') as f:
        json.dump(cases, f)
        f.write('\n')


main()
