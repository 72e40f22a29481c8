"""Trains an ONNX model as fmp onnx train does, in PyTorch: the same weights, images, order, mirroring, steps and rates.

python tune.py MODEL.onnx IMAGES EPOCHS MEAN STD [THREADS]: prints the loss of each step, and the accuracy on the test images before and
after. Statistics of batch normalisations are kept, as the exporter left them.
"""
import glob, hashlib, json, math, os, resource, sys, time
import numpy as np, onnx, torch, torch.nn.functional as F
from onnx import numpy_helper as nh
from PIL import Image

M64 = (1 << 64) - 1

class Stream:
    """Go's math/rand/v2 PCG under the project's named streams."""
    def __init__(s, seed, *name):
        h = 0xcbf29ce484222325
        for c in (" ".join(map(str, name)) + "\n").encode(): h = (h ^ c) * 0x100000001b3 & M64
        s.v = seed << 64 | h
    def u64(s):
        s.v = (s.v * (2549297995355413924 << 64 | 4865540595714422341) + (6364136223846793005 << 64 | 1442695040888963407)) & ((1 << 128) - 1)
        hi, lo = s.v >> 64, s.v & M64
        hi ^= hi >> 32; hi = hi * 0xda942042e4dd58b5 & M64; hi ^= hi >> 48
        return hi * (lo | 1) & M64
    def n(s, n):
        if n & (n - 1) == 0: return (s.u64() & 0xffffffff) & (n - 1)
        p = (s.u64() >> 32) * n
        if p & 0xffffffff < n:
            t = (1 << 32) % n
            while p & 0xffffffff < t: p = (s.u64() >> 32) * n
        return p >> 32
    def perm(s, n):
        p = list(range(n))
        for i in range(n - 1, 0, -1):
            j = s.n(i + 1)
            p[i], p[j] = p[j], p[i]
        return p

class Net(torch.nn.Module):
    """Runs a graph of the operators that the three models have. Initializers of float32 are parameters."""
    def __init__(s, g):
        super().__init__()
        s.nodes = [(n.op_type, list(n.input), list(n.output), {a.name: onnx.helper.get_attribute_value(a) for a in n.attribute}) for n in g.node]
        s.out, s.feed, s.names = g.output[0].name, g.input[0].name, {}
        s.const, s.weights = {}, torch.nn.ParameterDict()
        for i in g.initializer:
            v = torch.from_numpy(nh.to_array(i).copy())
            trained = v.dtype == torch.float32 and v.ndim > 0 and "running_" not in i.name
            if trained: s.names[i.name] = k = str(len(s.names)); s.weights[k] = torch.nn.Parameter(v)
            else: s.const[i.name] = v
    def forward(s, x):
        v = dict(s.const); v[""] = None; v[s.feed] = x
        for n, k in s.names.items(): v[n] = s.weights[k]
        for op, i, o, a in s.nodes: v.update(zip(o, OPS[op](a, *(v[k] for k in i)))) if op == "Split" else v.update({o[0]: OPS[op](a, *(v[k] for k in i))})
        return v[s.out]

def conv(a, x, w, b=None):
    p, g = a.get("pads", [0] * 4), a.get("group", 1)
    if p[:2] != p[2:]: x, p = F.pad(x, (p[1], p[3], p[0], p[2])), [0] * 4
    return F.conv2d(x, w, b, a.get("strides", [1, 1]), p[:2], a.get("dilations", [1, 1]), g)

def pad(a, x, pads, value=None, axes=None):
    p = pads.tolist(); n = len(p) // 2
    return F.pad(x, [v for k in reversed(range(n)) for v in (p[k], p[n + k])])

