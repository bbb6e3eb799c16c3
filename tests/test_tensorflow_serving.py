"""What TensorFlow Serving reads and writes, with its own messages but without a server."""

from __future__ import annotations

import json
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


@pytest.mark.parametrize("name", SIGNATURES)
def test_rest(model: Any, signatures: Any, name: str) -> None:
    """Rows and columns are the same request, and answers can be cut into rows."""
    rows = [{"x": x, "g": g} for x, g in zip(NEW["x"], NEW["g"])]
    by_row = json.loads(json.dumps({"signature_name": name, "instances": rows}))
    by_column = json.loads(json.dumps({"signature_name": name, "inputs": NEW}))
    columns = {k: [row[k] for row in by_row["instances"]] for k in by_row["instances"][0]}
    call = signatures[name]
    answers = []
    for inputs in (columns, by_column["inputs"]):
        specs = call.structured_input_signature[1]
        assert set(inputs) == set(specs)
        outputs = call(**{k: tf.constant(v, specs[k].dtype) for k, v in inputs.items()})
        assert {len(v) for v in outputs.values()} == {len(rows)}
        answers.append({k: v.numpy().tolist() for k, v in outputs.items()})
    assert answers[0] == answers[1]
    predictions = [{k: v[i] for k, v in answers[0].items()} for i in range(len(rows))]
    one = call(**{k: tf.constant(v[1:2], specs[k].dtype) for k, v in NEW.items()})
    for key, value in json.loads(json.dumps(predictions))[1].items():
        np.testing.assert_allclose(value, one[key][0], rtol=1e-12, atol=1e-14)


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
    with pytest.raises(ValueError, match="version and warmup are TensorFlow Serving's"):
        gg.serving.export(gam, tmp_path / "m.onnx", version=1)
    assert list(tmp_path.iterdir()) == []
