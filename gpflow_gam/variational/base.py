"""What the families of q(U) have in common."""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, Module, Parameter, TensorType
from gpflow.config import default_float
from gpflow.utilities import triangular

from ..layout import BlockLayout
from .gaussian import WhitenedGaussian

Cholesky = Sequence[tf.Tensor]
"""Lower Cholesky factors of K_c(Z_c, Z_c), one [G, M, M] a group."""
Prior = Callable[[], Cholesky]
"""Gives those factors, where they are needed."""


class PriorFactors(Sequence[tf.Tensor]):
    """
    The prior's factors, computed when they are first looked at: whitened families may never.

    :param prior: gives them.
    """

    def __init__(self, prior: Prior) -> None:
        self._prior = prior

    @functools.cached_property
    def _factors(self) -> Cholesky:
        return self._prior()

    def __getitem__(self, index: Any) -> Any:
        return self._factors[index]

    def __len__(self) -> int:
        return len(self._factors)


class VariationalFamily(Module, abc.ABC):
    """
    A family of Gaussians q(U) over the inducing values of all components.

    Constructed without sizes; the model that it is given to calls :meth:`build`. Then it holds
    parameters, and :meth:`whitened` turns them into a Gaussian over V, ``U_c = L_c V_c``.

    :param whiten: whether the parameters describe V (the default) or U itself.
    """

    def __init__(self, *, whiten: bool = True) -> None:
        super().__init__()
        self.whiten = whiten
        self._layout: BlockLayout | None = None
        self._members: AnyNDArray | None = None
        self.num_latent_gps = 0

    @property
    def built(self) -> bool:
        """Whether a model has given this family its sizes."""
        return self._layout is not None

    @property
    def layout(self) -> BlockLayout:
        """
        The blocks; raises before :meth:`build`.

        :raises ValueError: before :meth:`build`.
        """
        if self._layout is None:
            raise ValueError(
                f"{type(self).__name__} has no sizes yet; pass it to a model as variational=..."
            )
        return self._layout

    def build(
        self,
        layout: BlockLayout,
        num_latent_gps: int,
        prior: Prior,
        members: AnyNDArray | None = None,
    ) -> None:
        """
        Create the parameters, at the prior (or as near to it as the family can start from).

        Where a component does not enter an output, q is the prior for good.

        :param layout: the blocks.
        :param num_latent_gps: the number of latent outputs, L.
        :param prior: gives the prior's factors, asked where the parameters describe U.
        :param members: which components enter which outputs, [L, C]; None: all of them all.
        :raises ValueError: where this object belongs to another model already, or its rank does
            not fit.
        """
        if self.built:
            raise ValueError(
                f"this {type(self).__name__} belongs to a model already; give each model its own."
            )
        self._validate(layout)
        self._layout = layout
        self._members = members
        self.num_latent_gps = num_latent_gps
        self._build(prior)

    def _validate(self, layout: BlockLayout) -> None:
        """Raise where the options do not fit the sizes."""

    @abc.abstractmethod
    def _build(self, prior: Prior) -> None:
        """Create the parameters."""

    @abc.abstractmethod
    def whitened(self, cholesky: Cholesky) -> WhitenedGaussian:
        """
        q over the whitened values, in double precision, as the factors are.

        :param cholesky: of the prior at the present hyperparameters.
        """

    def kl(self, cholesky: Cholesky) -> tf.Tensor:
        """
        KL[q(U) || p(U)], summed over the latent outputs.

        :param cholesky: of the prior at the present hyperparameters.
        """
        return self.whitened(cholesky).kl()

    @abc.abstractmethod
    def match(self, cholesky: Cholesky, mean: tf.Tensor, precision: tf.Tensor) -> None:
        """
        Set the parameters close to N(mean, precision^-1) over the whitened values: a start.

        :param cholesky: of the prior at the present hyperparameters.
        :param mean: [P, L], in group order.
        :param precision: [L, P, P], in group order.
        """

    # --- for the families -------------------------------------------------------------------

    def _zero_mean(self) -> Parameter:
        shape = (self.layout.total, self.num_latent_gps)
        return Parameter(np.zeros(shape), dtype=default_float())

    def _block_sqrt(self, prior: Prior) -> list[Parameter]:
        """One lower-triangular [L, G, M, M] a group, at the prior."""
        white = [np.broadcast_to(np.eye(M), (G, M, M)) for G, M in self.layout.group_shapes]
        blocks = []
        for factors in white if self.whiten else prior():
            start = np.tile(np.asarray(factors)[None], (self.num_latent_gps, 1, 1, 1))
            blocks.append(Parameter(start, transform=triangular(), dtype=default_float()))
        return blocks

    def _low_rank_start(self, rank: int, seed: int) -> Parameter:
        """[L, P, R]: small and random, because the ELBO is stationary in B at B = 0."""
        shape = (self.num_latent_gps, self.layout.total, rank)
        noise = np.random.default_rng(seed).standard_normal(shape)
        return Parameter(0.1 * noise / np.sqrt(max(rank, 1)), dtype=default_float())

    def _whiten_columns(self, x: tf.Tensor, cholesky: Cholesky) -> tf.Tensor:
        """blockdiag(L_c)^-1 x for x [..., P, K] in group order."""
        return self.layout.concat(
            [_solve(L, block) for L, block in zip(cholesky, self.layout.split(x))]
        )

    def _entering(self, x: tf.Tensor) -> tf.Tensor:
        """``x`` [L, P, K] in group order, rows zero of components that do not enter an output."""
        members = self.layout.spread(self._members)
        return x if members is None else x * members[:, :, None]

    def _whitened_mean(self, q_mu: tf.Tensor, cholesky: Cholesky) -> tf.Tensor:
        mean = self.layout.to_groups(double(q_mu))
        mean = mean if self.whiten else self._whiten_columns(mean, cholesky)
        members = self.layout.spread(self._members)
        return mean if members is None else mean * members.T

    def _match_mean(self, q_mu: Parameter, cholesky: Cholesky, mean: tf.Tensor) -> None:
        if not self.whiten:
            mean = self._unwhiten_columns(mean, cholesky)
        q_mu.assign(tf.cast(self.layout.to_components(mean), q_mu.dtype))

    def _match_blocks(
        self, q_sqrt: Sequence[Parameter], cholesky: Cholesky, precision: tf.Tensor
    ) -> None:
        """The best independent blocks: inverses of the precision's diagonal blocks."""
        for W, L, block in zip(q_sqrt, cholesky, self._diagonal_blocks(precision)):
            best = tf.linalg.cholesky(tf.linalg.inv(block))
            W.assign(tf.cast(best if self.whiten else tf.matmul(L[None], best), W.dtype))

    def _diagonal_blocks(self, x: tf.Tensor) -> list[tf.Tensor]:
        """[L, P, P] -> one [L, G, M, M] a group."""
        blocks, start = [], 0
        for G, M in self.layout.group_shapes:
            own = [x[:, at : at + M, at : at + M] for at in range(start, start + G * M, M)]
            blocks.append(tf.stack(own, axis=1))
            start += G * M
        return blocks

    def _unwhiten_columns(self, x: tf.Tensor, cholesky: Cholesky) -> tf.Tensor:
        """blockdiag(L_c) x for x [..., P, K] in group order."""
        return self.layout.concat(
            [tf.matmul(L, block) for L, block in zip(cholesky, self.layout.split(x))]
        )

    def _whitened_blocks(self, q_sqrt: Sequence[Parameter], cholesky: Cholesky) -> list[tf.Tensor]:
        blocks = [double(W) for W in q_sqrt]
        if not self.whiten:
            blocks = [_solve(L, W) for L, W in zip(cholesky, blocks)]
        if self._members is None:
            return blocks
        enters = [self._members[:, list(g), None, None] for g in self.layout.groups]
        return [tf.where(e, W, tf.eye(W.shape[-1], dtype=W.dtype)) for e, W in zip(enters, blocks)]


