"""The posterior of an additive model in terms of its data points."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf
from check_shapes import check_shapes, inherit_check_shapes
from gpflow.base import MeanAndVariance, TensorType
from gpflow.mean_functions import MeanFunction
from gpflow.posteriors import PrecomputeCacheType, PrecomputedValue
from gpflow.utilities import deepcopy

from ..covariances import jittered, mean_variance, relative_jitter
from ..kernels.correlation import with_precise_distances
from ..newton.operators import LatentKernels, cross_product, joint_covariance, over_rows
from ..variational import double, shrunk_noise, standard_normal
from .base import AdditivePosterior, Cache, cache_type, seeds

Weights = Callable[[], tuple[tf.Tensor, tf.Tensor, tf.Tensor]]


class ActionPosterior(AdditivePosterior):
    """
    Latent functions with mean ``k_q(., X) v_q`` and covariance
    ``delta_pq k_q - k_p(., X) E_p E_q' k_q(X, .)`` (Tatzel et al. 2025).

    Outputs are coupled by the likelihood: ``full_output_cov`` is not diagonal. Components are those
    of an additive kernel; any other kernel is its own one component. Memory is that of a block of
    rows of ``k(Xnew, X)``. Kernels are evaluated in the precision of the inputs, which is that of
    what is returned; differences of covariances are taken in double precision.

    :param latents: the latent functions' kernels.
    :param X_data: training inputs [N, D].
    :param weights: gives v [Q, N], E [R, Q, N] and the prior's share E0 [R0, Q, N] at the present
        parameters.
    :param mean_function: m(x).
    :param precompute_cache: whether and how to keep them, together with kernels and mean function
        as they were then, so that predictions never mix old and new ones. (While a function is
        compiled they are those of the function's own run.)
    :raises ValueError: the latent functions' kernels have different components.
    """

    def __init__(
        self,
        latents: LatentKernels,
        X_data: tf.Tensor,
        weights: Weights,
        mean_function: MeanFunction | None = None,
        *,
        precompute_cache: PrecomputeCacheType | str | None = None,
    ) -> None:
        kind = cache_type(precompute_cache)
        live: ActionPosterior | None = None
        if kind is not PrecomputeCacheType.NOCACHE and tf.executing_eagerly():
            live = ActionPosterior(latents, X_data, weights, mean_function)
            latents = latents.copied()
            mean_function = None if mean_function is None else deepcopy(mean_function)
        super().__init__(latents.kernels[0], X_data, mean_function=mean_function)
        self.latents = latents
        self.num_latent_gps = latents.num_latents
        self.couples_outputs = latents.num_latents > 1
        self._weights = weights
        # out of sight, as its parameters are none of the snapshot's; copies have one of their own
        self._live: Callable[[], ActionPosterior] | None = None if live is None else live._itself
        self._keep(kind)

    def _itself(self) -> ActionPosterior:
        return self

    @property
    def _followed(self) -> list[tf.Variable]:
        """The variables of kernels and mean function."""
        mean = self.mean_function
        return [*self.latents.variables, *(() if mean is None else mean.variables)]

    @inherit_check_shapes
    def fused_predict_f(
        self, Xnew: TensorType, full_cov: bool = False, full_output_cov: bool = False
    ) -> MeanAndVariance:
        if self._live is not None:
            return self._live().fused_predict_f(Xnew, full_cov, full_output_cov)
        return super().fused_predict_f(Xnew, full_cov, full_output_cov)

    def update_cache(self, precompute_cache: PrecomputeCacheType | None = None) -> None:
        super().update_cache(precompute_cache)  # raises before anything is taken
        if self._live is not None:
            for own, other in zip(self._followed, self._live()._followed):
                own.assign(other)

    def _present_cache(self) -> Cache:
        return self._weights()

    def _precompute(self) -> tuple[PrecomputedValue, ...]:
        v, E, E0 = self._weights()
        wide = (True, False, False)  # later there may be more actions, or fewer
        return (
            PrecomputedValue(v, (False, False)),
            PrecomputedValue(E, wide),
            PrecomputedValue(E0, wide),
        )

    # --- moments of the outputs ---------------------------------------------------------------

    def _seen(self, X: tf.Tensor, v: tf.Tensor, E: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """k_q(x, X) v_q [Q, N] and k_q(x, X) E_q [Q, N, R]."""
        h = cross_product(self.latents, X, self.X_data, _side_by_side(v, E))
        return h[..., 0], h[..., 1:]

    def _total(
        self, cache: Cache, X: tf.Tensor, full_cov: bool, full_output_cov: bool = False
    ) -> MeanAndVariance:
        v, E, _ = cache
        mean, h = self._seen(X, v, E)
        prior = self.latents.each([k(X, full_cov=full_cov) for k in self.latents.kernels])
        if full_output_cov:
            cov = joint_covariance(prior, h)
        else:
            cov = _left(prior, h, full_cov)
            cov = cov if full_cov else tf.transpose(cov)
        return tf.cast(tf.transpose(mean), X.dtype), tf.cast(cov, X.dtype)

    @check_shapes("Xnew: [N, D]", "return[0]: [N, L]", "return[1]: [N, L]")
    def predict_variance_parts(self, Xnew: TensorType) -> MeanAndVariance:
        """
        The variance of :meth:`predict_f` as mathematical plus computational (Wenger et al. 2022).

        The computational part is what the actions taken leave of the prior variance, whatever the
        noise: more of them bring it down. The mathematical part is the posterior uncertainty of
        what they have looked at; more data, or less noise, bring it down.

        :param Xnew: points [N, D].
        :return: both [N, L].
        """
        X = self._points(Xnew)
        cache = self._active_cache()
        _, total = self._total(cache, X, False)
        _, unseen = self._total((cache[0], cache[2], cache[2]), X, False)
        unseen = tf.minimum(unseen, total)
        return total - unseen, unseen

    # --- components ---------------------------------------------------------------------------

    def _check_components(self) -> None:
        names = {k.names for k in self.latents.kernels}
        if len(names) > 1:
            raise ValueError(
                "components need outputs whose kernels have the same ones; got "
                + ", ".join(str(n) for n in sorted(names))
                + "."
            )

    def _seen_components(
        self, X: tf.Tensor, v: tf.Tensor, E: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """k_qc(x, X) v_q [Q, C, N] and k_qc(x, X) E_q [Q, C, N, R]."""
        self._check_components()
        kernels, V = self.latents.kernels, _side_by_side(v, E)[:, None]
        points = tf.convert_to_tensor(self.X_data)

        def block(x: tf.Tensor) -> tf.Tensor:
            parts = [k.K_components(x, points) for k in kernels]  # [C, n, N] each
            return tf.matmul(double(tf.stack(parts)), V)

        columns = int(points.shape[0]) * kernels[0].num_components
        h = over_rows(block, X, columns, V.dtype, axis=2)
        return h[..., 0], h[..., 1:]

    def _components(self, cache: Cache, X: tf.Tensor, full_cov: bool) -> MeanAndVariance:
        v, E, _ = cache
        mean, h = self._seen_components(X, v, E)
        mean = tf.cast(tf.transpose(mean, [1, 2, 0]), X.dtype)
        kernels = self.latents.kernels
        priors = [k.K_components(X) if full_cov else k.K_diag_components(X) for k in kernels]
        return mean, tf.cast(_left(self.latents.each(priors), h, full_cov), X.dtype)

    def _component_covariance(self, cache: Cache, X: tf.Tensor) -> tf.Tensor:
        v, E, _ = cache
        _, h = self._seen_components(X, v, E)
        prior = self.latents.each([k.K_diag_components(X) for k in self.latents.kernels])
        prior = tf.linalg.diag(tf.transpose(prior, [0, 2, 1]))
        return tf.cast(prior - tf.einsum("lcnr,ldnr->lncd", h, h), X.dtype)

    def predict_sum(self, Xnew: TensorType, components: Sequence[int]) -> MeanAndVariance:
        """Mean [N, L] of the sum of some components, and its covariance of outputs [N, L, L]."""
        X = self._points(Xnew)
        v, E, _ = self._active_cache()
        components = tf.constant(components, tf.int32)  # none, too
        mean, h = (
            tf.reduce_sum(tf.gather(t, components, axis=1), axis=1)
            for t in self._seen_components(X, v, E)
        )
        priors = [
            tf.reduce_sum(tf.gather(k.K_diag_components(X), components), axis=0)
            for k in self.latents.kernels
        ]
        cov = joint_covariance(self.latents.each(priors), h)
        return tf.cast(tf.transpose(mean), X.dtype), tf.cast(cov, X.dtype)

    def joint_parts(
        self, points: Mapping[str, TensorType]
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Mean [P, L], prior covariance [L, P, P], h [L, P, R] of components at their points."""
        # what was learnt takes h_l h_k' from the prior covariance of outputs l and k
        self._check_components()
        v, E, _ = self._active_cache()
        V = _side_by_side(v, E)
        seen, priors = [], []
        for name, rows in points.items():
            X = self._points(rows)
            kernels = [with_precise_distances(k[name]) for k in self.latents.kernels]
            seen.append(tf.matmul(double(tf.stack([k(X, self.X_data) for k in kernels])), V))
            priors.append(self.latents.each([k(X) for k in kernels]))
        h = tf.concat(seen, axis=1)  # [L, P, 1 + R]
        blocks = [tf.linalg.LinearOperatorFullMatrix(prior) for prior in priors]
        prior = tf.linalg.LinearOperatorBlockDiag(blocks).to_dense()
        return tf.transpose(h[..., 0]), prior, h[..., 1:]

    def _sample_components(
        self, cache: Cache, X: tf.Tensor, num_samples: int | tf.Tensor, seed: int | tf.Tensor | None
    ) -> tf.Tensor:
        """Prior draws A z changed by actions, ``A (I - B B')^(1/2) z`` with B = A^-1 h."""
        v, E, _ = cache
        mean, h = self._seen_components(X, v, E)  # [Q, C, N], [Q, C, N, R]
        K = double(tf.stack([k.K_components(X) for k in self.latents.kernels]))
        size = mean_variance(tf.linalg.diag_part(K))
        # its entries are rounded as those of X's precision
        A = tf.debugging.check_numerics(
            tf.linalg.cholesky(jittered(K, relative_jitter(None, X.dtype), size)),
            "the prior covariance is not positive definite at Xnew; raise gpflow's default_jitter",
        )
        Q, C, N = self.latents.num_latents, self.kernel.num_components, tf.shape(X)[0]
        A = tf.broadcast_to(A, [Q, C, N, N])
        z = double(standard_normal([Q, C, N, num_samples], X.dtype, seeds(seed, 1)[0]))
        B = tf.reshape(tf.linalg.triangular_solve(A, h), [Q * C * N, tf.shape(h)[-1]])
        noise = shrunk_noise(tf.transpose(B), tf.reshape(z, [Q * C * N, num_samples]))
        away = tf.matmul(A, tf.reshape(noise, tf.shape(z)))
        alive = tf.where(size > 0.0, tf.ones_like(size), tf.zeros_like(size))
        draws = mean[..., None] + alive[..., None] * away
        return tf.cast(tf.transpose(draws, [3, 1, 2, 0]), X.dtype)


def _side_by_side(v: tf.Tensor, E: tf.Tensor) -> tf.Tensor:
    """v [Q, N] and E [R, Q, N] as right-hand sides [Q, N, 1 + R]."""
    return tf.concat([double(v)[..., None], tf.transpose(double(E), [1, 2, 0])], axis=2)


def _left(prior: tf.Tensor, h: tf.Tensor, full_cov: bool) -> tf.Tensor:
    """Prior covariances [..., N, N], or variances [..., N], less ``h h'`` of h [..., N, R]."""
    if full_cov:
        return prior - tf.matmul(h, h, transpose_b=True)
    return tf.maximum(prior - tf.reduce_sum(tf.square(h), axis=-1), tf.zeros([], h.dtype))
