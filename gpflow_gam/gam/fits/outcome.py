"""What a fit came to: the model, its posterior, and the data that it is of."""

from __future__ import annotations

import copy
import dataclasses
import functools

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, Parameter
from gpflow.likelihoods import Likelihood
from gpflow.posteriors import PrecomputeCacheType

from ...frozen import frozen_copy
from ...kernels import AdditiveKernel
from ...kernels.functional import parameters_of, with_values
from ...likelihoods import unwrapped
from ...models import AdditiveSGPR, AdditiveSVGP, IterNCGP
from ...optimizers import FitResult, Solution, present_solution, whitened_of
from ...optimizers.binned.bins import ColumnBins
from ...optimizers.binned.evidence import GaussianPosterior
from ...posteriors import (
    ActionPosterior,
    InducingMoments,
    ShapedMoments,
    ShapedPosterior,
    SparseAdditivePosterior,
)
from ...posteriors.shaped import shaped_values
from ..components import Component, shaped_term
from .build import Model
from .rows import make_rows
from .specification import Specification
from .sums import Parts, solution_from_parts
from .whole import Whole


def _snapshot(model: Model) -> Model:
    """A model of the same kernel and q, with all other parts of its own."""
    if isinstance(model, IterNCGP):  # whose posterior keeps what it is of
        return model
    own = copy.copy(model)
    own.likelihood, own.mean_function = (
        frozen_copy(model.likelihood),
        frozen_copy(model.mean_function),
    )
    own.inducing_variable = frozen_copy(model.inducing_variable)
    return own


