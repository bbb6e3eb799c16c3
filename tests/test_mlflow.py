"""The recipe for MLflow, where it is installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import gpflow_gam as gg

mlflow = pytest.importorskip("mlflow", reason="mlflow is what the recipe is for")

ALONE = """
import sys
for name in ("gpflow", "gpflow_gam", "mlflow_recipe"):
    sys.modules[name] = None  # importing them is an error
import mlflow, pandas as pd
mlflow.set_tracking_uri(sys.argv[1])
rows = pd.read_csv(sys.argv[3])
mlflow.pyfunc.load_model(sys.argv[2]).predict(rows).to_csv(sys.argv[4], index=False)
"""


@pytest.mark.slow  # starts a process that loads it
def test_a_gam_is_logged_and_predicts_elsewhere(tmp_path: Path) -> None:
    import mlflow_recipe

    rng = np.random.default_rng(0)
    data = pd.DataFrame({"x": rng.uniform(size=80), "g": np.tile(["a", "b"], 40)})
    data["y"] = rng.poisson(np.exp(np.sin(6.0 * data["x"]) + (data["g"] == "b")))
    gam = gg.GAM("y ~ s(x, k=5) + factor(g)", "poisson").fit(data, max_iterations=5)
    store, new = f"sqlite:///{tmp_path / 'store.db'}", data[["x", "g"]].head(7)
    mlflow.set_tracking_uri(store)
    mlflow.set_experiment(
        experiment_id=mlflow.create_experiment("gams", artifact_location=str(tmp_path / "files"))
    )
    uri = mlflow_recipe.log(gam, new.head(2), tmp_path)
    result = mlflow_recipe.predict(uri, new)
    np.testing.assert_allclose(result["response"], gam.predict(new), rtol=1e-12)
    served = gg.serving.load(tmp_path / "gam").predict(new)
    np.testing.assert_array_equal(result["lower"], served["lower"])
    new.to_csv(tmp_path / "new.csv", index=False)
    job = [store, uri, str(tmp_path / "new.csv"), str(tmp_path / "found.csv")]
    subprocess.run([sys.executable, "-c", ALONE, *job], check=True, timeout=120)
    alone = pd.read_csv(tmp_path / "found.csv")
    np.testing.assert_allclose(alone, result, rtol=1e-12)