OPS = {
    "Conv": conv, "Pad": pad, "Identity": lambda a, x: x, "Constant": lambda a: torch.from_numpy(nh.to_array(a["value"]).copy()),
    "BatchNormalization": lambda a, x, w, b, m, v: F.batch_norm(x, m, v, w, b, False, 0, a.get("epsilon", 1e-5)),
    "Clip": lambda a, x, lo=None, hi=None: torch.clamp(x, a.get("min", lo), a.get("max", hi)), "Relu": lambda a, x: F.relu(x),
    "Add": lambda a, x, y: x + y, "Mul": lambda a, x, y: x * y, "Div": lambda a, x, y: x / y if x.is_floating_point() else x // y, "Sub": lambda a, x, y: x - y, "Sqrt": lambda a, x: x.sqrt(),
    "Pow": lambda a, x, y: x ** y, "Erf": lambda a, x: torch.erf(x), "Cast": lambda a, x: x.float() if a["to"] == 1 else x.long(),
    "MatMul": lambda a, x, y: x @ y, "Softmax": lambda a, x: torch.softmax(x, a.get("axis", -1)),
    "Gemm": lambda a, x, w, b: x @ (w.T if a.get("transB") else w) + b, "Flatten": lambda a, x: x.flatten(a.get("axis", 1)),
    "GlobalAveragePool": lambda a, x: x.mean((2, 3), keepdim=True), "AveragePool": lambda a, x: F.avg_pool2d(x, a["kernel_shape"], a.get("strides")),
    "ReduceMean": lambda a, x, axes=None: x.mean(a["axes"] if axes is None else axes.tolist(), keepdim=bool(a.get("keepdims", 1))),
    "LayerNormalization": lambda a, x, w, b: F.layer_norm(x, w.shape, w, b, a.get("epsilon", 1e-5)),
    "Reshape": lambda a, x, s: x.reshape([x.shape[k] if d == 0 else d for k, d in enumerate(s.tolist())]), "Transpose": lambda a, x: x.permute(a["perm"]),
    "Shape": lambda a, x: torch.tensor(x.shape)[a.get("start", 0):a.get("end")],
    "Gather": lambda a, x, i: torch.index_select(x, a.get("axis", 0), i.reshape(-1)).reshape(x.shape[:a.get("axis", 0)] + i.shape + x.shape[a.get("axis", 0) + 1:]),
    "Unsqueeze": lambda a, x, d: x.unsqueeze(int(d)), "Squeeze": lambda a, x, d: x.squeeze(tuple(d.tolist())),
    "Split": lambda a, x, n=None: torch.split(x, n.tolist() if n is not None else x.shape[a.get("axis", 0)] // 3, a.get("axis", 0)),
    "Concat": lambda a, *x: torch.cat(x, a["axis"]),
    "Slice": lambda a, x, lo, hi, ax, st=None: torch.from_numpy(x.numpy()[tuple([slice(None)] * int(ax[0]) + [slice(int(lo[0]), int(hi[0]), int(st[0]) if st is not None else None)])].copy()),
    "ConstantOfShape": lambda a, s: torch.full(s.tolist(), 0) if "value" not in a else torch.from_numpy(np.full(s.tolist(), nh.to_array(a["value"]).item(), nh.to_array(a["value"]).dtype)),
}

path, folder, epochs = sys.argv[1], sys.argv[2], int(sys.argv[3])
mean, std = (torch.tensor([float(v) for v in s.split(",")]).view(1, -1, 1, 1) for s in sys.argv[4:6])
torch.set_num_threads(int((sys.argv[6:] or ["2"])[0]))
BATCH, SEED, RATE = 32, 1, 1e-4
def read(part):
    files = sorted(glob.glob(f"{folder}/{part}/*/*.png"), key=lambda f: hashlib.sha256("/".join(f.split("/")[-2:]).encode()).digest())
    x = torch.from_numpy(np.stack([np.asarray(Image.open(f)) for f in files])).permute(0, 3, 1, 2).contiguous()
    return x, torch.tensor([int(f.split("/")[-2]) for f in files])
norm = lambda x: (x.float() / 255 - mean) / std
(X, Y), (Xt, Yt) = read("train"), read("test")
net = Net(onnx.load(path).graph)
def accuracy():
    with torch.no_grad(): return torch.cat([net(norm(x)) for x in Xt.split(8)]).argmax(1).eq(Yt).float().mean().item()
rows = Stream(SEED, "held out").perm(len(X)); k = round(.1 * len(X)); held, rows = rows[:k], rows[k:]
def score():
    with torch.no_grad(): return sum(F.cross_entropy(net(norm(X[h])), Y[h], reduction="sum").item() for h in torch.tensor(held).split(8)) / len(held)
per = len(rows) // BATCH
steps, warm = epochs * per, int(.1 * epochs * per)
groups = [dict(params=[net.weights[k]], lr=1, scale=10 if n.startswith("head.") else 1, weight_decay=.01 if net.weights[k].ndim > 1 else 0) for n, k in net.names.items()]
opt = torch.optim.AdamW(groups, betas=(.9, .999), eps=1e-8)
before = accuracy()
best, cpu, wall, losses = (math.inf, None), 0, 0, []
for step in range(steps):
    if step % per == 0: order = Stream(SEED, "order", step // per).perm(len(rows))
    chosen, x = [rows[i] for i in order[step % per * BATCH:][:BATCH]], []
    for part in range(4):
        r = Stream(SEED, "vary", step, part)
        for i in chosen[part * 8:part * 8 + 8]:
            flip = r.n(2) == 0; r.n(1); r.n(1)
            x.append(X[i].flip(2) if flip else X[i])
    x, y = norm(torch.stack(x)), Y[chosen]
    rate = RATE * (step + 1) / warm if step < warm else RATE * (1 + math.cos(math.pi * (step - warm) / (steps - warm))) / 2
    for g in opt.param_groups: g["lr"] = rate * g["scale"]
    c, w = time.process_time(), time.time()
    opt.zero_grad(); loss = F.cross_entropy(net(x), y); loss.backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1); opt.step()
    cpu += time.process_time() - c; wall += time.time() - w
    losses.append(loss.item()); print("step", step + 1, losses[-1], file=sys.stderr, flush=True)
    if (step + 1) % per == 0:
        s = score()
        if s < best[0]: best = (s, {k: v.detach().clone() for k, v in net.state_dict().items()}, step + 1)
        print(step + 1, s, file=sys.stderr, flush=True)
net.load_state_dict(best[1])
print(json.dumps(dict(before=before, after=accuracy(), best_step=best[2], held_loss=best[0], steps=steps, processor_per_step=cpu / steps, wall_per_step=wall / steps,
                      peak_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, losses=losses)))
