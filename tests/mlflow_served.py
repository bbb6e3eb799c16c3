"""An exported GAM as a model of MLflow: needs neither GPflow nor gpflow_gam."""

from __future__ import annotations

from typing import Any

import mlflow
import pandas as pd
import tensorflow as tf


class ServedGAM(mlflow.pyfunc.PythonModel):
    """The response with its credible interval, by the columns of a table."""

    def load_context(self, context: Any) -> None:
        self.model = tf.saved_model.load(context.artifacts["gam"])
        self.signature = self.model.signatures["predict"]

    def predict(self, context: Any, model_input: pd.DataFrame, params: Any = None) -> pd.DataFrame:
        columns = {
            name: tf.constant(model_input[name].to_numpy(object), spec.dtype)
            for name, spec in self.signature.structured_input_signature[1].items()
        }
        result = self.signature(**columns)
        return pd.DataFrame({name: result[name] for name in ("response", "lower", "upper")})


mlflow.models.set_model(ServedGAM())  # MLflow keeps this file, and no pickle of ours
