"""The posterior of an additive model: total, per component, and joint draws; by inducing values."""

from __future__ import annotations

import abc
from collections.abc import Callable

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes, inherit_check_shapes
from gpflow.base import AnyNDArray, MeanAndVariance, TensorType
from gpflow.config import default_jitter
from gpflow.covariances import Kuu
from gpflow.kernels import Kernel
from gpflow.kullback_leiblers import gauss_kl, prior_kl
from gpflow.mean_functions import MeanFunction
from gpflow.posteriors import (
    AbstractPosterior,
    IndependentPosteriorSingleOutput,
    PrecomputeCacheType,
    PrecomputedValue,
    get_posterior_class,
)

from ..bijectors import as_written
from ..covariances import (
    BlockLayout,
    Features,
    InducingBlocks,
    check_layout,
    no_such_pair,
    open_variances,
    sampling_root,
)
from ..errors import check_count
from ..inducing_variables import AdditiveInducingVariables
from ..kernels import AdditiveKernel
from ..likelihoods.base import as_numbers
from ..variational import Form, WhitenedGaussian, standard_normal

Cache = tuple[tf.Tensor, ...]


class AdditivePosterior(AbstractPosterior, abc.ABC):
    """
    Posterior over the components f_c of rho(x) = m(x) + sum_c f_c(x).

    Both inference engines return one: ``predict_f`` for rho (with the mean function),
    ``predict_components`` for the f_c (without), and draws of either. Methods use the cache where
    there is one (``update_cache``) and compute what they need otherwise.

    Shapes: N points, C components in the kernel's order, L latent outputs; where L = 1 the last
    axis of the component methods is dropped.
    """

    kernel: AdditiveKernel
    num_latent_gps: int
    couples_outputs: bool = False
    """True if outputs are correlated a posteriori: responses of several need their covariance."""

    @property
    def names(self) -> tuple[str, ...]:
        """Component names, in the order of the component axis."""
        return self.kernel.names

    def _keep(self, precompute_cache: PrecomputeCacheType | str | None) -> None:
        """Fill the cache, where one is wanted; at the end of construction."""
        kind = cache_type(precompute_cache)
        if kind is not PrecomputeCacheType.NOCACHE:
            self.update_cache(kind)

    def _points(self, X: TensorType) -> tf.Tensor:
        """X as numbers; of the data's precision where the posterior is computed in that."""
        own = self.X_data
        return as_numbers(X, "Xnew", self.kernel, own.dtype if tf.is_tensor(own) else None)

    # --- what an engine provides -------------------------------------------------------------

    @abc.abstractmethod
    def _present_cache(self) -> Cache:
        """The tensors that :meth:`_precompute` wraps, at the present parameters."""

    @abc.abstractmethod
    def _total(
        self, cache: Cache, X: tf.Tensor, full_cov: bool, full_output_cov: bool = False
    ) -> MeanAndVariance:
        """Mean [N, L] and covariance of sum_c f_c at X [N, D], as of GPflow's ``predict_f``."""

    @abc.abstractmethod
    def _components(self, cache: Cache, X: tf.Tensor, full_cov: bool) -> MeanAndVariance:
        """Means [C, N, L] and covariances [L, C, N] or [L, C, N, N] of the f_c."""

    @abc.abstractmethod
    def _component_covariance(self, cache: Cache, X: tf.Tensor) -> tf.Tensor:
        """Cov(f_c(x_n), f_d(x_n)), [L, N, C, C]."""

    @abc.abstractmethod
    def _sample_components(
        self, cache: Cache, X: tf.Tensor, num_samples: int | tf.Tensor, seed: int | tf.Tensor | None
    ) -> tf.Tensor:
        """Joint draws [S, C, N, L]."""

    # --- GPflow's interface ------------------------------------------------------------------

    @as_written
    def predict_f(
        self, Xnew: TensorType, full_cov: bool = False, full_output_cov: bool = False
    ) -> MeanAndVariance:
        return super().predict_f(self._points(Xnew), full_cov, full_output_cov)

    @as_written
    def fused_predict_f(
        self, Xnew: TensorType, full_cov: bool = False, full_output_cov: bool = False
    ) -> MeanAndVariance:
        return super().fused_predict_f(self._points(Xnew), full_cov, full_output_cov)

    @inherit_check_shapes
    @as_written
    def _conditional_fused(
        self, Xnew: TensorType, full_cov: bool = False, full_output_cov: bool = False
    ) -> MeanAndVariance:
        return self._conditional_with_precompute(
            self._present_cache(), Xnew, full_cov=full_cov, full_output_cov=full_output_cov
        )

    @inherit_check_shapes
    @as_written
    def _conditional_with_precompute(
        self, cache: Cache, Xnew: TensorType, full_cov: bool = False, full_output_cov: bool = False
    ) -> MeanAndVariance:
        if Xnew.shape.rank == 2:
            return self._total(cache, Xnew, full_cov, full_output_cov)
        shape, D = tf.shape(Xnew), Xnew.shape[-1]
        if full_cov:
            flat = tf.reshape(Xnew, tf.concat([[-1], shape[-2:]], axis=0))
            flat.set_shape([None, Xnew.shape[-2], D])
            moments = tf.map_fn(
                lambda x: self._total(cache, x, True, full_output_cov),
                flat,
                fn_output_signature=(Xnew.dtype, Xnew.dtype),
            )
        else:  # points are independent queries
            moments = self._total(cache, tf.reshape(Xnew, [-1, D]), False, full_output_cov)
        leading = shape[: -2 if full_cov else -1]
        mean, cov = (tf.reshape(t, tf.concat([leading, tf.shape(t)[1:]], axis=0)) for t in moments)
        return mean, cov

    def _active_cache(self) -> Cache:
        return self._present_cache() if self.cache is None else tuple(self.cache)

    # --- components --------------------------------------------------------------------------

    @check_shapes(
        "Xnew: [N, D]",
        "return[0]: [N, C, any...]",
        "return[1]: [N, C, any...] if not full_cov",
        "return[1]: [C, any..., N, N] if full_cov",
    )
    @as_written
    def predict_components(self, Xnew: TensorType, full_cov: bool = False) -> MeanAndVariance:
        """
        Mean and variance of every component, on the predictor's scale.

        :param Xnew: points [N, D].
        :param full_cov: covariances between the points instead of variances.
        :return: mean [N, C] and variance [N, C] ([N, C, L] for L > 1 outputs); with ``full_cov``
            covariances [C, N, N] ([C, L, N, N]).
        :raises ValueError: ``Xnew`` lacks a column that a component reads.
        """
        mean, cov = self._components(self._active_cache(), self._points(Xnew), full_cov)
        mean = tf.transpose(mean, [1, 0, 2])  # [N, C, L]
        cov = tf.transpose(cov, [1, 0, 2, 3] if full_cov else [2, 1, 0])
        if self.num_latent_gps == 1:
            return mean[..., 0], cov[:, 0] if full_cov else cov[..., 0]
        return mean, cov

    @check_shapes("Xnew: [N, D]", "return: [N, C, C, any...]")
    @as_written
    def predict_component_covariance(self, Xnew: TensorType) -> tf.Tensor:
        """
        Covariances between components at each point.

        :param Xnew: points [N, D].
        :return: [N, C, C] ([N, C, C, L] for L > 1 outputs). Its entries sum to the variance of the
            total.
        """
        cov = self._component_covariance(self._active_cache(), self._points(Xnew))
        cov = tf.transpose(cov, [1, 2, 3, 0])
        return cov[..., 0] if self.num_latent_gps == 1 else cov

    # --- draws -------------------------------------------------------------------------------

    @check_shapes("Xnew: [N, D]", "return: [S, N, C, any...]")
    @as_written
    def sample_components(
        self,
        Xnew: TensorType,
        num_samples: int | tf.Tensor = 1,
        *,
        seed: int | tf.Tensor | None = None,
    ) -> tf.Tensor:
        """
        Joint draws of all components at all points.

        :param Xnew: points [N, D].
        :param num_samples: how many, S.
        :param seed: makes the draws reproducible; None for fresh ones. In a graph it may be a
            scalar tensor, and so may ``num_samples``.
        :return: [S, N, C] ([S, N, C, L] for L > 1 outputs).
        :raises ValueError: ``num_samples`` is no whole number above zero.
        """
        _check_num_samples(num_samples)
        draws = self._sample_components(self._active_cache(), self._points(Xnew), num_samples, seed)
        draws = tf.transpose(draws, [0, 2, 1, 3])
        return draws[..., 0] if self.num_latent_gps == 1 else draws

    @check_shapes("Xnew: [N, D]", "return: [S, N, L]")
    @as_written
    def sample_f(
        self,
        Xnew: TensorType,
        num_samples: int | tf.Tensor = 1,
        *,
        seed: int | tf.Tensor | None = None,
    ) -> tf.Tensor:
        """
        Joint draws of the predictor rho at all points, mean function included.

        With equal ``seed`` they are the sums of :meth:`sample_components`.

        :param Xnew: points [N, D].
        :param num_samples: how many, S.
        :param seed: makes the draws reproducible; None for fresh ones. In a graph it may be a
            scalar tensor, and so may ``num_samples``.
        :raises ValueError: ``num_samples`` is no whole number above zero.
        """
        _check_num_samples(num_samples)
        X = self._points(Xnew)
        draws = self._sample_components(self._active_cache(), X, num_samples, seed)
        mean = self._add_mean_function(X, tf.zeros_like(draws[0, 0]))  # m(x), [N, L]
        return mean + tf.reduce_sum(draws, axis=1)


