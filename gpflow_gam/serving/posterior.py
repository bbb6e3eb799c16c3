"""What is exported of everything that has an additive posterior and a likelihood."""

from __future__ import annotations

import tensorflow as tf
from gpflow.likelihoods import Likelihood
from scipy.stats import norm

from ..likelihoods.base import unwrapped
from ..likelihoods.predictive import conditional_response, expected_response, summarised_response
from ..posteriors import AdditivePosterior
from .servable import Servable

LINES = ("mean", "mean_lower", "mean_upper")
"""Answers that are values of predictors."""


class PosteriorAnswers:
    """
    Predictions from a posterior with its cache and a likelihood.

    :param posterior: cached, so that no prediction factorises anything.
    :param likelihood: the likelihood, with or without weights.
    :param seed: of the draws behind the expected response of several predictors.
    :param share: of the predictors' variance, which counts in predictions of classes.
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
        """See :meth:`Servable.predict`."""
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
        found = {
            "mean": self._single(mean),
            "variance": self._single(var),
            "response": response,
            "lower": summary.lower,
            "upper": summary.upper,
        }
        if self.num_predictors > 1:  # of which limits of the response say little
            half = float(norm.ppf(0.5 + 0.5 * level)) * tf.sqrt(var)
            found |= {"mean_lower": mean - half, "mean_upper": mean + half}
        return found

    def components(self, X: tf.Tensor) -> dict[str, tf.Tensor]:
        """See :meth:`Servable.components`."""
        mean, var = self.posterior.predict_components(X)
        return {"mean": mean, "variance": _rounded(var)}

    def sample(self, X: tf.Tensor, num_samples: tf.Tensor, seed: tf.Tensor) -> dict[str, tf.Tensor]:
        """See :meth:`Servable.sample`."""
        F = self.posterior.sample_f(X, num_samples, seed=seed)
        F = tf.ensure_shape(F, [None, None, self.num_predictors])
        response = conditional_response(self.likelihood, X, F)
        return {"predictor": self._single(F), "response": response}


class PosteriorServable(PosteriorAnswers, Servable):
    """Something to be exported that has one posterior and one likelihood."""


def _rounded(var: tf.Tensor) -> tf.Tensor:
    """Variances without the negative ones of rounding."""
    return tf.maximum(var, tf.zeros([], var.dtype))
