"""Dense ``Kuu`` and ``Kuf`` for GPflow's own models on our kernel and inducing variables."""

from __future__ import annotations

import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import TensorLike, TensorType
from gpflow.covariances import Kuf, Kuu
from gpflow.kernels import Kernel

from ..inducing_variables.additive import AdditiveInducingVariables
from ..kernels import AdditiveKernel
from .blocks import InducingBlocks
from .jitter import jittered, own_jitter


@Kuu.register(AdditiveInducingVariables, AdditiveKernel)
@check_shapes(
    "inducing_variable: [P, D, 1]",
    "return: [P, P]",
)
def kuu_additive(
    inducing_variable: AdditiveInducingVariables, kernel: AdditiveKernel, *, jitter: float = 0.0
) -> tf.Tensor:
    """
    blockdiag_c(K_c + jitter trace(K_c) / M_c I), K_c = k_c(Z_c, Z_c), in component order.

    As :meth:`InducingBlocks.cholesky` has it, nothing added where K_c is diagonal and less for
    levels: GPflow's models on our pair are then the same models.

    :param inducing_variable: Z.
    :param kernel: of as many components.
    :param jitter: as a share of each component's own variance.
    :return: [P, P].
    """
    blocks = InducingBlocks(inducing_variable, kernel, double=False)
    singles: list[tf.Tensor] = [None] * kernel.num_components
    for group, K in zip(blocks.groups, blocks.kuu()):
        share = own_jitter(jitter, kernel.kernels[group.indices[0]], K.dtype)
        own = jittered(K, share) if share else K
        for row, index in zip(tf.unstack(own), group.indices):
            singles[index] = row
    operators = [tf.linalg.LinearOperatorFullMatrix(K) for K in singles]
    return tf.linalg.LinearOperatorBlockDiag(operators).to_dense()


@Kuf.register(AdditiveInducingVariables, AdditiveKernel, TensorLike)
@check_shapes(
    "inducing_variable: [P, D, 1]",
    "Xnew: [batch..., N, D2]",
    "return: [P, batch..., N]",
)
def kuf_additive(
    inducing_variable: AdditiveInducingVariables, kernel: AdditiveKernel, Xnew: TensorType
) -> tf.Tensor:
    """
    Cov(U, rho(x)) = [k_1(Z_1, x), ..., k_C(Z_C, x)], in component order.

    :param inducing_variable: Z.
    :param kernel: of as many components.
    :param Xnew: [N, D].
    """
    blocks = InducingBlocks(inducing_variable, kernel, double=False)
    shape = tf.shape(Xnew)
    flat = tf.reshape(Xnew, [-1, Xnew.shape[-1]])
    dense = blocks.layout.to_components(blocks.layout.concat(blocks.kuf(flat)))
    return tf.reshape(dense, tf.concat([tf.shape(dense)[:1], shape[:-1]], axis=0))


def _no_such_pair(kernel: Kernel) -> TypeError:
    return TypeError(
        "AdditiveInducingVariables need an AdditiveKernel, whose components they belong to; got "
        f"{type(kernel).__name__}. Build gpflow_gam.kernels.AdditiveKernel([...]) from its parts."
    )


@Kuu.register(AdditiveInducingVariables, Kernel)
def _kuu_other(
    inducing_variable: AdditiveInducingVariables, kernel: Kernel, *, jitter: float = 0.0
) -> tf.Tensor:
    raise _no_such_pair(kernel)


@Kuf.register(AdditiveInducingVariables, Kernel, TensorLike)
def _kuf_other(
    inducing_variable: AdditiveInducingVariables, kernel: Kernel, Xnew: TensorType
) -> tf.Tensor:
    raise _no_such_pair(kernel)
