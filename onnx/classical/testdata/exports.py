"""Exports models of scikit-learn and LightGBM, and compares the pure engine with the ONNX Runtime on each.

usage: exports.py FMP        (the program fmp)

Run by maintainers alone. Needs the Python packages scikit-learn, lightgbm, skl2onnx, onnxmltools and onnxruntime. Exports that the
converter or the runtime refuses are left out. Prints each model that differs by more than 1e-5 of its largest number, then the counts.
"""

import pathlib
import subprocess
import sys
import tempfile
import warnings

import lightgbm
import numpy as np
import onnxmltools
import onnxruntime
import skl2onnx
from onnxmltools.convert.common.data_types import FloatTensorType as Floats
from skl2onnx.common.data_types import DoubleTensorType, FloatTensorType
from sklearn import (calibration, cluster, datasets, decomposition, discriminant_analysis, ensemble, impute, linear_model, naive_bayes,
                     neural_network, pipeline, preprocessing, svm, tree)

warnings.filterwarnings("ignore")
iris, cancer, digits, diabetes = (f(return_X_y=True) for f in (datasets.load_iris, datasets.load_breast_cancer, datasets.load_digits,
                                                               datasets.load_diabetes))
named = iris[0], np.array(["a", "b", "c"])[iris[1]]
missing = cancer[0].copy(), cancer[1]
missing[0][::7, 3] = np.nan
two = diabetes[0], np.c_[diabetes[1], -diabetes[1]]
logistic = lambda: linear_model.LogisticRegression(max_iter=500)
after = lambda *steps: pipeline.make_pipeline(*steps, logistic())
p, e = preprocessing, ensemble
MODELS = [
    (logistic(), iris), (logistic(), cancer), (logistic(), named), (after(p.StandardScaler()), digits),
    (pipeline.make_pipeline(p.MinMaxScaler(), linear_model.SGDClassifier(loss="log_loss")), digits),
    (pipeline.make_pipeline(p.Normalizer("l2"), linear_model.RidgeClassifier()), digits), (after(p.Normalizer("l1")), iris),
    (after(p.Normalizer("max")), iris), (after(p.Binarizer(threshold=3.0)), iris), (after(p.RobustScaler()), iris),
    (after(p.KBinsDiscretizer(5, encode="onehot-dense")), iris), (after(impute.SimpleImputer(), p.StandardScaler()), missing),
    (after(decomposition.PCA(10)), digits), (pipeline.make_pipeline(p.PolynomialFeatures(2), linear_model.Ridge()), diabetes),
    (e.RandomForestClassifier(30), iris), (e.RandomForestClassifier(30), cancer), (e.RandomForestClassifier(50), digits),
    (e.ExtraTreesClassifier(20), digits), (tree.DecisionTreeClassifier(), cancer), (tree.DecisionTreeClassifier(), named),
    (e.GradientBoostingClassifier(n_estimators=30), cancer), (e.GradientBoostingClassifier(n_estimators=20), iris),
    (e.HistGradientBoostingClassifier(max_iter=30), missing), (e.HistGradientBoostingClassifier(max_iter=20), iris),
    (e.AdaBoostClassifier(n_estimators=10), iris), (e.BaggingClassifier(n_estimators=5), iris),
    (e.RandomForestRegressor(30), diabetes), (e.RandomForestRegressor(10), two), (e.GradientBoostingRegressor(n_estimators=30), diabetes),
    (e.HistGradientBoostingRegressor(max_iter=30), diabetes), (tree.DecisionTreeRegressor(), diabetes),
    (linear_model.LinearRegression(), diabetes), (linear_model.Ridge(), two), (svm.LinearSVR(), diabetes), (svm.LinearSVC(), iris),
    (calibration.CalibratedClassifierCV(svm.LinearSVC(), cv=3), iris), (neural_network.MLPClassifier(max_iter=50), digits),
    (discriminant_analysis.LinearDiscriminantAnalysis(), iris), (discriminant_analysis.QuadraticDiscriminantAnalysis(), iris),
    (naive_bayes.GaussianNB(), iris), (cluster.KMeans(5), iris),
    (lightgbm.LGBMClassifier(n_estimators=20, verbose=-1), iris), (lightgbm.LGBMClassifier(n_estimators=20, verbose=-1), missing),
    (lightgbm.LGBMRegressor(n_estimators=20, verbose=-1), diabetes),
]


def exports(model, x):
    """The model's exports for inputs of float32 and float64, each with its inputs."""
    if isinstance(model, lightgbm.LGBMModel):
        yield onnxmltools.convert_lightgbm(model, initial_types=[("X", Floats([None, x.shape[1]]))], target_opset=15, zipmap=False), np.float32
        return
    options = {"zipmap": False} if hasattr(model, "classes_") else None
    for kind, dtype in ((FloatTensorType, np.float32), (DoubleTensorType, np.float64)):
        try:
            yield skl2onnx.convert_sklearn(model, initial_types=[("X", kind([None, x.shape[1]]))], options=options,
                                           target_opset={"": 21, "ai.onnx.ml": 3}), dtype
        except Exception:
            continue


def differs(want, got):
    if want.dtype.kind in "UO":
        return (want.astype(str) != got.astype(str)).any()
    if want.shape != got.shape or want.dtype != got.dtype:
        return True
    want, got = want.astype(float), got.astype(float)
    return np.abs(want - got).max() > 1e-5 * (1 + np.abs(want).max())


same = made = 0
for model, (x, y) in MODELS:
    model.fit(x, y)
    for export, dtype in exports(model, x):
        try:
            session = onnxruntime.InferenceSession(export.SerializeToString())
            want = dict(zip((o.name for o in session.get_outputs()), session.run(None, {"X": x[:64].astype(dtype)})))
        except Exception:
            continue
        made += 1
        with tempfile.TemporaryDirectory() as work:
            work = pathlib.Path(work)
            (work / "m.onnx").write_bytes(export.SerializeToString())
            np.save(work / "x.npy", x[:64].astype(dtype))
            run = subprocess.run([sys.argv[1], "onnx", "run", work / "m.onnx", "--engine", "pure", "--input", f"X={work / 'x.npy'}", "--out",
                                  work / "out"], capture_output=True, text=True)
            wrong = run.stderr if run.returncode else [n for n, w in want.items()
                                                       if differs(w, np.load(work / "out" / f"{n}.npy", allow_pickle=True))]
        if wrong:
            print(model, dtype.__name__, wrong)
        same += not wrong
print(f"{same} of {made} agree")
