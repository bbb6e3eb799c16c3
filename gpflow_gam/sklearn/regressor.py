"""GAMs for numbers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Likelihood
from sklearn.base import RegressorMixin

from ..gam.families import Family
from ..gam.families import family as as_family
from ..gam.terms import Column, Term, Terms
from .estimator import OF_CLASSES, GAMEstimator


class GAMRegressor(RegressorMixin, GAMEstimator):  # type: ignore[misc]
    """
    :class:`gpflow_gam.GAM` for numbers, as scikit-learn's regressor.

    X is a matrix, whose columns terms call 0, 1, ..., or a DataFrame, whose columns go by name and
    may hold text or categories. After the fit ``gam_`` is the GAM: summary, effects, plots.

    :param terms: terms or a formula, whose response is but a name; None for a smooth of each
        column, a line where it has two values, a factor where it holds text or categories. With
        as many columns as rows, one smooth of all numeric columns together.
    :param family: as of :class:`gpflow_gam.GAM`, for numbers.
    :param select: whether smooths that are not there shall vanish: see :class:`gpflow_gam.GAM`.
    :param offset: column(s) of X added to the predictor.
    :param missing: what to do with rows that lack a value: ``"error"``, ``"drop"`` (of the fit
        alone) or ``"impute"``: see :class:`gpflow_gam.GAM`.
    :param variational: the family of q(U); None for the one that suits.
    :param max_iterations: of L-BFGS; the fit warns where they do not suffice.
    :param tolerance: improvement of the ELBO, in nats, that no longer counts.
    :param random_state: of everything random.
    """

    def __init__(
        self,
        terms: Terms | Term | Iterable[Term | Terms] | str | None = None,
        family: str | Family | Likelihood = "gaussian",
        *,
        select: bool = False,
        offset: Column | Iterable[Column] | None = None,
        missing: str = "error",
        variational: str | None = None,
        max_iterations: int = 1000,
        tolerance: float = 1e-2,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.terms = terms
        self.family = family
        self.select = select
        self.offset = offset
        self.missing = missing
        self.variational = variational
        self.max_iterations = max_iterations
        self.tolerance = tolerance
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> GAMRegressor:
        """
        Fit to data.

        :param X: [N, D].
        :param y: [N].
        :param sample_weight: how often each row counts, [N]: weight 2 is the row twice, weight 0
            no row.
        :return: itself.
        :raises ValueError: data that the model cannot be fitted to: one sentence that says why.
        """
        self._fit(X, y, sample_weight, numeric=True)
        return self

    def _family(self, y: AnyNDArray, order: tuple[Any, ...] | None) -> Family:
        family = as_family(self.family)
        if isinstance(family, OF_CLASSES):
            raise ValueError(f"family {family.name!r} is of classes; take GAMClassifier.")
        return family

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """
        The expected response.

        :param X: [N, D].
        :param return_std: adds its posterior standard deviation, noise left out; for that of new
            responses see ``gam_.predict(X, "observation", se=True)``.
        :return: [N], or a pair of them.
        :raises ValueError: other columns than those of the fit, or missing values that are not
            imputed.
        """
        frame = self._rows(X)
        return self.gam_.predict(frame, se=return_std)