def _check_num_samples(num_samples: int | tf.Tensor) -> None:
    if tf.is_tensor(num_samples):
        num_samples = tf.get_static_value(num_samples)
        if num_samples is None:  # known when the graph runs
            return
    check_count("num_samples", num_samples)


def seeds(seed: int | tf.Tensor | None, number: int) -> list[AnyNDArray | tf.Tensor | None]:
    """``number`` independent stateless seeds made from one, or Nones."""
    if seed is None:
        return [None] * number
    if tf.is_tensor(seed):
        pair = tf.stack([tf.cast(seed, tf.int64), tf.constant(0, tf.int64)])
        return list(tf.unstack(tf.random.split(pair, number), num=number))
    state = np.random.SeedSequence(int(seed)).generate_state(2 * number)
    return [row.astype(np.int32) for row in state.reshape(number, 2).astype(np.int64) % (2**31)]


def cache_type(value: PrecomputeCacheType | str | None) -> PrecomputeCacheType:
    """The kind of cache of a name; None for no cache."""
    if value is None:
        return PrecomputeCacheType.NOCACHE
    return value if isinstance(value, PrecomputeCacheType) else PrecomputeCacheType(value.lower())


# --- by inducing values ---------------------------------------------------------------------------


QOfCholesky = Callable[[list[tf.Tensor]], WhitenedGaussian]


