"""The distribution of a response given its predictor, for likelihoods that can say it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gpflow
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.likelihoods import Likelihood

tfd = tfp.distributions

_KNOWN: dict[type, Callable[[Any, tf.Tensor], Any]] = {
    gpflow.likelihoods.Bernoulli: lambda lik, F: tfd.Bernoulli(probs=lik.invlink(F), dtype=F.dtype),
    gpflow.likelihoods.Exponential: lambda lik, F: tfd.Exponential(1.0 / lik.invlink(F)),
    gpflow.likelihoods.Poisson: lambda lik, F: tfd.Poisson(
        lik.invlink(F) * tf.cast(lik.binsize, F.dtype)
    ),
}
"""Of GPflow's own likelihoods that no family of a GAM is, by their exact class."""


def conditional_distribution(likelihood: Likelihood, F: tf.Tensor) -> Any:
    """
    p(y | F) as a distribution of TensorFlow Probability's, of batch shape [..., 1].

    A likelihood says it by a method ``conditional_distribution(F)``, as those of GPflow's
    ``MultiLatentTFPConditional`` do.

    :param likelihood: of the responses.
    :param F: [..., L].
    :return: None for a likelihood that does not say it.
    """
    own = getattr(likelihood, "conditional_distribution", None)
    if callable(own):
        return own(F)
    known = _KNOWN.get(type(likelihood))
    return None if known is None else known(likelihood, F)
