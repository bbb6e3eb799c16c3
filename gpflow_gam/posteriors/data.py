"""The posterior of an additive model in terms of its data points."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import tensorflow as tf
from gpflow.base import MeanAndVariance, TensorType
from gpflow.mean_functions import MeanFunction
from gpflow.posteriors import PrecomputeCacheType, PrecomputedValue

from ..covariances import mean_variance, sampling_root
from ..kernels import AdditiveKernel
from ..kernels.functional import with_precise_distances
from .base import AdditivePosterior, Cache, seeds, standard_normal

Weights = Callable[[], tuple[tf.Tensor, tf.Tensor]]


class DataAdditivePosterior(AdditivePosterior):
    """
    Components with mean ``k_c(., X) alpha`` and covariance
    ``delta_cd k_c - k_c(., X) H'H k_d(X, .)`` (Adam et al. 2018, Appendix B).

    Kernels are evaluated in the precision of the inputs, which is that of what is returned; sums
    over data and differences of variances are in double precision.

    Shapes: X_data [N, D], weights [N, L].
    """

    def __init__(
        self,
        kernel: AdditiveKernel,
        X_data: tf.Tensor,
        weights: Weights,
        num_latent_gps: int,
        mean_function: MeanFunction | None = None,
        *,
        precompute_cache: PrecomputeCacheType | str | None = None,
    ) -> None:
        super().__init__(kernel, X_data, mean_function=mean_function)
        self.num_latent_gps = num_latent_gps
        self._weights = weights
        self._keep(precompute_cache)

    def _present_cache(self) -> Cache:
        return self._weights()

    def _precompute(self) -> tuple[PrecomputedValue, ...]:
        alpha, H = self._weights()
        return PrecomputedValue(alpha, (False, False)), PrecomputedValue(H, (False, False, False))

    def _total(self, cache: Cache, X: tf.Tensor, full_cov: bool) -> MeanAndVariance:
        alpha, H = cache
        k = _double(self.kernel(self.X_data, X))
        mean = tf.cast(tf.matmul(k, alpha, transpose_a=True), X.dtype)
        h = tf.matmul(H, k[None])
        if full_cov:
            cov = _double(self.kernel(X)) - tf.matmul(h, h, transpose_a=True)
            return mean, tf.cast(cov, X.dtype)
        var = _double(self.kernel(X, full_cov=False)) - tf.reduce_sum(tf.square(h), axis=-2)
        return mean, tf.cast(tf.transpose(var), X.dtype)

    def _moments(self, cache: Cache, X: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """k_c(X, x)' alpha [C, N, L] and H k_c(X, x) [L, C, R, N]."""
        alpha, H = cache
        k = _double(self.kernel.K_components(self.X_data, X))
        return tf.matmul(k, alpha[None], transpose_a=True), tf.matmul(H[:, None], k[None])

    def _components(self, cache: Cache, X: tf.Tensor, full_cov: bool) -> MeanAndVariance:
        mean, h = self._moments(cache, X)
        if full_cov:
            prior, seen = self.kernel.K_components(X), tf.matmul(h, h, transpose_a=True)
        else:
            prior = self.kernel.K_diag_components(X)
            seen = tf.reduce_sum(tf.square(h), axis=-2)
        return tf.cast(mean, X.dtype), tf.cast(_double(prior) - seen, X.dtype)

    def joint_components(self, points: Mapping[str, TensorType]) -> MeanAndVariance:
        """Joint moments of components, each at points of its own. Shapes: points [M_c, D]."""
        alpha, H = self._active_cache()
        seen, priors = [], []
        for name, rows in points.items():
            X = self._points(rows)
            kernel = with_precise_distances(self.kernel[name])
            seen.append(_double(kernel(self.X_data, X)))
            priors.append(tf.linalg.LinearOperatorFullMatrix(_double(kernel(X))))
        k = tf.concat(seen, axis=1)  # [N, P]
        h = tf.matmul(H, k[None])
        prior = tf.linalg.LinearOperatorBlockDiag(priors).to_dense()
        mean, cov = tf.matmul(k, alpha, transpose_a=True), tf.matmul(h, h, transpose_a=True)
        dtype = self.X_data.dtype
        return tf.cast(mean, dtype), tf.cast(prior - cov, dtype)

    def _component_covariance(self, cache: Cache, X: tf.Tensor) -> tf.Tensor:
        _, h = self._moments(cache, X)
        prior = tf.linalg.diag(tf.transpose(_double(self.kernel.K_diag_components(X))))
        return tf.cast(prior - tf.einsum("lcrn,ldrn->lncd", h, h), X.dtype)

    def _sample_components(
        self,
        cache: Cache,
        X: tf.Tensor,
        num_samples: int | tf.Tensor,
        seed: int | tf.Tensor | None,
    ) -> tf.Tensor:
        mean, h = self._moments(cache, X)
        C, N, L = self.kernel.num_components, tf.shape(X)[0], self.num_latent_gps
        K = self.kernel.K_components(X)
        blocks = [tf.linalg.LinearOperatorFullMatrix(_double(own)) for own in tf.unstack(K)]
        prior = tf.linalg.LinearOperatorBlockDiag(blocks).to_dense()
        h = tf.reshape(tf.transpose(h, [0, 2, 1, 3]), [L, -1, C * N])
        root = sampling_root(
            tf.cast(prior - tf.matmul(h, h, transpose_a=True), X.dtype),
            tf.repeat(mean_variance(tf.linalg.diag_part(K))[:, 0], N),
            "the posterior covariance is not positive definite at Xnew; raise gpflow's "
            "default_jitter",
        )
        noise = standard_normal([L, C * N, num_samples], X.dtype, seeds(seed, 1)[0])
        draws = tf.reshape(tf.matmul(root, noise), [L, C, N, num_samples])
        return tf.cast(mean, X.dtype)[None] + tf.transpose(draws, [3, 1, 2, 0])


def _double(x: TensorType) -> tf.Tensor:
    return tf.cast(x, tf.float64)
