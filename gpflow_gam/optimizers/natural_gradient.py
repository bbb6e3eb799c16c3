"""Natural gradients of the ELBO in q, as updates of its sites."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import tensorflow as tf
from gpflow.base import RegressionData

from ..likelihoods import checked_data
from ..models import AdditiveSVGP
from ..variational import OptimalPrecision
from .sites import sweep


@dataclass(frozen=True)
class SiteStep:
    """What a natural-gradient step saw."""

    elbo: float
    """The ELBO of the (mini)batch before the step."""

    num_negative: int
    """Observations whose weight was negative and counted as 0: not log-concave there."""


class NaturalGradient:
    r"""
    Natural-gradient steps for :class:`~gpflow_gam.variational.OptimalPrecision`.

    .. math::
        \Lambda \leftarrow (1-\rho) \Lambda + \rho \sum_n w_n \phi_n \phi_n',\qquad
        \eta \leftarrow (1-\rho) \eta + \rho \sum_n (g_n + w_n m_n) \phi_n

    With rho = 1 on all data this is a variational form of penalised iteratively reweighted least
    squares, and for a Gaussian likelihood it is exact in one step. On minibatches take rho < 1;
    sums are scaled by ``num_data`` over the batch's rows. Weights w_n < 0, which only likelihoods
    that are not log-concave have, count as 0, so that the precision stays positive (Khan & Lin
    2017; Adam, Chang, Khan & Solin 2021).

    :param rho: step size in (0, 1].
    :raises ValueError: a step size outside (0, 1].
    """

    def __init__(self, rho: float = 1.0) -> None:
        if not 0.0 < rho <= 1.0:
            raise ValueError(f"rho must be in (0, 1]; got {rho}.")
        self.rho = rho
        # not on the model: a module that holds a tf.function cannot be copied
        self._compiled: dict[AdditiveSVGP, Callable[..., tuple[tf.Tensor, tf.Tensor]]] = {}

    def step(self, model: AdditiveSVGP, data: RegressionData, rho: float | None = None) -> SiteStep:
        """
        Move q towards its optimum for this batch, at the model's hyperparameters.

        :param model: a :class:`~gpflow_gam.models.AdditiveSVGP` with
            ``variational=OptimalPrecision()``.
        :param data: X [N, D] and Y [N, K], all or a minibatch.
        :param rho: another step size for this step.
        :raises TypeError: another variational family.
        """
        check_sites(model)
        data = checked_data(data, model.kernel, model.likelihood)
        step_size = tf.constant(self.rho if rho is None else rho, dtype=data[0].dtype)
        elbo, negative = self._function(model)(data[0], data[1], step_size)
        return SiteStep(float(elbo), int(negative))

    def _function(self, model: AdditiveSVGP) -> Callable[..., tuple[tf.Tensor, tf.Tensor]]:
        if model not in self._compiled:
            self._compiled[model] = tf.function(
                _stepper(model), reduce_retracing=True, autograph=False
            )
        return self._compiled[model]


def check_sites(model: AdditiveSVGP) -> OptimalPrecision:
    """
    :raises TypeError: ``model`` holds no sites.
    """
    family = getattr(model, "variational", None)
    if not isinstance(family, OptimalPrecision):
        raise TypeError(
            "natural gradients need an AdditiveSVGP with variational=OptimalPrecision(); got "
            f"{type(model).__name__} with {type(family).__name__}. Train that with Adam or L-BFGS."
        )
    return family


def _stepper(model: AdditiveSVGP) -> Callable[..., tuple[tf.Tensor, tf.Tensor]]:
    return lambda X, Y, rho: site_step(model, X, Y, rho)


def site_step(
    model: AdditiveSVGP, X: tf.Tensor, Y: tf.Tensor, rho: tf.Tensor, kl_weight: float = 1.0
) -> tuple[tf.Tensor, tf.Tensor]:
    """
    The step of :class:`NaturalGradient`, for use inside compiled functions.

    Where the KL counts ``kl_weight``, the optimum is that of the data counted ``1 / kl_weight``
    times: the sites take all of the data's term, and the prior's precision is added as it is.

    :param model: with sites.
    :param X: [N, D].
    :param Y: [N, K].
    :param rho: step size.
    :param kl_weight: what the KL divergence of q is multiplied by in the ELBO, positive.
    :return: the batch's ELBO before the step, and how many weights were negative.
    """
    family = check_sites(model)
    cholesky = model.blocks.cholesky()
    q = family.whitened(cholesky)
    seen = sweep(model, (X, Y), cholesky, q)
    precision, shift = family.sites(cholesky)
    rho = tf.cast(rho, precision.dtype)
    scale = tf.cast(1.0, rho.dtype)
    if model.num_data is not None:
        scale = tf.cast(model.num_data, rho.dtype) / tf.cast(tf.shape(X)[0], rho.dtype)
    step = rho * scale / kl_weight
    family.assign_sites(
        cholesky,
        (1.0 - rho) * precision + step * seen.sums.precision,
        (1.0 - rho) * shift + step * seen.sums.shift,
    )
    return tf.cast(scale * seen.expected - kl_weight * q.kl(), X.dtype), seen.num_negative
