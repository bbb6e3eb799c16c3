"""
Our meaning of (q_mu, q_sqrt) where GPflow dispatches on (inducing variables, kernel).

Unregistered, GPflow's base cases would read whatever they are given for ours as a whitened or
unwhitened dense Gaussian and return wrong numbers without a word.
"""

from __future__ import annotations

import tensorflow as tf
from gpflow.base import TensorType
from gpflow.config import default_jitter
from gpflow.covariances import Kuu
from gpflow.kernels import Kernel
from gpflow.kullback_leiblers import gauss_kl, prior_kl
from gpflow.posteriors import (
    IndependentPosteriorSingleOutput,
    get_posterior_class,
)

from ..covariances import InducingBlocks
from ..inducing_variables import AdditiveInducingVariables
from ..kernels import AdditiveKernel
from ..variational import VariationalFamily


@prior_kl.register(AdditiveInducingVariables, AdditiveKernel, object, object)
def _prior_kl_dense(
    inducing_variable: AdditiveInducingVariables,
    kernel: AdditiveKernel,
    q_mu: TensorType,
    q_sqrt: TensorType,
    whiten: bool = False,
) -> tf.Tensor:
    """q_mu [P, L] and q_sqrt [L, P, P] or [P, L] over the stacked U, as GPflow's SVGP holds."""
    P = sum(inducing_variable.sizes)
    if isinstance(q_mu, VariationalFamily):
        raise TypeError(
            "prior_kl takes (q_mu, q_sqrt); for a family of q(U) call model.prior_kl() or "
            "family.kl(cholesky)."
        )
    expected = f"[P, L] with P = {P}, all components stacked"
    if q_mu.shape.rank != 2 or q_mu.shape[0] != P:
        raise ValueError(f"q_mu must be {expected}; got shape {q_mu.shape}.")
    if q_sqrt.shape.rank not in (2, 3) or q_sqrt.shape[-2] != P:
        raise ValueError(
            f"q_sqrt must be [L, P, P] or [P, L] with P = {P}; got shape {q_sqrt.shape}."
        )
    K = None if whiten else Kuu(inducing_variable, kernel, jitter=default_jitter())
    return gauss_kl(q_mu, q_sqrt, K)


@get_posterior_class.register(AdditiveKernel, AdditiveInducingVariables)
def _posterior_class_dense(
    kernel: AdditiveKernel, inducing_variable: AdditiveInducingVariables
) -> type:
    """A GPflow model on our pair holds a dense q over the stacked U: one GP with P values."""
    InducingBlocks(inducing_variable, kernel)  # raises where the two do not fit together
    return IndependentPosteriorSingleOutput


@get_posterior_class.register(Kernel, AdditiveInducingVariables)
def _posterior_class_other(kernel: Kernel, inducing_variable: AdditiveInducingVariables) -> type:
    raise TypeError(
        "AdditiveInducingVariables need an AdditiveKernel; got "
        f"{type(kernel).__name__}. Build gpflow_gam.kernels.AdditiveKernel([...]) from its parts."
    )
