"""A sparse variational additive GP as a Keras layer."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import gpflow
import keras
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import AnyNDArray, PriorOn
from gpflow.likelihoods import Gaussian, Likelihood

from ..covariances import Features
from ..errors import check_positive
from ..gam.components.kernels import LINES_FIRST, PRIORS, build_inducing
from ..gam.components.plan import Component
from ..gam.families import Family
from ..gam.fits.specification import MAX_SITES
from ..gam.terms import Terms
from ..gam.terms.base import Term
from ..kernels import kernel_columns
from ..kernels.correlation import parameters_of, with_values
from ..kernels.shaped import shaped_part
from ..likelihoods.base import num_labels, unwrapped
from ..likelihoods.expectations import expectation_gradients
from ..models import AdditiveSVGP
from ..newton.weights import has_classes
from ..optimizers.sites import DataSites, sums_of
from ..posteriors.base import SparseAdditivePosterior
from ..posteriors.inducing import ShapedPosterior, ShapedValues, inducing_rows
from ..variational import DenseGaussian, OptimalPrecision, WhitenedGaussian
from .head import (
    GPHead,
    Normalization,
    Output,
    asserted,
    constant_weight,
    is_below,
    is_moved,
    of_all_replicas,
    over_replicas,
)
from .losses import Forward, as_leading, as_rows, read_once
from .structure import HeadSpecification

_OF_KERNELS, _OF_LIKELIHOODS = 5.0, 10.0
"""
Factors from the variables that optimizers move to unconstrained hyperparameters. With larger ones
lengthscales go on a random walk at a rate of .01, as batches are noisy.
"""
_NULL_STEPS, _NULL_SPREAD = 60, 10.0
"""Of the search for the null model; prior spread of its constant and classes' modes, in scales."""
_KL, _EAGER = "_gpflow_gam_kl", threading.local()
"""Attribute of a graph, or of a thread that runs eagerly: KL of training calls, by head."""
_NEAR, _CAREFUL_EPOCHS = 1.0, 4
"""Distance of a site from the mode of its row in the first epoch, in scales; twice in each next."""
_STEEPER = 2.0
"""Slopes are taken near the mode where the curvature is more than so many times the one there."""
_KEPT, _LOST = 0.95, 0.05
"""
Of inducing inputs that follow features: what a batch leaves of running averages; the share of an
even number of rows below which one is moved to another row.
"""
_WINDOW, _MOST = 0.5, 0.3
"""Step size of natural gradients, in batches by epoch, and at most."""


class _HereOnly(tf.lookup.StaticHashTable):
    """An untracked resource, which no SavedModel takes; its error shows this object."""

    def __init__(self) -> None:
        nothing = tf.lookup.KeyValueTensorInitializer([0], [0])
        super().__init__(nothing, default_value=0)

    def __repr__(self) -> str:
        return "<shapes of a head, which gpflow_gam.serving.export writes and nothing else does>"


class _HeadShapes:
    """Projects q(V) on the cone of the shapes, in numpy, and again only where q has changed."""

    def __init__(self, model: AdditiveSVGP, width: int) -> None:
        self._model = model
        parts = {i: shaped_part(kernel) for i, kernel in enumerate(model.kernel.kernels)}
        self._parts = {i: part for i, part in parts.items() if part is not None}
        kernel, Z = model.kernel, model.inducing_variable
        self._nodes = {i: inducing_rows(kernel, Z, kernel.names[i], width) for i in self._parts}
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


class _Step(NamedTuple):
    """What a forward pass computed that moves q(U), where gradients stop in all but features."""

    phi: Features
    cholesky: list[tf.Tensor]
    constant: tf.Tensor  # of the predictor, [L]
    seen: tf.Tensor  # rows before
    number: int  # of steps in Python before
    sites: tuple[tf.Tensor, tf.Tensor]


