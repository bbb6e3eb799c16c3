"""The posterior of an additive model with inducing variables, and GPflow's dispatch on these."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf
from gpflow.base import MeanAndVariance, TensorType
from gpflow.config import default_jitter
from gpflow.covariances import Kuu
from gpflow.kernels import Kernel
from gpflow.kullback_leiblers import gauss_kl, prior_kl
from gpflow.mean_functions import MeanFunction
from gpflow.posteriors import (
    IndependentPosteriorSingleOutput,
    PrecomputeCacheType,
    PrecomputedValue,
    get_posterior_class,
)

from ..covariances import Features, InducingBlocks, no_such_pair, open_variances, sampling_root
from ..inducing_variables import AdditiveInducingVariables
from ..kernels import AdditiveKernel
from ..layout import BlockLayout
from ..variational import Form, VariationalFamily, WhitenedGaussian, standard_normal
from .base import AdditivePosterior, Cache, seeds

QOfCholesky = Callable[[list[tf.Tensor]], WhitenedGaussian]


class SparseAdditivePosterior(AdditivePosterior):
    """Components given a Gaussian over all whitened inducing values (Adam et al. 2018, 3.2)."""

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
        self._form = q.form()
        return (*cholesky, *q.tensors())

    def _precompute(self) -> tuple[PrecomputedValue, ...]:
        return tuple(PrecomputedValue(t, (False,) * t.shape.rank) for t in self._present_cache())

    def _unpack(self, cache: Cache, X: tf.Tensor) -> tuple[WhitenedGaussian, Features]:
        blocks = self.blocks
        number = len(blocks.groups)
        assert self._form is not None  # whoever made the cache has set it
        q = self._form([tf.convert_to_tensor(t) for t in cache[number:]])
        cholesky = [tf.convert_to_tensor(L) for L in cache[:number]]
        return q, blocks.features(X, cholesky)

    # --- moments -----------------------------------------------------------------------------

    def _total(self, cache: Cache, X: tf.Tensor, full_cov: bool) -> MeanAndVariance:
        q, features = self._unpack(cache, X)
        mean = q.total_mean(features.phi)
        if full_cov:
            cov = self.blocks.prior(X) + q.total_quadratic_full(features.phi)
        else:
            cov = tf.transpose(features.total_prior() + q.total_quadratic(features.phi))
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
        self,
        cache: Cache,
        X: tf.Tensor,
        num_samples: int | tf.Tensor,
        seed: int | tf.Tensor | None,
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
        return sampling_root(
            covariance,
            open_variances(*(tf.linalg.diag_part(K) for K in (prior, covariance))),
            "the conditional covariance of a component is not positive definite at Xnew; "
            "raise gpflow's default_jitter",
        )


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
    no_such_pair(inducing_variable, kernel)
