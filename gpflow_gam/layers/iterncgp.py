"""A Laplace posterior by IterNCGP as the last layer of a network."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import gpflow
import keras
import numpy as np
import tensorflow as tf
from gpflow.base import Module
from gpflow.likelihoods import Likelihood
from gpflow.posteriors import PrecomputeCacheType

from .. import models, optimizers
from ..bijectors import restore_on_error
from ..errors import check_choice
from ..gam.components.plan import shaped_term
from ..gam.families import Family
from ..gam.terms import Terms
from ..gam.terms.base import Term
from ..newton.operators import LatentKernels
from ..optimizers import FitResult
from ..posteriors import ActionPosterior
from .head import GPHead, Normalization, Output, asserted, constant_weight
from .structure import HeadSpecification

_SIZES = ("num_rows", "num_actions", "num_prior_actions")


@keras.saving.register_keras_serializable(package="gpflow_gam")
class IterNCGP(GPHead):
    """
    An additive GP on frozen features, its Laplace posterior found by
    :class:`gpflow_gam.models.IterNCGP` (Tatzel et al. 2025).

    ``fit`` on features and responses, then use it as any layer: it keeps the training features and
    the posterior's actions as weights. Nothing of it is trained by ``model.fit``.

    :param terms: as of :class:`AdditiveGP`.
    :param likelihood: log-concave; as of :class:`AdditiveGP`.
    :param num_classes: for softmax and ordinal responses.
    :param num_levels: for features that terms read as levels.
    :param scale: the predictor's natural size.
    :param normalization: ``"adapt"``: :meth:`fit` scales the features; None: as they are.
    :param output: what calls return, see :meth:`call`.
    :param level: probability of intervals.
    :param sizes: of the weights, once fitted; files hold them.
    :param options: of :class:`keras.Layer`.
    :raises TypeError, ValueError: naming the argument.
    """

    _first = "fit(features, y)"

    def __init__(
        self,
        terms: Terms | Term | Iterable[Term | Terms],
        likelihood: str | Family | Likelihood = "gaussian",
        *,
        num_classes: int | None = None,
        num_levels: Mapping[int, int] | None = None,
        scale: float = 1.0,
        normalization: Normalization = "adapt",
        output: Output = "moments",
        level: float = 0.95,
        sizes: Mapping[str, int] | None = None,
        **options: Any,
    ) -> None:
        check_choice("normalization", normalization, ("adapt", None))
        specification = HeadSpecification(terms, likelihood, num_classes, num_levels, None, scale)
        super().__init__(specification, normalization, output, level, (), **options)
        self._sizes: dict[str, int] | None = None
        self._data: dict[str, keras.Variable] = {}
        self._share: keras.Variable | None = None
        if sizes is not None:
            self._allocate({name: int(sizes[name]) for name in _SIZES})

    def _build_model(self) -> Any:
        spec = self.specification
        shaped = shaped_term(self.structure.components)
        if shaped:
            raise ValueError(
                f"{shaped} has a shape, which IterNCGP does not hold to; leave shape out, or take "
                "AdditiveGP."
            )
        prior: Any = Module()
        prior.kernel, prior.likelihood = spec.build_kernel(self.structure), spec.build_likelihood()
        prior.mean_function = spec.build_mean()
        return prior

    def _set_flags(self) -> None:
        self._trainable = False  # whatever a model's own flag says: it has one posterior
        self._adopted.freeze((), trainable=False)

    def _allocate(self, sizes: dict[str, int]) -> None:
        if self._sizes is not None:
            if any(size > self._sizes[name] for name, size in sizes.items()):
                raise ValueError(
                    f"{self.name} has room for a posterior of {self._sizes}; a fit with {sizes} "
                    "needs a new layer: its weights cannot change their sizes."
                )
            return
        N, L, D = sizes["num_rows"], self.num_predictors, self.structure.width
        shapes = {
            "inputs": (N, D),
            "weights": (L, N),
            "actions": (sizes["num_actions"], L, N),
            "prior_actions": (sizes["num_prior_actions"], L, N),
        }
        self._data = {name: constant_weight(self, name, shape) for name, shape in shapes.items()}
        # not a number until there is a posterior
        self._share = constant_weight(self, "share", (), keras.initializers.Constant(np.nan))
        self._held = tf.Module()  # for tf.train.Checkpoint, which does not see Keras's lists
        self._held.values = [v.value for v in (*self._data.values(), self._share)]
        self._sizes = sizes

    def fit(
        self, features: Any, y: Any, *, hyperparameters: bool = True, **options: Any
    ) -> FitResult:
        """
        Find the posterior given features.

        :param features: [..., F], such as a network's ``predict``.
        :param y: responses [...].
        :param hyperparameters: whether to learn kernel and likelihood parameters too.
        :param options: of :func:`gpflow_gam.optimizers.fit`: ``max_sweeps``, ``max_seconds``,
            ``progress``, ...
        :return: what happened.
        :raises ValueError: bad data or options; a layer that was fitted before, to less data or
            with fewer actions. An error leaves the layer as it was.
        """
        if self._sizes is not None:
            self._allocate({"num_rows": len(self._rows(features, y)[0])})
        with restore_on_error(self):
            held = [(p, p.numpy()) for p in self._adopted.below(self._frozen)]
            self.adapt(features, y)
            for parameter, value in held:
                parameter.assign(value)
            features, y = self._rows(features, y)
            with self._precision():
                X = self.scaled(features)
                Y = self.response_matrix(y)
                gp = self._gp
                model = models.IterNCGP(
                    (X, Y),
                    gp.kernel,
                    gp.likelihood,
                    mean_function=gp.mean_function,
                    solver="newton",
                )
                self._adopted.freeze(self._frozen, trainable=True)  # for this fit only
                try:
                    result = optimizers.fit(model, hyperparameters=hyperparameters, **options)
                finally:
                    self._set_flags()
                if model.likelihood is not gp.likelihood:  # a smooth equivalent took its place
                    learnt = gpflow.utilities.parameter_dict(model.likelihood)
                    for path, parameter in gpflow.utilities.parameter_dict(gp.likelihood).items():
                        parameter.assign(learnt[path])
                cache = model.posterior().cache
                assert cache is not None
                v, E, E0 = (tf.convert_to_tensor(t) for t in cache)
                share = model.predictive_share()
            self._allocate(dict(zip(_SIZES, (X.shape[0], E.shape[0], E0.shape[0]))))
            for variable, value in zip(self._data.values(), (X, v, E, E0)):
                room = [(0, have - used) for have, used in zip(variable.shape, value.shape)]
                variable.assign(tf.pad(value, room))  # rows and actions that count nothing
            assert self._share is not None
            self._share.assign(share)
            return result

    def posterior(self) -> ActionPosterior:
        """The posterior on scaled features; ValueError if there is none yet."""
        if self._share is None:
            raise ValueError(f"{self.name} has no posterior yet; call fit(features, y) first.")
        inputs, *rest = (tf.convert_to_tensor(v) for v in self._data.values())
        message = f"{self.name} has no posterior yet: call fit(features, y), or load its weights"
        inputs = asserted(inputs, tf.math.is_finite(self._share.value), [message])
        latents = LatentKernels.of(self.kernel, self.num_predictors)
        with self._precision():
            weights = lambda: tuple(rest)  # noqa: E731
            posterior = ActionPosterior(latents, inputs, weights, self._gp.mean_function)
            posterior.update_cache(PrecomputeCacheType.TENSOR)  # of the kernels themselves
        return posterior

    @property
    def predictive_share(self) -> tf.Variable | float:  # type: ignore[override]
        """Share of the predictors' variance that class probabilities are averaged over."""
        return 1.0 if self._share is None else self._share.value

    @property
    def num_moments(self) -> int:
        L = self.num_predictors
        return 2 if L == 1 else 2 + L

    def _moments(self, X: tf.Tensor, training: bool) -> tuple[tf.Tensor, None]:
        if self.num_predictors == 1:
            return tf.stack(self.posterior().predict_f(X), axis=-1), None
        mean, cov = self.posterior().predict_f(X, full_output_cov=True)
        both = tf.stack([mean, tf.linalg.diag_part(cov)], axis=-1)
        return tf.concat([both, cov], axis=-1), None

    def _state(self) -> dict[str, keras.Variable]:
        state = {**super()._state(), **{f"posterior.{k}": v for k, v in self._data.items()}}
        return state if self._share is None else {**state, "posterior.share": self._share}

    def get_config(self) -> dict[str, Any]:
        config = {**super().get_config(), "sizes": self._sizes}
        del config["num_inducing"]
        return config
