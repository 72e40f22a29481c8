"""Writes parity.json: random problems with their minimisers and implicit gradients, by the PyTorch reference.

    python3 parity.py PATH/TO/fmp_torch.py > parity.json

For development only. The reference stops at a gradient norm of 1e-4; here its own functions polish the minimiser by
full Newton steps, and solve for the implicit gradient, to the end of float64.
"""
import importlib.util
import json
import sys

import torch

spec = importlib.util.spec_from_file_location('fmp_torch', sys.argv[1])
ref = importlib.util.module_from_spec(spec)
spec.loader.exec_module(ref)
torch.set_default_dtype(torch.float64)
torch.manual_seed(0)

cases = []
for n, dx, C, lam in [(12, 3, 2, 0.5), (20, 6, 4, 3.0), (9, 14, 3, 0.1), (40, 5, 7, 1.0)]:
    X, w = torch.randn(1, n, dx), torch.rand(1, n) * 2
    Y = torch.softmax(3 * torch.randn(1, n, C), -1)
    Y[0, :n // 2] = torch.eye(C)[torch.randint(C, (n // 2,))]
    w[0, 0] = 0
    Xa = ref.augment(X)
    T, Minv = ref.solve(X, Y, w, lam)
    for _ in range(20):
        P = torch.softmax(Xa @ T, -1)
        g = Xa.transpose(1, 2) @ (w[..., None] * (P - Y)) + lam * T
        T = T - ref.conjugate_gradient(Xa, P, w, lam, g, Minv, 500, 1e-14)
    cot = torch.randn_like(T)
    P = torch.softmax(Xa @ T, -1)
    u = ref.conjugate_gradient(Xa, P, w, lam, cot, Minv, 500, 1e-14)
    Xg, Yg, wg = (t.clone().requires_grad_() for t in (X, Y, w))
    A = ref.augment(Xg)
    G = A.transpose(1, 2) @ (wg[..., None] * (torch.softmax(A @ T, -1) - Yg))
    gx, gy, gw = (-t for t in torch.autograd.grad((G * u).sum(), (Xg, Yg, wg)))
    flat = lambda t: t.flatten().tolist()
    cases.append({'n': n, 'dx': dx, 'c': C, 'l2': lam, 'x': flat(X), 'y': flat(Y), 'w': flat(w), 'theta': flat(T),
                  'objective': ref.objective(Xa, Y, w, lam, T).item(), 'cotangent': flat(cot),
                  'points': flat(gx), 'labels': flat(gy), 'weights': flat(gw)})
json.dump(cases, sys.stdout)
