"""GPflow models, and everything else with an additive posterior and a likelihood."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import tensorflow as tf
from gpflow.likelihoods import Likelihood
from scipy.stats import norm

from ..likelihoods.base import unwrapped
from ..likelihoods.predictive import conditional_response, expected_response, summarised_response
from ..models import AdditiveModel, IterNCGP
from ..posteriors import AdditivePosterior
from .servable import Input, Rows, Servable, servable

LINES = ("mean", "mean_lower", "mean_upper")
"""Answers that are values of predictors."""


class PosteriorAnswers:
    """
    Predictions from a likelihood and a cached posterior; ``share`` of its variance counts for
    classes.
    """

    def __init__(
        self,
        posterior: AdditivePosterior,
        likelihood: Likelihood,
        seed: int = 0,
        share: float = 1.0,
    ) -> None:
        self.posterior = posterior
        self.likelihood = unwrapped(likelihood)
        self.seed = seed
        self.share = share
        self.names = posterior.names

    @property
    def num_predictors(self) -> int:
        """L."""
        return self.posterior.num_latent_gps

    def _single(self, values: tf.Tensor) -> tf.Tensor:
        return values[..., 0] if self.num_predictors == 1 else values

    def predict(self, X: tf.Tensor, level: float, plain: bool = False) -> dict[str, tf.Tensor]:
        joint = self.posterior.couples_outputs
        mean, cov = self.posterior.predict_f(X, full_output_cov=joint)
        var = _rounded(tf.linalg.diag_part(cov) if joint else cov)
        shape = [None, self.num_predictors]
        mean, var = tf.ensure_shape(mean, shape), tf.ensure_shape(var, shape)
        cov = tf.ensure_shape(cov, [*shape, self.num_predictors]) if joint else var
        summary = summarised_response(
            self.likelihood, X, mean, cov, level, seed=self.seed, in_blocks=not plain
        )
        response = summary.mean
        if self.share != 1.0:
            response = expected_response(self.likelihood, X, mean, self.share * cov, seed=self.seed)
        outputs = {
            "mean": self._single(mean),
            "variance": self._single(var),
            "response": response,
            "lower": summary.lower,
            "upper": summary.upper,
        }
        if self.num_predictors > 1:
            half = float(norm.ppf(0.5 + 0.5 * level)) * tf.sqrt(var)
            outputs |= {"mean_lower": mean - half, "mean_upper": mean + half}
        return outputs

    def components(self, X: tf.Tensor) -> dict[str, tf.Tensor]:
        mean, var = self.posterior.predict_components(X)
        return {"mean": mean, "variance": _rounded(var)}

    def sample(self, X: tf.Tensor, num_samples: tf.Tensor, seed: tf.Tensor) -> dict[str, tf.Tensor]:
        F = self.posterior.sample_f(X, num_samples, seed=seed)
        F = tf.ensure_shape(F, [None, None, self.num_predictors])
        response = conditional_response(self.likelihood, X, F)
        return {"predictor": self._single(F), "response": response}


class PosteriorServable(PosteriorAnswers, Servable):
    """Something to be exported that has one posterior and one likelihood."""


def _rounded(var: tf.Tensor) -> tf.Tensor:
    """Variances without the negative ones of rounding."""
    return tf.maximum(var, tf.zeros([], var.dtype))


class ModelServable(PosteriorServable):
    """A trained model of a matrix X: AdditiveSVGP, AdditiveSGPR, AdditiveVGP or IterNCGP."""

    kind: ClassVar[str] = "model"

    def __init__(self, model: AdditiveModel) -> None:
        share = model.predictive_share() if isinstance(model, IterNCGP) else 1.0
        super().__init__(model.posterior(), model.likelihood, share=share)
        self._class = type(model).__name__
        width = _width(model)
        meaning = f"rows of X, {width} columns in the model's order"
        self.inputs = (Input("inputs", tf.float64, (None, width), meaning),)

    def features(self, inputs: Mapping[str, tf.Tensor], rows: Rows) -> tf.Tensor:
        X = tf.cast(inputs["inputs"], tf.float64)
        bad = ~tf.reduce_all(tf.math.is_finite(X), axis=1)
        message = "inputs must be finite; drop or impute the rows; first, row"
        return rows.require(X, bad, [message, tf.where(bad)[:1, 0]], 0.0)

    def description(self) -> dict[str, Any]:
        return {"model": self._class, "likelihood": type(self.likelihood).__name__}


def _width(model: AdditiveModel) -> int:
    """D: of the data where the model holds them, else what the kernel reads."""
    data = getattr(model, "data", None)
    if data is not None:
        return int(data[0].shape[1])
    inputs = [tf.convert_to_tensor(Z) for Z in model.inducing_variable.inputs]
    whole = [int(Z.shape[1]) for Z, c in zip(inputs, model.kernel.columns) if c is None]
    return max([1, model.kernel.num_columns, *whole])


@servable.register(AdditiveModel)
def _model(model: AdditiveModel) -> ModelServable:
    return ModelServable(model)