@dataclasses.dataclass(frozen=True, eq=False)
class Outcome:
    """
    The model of a fit, its data and its posterior.

    :param spec: what was fitted.
    :param model: the GPflow model, trained. The fit keeps its kernel's values (:attr:`solution`),
        and copies of its other parts: who changes or replaces parts of the model
        later changes no prediction.
    :param X: the data as encoded, [N, D]; an even sample of the rows, [n, D], where there are
        more than are kept.
    :param Y: the response as encoded, [N, K] or [n, K].
    :param result: how the optimisation ended.
    :param dropped: rows left out for missing values.
    :param whole: all rows, where X and Y are a sample of them.
    :param stored: the solution as a file holds it.
    """

    spec: Specification
    model: Model
    X: AnyNDArray
    Y: AnyNDArray
    result: FitResult
    dropped: int = 0
    _solution: Solution | None = None
    whole: Whole | None = None
    stored: Parts | None = None

    trained: Model = dataclasses.field(init=False)
    """The model that was given, which is the user's to change."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "trained", self.model)
        object.__setattr__(self, "model", _snapshot(self.model))

    @property
    def number(self) -> int:
        """N, all rows of the fit."""
        return len(self.X) if self.whole is None else self.whole.number

    @property
    def has_data(self) -> bool:
        """Whether X and Y are there, as they are not after ``save(data=False)``."""
        return True

    @functools.cached_property
    def solution(self) -> Solution | None:
        """
        What the fit came to as sums over rows; None for engines and families of q that have none.

        Made of what a file holds, or from the model's parameters where the fit did not leave it.
        """
        if self._solution is not None:
            return self._solution
        if self.spec.variational not in ("exact", "sites"):
            return None
        model = self.model
        assert isinstance(model, (AdditiveSGPR, AdditiveSVGP))
        if self.whole is not None:
            rows = self.whole.rows(self.spec, model.kernel, self.X)
        else:
            mean = np.asarray(model.mean_function(self.X))
            bins = ColumnBins(self.X, levels=self.spec.encoder.places("level"))
            rows = make_rows(
                self.spec.components, model.kernel, bins, self.Y, mean, fine=self.spec.fine
            )
        if self.stored is not None:
            return solution_from_parts(self.stored, model, rows)
        return present_solution(model, rows, self.spec.variational == "exact")

    @functools.cached_property
    def free_moments(self) -> InducingMoments | None:
        """
        Moments of the inducing values before shapes; None without :attr:`solution`.

        Without a term that has a shape they are those of the posterior.
        """
        solution = self.solution
        if solution is None:
            return None
        q, model = solution.q, self.model
        assert isinstance(model, (AdditiveSGPR, AdditiveSVGP))
        return InducingMoments(
            model.kernel,
            model.inducing_variable,
            q.mean,
            q.covariance,
            values=solution.values,
            roots=q.roots,
        )

    @functools.cached_property
    def shaped(self) -> ShapedMoments | None:
        """Moments of the inducing values with the shapes of terms; None where none has one."""
        if not shaped_term(self.spec.components):
            return None
        assert self.free_moments is not None  # who asks for shapes has a solution
        return ShapedMoments(self.free_moments)

    @functools.cached_property
    def _without_shapes(self) -> InducingMoments | None:
        """Moments before shapes, at the hyperparameters that are best without them."""
        solution, model = self.solution, self.model
        if solution is None or solution.unshaped is None:
            return self.free_moments
        assert isinstance(model, (AdditiveSGPR, AdditiveSVGP))
        q, values = solution.at(solution.unshaped)
        return InducingMoments(
            model.kernel,
            model.inducing_variable,
            q.mean,
            q.covariance,
            values=values,
            roots=q.roots,
        )

    def shape_tail(self, name: str, output: int) -> float:
        """
        How often noise alone is as far from a component's shape as its estimate without is.

        :param name: of a component that has a shape.
        :param output: of the predictor.
        """
        assert self._without_shapes is not None  # who asks for shapes has a solution
        place = self.model.kernel.names.index(name)
        return shaped_values(self._without_shapes).p_value(place, output)

    @property
    def own_moments(self) -> InducingMoments | None:
        """Those of the components, where the fit knows them without being asked for q."""
        return self.free_moments if self.shaped is None else self.shaped

    @functools.cached_property
    def q(self) -> GaussianPosterior:
        """
        The posterior over whitened inducing values, in which terms have their shapes.

        The solution's own is that of functions of any shape.
        """
        assert self.solution is not None
        if self.shaped is None:
            return self.solution.q
        mean, sizes = self.shaped.mean, self.shaped.inducing_variable.sizes
        # the prior's, where a component does not enter
        enters = np.repeat(self.shaped.entering(), sizes, axis=0)
        covariance = self.shaped.covariance + np.stack([np.diag(1.0 - e) for e in enters.T])
        inverse = np.linalg.inv(covariance)
        return GaussianPosterior(
            mean,
            covariance,
            np.linalg.slogdet(covariance)[1],
            inverse - np.eye(len(mean)),
            np.einsum("lpq,ql->pl", inverse, mean),
            self.solution.q.roots,
        )

    @functools.cached_property
    def posterior(self) -> SparseAdditivePosterior | ActionPosterior:
        """
        The posterior over the components, cached at the fitted parameters.

        They are values of its own: who changes the model later, before or after the first
        prediction, changes neither predictions nor effects.
        """
        with tf.init_scope():  # it is kept: no tensor of a function that first asks for it
            return self._posterior()

    def _posterior(self) -> SparseAdditivePosterior | ActionPosterior:
        model, solution = self.model, self.solution
        if solution is None:
            return model.posterior()
        own = model.kernel
        values = [tf.constant(solution.values(p)) for p in parameters_of(own)]
        kernel = with_values(own, values)
        assert isinstance(kernel, AdditiveKernel)
        given = (
            kernel,
            model.inducing_variable,
            whitened_of(self.q, model.blocks),
            model.num_latent_gps,
            model.mean_function,
        )
        cached = PrecomputeCacheType.TENSOR
        if self.shaped is None:
            return SparseAdditivePosterior(*given, precompute_cache=cached)
        return ShapedPosterior(*given, moments=self.shaped.projected, precompute_cache=cached)

    def value(self, parameter: Parameter) -> AnyNDArray:
        """
        The fitted value of a parameter of the kernel.

        :param parameter: of the model's kernel.
        :return: of the parameter's shape.
        """
        if self.solution is not None:
            return self.solution.values(parameter)
        return np.asarray(parameter)

    def marginal(self, column: int) -> tuple[AnyNDArray, AnyNDArray]:
        """
        Values of a column of X, or what stands for them, and the weight of rows at each.

        :param column: its place in X.
        """
        if self.whole is None:
            return self.X[:, column], self.weights
        return self.whole.marginals[column]

    def mean_offset(self) -> AnyNDArray:
        """The known part of the predictor, [L], offsets at their mean."""
        if self.whole is None:
            mean = np.asarray(self.model.mean_function(self.X))
            return np.asarray(np.average(mean, axis=0, weights=self.weights))
        known = self.whole.mean(self.spec)
        total = np.sum([w @ known[at] for at, w in self.whole.weights()], axis=0)
        return np.asarray(total / sum(float(w.sum()) for _, w in self.whole.weights()))

    @property
    def weights(self) -> AnyNDArray:
        """
        Prior weights of the rows of X; ones without.

        :return: [N].
        """
        if self.spec.weights is None:
            return np.ones(len(self.X))
        weights: AnyNDArray = self.X[:, self.spec.place(self.spec.weights)]
        return weights

    @property
    def likelihood(self) -> Likelihood:
        """The fitted likelihood, without weights."""
        return unwrapped(self.model.likelihood)

    @functools.cached_property
    def units(self) -> tuple[AnyNDArray, AnyNDArray]:
        """Factors and shifts, [L] or [1]: the model's predictors in the response's unit."""
        return self.spec.family.units(self.model.likelihood)

    def constant_of(self, component: Component) -> AnyNDArray:
        """
        What is to be added to a component of the predictor's constant, in the response's unit, [L].

        Zero but for the intercept, and for the means of levels that are there in its place.

        :param component: of this fit.
        """
        factor, shift = self.units
        constant = shift + factor * np.array(self.spec.constant)
        own = self.spec.has_constant([component.name])
        return np.asarray(np.where(own, constant, 0.0))

    @property
    def num_predictors(self) -> int:
        """L."""
        return len(self.spec.constant)
