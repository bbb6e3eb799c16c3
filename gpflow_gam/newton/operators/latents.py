"""The independent Gaussian processes behind the outputs of a kernel."""

from __future__ import annotations

from dataclasses import dataclass

import tensorflow as tf
from gpflow.base import Parameter
from gpflow.kernels import (
    Kernel,
    LinearCoregionalization,
    MultioutputKernel,
    SeparateIndependent,
    SharedIndependent,
)
from gpflow.utilities import deepcopy

from ...kernels import AdditiveKernel, SeparateAdditive


def as_additive(kernel: Kernel) -> AdditiveKernel:
    """
    ``kernel``, or an additive kernel of which it is the one component.

    :param kernel: any.
    """
    return kernel if isinstance(kernel, AdditiveKernel) else AdditiveKernel({"f": kernel})


@dataclass(frozen=True)
class LatentKernels:
    """
    Q independent latent functions g_q ~ GP(0, k_q), and outputs ``f = A g``.

    Built by :meth:`of` from any GPflow kernel: one kernel for all outputs, one an output
    (``SeparateIndependent``), or a linear coregionalisation, whose mixing A then belongs to the
    likelihood's side, so that what is left is separate.
    """

    kernels: tuple[AdditiveKernel, ...]
    """One, shared, or one a latent function."""

    num_latents: int
    """Q."""

    mixing: Parameter | tf.Tensor | None = None
    """A [L, Q]; None where the outputs are the latent functions."""

    @classmethod
    def of(cls, kernel: Kernel, num_outputs: int) -> LatentKernels:
        """
        :param kernel: of the outputs.
        :param num_outputs: L, what the likelihood takes.
        :raises TypeError: no kernel, or a multi-output kernel of an unknown kind.
        :raises ValueError: its outputs are not ``num_outputs``.
        """
        if not isinstance(kernel, Kernel):
            raise TypeError(f"kernel must be a gpflow kernel; got {type(kernel).__name__}.")
        if isinstance(kernel, SeparateAdditive):
            kernel = SeparateIndependent(list(kernel.latent_kernels))
        if not isinstance(kernel, MultioutputKernel):
            return cls((as_additive(kernel),), num_outputs)
        if isinstance(kernel, SharedIndependent):
            found = cls((as_additive(kernel.kernel),), int(kernel.num_latent_gps))
        elif isinstance(kernel, LinearCoregionalization):
            kernels = tuple(as_additive(k) for k in kernel.kernels)
            found = cls(kernels, len(kernels), kernel.W)
        elif isinstance(kernel, SeparateIndependent):
            kernels = tuple(as_additive(k) for k in kernel.kernels)
            found = cls(kernels, len(kernels))
        else:
            raise TypeError(
                "kernel must be a single-output kernel, SharedIndependent, SeparateIndependent or "
                f"LinearCoregionalization; got {type(kernel).__name__}."
            )
        if found.num_outputs != num_outputs:
            raise ValueError(
                f"kernel has {found.num_outputs} output(s), but the likelihood takes "
                f"{num_outputs}; give it one kernel an output."
            )
        return found

    def copied(self) -> LatentKernels:
        """With kernels and mixing of its own, of the same values."""
        mixing = self.mixing
        if isinstance(mixing, Parameter):
            mixing = deepcopy(mixing)
        return LatentKernels(tuple(map(deepcopy, self.kernels)), self.num_latents, mixing)

    @property
    def variables(self) -> list[tf.Variable]:
        """Of the kernels and the mixing."""
        found = [v for kernel in self.kernels for v in kernel.variables]
        return [*found, *(self.mixing.variables if isinstance(self.mixing, Parameter) else ())]

    @property
    def shared(self) -> bool:
        """Whether one kernel serves all latent functions."""
        return len(self.kernels) == 1

    @property
    def num_outputs(self) -> int:
        """L."""
        return self.num_latents if self.mixing is None else int(self.mixing.shape[0])

    def mixed(self, g: tf.Tensor, axis: int = 0) -> tf.Tensor:
        """
        A g, where ``axis`` of g counts the latent functions.

        :param g: latent functions, [..., Q, ...].
        :param axis: of g.
        """
        if self.mixing is None:
            return g
        mixing = tf.cast(tf.convert_to_tensor(self.mixing), g.dtype)
        rolled = tf.tensordot(mixing, g, axes=[[1], [axis]])  # outputs first
        rank = g.shape.rank
        order = list(range(1, rank))
        order.insert(axis % rank, 0)
        return tf.transpose(rolled, order)