class SparseAdditivePosterior(AdditivePosterior):
    """
    Components given a Gaussian over all whitened inducing values (Adam et al. 2018, 3.2).

    As GPflow's, one with a cache holds for the hyperparameters at which that was computed: after
    these move call ``update_cache()``, or factors are old and covariances new.
    """

    def __init__(
        self,
        kernel: AdditiveKernel,
        inducing_variable: AdditiveInducingVariables,
        whitened: QOfCholesky,
        num_latent_gps: int,
        mean_function: MeanFunction | None = None,
        *,
        precompute_cache: PrecomputeCacheType | str | None = None,
    ) -> None:
        super().__init__(kernel, inducing_variable, mean_function=mean_function)
        self.num_latent_gps = num_latent_gps
        self._whitened = whitened
        self._form: Form | None = None
        self._keep(precompute_cache)

    @property
    def blocks(self) -> InducingBlocks:
        """The covariances between inducing values and functions."""
        return InducingBlocks(self.X_data, self.kernel)

    def q(self) -> WhitenedGaussian:
        """q(V) at the present parameters."""
        return self._whitened(self.blocks.cholesky())

    # --- cache: Cholesky factors, then q's tensors --------------------------------------------

    def _present_cache(self) -> Cache:
        cholesky = self.blocks.cholesky()
        q = self._whitened(cholesky)
        self._form, self._layout = q.form(), q.layout
        return (*cholesky, *q.tensors())

    def _precompute(self) -> tuple[PrecomputedValue, ...]:
        return tuple(PrecomputedValue(t, (False,) * t.shape.rank) for t in self._present_cache())

    def _unpack(self, cache: Cache, X: tf.Tensor) -> tuple[WhitenedGaussian, Features]:
        blocks = self.blocks
        assert self._form is not None  # whoever made the cache has set it
        check_layout(self._layout, blocks)
        number = len(blocks.groups)
        q = self._form([tf.convert_to_tensor(t) for t in cache[number:]])
        cholesky = [tf.convert_to_tensor(L) for L in cache[:number]]
        return q, blocks.features(X, cholesky)

    # --- moments -----------------------------------------------------------------------------

    def _total(
        self, cache: Cache, X: tf.Tensor, full_cov: bool, full_output_cov: bool = False
    ) -> MeanAndVariance:
        q, features = self._unpack(cache, X)
        mean = q.total_mean(features.phi)
        if full_cov:
            cov = self.blocks.prior(X) + q.total_quadratic_full(features.phi)
        else:
            cov = tf.transpose(features.total_prior() + q.total_quadratic(features.phi))
        if full_output_cov and full_cov:  # outputs are independent: [N, L, N, L]
            cov = tf.transpose(tf.linalg.diag(tf.transpose(cov, [1, 2, 0])), [0, 2, 1, 3])
        elif full_output_cov:
            cov = tf.linalg.diag(cov)
        return tf.cast(mean, X.dtype), tf.cast(cov, X.dtype)

    def _components(self, cache: Cache, X: tf.Tensor, full_cov: bool) -> MeanAndVariance:
        q, features = self._unpack(cache, X)
        mean = self._entering(q.component_mean(features.phi), 2)
        if full_cov:
            prior = self.blocks.prior_components(X)
            cov = prior + q.component_quadratic_full(features.phi)
        else:
            cov = q.layout.restore_components(features.prior) + q.component_quadratic(features.phi)
        return tf.cast(mean, X.dtype), tf.cast(self._entering(cov, 0), X.dtype)

    def _entering(self, x: tf.Tensor, output: int) -> tf.Tensor:
        """Values of components [L, C, N, ...], zero in outputs that they do not enter."""
        members = self.kernel.members
        if members is None:
            return x
        mask = members.astype(x.dtype.as_numpy_dtype)
        if output == 0:
            return x * mask.reshape(*mask.shape, *[1] * (x.shape.rank - 2))
        return x * mask.T[:, None, :]

    def _component_covariance(self, cache: Cache, X: tf.Tensor) -> tf.Tensor:
        q, features = self._unpack(cache, X)
        prior = tf.transpose(q.layout.restore_components(features.prior))  # [N, C]
        cov = tf.linalg.diag(prior) + q.cross_quadratic(features.phi)
        members = self.kernel.members
        if members is not None:
            mask = members.astype(cov.dtype.as_numpy_dtype)
            cov *= (mask[:, :, None] * mask[:, None, :])[:, None]
        return tf.cast(cov, X.dtype)

    def _sample_components(
        self, cache: Cache, X: tf.Tensor, num_samples: int | tf.Tensor, seed: int | tf.Tensor | None
    ) -> tf.Tensor:
        # Given V the components are independent, so that a joint draw needs a draw of V and C
        # square roots of [N, N], not one of [C N, C N].
        q, features = self._unpack(cache, X)
        seed_v, seed_f = seeds(seed, 2)
        V = self._sample_inducing(q, num_samples, seed_v)  # [S, P, L]
        parts = [tf.einsum("gmn,sgml->sgnl", f, v) for f, v in zip(features.phi, q.layout.split(V))]
        explained = tf.cast(q.layout.restore_components(parts, axis=1), X.dtype)  # [S, C, N, L]
        root = self._residual_root(q.layout, features, X)
        C, N = self.kernel.num_components, tf.shape(X)[0]
        shape = [num_samples, C, N, self.num_latent_gps]
        away = tf.matmul(root, tf.cast(standard_normal(shape, X.dtype, seed_f), root.dtype))
        return self._entering(explained + tf.cast(away, X.dtype), 2)

    def _sample_inducing(
        self, q: WhitenedGaussian, num_samples: int | tf.Tensor, seed: int | tf.Tensor | None
    ) -> tf.Tensor:
        """Draws of V, [S, P, L], in group order."""
        return q.sample(num_samples, seed)

    def _residual_root(self, layout: BlockLayout, features: Features, X: tf.Tensor) -> tf.Tensor:
        """Square roots [C, N, N] of the covariances of what inducing values leave open."""
        gram = layout.restore_components([tf.matmul(f, f, transpose_a=True) for f in features.phi])
        prior = self.blocks.prior_components(X)  # [C, N, N]
        # beside the prior, not what it leaves: that may be rounding, which grows with the prior
        covariance = prior - gram
        size = open_variances(*(tf.linalg.diag_part(K) for K in (prior, covariance)))
        return sampling_root(covariance, size)


@prior_kl.register(AdditiveInducingVariables, AdditiveKernel, object, object)
@check_shapes("inducing_variable: [P, ., .]", "q_mu: [P, L]", "q_sqrt: [any..., P, .]")
def _prior_kl_dense(
    inducing_variable: AdditiveInducingVariables,
    kernel: AdditiveKernel,
    q_mu: TensorType,
    q_sqrt: TensorType,
    whiten: bool = False,
) -> tf.Tensor:
    """q_mu [P, L] and q_sqrt [L, P, P] or [P, L] over the stacked U, as GPflow's SVGP holds."""
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
    no_such_pair(inducing_variable, kernel)
