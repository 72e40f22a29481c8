"""Writes parity.json: small rounds and what the reference, one_posterior.py in numpy, makes of them. REFERENCE is its folder.

  python3 parity.py REFERENCE > parity.json
"""
import functools
import json
import sys

import numpy as np

sys.path.insert(0, sys.argv[1])
import one_posterior as o

o.minimize = functools.partial(lambda f, x, options=None, minimize=o.minimize, **k: minimize(
    f, x, options=dict(maxiter=5000, maxfun=20000, ftol=1e-15, gtol=1e-10, maxcor=50), **k))
d, C = 12, 4


def evidence_of_all(uploads, cands, seed=0):
    """The reference's evidence, and beside it each image as if nobody held its class, whose logit is then 0: for classes that nobody holds,
    with as many images as those that somebody does."""
    rng, held = np.random.default_rng(seed), int(o.pool(uploads).held.sum())
    out, images = np.zeros((len(uploads), len(cands), len(o.TEMPERATURES))), sum(u.n.sum() for u in uploads)
    T = o.TEMPERATURES[:, None, None]
    for i, u in enumerate(uploads):
        rest = o.pool(uploads[:i] + uploads[i + 1:])
        cs = np.flatnonzero((u.n > 0) & rest.held)
        noise = np.zeros((len(cs), 1, d))
        if u.dof > 0:
            w, V = np.linalg.eigh(u.S / u.dof)
            z = rng.normal(size=(len(cs), o.DRAWS, d)) * np.sqrt(1 - 1 / u.n[cs])[:, None, None]
            noise = z @ (V * np.sqrt(np.maximum(w, 0))).T
        for j, c in enumerate(cands):
            H, b = o.named_head(uploads[:i] + uploads[i + 1:], rest, c) if c.rows else o.head(rest, c)
            for a, y in enumerate(cs):
                L = (u.mu[y] + noise[a] - rest.m0) @ H + b
                one = lambda L: (L / T - np.logaddexp.reduce(L / T, axis=2)[:, :, None]).mean(1)
                own = one(L)
                out[i, j] += u.n[y] * (own[:, y] + o.SURPRISES / images * own.mean(1))
                if not c.rows:
                    L = np.where(np.arange(C) == y, 0, L)
                out[i, j] += u.n[y] * (C - held) / held * one(L)[:, y]
    return out


o.evidence = evidence_of_all


def numbers(a):
    return [float(f"{v:.13g}") for v in np.asarray(a, float).ravel()]


def single(a):  # as float32 holds it
    return a.astype(np.float32).astype(float)


class Recorder:
    """Stands for a generator of normal draws and keeps them."""

    def __init__(self):
        self.of, self.draws = np.random.default_rng(0), []

    def normal(self, size):
        self.draws.append(self.of.normal(size=size))
        return self.draws[-1].copy()


def evidence(uploads, cands):
    """The evidence, and the residuals that were drawn for each client: [classes, draws, d] before their factor sqrt(1 - 1/n)."""
    recorder, real = Recorder(), np.random.default_rng
    np.random.default_rng = lambda seed=None: recorder
    per = o.evidence(uploads, cands)
    np.random.default_rng = real
    drawn, at = [], 0
    for u in uploads:
        if u.dof == 0:
            drawn.append([])
            continue
        w, V = np.linalg.eigh(u.S / u.dof)
        drawn.append(numbers(recorder.draws[at] @ (V * np.sqrt(np.maximum(w, 0))).T))
        at += 1
    return per, drawn


def round_of(name, uploads, corpora):
    for u in uploads:
        u.mu, u.S = single(u.mu), single(u.S)
    cands = [c for c in o.candidates(d, corpora) if not c.rows]
    per, drawn = evidence(uploads, cands)
    p, e = o.pool(uploads), per.sum(0)
    t = [o.combine(o.peak(e[j]), o.jackknife([o.peak(e[j] - c) for c in per[:, j]]) + .05, *o.LOG_T) for j in range(len(cands))]
    out = dict(name=name, k=d, c=C, pool=dict(n=numbers(p.n), mean=numbers(p.mu * p.held[:, None]), scatter=numbers(p.S), dof=float(p.dof)))
    out["clients"] = [dict(n=numbers(u.n), mean=numbers(u.mu), scatter=numbers(u.S[np.triu_indices(d)]), dof=int(u.dof), residuals=r,
                           curves=None if u.curves is None else [numbers(c) for c in u.curves]) for u, r in zip(uploads, drawn)]
    out["corpora"] = [dict(within=numbers(c.W), rows=numbers(c.rows[0]) if c.rows else [], labels=[int(v) for v in c.rows[1]] if c.rows else [])
                      for c in corpora]
    out["candidates"] = [dict(name=c.name, evidence=numbers(per[:, j, ::8]), best=float(e[j].max()), temperature=numbers(t[j]),
                              head=numbers(o.head(p, c)[0]), bias=numbers(o.head(p, c)[1])) for j, c in enumerate(cands)]
    out["kappa"] = numbers(o.log_kappa(uploads))
    j = int(e.max(1).argmax())
    rows, mass, label = o.images_of(uploads, p, cands[j])
    H, b = o.refit(uploads, p, cands[j], *o.head(p, cands[j]), np.exp(t[j][0]))
    out["refit"] = dict(of=cands[j].name, rows=numbers(rows), mass=numbers(mass), label=label if isinstance(label, list) else label.tolist(),
                        head=numbers(H), bias=numbers(b))
    for c in o.candidates(d, corpora):
        if c.rows:
            rows, mass, label = o.images_of(uploads, p, c, draws=2)
            H, b = o.named_head(uploads, p, c)
            out["named"] = dict(of=c.name, rows=numbers(rows), mass=numbers(mass), label=label.tolist(), head=numbers(H), bias=numbers(b))
    return out


r = np.random.default_rng(7)
A = np.diag(np.geomspace(.2, 3, d))
mu = r.normal(size=(C, d)) * .6


def rows(n, classes=range(C)):
    y = r.choice(list(classes), n)
    return single(mu[y] + r.normal(size=(n, d)) @ A), y


def clients(*sizes, classes=range(C)):
    return [o.Upload(*rows(n, classes), C, seed=m) for m, n in enumerate(sizes)]


x, y = rows(60)
true, wrong = o.Corpus(A @ A), o.Corpus(np.diag(np.diag(A @ A)[::-1].copy()))
rows(20)  # which the draws of the rounds follow
few = clients(5, 4, 6, 3, 12)
json.dump([
    round_of("plain", clients(25, 18, 30, 14), []),
    round_of("single images", few, []),
    round_of("missing class", [*clients(12, 15, classes=(0, 1, 3)), *clients(9, classes=(0, 1))], []),
    round_of("corpus of other names", clients(14, 18, 12), [true, wrong]),
    round_of("named", clients(13, 16, 12), [o.Corpus(A @ A, (x, y))]),
], sys.stdout)
