"""tritonclient's default call, in binary tensors, beside the same call in JSON and by gRPC. Exits with 2 while there is no classifier."""

import sys

import numpy as np
import tritonclient.grpc
import tritonclient.http as triton

address, token = sys.argv[1:]


def headers():  # anew for each call, as tritonclient adds to what it is given
    return {"Authorization": "Bearer " + token}


client = triton.InferenceServerClient(address)
by_grpc = tritonclient.grpc.InferenceServerClient(address)
assert client.is_server_live()
if not client.is_model_ready("classifier"):
    sys.exit(2)
meta = client.get_model_metadata("classifier", headers=headers())
config = client.get_model_config("classifier", headers=headers())
assert [i["name"] for i in meta["inputs"]] == [i["name"] for i in config["input"]], (meta, config)
assert "binary_tensor_data" in client.get_server_metadata(headers=headers())["extensions"]
before = client.get_inference_statistics(headers=headers())["model_stats"][0]["inference_count"]
for kind in meta["inputs"]:
    shape = [3] + kind["shape"][1:]
    random = np.random.default_rng(1)
    x = random.integers(0, 256, shape).astype(np.uint8) if kind["datatype"] == "UINT8" else random.normal(size=shape).astype(np.float32)
    given = triton.InferInput(kind["name"], shape, kind["datatype"])
    given.set_data_from_numpy(x)
    default = client.infer("classifier", [given], headers=headers())
    given.set_data_from_numpy(x, binary_data=False)
    wanted = [triton.InferRequestedOutput(o["name"], binary_data=False) for o in meta["outputs"]]
    text = client.infer("classifier", [given], outputs=wanted, headers=headers())
    message = tritonclient.grpc.InferInput(kind["name"], shape, kind["datatype"])
    message.set_data_from_numpy(x)
    called = by_grpc.infer("classifier", [message], headers={"authorization": "Bearer " + token})
    for o in meta["outputs"]:
        a = default.as_numpy(o["name"])
        for b in text.as_numpy(o["name"]), called.as_numpy(o["name"]):
            assert a.shape == b.shape and np.array_equal(a, b), (o, a, b)
    p = default.as_numpy("probabilities")
    assert np.allclose(p.sum(axis=1), 1, atol=1e-5), p
after = client.get_inference_statistics("classifier", headers=headers())["model_stats"][0]["inference_count"]
assert after - before == 9 * len(meta["inputs"]), (before, after)
print(f"tritonclient {triton.__name__.split('.')[0]}: {len(meta['inputs'])} inputs, binary, JSON and gRPC agree, {after - before} inferences counted")
