"""What other programs need for work that `fmp bench peers` does: peer.py WORK FOLDER.

FOLDER holds what the work is done on, as .npy files. The first line of output is the packages' versions, or "missing: " and why; then the work is done
once for every line of input, and the seconds of processor time that it took are printed.
"""
import sys
import tempfile
import time
import warnings

import numpy as np

work, folder = sys.argv[1], sys.argv[2]


def load(name):
    return np.load(f"{folder}/{name}.npy")


def problem(i=0):
    """Rows with the 1 of the bias last, class indices (the likeliest, where labels are soft), weights."""
    y = load(f"y{i}")
    return load(f"x{i}"), y.argmax(1) if y.ndim > 1 else y, load(f"w{i}")


def logistic(solver):
    import sklearn
    from sklearn.linear_model import LogisticRegression

    warnings.filterwarnings("ignore")  # of deprecated arguments, and of the last bits of a tolerance

    def fit(x, y, w, l2):
        # C sum w loss + |T|^2 / 2, of features and bias alike, as ours.
        return LogisticRegression(C=1 / l2, tol=1e-6, max_iter=1000, solver=solver, fit_intercept=False).fit(x, y, sample_weight=w)

    return fit, f"scikit-learn {sklearn.__version__}, {solver}"


def lbfgs():
    import scipy
    from scipy.optimize import minimize
    from scipy.special import logsumexp

    def fit(x, y, w, l2):
        c = y.max() + 1
        one = np.eye(c)[y]

        def objective(t):
            t = t.reshape(x.shape[1], c)
            z = x @ t
            lse = logsumexp(z, axis=1, keepdims=True)
            r = w[:, None] * (np.exp(z - lse) - one)
            loss = w @ (lse[:, 0] - (z * one).sum(1)) + l2 / 2 * (t * t).sum()
            return loss, (x.T @ r + l2 * t).ravel()

        scale = w @ np.linalg.norm(x, axis=1)
        return minimize(objective, np.zeros(x.shape[1] * c), jac=True, method="L-BFGS-B", options={"gtol": 1e-6 * scale / np.sqrt(x.shape[1] * c), "maxiter": 2000})

    return fit, f"scipy {scipy.__version__}, L-BFGS-B"


def reached(x, y, w, l2, heads):
    """The norm of the gradient at heads, D x C, as a share of sum w |x|."""
    from scipy.special import softmax

    r = softmax(x @ heads, axis=1)
    r[np.arange(len(y)), y] -= 1
    return np.linalg.norm(x.T @ (w[:, None] * r) + l2 * heads) / (w @ np.linalg.norm(x, axis=1))


def equal(how):
    """A fit that stops where ours does: at a gradient of 1e-6 of sum w |x|.

    scikit-learn's tolerance is of another norm: the first call seeks one that just reaches the gradient.
    """
    x, y, w = problem()
    l2, goal = float(load("l2")), 1e-6
    if how == "scipy":
        return lambda: scipy_to(x, y, w, l2, goal), lbfgs()[1]
    import sklearn
    from sklearn.linear_model import LogisticRegression

    warnings.filterwarnings("ignore")
    two = y.max() == 1
    # Two classes are one head of the difference, whose square is twice the heads' together.
    strength, tol, best = (2 if two else 1) / l2, None, None

    def fit(tol):
        return LogisticRegression(C=strength, tol=tol, max_iter=5000, solver=how, fit_intercept=False).fit(x, y, sample_weight=w)

    def at(tol):
        t = fit(tol).coef_
        return reached(x, y, w, l2, (np.vstack([-t / 2, t / 2]) if two else t).T)

    tol = 1e-4
    for _ in range(12):
        g = at(tol)
        if g <= goal:
            best = tol
            if g > goal / 3:
                break
            tol *= min(goal / g, 30) / 1.5
        else:
            if best is not None:
                break
            tol *= max(goal / g, 1e-3) / 1.5
    if best is None:
        sys.exit(f"{how} reaches no gradient of {goal:g}")
    return lambda: fit(best), f"scikit-learn {sklearn.__version__}, {how}"


