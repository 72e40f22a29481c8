"""Steps of training in PyTorch, for peer.py: of the extractor, and of predictor and embedding through the fits' implicit gradients."""
import math

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
version = f"PyTorch {torch.__version__}"


# The extractor: a small residual network, by stochastic gradient descent.
def unit(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU())


class Extractor(nn.Module):
    def __init__(self, classes, dx=64, widths=(24, 48, 96, 192)):
        super().__init__()
        self.stem = unit(3, widths[0])
        self.wider = nn.ModuleList(unit(i, o) for i, o in zip(widths, widths[1:]))
        self.block = nn.ModuleList(nn.Sequential(unit(w, w), unit(w, w)) for w in widths[1:])
        self.project, self.norm, self.head = nn.Linear(widths[-1], dx, bias=False), nn.BatchNorm1d(dx, affine=False), nn.Linear(dx, classes)

    def forward(self, x):
        x = self.stem(x)
        for wider, block in zip(self.wider, self.block):
            x = wider(F.avg_pool2d(x, 2))
            x = x + block(x)
        return self.head(self.norm(self.project(x.mean((2, 3))))) / 8


def extractor(x, y, layout):
    x, y = torch.tensor(x), torch.tensor(y)
    net = Extractor(int(y.max()) + 1)
    if layout:
        x, net = x.to(memory_format=getattr(torch, layout)), net.to(memory_format=getattr(torch, layout))
    descent = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, nesterov=True, weight_decay=1e-3)

    def once():
        descent.zero_grad()
        F.cross_entropy(net(x), y).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 5)
        descent.step()

    return once, f"{version}, {layout.replace('_', ' ') or 'NCHW'}"


# Predictor and embedding: attention blocks between points, z = [features, class].
class Attention(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.q, self.k, self.v, self.o, self.r = nn.Linear(d, d, bias=False), nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d, bias=False)
        self.scale = nn.Parameter(torch.tensor(6 / math.sqrt(d)))

    def forward(self, q, k):
        logits = self.scale * self.q(q) @ self.k(k).mT
        o = self.r(q) + logits.softmax(-1) @ self.v(k)
        return o + F.relu(self.o(o)), logits


class Points(nn.Module):
    """Points from points: fresh ones by two blocks from noise, or a summary by one block from learned seeds."""

    def __init__(self, dx, classes, seeds=0, extra=64):
        super().__init__()
        dz = dx + classes
        self.dx, self.classes, self.d = dx, classes, dz + extra
        self.lift = nn.Sequential(nn.Linear(dz, 2 * extra), nn.ReLU(), nn.Linear(2 * extra, extra))
        self.blocks = nn.ModuleList(Attention(self.d) for _ in range(1 if seeds else 2))
        self.sharpness = nn.Parameter(torch.tensor(5.0))
        self.seeds = nn.Parameter(torch.randn(seeds, self.d)) if seeds else None

    def forward(self, z, noise=None):
        k = torch.cat([z, self.lift(z)], -1)
        q = noise if self.seeds is None else self.seeds.expand(len(z), -1, -1)
        for block in self.blocks:
            k, logits = block(q, k)
        label = (self.sharpness * k[..., self.dx : self.dx + self.classes]).softmax(-1)
        return torch.cat([k[..., : self.dx], label], -1), logits.softmax(-2).sum(-1)


def with_one(x):
    return torch.cat([x, torch.ones_like(x[..., :1])], -1)


def solve(product, inverse, b, steps, tolerance):
    """Preconditioned conjugate gradients for product(x) = b, of all problems at once."""
    x, r = torch.zeros_like(b), b
    p = z = inverse @ r
    rho, norm = (r * z).sum((1, 2), keepdim=True), b.square().sum((1, 2)).clamp_min(1e-30)
    for _ in range(steps):
        h = product(p)
        a = rho / (p * h).sum((1, 2), keepdim=True).clamp_min(1e-30)
        x, r = x + a * p, r - a * h
        if (r.square().sum((1, 2)) <= tolerance**2 * norm).all():
            break
        z = inverse @ r
        was, rho = rho, (r * z).sum((1, 2), keepdim=True)
        p = z + rho / was.clamp_min(1e-30) * p
    return x


