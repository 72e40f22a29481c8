"""The two networks that are exported here: a small vision transformer, and MobileNetV2 as Keras has it."""
import torch, torch.nn as nn, torch.nn.functional as F

class Block(nn.Module):
    def __init__(s, d, h):
        super().__init__()
        s.h = h
        s.n1, s.qkv, s.proj = nn.LayerNorm(d), nn.Linear(d, 3 * d), nn.Linear(d, d)
        s.n2, s.up, s.down = nn.LayerNorm(d), nn.Linear(d, 4 * d), nn.Linear(4 * d, d)
    def forward(s, x):
        b, t, d = x.shape
        q, k, v = s.qkv(s.n1(x)).reshape(b, t, 3, s.h, d // s.h).permute(2, 0, 3, 1, 4)
        a = torch.softmax(q @ k.transpose(-1, -2) * (d // s.h) ** -.5, -1)
        x = x + s.proj((a @ v).transpose(1, 2).reshape(b, t, d))
        return x + s.down(F.gelu(s.up(s.n2(x))))

class ViT(nn.Module):
    def __init__(s, classes, d=64, depth=4, heads=4, patch=4, side=32):
        super().__init__()
        s.patch = nn.Conv2d(3, d, patch, patch)
        s.pos = nn.Parameter(torch.randn(1, (side // patch) ** 2, d) * .02)
        s.blocks = nn.ModuleList(Block(d, heads) for _ in range(depth))
        s.norm, s.head = nn.LayerNorm(d), nn.Linear(d, classes)
    def forward(s, x):
        x = s.patch(x).flatten(2).transpose(1, 2) + s.pos
        for b in s.blocks: x = b(x)
        return s.head(s.norm(x).mean(1))

class CBR(nn.Sequential):
    def __init__(s, i, o, k, stride=1, groups=1, act=True):
        pad = [nn.ZeroPad2d((0, 1, 0, 1))] if stride == 2 else []
        super().__init__(*pad, nn.Conv2d(i, o, k, stride, 0 if stride == 2 else k // 2, groups=groups, bias=False),
                         nn.BatchNorm2d(o, eps=1e-3, momentum=.01), *([nn.ReLU6()] if act else []))

class Inverted(nn.Module):
    def __init__(s, i, o, stride, expand):
        super().__init__()
        s.skip = stride == 1 and i == o
        m = i * expand
        s.f = nn.Sequential(*([CBR(i, m, 1)] if expand > 1 else []), CBR(m, m, 3, stride, m), CBR(m, o, 1, act=False))
    def forward(s, x): return x + s.f(x) if s.skip else s.f(x)

class MobileNetV2(nn.Module):
    def __init__(s, classes):
        super().__init__()
        layers, i = [CBR(3, 32, 3, 2)], 32
        for t, c, n, st in [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]:
            for j in range(n):
                layers.append(Inverted(i, c, st if j == 0 else 1, t)); i = c
        layers.append(CBR(320, 1280, 1))
        s.features, s.head = nn.Sequential(*layers), nn.Linear(1280, classes)
    def forward(s, x): return s.head(s.features(x).mean((2, 3)))
