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

_LEAST = -0.5
"""Precision of sites in any direction, beside the prior's of one."""


@dataclass(frozen=True)
class SiteStep:
    """What a natural-gradient step saw."""

    elbo: float
    """The ELBO of the (mini)batch before the step."""

    num_negative: int
    """Observations whose weight was negative: not log-concave there."""


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
    2017; Adam, Chang, Khan & Solin 2021), and q is too sure by some percent. With ``signed`` they
    count, but take no more than half of the prior's precision in any direction: right near the
    optimum, and astray far from it.

    :param rho: step size in (0, 1].
    :param signed: whether negative weights count.
    :raises ValueError: a step size outside (0, 1].
    """

    def __init__(self, rho: float = 1.0, signed: bool = False) -> None:
        if not 0.0 < rho <= 1.0:
            raise ValueError(f"rho must be in (0, 1]; got {rho}.")
        self.rho, self.signed = rho, signed
        # not on the model: a module that holds a tf.function cannot be copied
        self._compiled: dict[
            tuple[AdditiveSVGP, bool], Callable[..., tuple[tf.Tensor, tf.Tensor]]
        ] = {}

    def step(self, model: AdditiveSVGP, data: RegressionData, rho: float | None = None) -> SiteStep:
        """
        Move q towards its optimum for this batch, at the model's hyperparameters.

        :param model: a :class:`~gpflow_gam.models.AdditiveSVGP` with
            ``variational=OptimalPrecision()``.
        :param data: X [N, D] and Y [N, K], all or a minibatch.
        :param rho: another step size for this step.
        :return: the ELBO before it, and how many sites had negative weights.
        :raises TypeError: another variational family.
        :raises ValueError: data that are not finite, do not fit together or are no possible
            observations.
        """
        check_sites(model)
        data = checked_data(data, model.kernel, model.likelihood)
        step_size = tf.constant(self.rho if rho is None else rho, dtype=data[0].dtype)
        elbo, negative = self._function(model)(data[0], data[1], step_size)
        return SiteStep(float(elbo), int(negative))

    def _function(self, model: AdditiveSVGP) -> Callable[..., tuple[tf.Tensor, tf.Tensor]]:
        own = model, self.signed
        if own not in self._compiled:
            self._compiled[own] = tf.function(
                _stepper(*own), reduce_retracing=True, autograph=False
            )
        return self._compiled[own]


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


def _stepper(model: AdditiveSVGP, signed: bool) -> Callable[..., tuple[tf.Tensor, tf.Tensor]]:
    return lambda X, Y, rho: site_step(model, X, Y, rho, signed=signed)


def site_step(
    model: AdditiveSVGP,
    X: tf.Tensor,
    Y: tf.Tensor,
    rho: tf.Tensor,
    kl_weight: float = 1.0,
    signed: bool = False,
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
    :param signed: as :class:`NaturalGradient`.
    :return: the batch's ELBO before the step, and how many weights were negative.
    """
    family = check_sites(model)
    cholesky = model.blocks.cholesky()
    q = family.whitened(cholesky)
    seen = sweep(model, (X, Y), cholesky, q, signed)
    precision, shift = family.sites(cholesky)
    rho = tf.cast(rho, precision.dtype)
    scale = tf.cast(1.0, rho.dtype)
    if model.num_data is not None:
        scale = tf.cast(model.num_data, rho.dtype) / tf.cast(tf.shape(X)[0], rho.dtype)
    step = rho * scale / kl_weight

    precision = (1.0 - rho) * precision + step * seen.sums.precision
    shift = (1.0 - rho) * shift + step * seen.sums.shift
    if signed:
        precision, shift = _kept(precision, shift, q.mean)
    family.assign_sites(cholesky, precision, shift)
    return tf.cast(scale * seen.expected - kl_weight * q.kl(), X.dtype), seen.num_negative


def _kept(precision: tf.Tensor, shift: tf.Tensor, mean: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """
    A site whose eigenvalues are at least :data:`_LEAST`, and the same slopes at a mean.

    :param precision: Lambda, [L, P, P].
    :param shift: eta, [P, L].
    :param mean: of q(V), at which the sites were taken, [P, L].
    """

    def raised() -> tuple[tf.Tensor, tf.Tensor]:
        values, vectors = tf.linalg.eigh(precision)
        more = tf.maximum(_LEAST - values, tf.zeros([], values.dtype))
        added = tf.matmul(vectors * more[:, None, :], vectors, transpose_b=True)
        along = tf.transpose(tf.linalg.matvec(added, tf.transpose(mean)))
        return precision + added, shift + along

    margin = tf.linalg.set_diag(precision, tf.linalg.diag_part(precision) - _LEAST)
    good = tf.reduce_all(tf.math.is_finite(tf.linalg.cholesky(margin)))
    found: tuple[tf.Tensor, tf.Tensor] = tf.cond(good, lambda: (precision, shift), raised)
    return found
