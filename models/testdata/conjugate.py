"""Makes conjugate.json: what the reference gives for random parameters and inputs of the conjugate predictor.

    python3 models/testdata/conjugate.py REFERENCE_FOLDER models/testdata/conjugate.json

REFERENCE_FOLDER holds conjugate.py. For developers only; nothing of the program runs it.
"""
import json
import sys

import numpy as np

folder, target = sys.argv[1:]
sys.path.insert(0, folder)
import conjugate as ref  # noqa: E402

DX, C, K, S, N, CLIENTS, M = 6, 4, 3, 7, 5, 2, 8
rng = np.random.default_rng(3)
V = rng.standard_normal((DX, K))
shared = dict(c=rng.standard_normal(DX), logr=np.log(2.5), V=V, m0=.3 * rng.standard_normal(K), loglam=rng.standard_normal(K) + 1,
              R=np.eye(K) + .3 * rng.standard_normal((K, K)))
scalars = {'sample': dict(logrho=-1.5, logtau=-.4, logbs=-.5, logitgam=-1., om=.7, om2=-.3),
           'mean': dict(logrho=-1.2, logtau=0., logbs=.2, logitgam=-2., om=-.4, om2=.2),
           'interval': dict(logrho=-.8, logtau=0., logbs=0., logitgam=-6., om=.3, om2=.1)}
h = 2.1
client_points = np.concatenate([rng.standard_normal((CLIENTS, M, DX)), np.eye(C)[rng.integers(0, C - 1, (CLIENTS, M))]], -1)
client_points[..., :DX] += client_points[..., DX:] @ rng.standard_normal((C, DX)) * 1.5
weights = np.ones((CLIENTS, M))
weights[1, -2:] = 0
features = rng.standard_normal((N, DX)) * 1.5
latent = rng.standard_normal((S, C, K))
uniform = (rng.permutation(S) + .5) / S
width = 1.9

masses, phis = [], []
for z, w in zip(client_points, weights):
    n, mean = ref.pool(ref.phi(shared, z[:, :DX]), z[:, DX:], w, C)
    masses.append(n)
    phis.append(mean)
masses, phis = np.stack(masses), np.stack(phis)
ws = phis @ V - shared['m0']
eye = np.broadcast_to(np.eye(C), (CLIENTS, C, C))
points = np.concatenate([ws, eye], -1)
n = masses.sum(0)
xbar = (masses[..., None] * phis).sum(0) / np.maximum(n, 1e-9)[:, None]

def head(p, mu, v):
    """The head in its own coordinates: cfmp_heads gives it on phi."""
    a = mu @ p['R']
    rho = np.exp(p['logrho'])
    off = .5 * rho * p['om'] * np.exp(p['logtau']) * (v @ (p['R'] ** 2).sum(1)) + p['om2'] * np.log(1 + v).sum(-1)
    th = rho * np.swapaxes(a, -1, -2)
    b = -.5 * rho * (a ** 2).sum(-1) + off
    theta, bias = ref.cfmp_heads(p, mu, v)                                  # the two agree
    x = ref.phi(p, features)
    assert np.allclose(x @ theta + bias[:, None], ((x @ p['V'] - p['m0']) @ p['R']) @ th + b[:, None])
    return np.concatenate([th, b[:, None]], 1)

sample = dict(shared, **scalars['sample'])
mu, m, v = ref.cfmp_latent(sample, n, xbar, latent)
heads = head(sample, mu, v)
mean = dict(shared, **scalars['mean'])
_, mm, mv = ref.cfmp_latent(mean, n, xbar, latent)
mean_head = head(mean, mm[None], mv)

class Fixed:
    """Uniforms that are one a sample for all points."""
    def random(self, shape):
        return np.broadcast_to(uniform[:, None, None], shape)

interval = dict(shared, **scalars['interval'])
from scipy.stats import t as student  # noqa: E402
def log_odds(z):
    """The reference's, kept: what its intervals are the mean and spread of."""
    seen.append(kept(z))
    return seen[-1]

seen, kept = [], ref.log_odds
ref.log_odds = log_odds
ref.cfmp_intervals(interval, n, xbar, features, latent, h, Fixed())
odds = seen[-1]
middle, spread = odds.mean(0), odds.std(0, ddof=1)
off = np.abs(odds - middle) / spread                                        # [S,N,C]; of the class that each sample puts first:
first = np.take_along_axis(off, odds.argmax(-1)[..., None], -1)[..., 0]
reach = np.sort(first, 0)[-(S // 10 + 1)]                                   # a tenth of the samples lie further off
assert reach.min() < 1.6448536 < reach.max(), reach
half = student.ppf(.95, S - 1) * np.sqrt(1 + 1 / S)
ends = half * spread * np.maximum(reach / 1.6448536, 1)[:, None]
low, high = 1 / (1 + np.exp(ends - middle)), 1 / (1 + np.exp(-ends - middle))
pulls = np.exp(interval['logrho']) * ((ref.cfmp_prior(interval) / (1 + n[:, None] / h * ref.cfmp_prior(interval))) @ np.diag(shared['R'] @ shared['R'].T))
assert pulls.min() < 1 < pulls.max(), pulls                                 # both mends of the pull take part

params = {'c': shared['c'], 'r': np.exp(shared['logr']), 'V': V, 'm0': shared['m0'], 'log_lambda': shared['loglam'], 'R': shared['R'], 'widening': h}
for name, s in scalars.items():
    for a, b in dict(log_rho='logrho', log_tau='logtau', log_b='logbs', logit_gamma='logitgam', o1='om', o2='om2').items():
        params[f'{name}/{a}'] = s[b]
arrays = lambda d: {k: dict(Shape=list(np.shape(x)), Data=np.ravel(x).tolist()) for k, x in d.items()}
json.dump(dict(
    Params=arrays(params),
    Inputs=arrays(dict(client_points=client_points, client_weights=weights, points=points.reshape(1, -1, K + C), weights=masses.reshape(1, -1),
                       features=features, latent=latent, uniform=uniform, width=half)),
    Outputs=arrays(dict(coordinates=(ref.phi(shared, features) @ V - shared['m0']) @ shared['R'], compressed=np.concatenate([ws, eye], -1),
                        compressed_phi=np.concatenate([phis, eye], -1), masses=masses, heads=heads, mean_head=mean_head, low=low, high=high))),
    open(target, 'w'))
