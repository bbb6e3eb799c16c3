"""A sparse variational additive GP as a Keras layer."""

from __future__ import annotations

import contextlib
import numbers
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Likelihood

from ..gam.components import Component, build_inducing
from ..gam.families import Family
from ..gam.fits.specification import MAX_SITES, VARIATIONAL
from ..gam.terms import Term, Terms
from ..kernels.shaped import shaped_part
from ..models import AdditiveSVGP
from ..optimizers.sites import site_step
from ..posteriors import ShapedPosterior, ShapedValues, SparseAdditivePosterior
from ..variational import DenseGaussian, WhitenedGaussian
from .head import GPHead, Normalization, Output, asserted, is_below
from .structure import HeadSpecification


class _HereOnly(tf.lookup.StaticHashTable):
    """An untracked resource, which no SavedModel takes; its error shows this object."""

    def __init__(self) -> None:
        nothing = tf.lookup.KeyValueTensorInitializer([0], [0])
        super().__init__(nothing, default_value=0)

    def __repr__(self) -> str:
        return "<shapes of a head, which gpflow_gam.serving.export writes and nothing else does>"


class _HeadShapes:
    """
    Projects the q(V) of a head on the cone in which its components have their shapes.

    A graph calls numpy for it, and again only where q has changed.
    """

    def __init__(self, model: AdditiveSVGP, width: int) -> None:
        self._model = model
        parts = {i: shaped_part(kernel) for i, kernel in enumerate(model.kernel.kernels)}
        self._parts = {i: part for i, part in parts.items() if part is not None}
        self._nodes = {i: part.acting_nodes(width) for i, part in self._parts.items()}
        with tf.init_scope():
            self._here = _HereOnly()
        self._last: tuple[list[bytes], ShapedValues, tuple[AnyNDArray, ...]] | None = None
        size = sum(model.inducing_variable.sizes)
        if self._parts and size > MAX_SITES:
            name = model.kernel.names[min(self._parts)]
            raise ValueError(
                f"{name} has a shape, for which q is kept dense: {size} inducing values are more "
                f"than {MAX_SITES}; pass a smaller num_inducing, or leave shape out."
            )

    def __bool__(self) -> bool:
        return bool(self._parts)

    def projected(self, cholesky: Sequence[tf.Tensor]) -> WhitenedGaussian:
        """The projected q(V), in which gradients stop."""
        blocks = self._model.blocks
        P, L = blocks.layout.total, self._model.num_latent_gps
        mean, log_det, factor = tf.numpy_function(
            lambda _, *moments: self._project(*moments)[1],
            [self._here.size(), *self._moments(cholesky)],
            [tf.float64] * 3,
        )
        shapes = ([P, L], [L], [L, P, P])
        mean, log_det, factor = (
            tf.ensure_shape(x, shape) for x, shape in zip((mean, log_det, factor), shapes)
        )
        return DenseGaussian(blocks.layout, mean, log_det, factor)

    def posterior(self) -> ShapedPosterior:
        """The posterior at the present parameters."""
        model = self._model
        values, numbers = self._now()
        tensors = [tf.constant(x) for x in numbers]
        return ShapedPosterior(
            model.kernel,
            model.inducing_variable,
            lambda _: DenseGaussian(model.blocks.layout, *tensors),
            model.num_latent_gps,
            model.mean_function,
            moments=values,
            precompute_cache="tensor",
        )

    def tails(self) -> dict[str, list[float]]:
        """P-values of the components' shapes, one for each output."""
        values, _ = self._now()
        names, L = self._model.kernel.names, self._model.num_latent_gps
        return {names[i]: [values.p_value(i, k) for k in range(L)] for i in self._parts}

    def _now(self) -> tuple[ShapedValues, tuple[AnyNDArray, ...]]:
        moments = self._moments(self._model.blocks.cholesky())
        return self._project(*(np.asarray(x) for x in moments))

    def _moments(self, cholesky: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Mean and covariance of V, and the functions of V that shapes keep from being negative."""
        blocks = self._model.blocks
        layout = blocks.layout
        q = self._model.variational.whitened(cholesky)
        covariance = layout.to_components(layout.to_components(q.covariance(), axis=-1), axis=-2)
        rows = []
        for i, part in self._parts.items():
            phi = blocks.features(tf.constant(self._nodes[i], blocks.dtype), list(cholesky)).phi
            of_component = [
                f * tf.constant([[[float(c == i)]] for c in group.indices], f.dtype)
                for f, group in zip(phi, blocks.groups)
            ]
            features = layout.to_components(layout.concat(of_component))  # [P, J]
            rows.append(tf.matmul(tf.constant(part.kernel.cone), features, transpose_b=True))
        return [layout.to_components(q.mean), covariance, *rows]

    def _project(
        self, mean: AnyNDArray, covariance: AnyNDArray, *rows: AnyNDArray
    ) -> tuple[ShapedValues, tuple[AnyNDArray, ...]]:
        key = [x.tobytes() for x in (mean, covariance, *rows)]
        last = self._last  # read once: replicas' threads may write it
        if last is None or last[0] != key:
            values = ShapedValues(mean, covariance, dict(zip(self._parts, rows)))
            order = self._model.blocks.layout.order
            factor = np.linalg.cholesky(values.covariance[:, order][:, :, order])
            log_det = 2.0 * np.sum(np.log(np.diagonal(factor, axis1=1, axis2=2)), axis=1)
            last = self._last = (key, values, (values.mean[order], log_det, factor))
        return last[1], last[2]


class _Penalty(keras.regularizers.Regularizer):
    """A head's part of the loss that does not depend on rows."""

    def __init__(self, head: AdditiveGP) -> None:
        self._head = weakref.ref(head)

    def __call__(self, variable: Any) -> tf.Tensor:
        head = self._head()
        assert head is not None  # it owns the variable
        return head.penalty()


@keras.saving.register_keras_serializable(package="gpflow_gam")
class AdditiveGP(GPHead):
    """
    An additive Gaussian process on features, trained by ``model.fit`` with what comes before it.

    The ELBO (Adam, Durrande & John 2018) is split in Keras's way: :attr:`loss` is the expected log
    density of each row, and the layer adds ``(kl_weight KL - log prior) / num_data``, once however
    often it is called. So ``fit`` reports the negative ELBO over the number of data; ``evaluate``
    and validation the same with their own rows and the training data's ``num_data``. (With all of
    the layer held fixed that part is a constant, and left out.)

    Features are scaled inside the layer, so that inducing inputs and priors fit them.

    :param terms: on features by index, ``s(0) + te(1, 2)``; ``by=``, ``linear``, ``factor`` too.
        ``(s(0) + s(1)).selected()`` lets smooths that are not there vanish, as ``GAM(select=True)``
        does; how little the data say is judged by 1000 rows, as a layer does not see them all.
    :param likelihood: a family's name (``"gaussian"``, ``"softmax"``, ...), a
        :class:`~gpflow_gam.gam.families.Family`, or any GPflow likelihood (which no file can hold).
    :param num_data: rows of the training data.
    :param num_classes: for softmax and ordinal responses.
    :param num_levels: for features that terms read as levels, how many there are:
        ``{3: 7}`` for codes 0 to 6 in feature 3.
    :param num_inducing: inducing inputs of each smooth that says no ``k``; else 24 in one
        dimension, 36 in two, 50 beyond.
    :param variational: the family of q(U): ``"block"``, ``"mean_field"``, ``"covariance"``,
        ``"precision"``, or ``"sites"``, which :class:`NaturalGradientModel` alone trains.
    :param rho: step size of natural gradients, in (0, 1].
    :param loss_weight: what all of the head's loss is multiplied by, KL included, beside the losses
        of other outputs. (``loss_weights`` of ``compile`` would leave the KL as it is.)
    :param kl_weight: what the KL divergence of q(U) from its prior is multiplied by, positive: 1 is
        the ELBO, less is a tempered or "cold" posterior (Wenzel et al. 2020), which trusts the data
        as if there were ``1 / kl_weight`` times as many. Priors of hyperparameters are not
        tempered. It cannot be changed after a model was compiled, and so not at all.
    :param scale: the predictor's natural size: a Gaussian response's standard deviation, 1 behind
        a link.
    :param normalization: ``"running"``: location and spread of features follow the training
        batches; ``"adapt"``: only :meth:`adapt` sets them; None: features are taken as they are.
    :param output: what calls return, see :meth:`call`.
    :param level: probability of intervals.
    :param frozen: beginnings of the paths of parameters that training leaves alone (see
        :attr:`parameters`); by default the inducing inputs.
    :param options: of :class:`keras.Layer`; ``dtype`` is ``"float64"`` (GPflow's default) or
        ``"float32"``.
    :raises TypeError, ValueError: naming the argument.
    """

    def __init__(
        self,
        terms: Terms | Term | Iterable[Term | Terms],
        likelihood: str | Family | Likelihood = "gaussian",
        *,
        num_data: int | None = None,
        num_classes: int | None = None,
        num_levels: Mapping[int, int] | None = None,
        num_inducing: int | None = None,
        variational: str = "block",
        rho: float = 0.1,
        loss_weight: float = 1.0,
        kl_weight: float = 1.0,
        scale: float = 1.0,
        normalization: Normalization = "running",
        output: Output = "moments",
        level: float = 0.95,
        frozen: Sequence[str] = ("inducing_variable",),
        **options: Any,
    ) -> None:
        whole = isinstance(num_data, (int, np.integer)) and not isinstance(num_data, bool)
        if num_data is None or not whole or num_data < 1:
            raise ValueError(
                f"num_data must be the number of training rows, which scales the KL; got "
                f"{num_data!r}."
            )
        if variational not in VARIATIONAL:
            raise ValueError(
                f"variational must be one of {', '.join(VARIATIONAL)}; got {variational!r}."
            )
        if not 0.0 < rho <= 1.0:
            raise ValueError(f"rho must be in (0, 1]; got {rho!r}.")
        self.num_data = int(num_data)
        self.loss_weight = _weight("loss_weight", loss_weight)
        self._kl_weight = _weight("kl_weight", kl_weight)
        self.rho = float(rho)
        self._penalty = _Penalty(self)
        self.variational = variational
        self._is_stepping = False
        specification = HeadSpecification.of(
            terms, likelihood, num_classes, num_levels, num_inducing, scale
        )
        super().__init__(specification, normalization, output, level, frozen, **options)
        self._shapes = _HeadShapes(self._gp, self.structure.width)
        # Keras compiles by XLA where it may; a projection is computed by numpy
        self.supports_jit = not self._shapes

    def _build_model(self) -> AdditiveSVGP:
        spec = self.specification
        kernel = spec.build_kernel(self.structure)
        inducing = build_inducing(self.structure.components, kernel, self.structure.width)
        for Z in inducing.inputs:  # free by structure; whether they move is a flag
            for variable in Z.variables:
                variable._trainable = True
        return AdditiveSVGP(
            kernel,
            spec.build_likelihood(),
            inducing,
            variational=VARIATIONAL[self.variational](),
            mean_function=spec.build_mean(),
            num_data=self.num_data,
            num_latent_gps=spec.num_predictors,
        )

    @property
    def kl_weight(self) -> float:
        """Factor of the KL divergence of q(U)."""
        return self._kl_weight

    @property
    def model(self) -> AdditiveSVGP:
        """The GPflow model, on scaled features; its ``elbo`` knows no :attr:`kl_weight`."""
        return self._gp

    def posterior(self) -> SparseAdditivePosterior:
        with self._precision():
            if self._shapes:
                return self._shapes.posterior()
            posterior: SparseAdditivePosterior = self._gp.posterior()
            return posterior

    def shape_p(self) -> dict[str, list[float]]:
        """
        P-values of the components' shapes by name, one for each predictor.

        How often noise alone would take an effect as far from its shape as the one that was
        trained. Small values say that the shape is wrong, for this feature of the network at
        least. See :ref:`shapes`.
        """
        with self._precision():
            return self._shapes.tails()

    def _is_free(self, training: bool) -> bool:
        """True if components may have any shape, as in training."""
        return (training and self.trainable) or not self._shapes

    def _component_marginals(self, X: tf.Tensor, training: bool) -> tuple[tf.Tensor, tf.Tensor]:
        gp = self._gp
        q = gp.variational.whitened if self._is_free(training) else self._shapes.projected
        posterior = SparseAdditivePosterior(
            gp.kernel, gp.inducing_variable, q, gp.num_latent_gps, gp.mean_function
        )
        return posterior.predict_components(X)  # type: ignore[no-any-return]

    def _adapt_inducing(self, components: Sequence[Component]) -> None:
        fresh = build_inducing(components, self.kernel, self.structure.width)
        for Z, new in zip(self._gp.inducing_variable.inputs, fresh.inputs, strict=True):
            have: AnyNDArray = np.asarray(Z)
            Z.assign(_filled_up(np.asarray(new), have) if have.size else have)

    def _marginals(self, X: tf.Tensor, training: bool) -> tuple[tf.Tensor, tf.Tensor]:
        if training and self.has_moving_sites and not self._is_stepping:
            raise ValueError(
                f"{self.name} has variational='sites', whose q natural gradients move and this "
                "training leaves as it is: fit a NaturalGradientModel in place of keras.Model, or "
                "take variational='block'. (In a loop of your own, call it within stepping(), and "
                "natural_gradient_step on the same features.)"
            )
        gp = self._gp
        blocks = gp.blocks
        cholesky = blocks.cholesky()
        free = self._is_free(training)
        q = gp.whitened(cholesky) if free else self._shapes.projected(cholesky)
        mean, var = gp.marginals(blocks.features(X, cholesky), q, X)
        if training and self.trainable:  # else there is no KL, which num_data scales
            rows = tf.shape(X)[0]
            fits = rows <= self.num_data
            message = f"num_data={self.num_data} of {self.name} is smaller than the batch:"
            mean = asserted(mean, fits, [message, rows])
            mean = tf.where(fits, mean, tf.constant(np.nan, mean.dtype))  # XLA has no checks
        return mean, var

    @property
    def has_moving_sites(self) -> bool:
        """True if natural gradients alone move q(U)."""
        fixed = is_below("variational.site_shift", self.frozen)
        return self.variational == "sites" and self.trainable and not fixed

    @contextlib.contextmanager
    def stepping(self) -> Iterator[None]:
        """
        A context for training calls that are followed by :meth:`natural_gradient_step`; with
        ``variational="sites"`` other training calls are an error.
        """
        self._is_stepping = True
        try:
            yield
        finally:
            self._is_stepping = False

    def natural_gradient_step(self, features: tf.Tensor, y: tf.Tensor) -> None:
        """
        Move q(U) towards its optimum for a batch, by the step size :attr:`rho`.

        With a :attr:`kl_weight` that optimum is of the tempered ELBO.

        :param features: [N, F].
        :param y: [N] or [N, K].
        :raises TypeError: ``variational`` is not ``"sites"``.
        """
        with self._precision():
            X, (Y, possible) = self.scaled(features), self._observed(y)
            holds = tf.reduce_all(possible & self.readable(features))
            rho = tf.where(holds, tf.constant(self.rho, X.dtype), tf.constant(np.nan, X.dtype))
            site_step(self._gp, X, Y, rho, self.kl_weight)

    def penalty(self) -> tf.Tensor:
        """
        ``(kl_weight KL - log prior) / num_data`` times the layer's weight, in the float type in
        which Keras adds losses up.

        :return: a scalar.
        """
        with self._precision():
            penalty = self.kl_weight * self._gp.prior_kl() - self._gp.log_prior_density()
            return tf.cast(self.loss_weight / self.num_data * penalty, keras.config.floatx())

    def _set_flags(self) -> None:
        super()._set_flags()
        # Keras asks a trainable variable for its regulariser once a loss, in the replica that
        # asks. What add_loss() is given in call() would count a layer twice that is called twice,
        # and goes astray between replicas that meet inside the forward pass.
        variables = self._adopted.variables.values()
        first = next((v for v in variables if v.trainable), None)
        for variable in variables:
            variable.regularizer = self._penalty if variable is first else None

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_data": self.num_data,
            "variational": self.variational,
            "rho": self.rho,
            "loss_weight": self.loss_weight,
            "kl_weight": self.kl_weight,
        }


def _filled_up(rows: AnyNDArray, spare: AnyNDArray) -> AnyNDArray:
    """``rows``, filled up with the ``spare`` ones farthest from them, as all must differ."""
    filled, remaining = list(rows[: len(spare)]), list(spare)
    while len(filled) < len(spare):
        gaps = [min(np.sum((row - z) ** 2) for row in filled) for z in remaining]
        filled.append(remaining.pop(int(np.argmax(gaps))))
    return np.array(filled).reshape(spare.shape)


def _weight(name: str, value: Any) -> float:
    real = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not (real and np.isfinite(value) and value > 0.0):
        raise ValueError(f"{name} must be a positive number; got {value!r}.")
    return float(value)
