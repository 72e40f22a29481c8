"""Writes photographs of CIFAR-10 scaled to 96 x 96: corpus/train/0..4 (400 a class), clients/0..4/5..9 (20 a class each), test/5..9 (100 a class)."""
import os, sys
import numpy as np
from PIL import Image
cifar, out = sys.argv[1:]
raw = lambda f: np.fromfile(f"{cifar}/{f}.bin", np.uint8).reshape(-1, 3073)
def save(row, path):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    Image.fromarray(row[1:].reshape(3, 32, 32).transpose(1, 2, 0)).resize((96, 96), Image.BICUBIC).save(path)
def take(file, classes, n, name):
    count = [0] * 10
    for row in raw(file):
        y = int(row[0])
        if y in classes and count[y] < n: save(row, f"{out}/{name(y, count[y])}"); count[y] += 1
take("data_batch_2", range(5), 400, lambda y, i: f"corpus/train/{y}/{i:03d}.png")
take("test_batch", range(5), 40, lambda y, i: f"corpus/test/{y}/{i:03d}.png")
take("data_batch_1", range(5, 10), 100, lambda y, i: f"clients/{i % 5}/{y}/{i:03d}.png")
take("test_batch", range(5, 10), 100, lambda y, i: f"holdout/test/{y}/{i:03d}.png")
take("test_batch", range(5, 10), 2, lambda y, i: f"holdout/train/{y}/{i:03d}.png")