class LowRankFamily(VariationalFamily):
    """
    A family with a coupling of some columns.

    :param rank: the number of columns, R; None for the family's own.
    :param whiten: as of :class:`VariationalFamily`.
    :param seed: of the coupling's small random start.
    :raises ValueError: a rank below 1, or, once sizes are known, above P.
    """

    def __init__(self, rank: int | None = None, *, whiten: bool = True, seed: int = 0) -> None:
        super().__init__(whiten=whiten)
        self.rank = None if rank is None else _valid_rank(rank)
        self.seed = seed

    def _validate(self, layout: BlockLayout) -> None:
        if self.rank is not None:
            _check_rank(self.rank, layout)


def double(x: TensorType) -> tf.Tensor:
    """In double precision."""
    return tf.cast(tf.convert_to_tensor(x), tf.float64)


def _solve(L: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    """L^-1 x for L [G, M, M] and x [..., G, M, K]."""
    shape = tf.concat([tf.shape(x)[:-2], tf.shape(L)[-2:]], axis=0)
    return tf.linalg.triangular_solve(tf.broadcast_to(L, shape), x, lower=True)


def _valid_rank(rank: int) -> int:
    """
    :raises ValueError: ``rank`` is no whole number of at least 1.
    """
    if isinstance(rank, bool) or not isinstance(rank, (int, np.integer)) or rank < 1:
        raise ValueError(f"rank must be a whole number of at least 1; got {rank!r}.")
    return int(rank)


def _check_rank(rank: int, layout: BlockLayout) -> None:
    """
    :raises ValueError: ``rank`` exceeds P.
    """
    if rank > layout.total:
        raise ValueError(
            f"rank={rank} exceeds the number of inducing values P={layout.total} (the sum of the "
            "components' inducing inputs), beyond which it adds nothing; choose 1 <= rank <= P."
        )


def log_abs_det(blocks: Sequence[tf.Tensor]) -> tf.Tensor:
    """log|W W'| summed over triangular blocks [L, G, M, M]: [L]."""
    return tf.add_n(
        [tf.reduce_sum(tf.math.log(tf.square(tf.linalg.diag_part(W))), axis=[1, 2]) for W in blocks]
    )