def scipy_to(x, y, w, l2, goal):
    """L-BFGS-B until the gradient is small."""
    from scipy.optimize import minimize

    c, at = y.max() + 1, np.arange(len(y))
    limit, norm = goal * (w @ np.linalg.norm(x, axis=1)), [0]

    def objective(t):
        t = t.reshape(x.shape[1], c)
        z = x @ t
        own = z[at, y]
        z -= z.max(1, keepdims=True)
        shift = own - z[at, y]
        np.exp(z, out=z)
        total = z.sum(1)
        loss = w @ (np.log(total) + shift - own) + l2 / 2 * (t * t).sum()
        z *= (w / total)[:, None]
        z[at, y] -= w
        g = x.T @ z + l2 * t
        norm[0] = np.linalg.norm(g)
        return loss, g.ravel()

    def ended(t):
        if norm[0] <= limit:
            raise StopIteration

    return minimize(objective, np.zeros(x.shape[1] * c), jac=True, method="L-BFGS-B", callback=ended,
                    options={"gtol": 0, "ftol": 0, "maxiter": 5000, "maxfun": 20000})


def features():
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(load("model").tobytes(), options, providers=["CPUExecutionProvider"])
    name, x, batch = session.get_inputs()[0].name, load("x"), int(load("batch"))

    def once():
        for i in range(0, len(x), batch):
            session.run(None, {name: x[i : i + batch]})

    return once, f"onnxruntime {onnxruntime.__version__} from Python"


def onnxruntime_net():
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(load("model").tobytes(), options, providers=["CPUExecutionProvider"])
    feeds = {v.name: load(f"in{i}") for i, v in enumerate(session.get_inputs())}
    return lambda: session.run(None, feeds), f"onnxruntime {onnxruntime.__version__} from Python"


def openvino_net():
    import openvino

    core = openvino.Core()
    # In float32, as the others: by default it takes bfloat16 where the processor has that.
    settings = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1}
    request = core.compile_model(core.read_model(load("model").tobytes()), "CPU", settings).create_infer_request()
    feeds = {i: load(f"in{i}") for i in range(len(request.model_inputs))}
    return lambda: request.infer(feeds), f"OpenVINO {openvino.__version__.partition('-')[0]}"


def tract_net():
    import importlib.metadata

    import tract

    with tempfile.NamedTemporaryFile(suffix=".onnx") as f:
        f.write(load("model").tobytes())
        f.flush()
        inference = tract.onnx().load(f.name)
        inputs = [load(f"in{i}") for i in range(inference.input_count())]
        for i, x in enumerate(inputs):
            inference.set_input_fact(i, ",".join(map(str, x.shape)) + "," + {"f": "f", "u": "u", "i": "i"}[x.dtype.kind] + str(8 * x.dtype.itemsize))
        runnable = inference.into_model().into_runnable()
    inputs = [tract.Tensor.from_numpy(x) for x in inputs]
    return lambda: runnable.run(inputs), f"tract {importlib.metadata.version('tract')}"


def setting():
    """What is done, once, and who does it."""
    kind, _, how = work.partition(":")
    if kind in ("fit", "heads"):
        fit, version = lbfgs() if how == "scipy" else logistic(how)
        l2 = float(load("l2"))
        problems = [problem(i) for i in range(int(load("count")))]
        return lambda: [fit(*p, l2) for p in problems], version
    if kind == "equal":
        return equal(how)
    if kind == "product":
        a, b = load("x"), load("y")
        return lambda: a @ b, f"numpy {np.__version__}, {np.show_config(mode='dicts')['Build Dependencies']['blas']['name']}"
    if kind == "features":
        return features()
    if kind == "net":
        return {"tract": tract_net, "onnxruntime": onnxruntime_net, "openvino": openvino_net}[how]()
    if kind == "extractor":
        import learn

        return learn.extractor(load("x"), load("y"), how)
    if kind in ("predictor", "embedding"):
        import learn

        return learn.meta(kind, load("x"), load("y"))
    sys.exit(f"no work {work!r}; there are fit:SOLVER, heads:SOLVER, equal:SOLVER, product, features, net:ENGINE, extractor[:LAYOUT], predictor and embedding")


try:
    once, version = setting()
except ModuleNotFoundError as e:
    print("missing: no", e.name, flush=True)
    sys.exit()
once()
print(version, flush=True)
for _ in sys.stdin:
    start = time.process_time()
    once()
    print(time.process_time() - start, flush=True)