class _Penalty(keras.regularizers.Regularizer):
    """A head's part of the loss that does not depend on rows."""

    def __init__(self, head: AdditiveGP) -> None:
        self._head = weakref.ref(head)

    def __call__(self, variable: Any) -> tf.Tensor:
        head = self._head()
        assert head is not None  # it owns the variable
        head._check_learns()
        penalty = head.penalty()
        if variable.shape[0] == 0:  # of a head without hyperparameters; Keras asks for a gradient
            penalty += tf.cast(tf.reduce_sum(variable), penalty.dtype)
        return head._of_training(penalty)


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
    :param num_data: rows of the training data: of sequences, all of their steps.
    :param num_classes: for softmax and ordinal responses.
    :param num_levels: for features that terms read as levels, how many there are:
        ``{3: 7}`` for codes 0 to 6 in feature 3.
    :param num_inducing: inducing inputs of each smooth that says no ``k``; else 12 of a learnt
        feature, 24 of another, 36 in two dimensions, 50 beyond.
    :param loss_weight: what all of the head's loss is multiplied by, KL included, beside the losses
        of other outputs. (``loss_weights`` of ``compile`` would leave the KL as it is.)
    :param kl_weight: what the KL divergence of q(U) from its prior is multiplied by, positive: 1 is
        the ELBO, less is a tempered or "cold" posterior (Wenzel et al. 2020), which trusts the data
        as if there were ``1 / kl_weight`` times as many. Priors of hyperparameters are not
        tempered. It cannot be changed after a model was compiled, and so not at all.
    :param scale: the predictor's natural size: a Gaussian response's standard deviation, 1 behind
        a link and where there are several predictors.
    :param distance_aware: let smooths of several features in ``terms``, such as
        ``s(*range(64))``, be unsure away from all training data (Liu et al. 2020): their kernel is
        squared exponential without a line, held at a variance of ``scale^2`` (of classes ten times
        that) and a lengthscale of half the square root of the number of features, in spreads of
        these, and they have 100 inducing inputs by default. For out-of-distribution detection: see
        :ref:`far`.
    :param normalization: ``"running"``: location and spread of features follow the training
        batches, and smooths begin as lines, for features of a network; ``"adapt"``: only
        :meth:`adapt` sets them, for columns of data; None: features are taken as they are.
    :param output: what calls return, see :meth:`call`.
    :param level: probability of intervals.
    :param frozen: beginnings of the paths of parameters that training leaves alone (see
        :attr:`parameters`); by default the inducing inputs. Those of smooths of more than two
        features then follow the features, where ``normalization="running"``, by running k-means.
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
        loss_weight: float = 1.0,
        kl_weight: float = 1.0,
        scale: float = 1.0,
        distance_aware: bool = False,
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
        self.num_data = int(num_data)
        check_positive("loss_weight", loss_weight)
        check_positive("kl_weight", kl_weight)
        self.loss_weight, self._kl_weight = float(loss_weight), float(kl_weight)
        self._penalty = _Penalty(self)
        specification = HeadSpecification(
            terms, likelihood, num_classes, num_levels, num_inducing, scale, distance_aware
        )
        super().__init__(specification, normalization, output, level, frozen, **options)
        self._seen = constant_weight(self, "steps", ())  # rows of training, some of them again
        self._starts = constant_weight(self, "starts", ())
        self._learnt_in: Callable[[], Any] = lambda: None
        self._number = 0
        self._shapes = _HeadShapes(self._gp, self.structure.width)
        # Keras compiles by XLA where it may; a projection is computed by numpy
        self.supports_jit = not self._shapes

    def _build_model(self) -> AdditiveSVGP:
        with tf.variable_creator_scope(_equal_on_replicas):
            return self._build_equal_model()

    def _build_equal_model(self) -> AdditiveSVGP:
        spec = self.specification
        learnt = self.normalization == "running"  # features of a network
        priors = LINES_FIRST if learnt else PRIORS
        kernel = spec.build_kernel(self.structure, priors, normal=learnt)
        inducing: Any = build_inducing(self.structure.components, kernel, self.structure.width)
        # rows near the inducing inputs that follow features, by component
        inducing.counts = {
            c.name: tf.Variable(
                np.zeros(len(c.inducing)), False, name=f"counts_{i}", dtype=self.compute_dtype
            )
            for i, c in enumerate(self.structure.joint if learnt else [])
        }
        for Z in inducing.inputs:  # free by structure; whether they move is a flag
            for variable in Z.variables:
                variable._trainable = bool(variable.shape.num_elements())
        likelihood = spec.build_likelihood()
        factors = {kernel: _OF_KERNELS, likelihood: _OF_LIKELIHOODS}

        def weight(size: int) -> keras.Variable:
            shape, dtype = (size,), self.compute_dtype
            return self.add_weight(name="moves", shape=shape, initializer="zeros", dtype=dtype)

        self._moves = _moved_by_keras(factors, weight)
        return AdditiveSVGP(
            kernel,
            likelihood,
            inducing,
            variational=OptimalPrecision(),
            mean_function=spec.build_mean(),
            num_data=self.num_data,
            num_latent_gps=spec.num_predictors,
        )

    def _state(self) -> dict[str, keras.Variable]:
        own = {"moves": self._moves.weight, "steps": self._seen, "starts": self._starts}
        return {**super()._state(), **own}

    def adapt(self, features: Any, y: Any = None) -> None:
        super().adapt(features, y)
        if y is not None:
            self._starts.assign(1.0)
        self._forget()

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

    def _component_marginals(self, X: tf.Tensor, training: bool) -> tuple[tf.Tensor, tf.Tensor]:
        gp = self._gp
        is_free = (training and self.trainable) or not self._shapes  # training knows no shapes
        q = gp.variational.whitened if is_free else self._shapes.projected
        posterior = SparseAdditivePosterior(
            gp.kernel, gp.inducing_variable, q, gp.num_latent_gps, gp.mean_function
        )
        return posterior.predict_components(X)  # type: ignore[no-any-return]

    def _adapt_inducing(self, components: Sequence[Component]) -> None:
        fresh = build_inducing(components, self.kernel, self.structure.width)
        for Z, new in zip(self._gp.inducing_variable.inputs, fresh.inputs, strict=True):
            have: AnyNDArray = np.asarray(Z)
            Z.assign(_filled_up(np.asarray(new), have) if have.size else have)
        for count in self._gp.inducing_variable.counts.values():
            count.assign(tf.ones_like(count))

    def _follow(self, x: tf.Tensor) -> None:
        super()._follow(x)
        by_optimizer = not is_below("inducing_variable", self.frozen)
        if by_optimizer or not self._learns:
            return
        inducing = self._gp.inducing_variable
        for name, count in inducing.counts.items():
            columns = list(kernel_columns(self.kernel[name]) or ())
            rows = of_all_replicas(tf.gather(self.scaling(x), columns, axis=1))
            Z = inducing.components[name].unconstrained_variable
            _follow_rows(Z, count, tf.stop_gradient(rows))

    def _moments(self, X: tf.Tensor, training: bool) -> tuple[tf.Tensor, _Step | None]:
        gp = self._gp
        blocks = gp.blocks
        if not (training and self.trainable):
            cholesky = blocks.cholesky()
            q = (self._shapes.projected if self._shapes else gp.whitened)(cholesky)
            return tf.stack(gp.marginals(blocks.features(X, cholesky), q, X), axis=-1), None
        cholesky, phi = blocks.whitened(X)
        sites = gp.variational.sites(cholesky)
        # natural gradients move it; where they end it has no other slope
        q = gp.variational.of_sites(*sites)
        # for the penalty, once the loss has moved q
        _kept_kl()[self] = tf.stop_gradient(q.kl())
        constant, seen = (tf.convert_to_tensor(v) for v in (gp.mean_function.constant, self._seen))
        step = _Step(phi, cholesky, constant, seen, self._number, sites)
        return tf.stack(gp.marginals(phi, q, X), axis=-1), step

    def _observe(
        self, forward: Forward, y: tf.Tensor, moments: tf.Tensor, weight: tf.Tensor
    ) -> tf.Tensor:
        """Start at the null model of the first batch; then move q(U) by a natural gradient."""
        # The step goes from the running sums of the observations' sites towards those of this batch
        # (Khan & Lin 2017; Adam, Chang, Khan & Solin 2021), whatever the optimizer does with the
        # rest. Rows of the first batches count alike; later ones as an exponential average over
        # about two epochs.
        if not self.trainable:  # there is no KL, which num_data scales
            return super()._observe(forward, y, moments, weight)
        self._adopted.check_flags(self.frozen)
        eagerly = tf.executing_eagerly()
        here = _kept_kl().get(self, self) if eagerly else tf.compat.v1.get_default_graph()
        self._learnt_in = weakref.ref(here)
        fits = forward.num_rows <= self.num_data
        message = f"num_data={self.num_data} of {self.name} is smaller than the batch:"
        moments = asserted(moments, fits, [message, forward.num_rows])
        finite = tf.reduce_all(tf.math.is_finite(self._read(forward.inputs)), axis=0)
        message = "features must be finite in rows of training, drop or impute others; not so is"
        which = tf.boolean_mask(list(self.structure.features), ~finite)
        moments = asserted(moments, finite, [message, which])
        moments = tf.where(fits, moments, tf.constant(np.nan, moments.dtype))  # for XLA
        self._moves.hold()
        starts = not is_below("mean_function.constant", self.frozen)
        moves = self._learns
        if not (starts or moves):
            return super()._observe(forward, y, moments, weight)
        step: _Step = forward.state
        given, leading = moments, len(moments.shape) - 2
        moments = as_rows(moments, leading)
        with self._precision():
            Y, possible = self._observed(y, given)
            sound = (tf.math.is_finite(weight) & (weight >= 0.0))[:, 0]
            valid = fits & tf.reduce_all(possible & self.readable(forward.inputs) & sound)
        # NaN where a row cannot be read; outside `_precision`, as replicas wait
        missing = tf.constant(np.nan, tf.float64)
        num_rows = over_replicas(tf.where(valid, tf.cast(forward.num_rows, tf.float64), missing))
        # of any other batch nothing is learnt: a graph may assign before its assertions fail
        holds = tf.math.is_finite(num_rows)
        if starts:
            rows = of_all_replicas(tf.concat([tf.cast(Y, weight.dtype), weight], axis=1))
            with self._precision():
                null = self._null_model(rows[:, :-1], rows[:, -1], holds)
            self._start(null, holds & tf.reduce_any(rows[:, -1] > 0.0))
            shift = tf.cast(self._gp.mean_function.constant - step.constant, moments.dtype)[:, None]
            moments = tf.concat([moments[..., :1] + shift, moments[..., 1:]], axis=-1)
        if moves:
            scale = self.specification.scale
            # of the prior little is known: the first batch is seen from the null model
            constant = tf.cast(self._gp.mean_function.constant, moments.dtype)[:, None]
            least = tf.fill(tf.shape(constant), tf.cast(1e-6 * scale**2, constant.dtype))
            nothing = tf.concat([constant, least], axis=1)
            is_first = tf.equal(step.seen, 0.0)
            moments = tf.where(is_first, tf.zeros_like(moments) + nothing, moments)
        rho, scale = self._step_size(num_rows)
        with self._precision():
            rows, sums = self._expected(step.phi, Y, moments, weight, scale)
        if moves:
            # outside of `_precision`, as replicas wait
            sites = step.sites
            if step.number != self._number:  # of another call, whose loss was asked since
                with self._precision():
                    sites = self._gp.variational.sites(step.cholesky)
            pairs = zip(sites, sums)
            moved = [tf.where(holds, (1.0 - rho) * u + over_replicas(s), u) for u, s in pairs]
            self._number += 1
            self._gp.variational.assign_sites(step.cholesky, *moved)
            self._seen.assign_add(tf.cast(tf.where(holds, num_rows, 0.0), self._seen.dtype))
        rows = tf.where(holds, -rows, tf.constant(np.nan, rows.dtype))
        return as_leading(rows, given, 2)

    def _expected(
        self,
        phi: Features,
        Y: tf.Tensor,
        moments: tf.Tensor,
        weight: tf.Tensor,
        scale: tf.Tensor,
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """Expected log densities [N] with their slopes, and ``scale`` times sums of sites."""
        likelihood = read_once(self.likelihood)
        mean, var, nothing, _ = self._unpacked(moments)
        epoch = tf.cast(tf.convert_to_tensor(self._seen), mean.dtype) / self.num_data
        at, spread = tf.stop_gradient(mean), tf.stop_gradient(var)
        m, v = at, spread
        # a Gaussian response has one curvature, and the same site wherever it is taken
        careful = not isinstance(unwrapped(likelihood), Gaussian)
        if careful:
            near = self._near_modes(likelihood, at, spread, nothing, Y, epoch)
            m, v, near_mean, near_g, near_w, expected = map(tf.stop_gradient, near)
        value, g, w = expectation_gradients(likelihood, nothing, m, v, Y)
        slopes = tf.stop_gradient(g) * (mean - at) - 0.5 * tf.stop_gradient(w) * (var - spread)
        rows = value + tf.reduce_sum(slopes, axis=-1)
        if careful:
            is_early, at = epoch < _CAREFUL_EPOCHS, near_mean
            more = tf.where(is_early, expected - value, tf.zeros_like(value))
            rows += tf.stop_gradient(more)
            g, w = tf.where(is_early, near_g, g), tf.where(is_early, near_w, w)
        w = tf.maximum(w, 0.0)
        constant = tf.cast(self._gp.mean_function.constant, mean.dtype)
        weight *= tf.cast(scale, weight.dtype)
        # without the constant from the start, which single precision would not have both ways
        sites = DataSites(weight * w, weight * (g + w * (at - constant)))
        sums = sums_of(self._gp, phi, sites, tf.zeros_like(constant))
        return rows, [tf.stop_gradient(x) for x in sums]

    def _null_model(self, Y: tf.Tensor, weight: tf.Tensor, holds: tf.Tensor) -> list[tf.Tensor]:
        """The constant [L] and unconstrained parameters of the likelihood without features."""
        # by steps along the signs of gradients (Riedmiller & Braun 1993), which need no scale;
        # after the first batch what they are now. The constant is uncertain, the more the fewer
        # rows there are: of one, or of equal ones, no spread would be left else.
        gp, scale = self._gp, self.specification.scale
        free = [p for p in parameters_of(gp.likelihood) if p.trainable]
        now = [tf.convert_to_tensor(gp.mean_function.constant)]
        now += [tf.convert_to_tensor(p.unconstrained_variable) for p in free]
        steps = [tf.fill(tf.shape(now[0]), tf.cast(0.5 * scale, now[0].dtype))]
        steps += [tf.fill(tf.shape(z), tf.cast(0.5, z.dtype)) for z in now[1:]]
        zeros = tf.zeros([tf.shape(Y)[0], gp.num_latent_gps], now[0].dtype)
        spread = np.full(gp.num_latent_gps, _NULL_SPREAD * scale)
        if self.specification.in_units:  # where a response's level may be anything
            spread[0] = np.inf
        Y, counts = tf.cast(Y, zeros.dtype), weight > 0.0
        most = tf.reduce_max(tf.where(counts[:, None], Y, Y.dtype.min), axis=0)
        alike = tf.reduce_all(tf.equal(Y, most) | ~counts[:, None])
        share = 1.0 / tf.maximum(tf.reduce_sum(tf.cast(counts, zeros.dtype)), 1.0)
        uncertain = zeros
        if num_labels(gp.likelihood) is None:  # labels have no spread
            uncertain += tf.square(scale * tf.where(alike, tf.ones_like(share), share))

        def bound(places: list[tf.Tensor]) -> tf.Tensor:
            values = iter(p.transform(z) for p, z in zip(free, places[1:]))  # type: ignore[misc]
            every = [next(values) if p.trainable else p for p in parameters_of(gp.likelihood)]
            likelihood = with_values(gp.likelihood, every)
            expected = likelihood.variational_expectations(
                zeros[:, :1], zeros + places[0], uncertain, Y
            )
            fit = tf.reduce_sum(weight * expected)
            return fit - 0.5 * tf.reduce_sum(tf.square(places[0] / spread))

        def step(
            i: tf.Tensor, places: list[tf.Tensor], steps: list[tf.Tensor], last: list[tf.Tensor]
        ) -> tuple[Any, ...]:
            with tf.GradientTape() as tape:
                tape.watch(places)
                value = bound(places)
            gradients = tape.gradient(value, places, unconnected_gradients="zero")
            signs = [
                tf.where(tf.math.is_finite(g), tf.sign(g), 0.0 * s)
                for g, s in zip(gradients, steps)
            ]
            turns = [g * old for g, old in zip(signs, last)]
            steps = [
                s * tf.gather(tf.constant([0.4, 1.0, 1.3], s.dtype), tf.cast(t, tf.int32) + 1)
                for t, s in zip(turns, steps)
            ]
            return i + 1, [z + g * s for z, g, s in zip(places, signs, steps)], steps, signs

        def search() -> list[tf.Tensor]:
            start = (0, now, steps, [tf.zeros_like(z) for z in now])
            return tf.while_loop(lambda i, *_: i < _NULL_STEPS, step, start)[1]  # type: ignore[no-any-return]

        is_first = tf.equal(tf.convert_to_tensor(self._starts), 0.0)
        found = tf.cond(is_first & holds, search, lambda: now)
        return [tf.stop_gradient(z) for z in found]

    def _start(self, null: list[tf.Tensor], counts: tf.Tensor) -> None:
        """Assign the null model, the last where a row of its batch counts."""
        gp = self._gp
        constant = gp.mean_function.constant
        if not is_below("mean_function.constant", self.frozen):
            constant.unconstrained_variable.assign(null[0])
        free = [p for p in parameters_of(gp.likelihood) if p.trainable]
        for p, z in zip(free, null[1:]):
            p.unconstrained_variable.assign(z)
        self._starts.assign(tf.maximum(self._starts, tf.cast(counts, self._starts.dtype)))

    def _near_modes(
        self,
        likelihood: Likelihood,
        mean: tf.Tensor,
        var: tf.Tensor,
        nothing: tf.Tensor,
        Y: tf.Tensor,
        epoch: tf.Tensor,
    ) -> tuple[tf.Tensor, ...]:
        """
        Means and variances whose slopes the loss has, means of sites, slopes and curvatures there,
        all [N, L], and log densities at the rows' own moments [N]; zeros once none are needed.
        """
        # In the first epochs, when these are far off, no further than some distance from the mode
        # of each row by itself, with a spread no larger, and with a curvature from which Newton's
        # step is no longer. Where the curvature grows with the predictor, as that of counts does,
        # that step would overshoot from far below, and where it is next to none, as that of a
        # logarithm of noise in rows of small residuals. One row of many standard deviations would
        # have a slope of thousands, after which Adam moves nothing for as many steps. (Generalized
        # linear models are fitted from the responses for the same reason, McCullagh & Nelder 1989.)
        # Slopes are the true ones but where these would be steeper: residuals are what a
        # likelihood's parameters learn from.
        gp, scale = self._gp, self.specification.scale
        centre = tf.zeros_like(mean) + tf.cast(gp.mean_function(nothing), mean.dtype)
        far = tf.cast(scale, mean.dtype)
        # one row gives a variance no mode but by its prior; the mode of a class is far off
        spread = 1.0 if num_labels(likelihood) is None else _NULL_SPREAD
        prior = 1.0 / tf.square(spread * far)

        def slopes(mean: tf.Tensor, var: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            expected, g, w = expectation_gradients(likelihood, nothing, mean, var, Y)
            return expected, g, tf.maximum(w, 0.0)

        def step(
            i: tf.Tensor, mode: tf.Tensor, _: tf.Tensor
        ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            _, g, w = slopes(mode, close)
            change = (g + prior * (centre - mode)) / (w + prior)
            change = tf.clip_by_value(change, -far, far)
            return i + 1, mode + change, tf.reduce_max(tf.abs(change))

        def limited() -> tuple[tf.Tensor, ...]:
            start = (0, centre, far)
            mode = tf.while_loop(
                lambda i, _, change: (i < 15) & (change > 1e-3 * far), step, start
            )[1]
            within = tf.clip_by_value(mean, mode - most, mode + most)
            _, g, w = slopes(within, close)
            if not has_classes(likelihood):  # whose slopes are bounded
                w = tf.maximum(w, tf.abs(g) / most)
            expected, _, own = slopes(mean, var)
            calm = own <= _STEEPER * w
            sloping = tf.where(calm, mean, within), tf.where(calm, var, close)
            return *sloping, within, g, w, expected

        most = _NEAR * far * 2.0 ** tf.floor(epoch)
        close = tf.minimum(var, tf.square(most))
        none = tf.zeros_like(mean)
        own = mean, var, mean, none, none, none[:, 0]
        return tf.cond(epoch < _CAREFUL_EPOCHS, limited, lambda: own)  # type: ignore[no-any-return]

    def _step_size(self, rows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Of a natural gradient, and times what a batch's sums stand for."""
        seen = tf.cast(tf.convert_to_tensor(self._seen), tf.float64)
        share = tf.math.divide_no_nan(rows, seen + rows)
        rho = tf.maximum(share, tf.minimum(_WINDOW * rows / self.num_data, _MOST))
        return rho, tf.math.divide_no_nan(rho * self.num_data, rows * self.kl_weight)

    def _forget(self) -> None:
        """Let q(U) be the prior again."""
        gp = self._gp
        with self._precision():
            P, L = gp.blocks.layout.total, gp.num_latent_gps
            zeros = tf.zeros([L, P, P], tf.float64), tf.zeros([P, L], tf.float64)
            gp.variational.assign_sites(gp.blocks.cholesky(), *zeros)
        self._seen.assign(tf.zeros_like(self._seen))

    def _check_learns(self) -> None:
        """ValueError if the present training step has the layer, and its loss was not asked."""
        if not self._learns:
            return
        trained = self._trained_in() if self.has_trained_here() else None
        if tf.executing_eagerly():
            trained = self._kl_of_call()
        if trained is not None and self._learnt_in() is not trained:
            raise ValueError(
                f"{self.name} learns in head.loss, and this training step has another loss or none "
                "(or asks for model.losses before it): compile with loss=head.loss."
            )

    def _of_training(self, penalty: tf.Tensor) -> tf.Tensor:
        """The penalty, whose slope is an error where the layer's call was not told of training."""
        called = self._untrained_in() is tf.compat.v1.get_default_graph()
        if not called or self.has_trained_here() or not self._learns:
            return penalty

        @tf.custom_gradient
        def checked(x: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
            def slope(_: tf.Tensor) -> tf.Tensor:
                raise ValueError(
                    f"{self.name} is trained, and this training step calls it without "
                    "training=True: Keras tells a model of your own only if its call takes it. "
                    "Write `def call(self, x, training=None)` there, or hold the layer fixed, "
                    "trainable = False."
                )

            return tf.identity(x), slope

        return checked(penalty)

    @property
    def _learns(self) -> bool:
        """True if training moves q(U)."""
        return self.trainable and not is_below("variational.site_shift", self.frozen)

    def penalty(self) -> tf.Tensor:
        """``(kl_weight KL - log prior) / num_data``, weighted; in a step as at its call."""
        with self._precision():
            kl = self._kl_of_call()
            if kl is None:
                kl = tf.stop_gradient(self._gp.prior_kl())
            kl = tf.cast(kl, self.compute_dtype)
            penalty = self.kl_weight * kl - self._gp.log_prior_density()
            return tf.cast(self.loss_weight / self.num_data * penalty, keras.config.floatx())

    def _kl_of_call(self) -> tf.Tensor | None:
        """The KL divergence that the last call was with, if it was for training."""
        if tf.executing_eagerly() and self._untrained_in() is not None:
            _kept_kl().pop(self, None)  # one before was of no step
        return _kept_kl().get(self)

    def _set_flags(self) -> None:
        super()._set_flags()
        free = self._moves.free
        for name, p in self.parameters.items():
            if is_moved(p):
                transform: Any = p.transform
                free[transform.places] = not is_below(name, self.frozen)
        moved = self._moves.weight
        moved.constraint = None if free.all() else self._moves.kept
        # it has the penalty, too, which a q that learns has whatever else is held
        moved.trainable = self.trainable and bool(free.any() or self._learns)
        # Keras asks a trainable variable for its regulariser once a loss, in the replica that
        # asks. What add_loss() is given in call() would count a layer twice that is called twice,
        # and goes astray between replicas that meet inside the forward pass.
        variables = [moved, *self._adopted.variables.values()]
        first = next((v for v in variables if v.trainable), None)
        for variable in variables:
            variable.regularizer = self._penalty if variable is first else None

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_data": self.num_data,
            "loss_weight": self.loss_weight,
            "kl_weight": self.kl_weight,
            "distance_aware": self.specification.distance_aware,
        }


def _follow_rows(centres: tf.Variable, counts: tf.Variable, rows: tf.Tensor) -> None:
    """Let centres [M, D] follow the rows [N, D] of a batch that are nearest to each."""
    # k-means by running averages (van den Oord, Vinyals & Kavukcuoglu 2017, "Neural Discrete
    # Representation Learning", appendix A.1). Centres without rows for long become rows of the
    # batch, as all do with the first.
    rows = tf.pad(rows, [[0, 1], [0, 0]], constant_values=np.nan)  # there may be none
    finite = tf.reduce_all(tf.math.is_finite(rows), axis=1)
    first = tf.argsort(tf.cast(finite, tf.int32), direction="DESCENDING", stable=True)
    rows = tf.gather(tf.where(finite[:, None], rows, tf.zeros_like(rows)), first)
    number = tf.math.count_nonzero(finite, dtype=tf.int32)
    Z, count = tf.convert_to_tensor(centres), tf.convert_to_tensor(counts)
    share = tf.cast(number, count.dtype) / Z.shape[0]
    lost = count < _LOST * share
    place = tf.cumsum(tf.cast(lost, tf.int32)) - 1
    lost &= place < number
    Z = tf.where(lost[:, None], tf.gather(rows, tf.where(lost, place, 0)), Z)
    count = tf.where(lost, share, count)
    distance = tf.reduce_sum(tf.square(Z), axis=1) - 2.0 * tf.matmul(rows, Z, transpose_b=True)
    nearest = tf.one_hot(tf.argmin(distance, axis=1), Z.shape[0], dtype=Z.dtype)
    nearest *= tf.cast(tf.range(tf.shape(rows)[0]) < number, Z.dtype)[:, None]
    near = tf.reduce_sum(nearest, axis=0)
    count = _KEPT * count + (1.0 - _KEPT) * near
    gap = tf.matmul(nearest, rows, transpose_a=True) - near[:, None] * Z
    centres.assign(Z + (1.0 - _KEPT) * tf.math.divide_no_nan(gap, count[:, None]))
    counts.assign(count)


def _kept_kl() -> weakref.WeakKeyDictionary[AdditiveGP, tf.Tensor]:
    here = _EAGER if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
    if not hasattr(here, _KL):
        setattr(here, _KL, weakref.WeakKeyDictionary())
    kept: weakref.WeakKeyDictionary[AdditiveGP, tf.Tensor] = getattr(here, _KL)
    return kept


def _equal_on_replicas(create: Callable[..., tf.Variable], **options: Any) -> tf.Variable:
    """A variable that replicas may assign, each the same value."""
    return create(**{**options, "aggregation": tf.VariableAggregation.ONLY_FIRST_REPLICA})


class _Moves:
    """One variable [H] for all hyperparameters, which optimizers of Keras move in their place."""

    # Adam takes some thirty operations for a variable of whatever size. Hyperparameters' own
    # variables are those that are assigned and that GPflow trains; this one is added to them.
    def __init__(self, weight: keras.Variable) -> None:
        self.weight, self.variable = weight, weight.value
        # False: of a parameter that is frozen, which has no slope
        self.free: AnyNDArray = np.ones(weight.shape[0], bool)
        self._held = tf.Variable(tf.zeros_like(self.variable), trainable=False)

    def hold(self) -> None:
        """Remember what is frozen before an optimizer's step."""
        if not self.free.all():
            self._held.assign(self.variable)

    def kept(self, moved: Any) -> tf.Tensor:
        """The moves after it, by slopes alone: those of momentum and weight decay need none."""
        return tf.where(self.free, tf.convert_to_tensor(moved), self._held)


class _Moved(tfp.bijectors.Identity):
    """``base(x + factor moves)``: coordinates in which Adam's steps are of the right size."""

    # Adam moves every variable by about its learning rate a step. A weight of a network acts
    # together with many others; a logarithm of a noise variance alone, which would take epochs.
    # Gradients of moves are divided by the factor: plain gradient descent, whose step has the size
    # of the gradient, moves a hyperparameter as if there were no coordinates.
    def __init__(
        self, base: tfp.bijectors.Bijector, factor: float, moves: _Moves, places: AnyNDArray
    ) -> None:
        super().__init__()
        self.base, self.factor, self.moves, self.places = base, factor, moves, places

    def together(self, others: Sequence[_Moved]) -> Callable[[tf.Tensor], tf.Tensor] | None:
        """The transform of parameters that are joined, where they differ in their places only."""
        for other in others:
            if type(other) is not _Moved or other.base is not self.base:
                return None
        places = np.concatenate([other.places for other in others])
        return lambda x: self.base.forward(x + self._change(places, x.shape))

    def _change(self, places: AnyNDArray, shape: tf.TensorShape) -> tf.Tensor:
        # by a product: the gradient of a gather is sparse, which Adam takes many operations for
        moves = tf.convert_to_tensor(self.moves.variable)
        every = np.eye(len(self.moves.free))[places]
        chosen, free = (tf.constant(x, moves.dtype) for x in (every, every * self.moves.free))

        @tf.custom_gradient
        def change(moves: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
            return (
                tf.linalg.matvec(self.factor * chosen, moves),
                lambda dy: tf.linalg.matvec(free / self.factor, dy, transpose_a=True),
            )

        return tf.reshape(change(moves), shape)

    def forward(self, x: tf.Tensor, name: str = "forward", **kwargs: Any) -> tf.Tensor:
        return self.base.forward(x + self._change(self.places, x.shape))

    def inverse(self, y: tf.Tensor, name: str = "inverse", **kwargs: Any) -> tf.Tensor:
        x = self.base.inverse(y)
        return x - self._change(self.places, x.shape)

    def forward_log_det_jacobian(self, x: tf.Tensor, *args: Any, **kwargs: Any) -> tf.Tensor:
        change = self._change(self.places, x.shape)
        return self.base.forward_log_det_jacobian(x + change, *args, **kwargs)

    def inverse_log_det_jacobian(self, y: tf.Tensor, *args: Any, **kwargs: Any) -> tf.Tensor:
        return self.base.inverse_log_det_jacobian(y, *args, **kwargs)


class _OfConstrained(tfp.distributions.TransformedDistribution):
    """A prior on the unconstrained value as one on the other; TFP's own class has no copies."""


def _moved_by_keras(
    factors: Mapping[gpflow.Module, float], weight: Callable[[int], keras.Variable]
) -> _Moves:
    """Give the trainable parameters of modules transforms with moves."""
    found = [(p, factor) for part, factor in factors.items() for p in part.trainable_parameters]
    ends = np.cumsum([p.shape.num_elements() for p, _ in found], dtype=int)
    moves = _Moves(weight(int(ends.max(initial=0))))
    for (p, factor), end in zip(found, ends):
        places = np.arange(end - p.shape.num_elements(), end)
        if p.prior is not None and p.prior_on is PriorOn.UNCONSTRAINED:  # which no move is of
            p.prior = _OfConstrained(p.prior, p.transform)
            p.prior_on = PriorOn.CONSTRAINED
        p._bijector = p._transform_fn = _Moved(p.transform, factor, moves, places)
    return moves


def _filled_up(rows: AnyNDArray, spare: AnyNDArray) -> AnyNDArray:
    """``rows``, filled up with the ``spare`` ones farthest from them, as all must differ."""
    filled, remaining = list(rows[: len(spare)]), list(spare)
    while len(filled) < len(spare):
        gaps = [min(np.sum((row - z) ** 2) for row in filled) for z in remaining]
        filled.append(remaining.pop(int(np.argmax(gaps))))
    return np.array(filled).reshape(spare.shape)
