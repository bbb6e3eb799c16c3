"""The priors of many parameters as one density."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import AnyNDArray, Parameter, PriorOn

_HALF_LOG_2_PI = 0.5 * float(np.log(2.0 * np.pi))


def log_prior_density(parameters: Sequence[Parameter]) -> tf.Tensor:
    """
    The log-densities of the parameters' priors, added up as GPflow counts them, [].

    Log-normal priors of parameters that are kept in logarithms, which all of a GAM's are, are
    evaluated together: one by one they were half of all operations of a training step.

    :param parameters: of which some have priors, all in one floating type.
    """
    together = [p for p in parameters if _is_log_normal(p)]
    known = {id(p) for p in together}
    others = (p for p in parameters if p.prior is not None and id(p) not in known)
    densities = [p.log_prior_density() for p in others]
    if together:
        densities.append(_log_normal(together))
    if densities:
        return tf.add_n(densities)
    return tf.zeros([], dtype=parameters[0].dtype)


def _is_log_normal(parameter: Parameter) -> bool:
    prior: Any = parameter.prior
    return (
        type(prior) is tfp.distributions.LogNormal
        and parameter.prior_on is PriorOn.CONSTRAINED
        and isinstance(parameter.transform, tfp.bijectors.Exp)
        and all(tf.get_static_value(c) is not None for c in (prior.loc, prior.scale))
    )


def _log_normal(parameters: Sequence[Parameter]) -> tf.Tensor:
    """Of exponentials: normal densities of their logarithms, less these (the change of measure)."""
    log_values = tf.concat([tf.reshape(p.unconstrained_variable, [-1]) for p in parameters], axis=0)
    location, scale = (
        np.concatenate([_entries(getattr(p.prior, name), p) for p in parameters])
        for name in ("loc", "scale")
    )
    z = (log_values - location) / scale
    normaliser = float(np.sum(np.log(scale) + _HALF_LOG_2_PI))
    return -tf.reduce_sum(0.5 * tf.square(z) + log_values) - normaliser


def _entries(value: Any, parameter: Parameter) -> AnyNDArray:
    """A prior's constant for every entry of its parameter, flat."""
    return np.broadcast_to(tf.get_static_value(value), tuple(parameter.shape)).ravel()
