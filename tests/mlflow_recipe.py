"""What the documentation says of MLflow, as test_pages runs it."""

from __future__ import annotations

from pathlib import Path

import mlflow
import pandas as pd

import gpflow_gam as gg

SERVED = Path(__file__).with_name("mlflow_served.py")


def log(gam: gg.GAM, rows: pd.DataFrame, folder: Path) -> str:
    """Log a fitted GAM with a few rows, of whose columns MLflow learns, and say where it is."""
    gg.serving.export(gam, folder / "gam")
    with mlflow.start_run():
        info = mlflow.pyfunc.log_model(
            name="gam",
            python_model=str(SERVED),
            artifacts={"gam": str(folder / "gam")},
            input_example=rows,
            pip_requirements=["mlflow", "tensorflow", "pandas"],
        )
        mlflow.log_metric("deviance explained", gam.summary().deviance_explained)
    return str(info.model_uri)


def predict(uri: str, rows: pd.DataFrame) -> pd.DataFrame:
    """What any program answers that can read the store."""
    return mlflow.pyfunc.load_model(uri).predict(rows)
