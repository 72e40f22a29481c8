"""Trains the small vision transformer on CIFAR-100 and exports it: python vit.py FOLDER OUT.onnx EPOCHS."""
import sys, time, numpy as np, torch, torch.nn.functional as F
from nets import ViT
folder, out, epochs = sys.argv[1], sys.argv[2], int(sys.argv[3])
torch.manual_seed(0); torch.set_num_threads(1)
raw = np.fromfile(folder + "/train.bin", np.uint8).reshape(-1, 3074)
test = np.fromfile(folder + "/test.bin", np.uint8).reshape(-1, 3074)[:2000]
im = lambda r: torch.from_numpy(r[:, 2:].reshape(-1, 3, 32, 32).copy())
mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in ([.485, .456, .406], [.229, .224, .225]))
norm = lambda x: (x.float() / 255 - mean) / std
X, Y, Xt, Yt = im(raw), torch.from_numpy(raw[:, 1].astype(np.int64)), im(test), torch.from_numpy(test[:, 1].astype(np.int64))
m = ViT(100)
steps = epochs * (len(X) // 64)
opt = torch.optim.AdamW(m.parameters(), 1e-3, weight_decay=.05)
sch = torch.optim.lr_scheduler.OneCycleLR(opt, 2e-3, steps, pct_start=.15)
t0, k = time.time(), 0
for e in range(epochs):
    m.train()
    for rows in torch.randperm(len(X)).split(64)[:len(X) // 64]:
        x = X[rows]
        if torch.rand(()) < .5: x = x.flip(3)
        dx, dy = torch.randint(0, 5, (2,)).tolist()
        x = F.pad(x, (2, 2, 2, 2))[:, :, dy:dy + 32, dx:dx + 32]
        loss = F.cross_entropy(m(norm(x)), Y[rows], label_smoothing=.1)
        opt.zero_grad(); loss.backward(); torch.nn.utils.clip_grad_norm_(m.parameters(), 1); opt.step(); sch.step(); k += 1
        if k % 50 == 0: print(k, steps, loss.item(), time.time() - t0, flush=True)
    m.eval()
    with torch.no_grad(): print("epoch", e, "acc", torch.cat([m(norm(x)) for x in Xt.split(500)]).argmax(1).eq(Yt).float().mean().item(), flush=True)
    torch.save(m.state_dict(), out + ".pt")
m.eval()
torch.onnx.export(m, (torch.randn(2, 3, 32, 32),), out, input_names=["image"], output_names=["logits"], dynamic_axes={"image": {0: "batch"}, "logits": {0: "batch"}}, opset_version=17, dynamo=False)
