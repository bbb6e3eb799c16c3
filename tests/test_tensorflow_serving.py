"""What TensorFlow Serving reads and writes, with its own messages but without a server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import gpflow_gam as gg
from gpflow_gam.serving.export import WARMUP

predict_pb2 = pytest.importorskip(
    "tensorflow_serving.apis.predict_pb2", reason="tensorflow-serving-api has the messages"
)
from tensorflow_serving.apis import prediction_log_pb2  # noqa: E402

NEW = {"x": [0.2, 0.9, 0.4], "g": ["a", "b", "a"]}
SIGNATURES = ("predict", "predict_components")


@pytest.fixture(scope="module")
def model(tmp_path_factory: Any) -> tuple[gg.GAM, Path]:
    """A GAM and its folder, in version 3."""
    rng = np.random.default_rng(0)
    data = {"x": rng.uniform(size=60), "g": np.tile(["a", "b"], 30)}
    gam = gg.GAM(gg.s("x", k=4) + gg.factor("g"))
    gam.fit(data, np.sin(6.0 * data["x"]) + 0.1 * rng.normal(size=60), max_iterations=5)
    path = tmp_path_factory.mktemp("models") / "waves"
    gg.serving.export(gam, path, version=3, warmup=NEW)
    return gam, path


@pytest.fixture(scope="module")
def signatures(model: Any) -> Any:
    return tf.saved_model.load(str(model[1] / "3")).signatures


def answered(signatures: Any, request: Any) -> Any:
    """As a server: a request's tensors, a signature, and a response's tensors."""
    inputs = {key: tf.constant(tf.make_ndarray(proto)) for key, proto in request.inputs.items()}
    response = predict_pb2.PredictResponse()
    response.model_spec.CopyFrom(request.model_spec)
    outputs = signatures[request.model_spec.signature_name](**inputs)
    for key, value in outputs.items():
        response.outputs[key].CopyFrom(tf.make_tensor_proto(value.numpy()))
    return response


@pytest.mark.slow
def test_messages(model: Any, signatures: Any) -> None:
    request = predict_pb2.PredictRequest()
    request.model_spec.name, request.model_spec.signature_name = "waves", "predict"
    request.inputs["x"].CopyFrom(tf.make_tensor_proto(NEW["x"], tf.float64))
    request.inputs["g"].CopyFrom(tf.make_tensor_proto(NEW["g"]))
    sent = predict_pb2.PredictRequest.FromString(request.SerializeToString())
    response = answered(signatures, sent).SerializeToString()
    outputs = predict_pb2.PredictResponse.FromString(response).outputs
    result = tf.make_ndarray(outputs["response"])
    expected = model[0].predict(NEW, unconditional=False)
    np.testing.assert_allclose(result, expected, rtol=1e-10, atol=1e-12)


def test_warmup(model: Any, signatures: Any) -> None:
    """A request for each signature, which it answers with the GAM's numbers."""
    records = tf.data.TFRecordDataset(str(model[1] / "3" / WARMUP))
    logs = [prediction_log_pb2.PredictionLog.FromString(r.numpy()) for r in records]
    requests = [log.predict_log.request for log in logs]
    assert [r.model_spec.signature_name for r in requests] == list(SIGNATURES)
    assert {r.model_spec.name for r in requests} == {"waves"}
    result = tf.make_ndarray(answered(signatures, requests[0]).outputs["mean"])
    np.testing.assert_allclose(result, model[0].predict(NEW), rtol=1e-12)
    answered(signatures, requests[1])


@pytest.mark.slow
def test_versions(model: Any, tmp_path: Path) -> None:
    gam, path = model
    assert [p.name for p in path.iterdir()] == ["3"]
    with pytest.raises(FileExistsError, match="3 is there already"):
        gg.serving.export(gam, path, version=3)
    for version in (0, True, 1.0):
        with pytest.raises(ValueError, match="version must be a whole number of at least 1"):
            gg.serving.export(gam, tmp_path / "m", version=version)
    with pytest.raises(ValueError, match="has no|no column|not there"):
        gg.serving.export(gam, tmp_path / "m", warmup={"x": [1.0]})
    assert list(tmp_path.iterdir()) == []