class Fit(torch.autograd.Function):
    """The softmax regression of points x with soft labels y and weights w; its gradient is the implicit one."""

    l2 = 3.0

    @staticmethod
    def gradient(x, y, w, t):
        return x.mT @ (w[..., None] * ((x @ t).softmax(-1) - y)) + Fit.l2 * t

    @staticmethod
    def hessian(x, w, t):
        p = (x @ t).softmax(-1)

        def product(v):
            a = p * (x @ v)
            return x.mT @ (w[..., None] * (a - p * a.sum(-1, keepdim=True))) + Fit.l2 * v

        return product

    @staticmethod
    def forward(ctx, x, y, w):
        inverse = torch.linalg.inv((0.25 * w[..., None] * x).mT @ x + Fit.l2 * torch.eye(x.shape[-1]))
        t = torch.zeros(len(x), x.shape[-1], y.shape[-1])

        def loss(t):
            return -(w[..., None] * y * (x @ t).log_softmax(-1)).sum((1, 2)) + Fit.l2 / 2 * t.square().sum((1, 2))

        first = None
        for step in range(12):
            g = Fit.gradient(x, y, w, t)
            size = g.flatten(1).norm(dim=1)
            first = size if first is None else first
            if (size <= 1e-5 * first).all():
                break
            d = solve(Fit.hessian(x, w, t), inverse, g, 25, 1e-2 if step < 4 else 1e-3)
            now, length = loss(t), torch.ones(len(t), 1, 1)
            for _ in range(8):
                worse = loss(t - length * d) > now + 1e-5
                if not worse.any():
                    break
                length = torch.where(worse[:, None, None], length / 2, length)
            t = t - length * d
        ctx.save_for_backward(x, y, w, t, inverse)
        return t

    @staticmethod
    def backward(ctx, back):
        x, y, w, t, inverse = ctx.saved_tensors
        u = solve(Fit.hessian(x, w, t), inverse, back, 60, 1e-4)
        with torch.enable_grad():
            x, y, w = (v.detach().requires_grad_() for v in (x, y, w))
            return torch.autograd.grad(-(Fit.gradient(x, y, w, t) * u).sum(), (x, y, w))


def fit(dx, *sets):
    """Heads of points and weights, set after set."""
    z, w = (torch.cat(v, 1) for v in zip(*sets))
    return Fit.apply(with_one(z[..., :dx]), z[..., dx:], w)


def meta(kind, x, y, tasks=8, clients=10, points=20, fresh=100):
    x, y = torch.tensor(x), torch.tensor(y)
    dx, classes = x.shape[1], int(y.max()) + 1
    predictor, embedding = Points(dx, classes), Points(dx, classes, seeds=classes)
    trained = predictor if kind == "predictor" else embedding
    adam = torch.optim.Adam(trained.parameters(), lr=1e-3)

    def rows(count):
        i = torch.randint(len(y), (tasks, count))
        names = torch.stack([torch.randperm(classes)[y[j]] for j in i])
        return torch.cat([x[i], F.one_hot(names, classes).float()], -1)

    def weighted(z):
        return z, torch.ones(z.shape[:2])

    def predictor_loss(samples=2):
        z = rows(clients * points + 128)
        seen, target = z[:, :-128].repeat(samples, 1, 1), z[:, -128:]
        drawn, _ = predictor(seen, torch.randn(len(seen), fresh, predictor.d))

        def score(t):
            p = (with_one(target[..., :dx]).repeat(samples, 1, 1) @ t).softmax(-1)
            return -((p.view(samples, *target.shape[:2], classes).mean(0) * target[..., dx:]).sum(-1) + 1e-9).log().mean()

        return score(fit(dx, weighted(seen), weighted(drawn))) + 0.3 * score(fit(dx, weighted(drawn)))

    def embedding_loss():
        z = rows(clients * points)
        noise = torch.randn(tasks, fresh, predictor.d)
        with torch.no_grad():
            want = fit(dx, weighted(z), weighted(predictor(z, noise)[0]))
        small, mass = embedding(z.view(tasks * clients, points, -1))
        small, mass = small.view(tasks, clients * classes, -1), mass.view(tasks, -1)
        got = fit(dx, (small, mass), weighted(predictor(small, noise)[0]))
        return (got - want).flatten(1).norm(dim=1).mean()

    def once():
        adam.zero_grad()
        (predictor_loss if kind == "predictor" else embedding_loss)().backward()
        nn.utils.clip_grad_norm_(trained.parameters(), 1)
        adam.step()

    return once, version
