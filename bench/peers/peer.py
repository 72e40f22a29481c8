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


def problem(i=""):
    """Rows with the 1 of the bias last, class indices (the likeliest, where labels are soft), weights."""
    return load(f"x{i}"), load(f"y{i}").argmax(1), load(f"w{i}")


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
    sys.exit(f"no work {work!r}; there are fit:SOLVER, heads:SOLVER, product, features, net:ENGINE, extractor[:LAYOUT], predictor and embedding")


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
