"""GAMs for classes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from gpflow.base import AnyNDArray
from sklearn.base import ClassifierMixin

from ..gam.families import Bernoulli, Binomial, Categorical, Family, Ordinal
from ..gam.families import family as as_family
from ..gam.terms import Column, Term, Terms
from .estimator import OF_CLASSES, GAMEstimator


class GAMClassifier(ClassifierMixin, GAMEstimator):  # type: ignore[misc]
    """
    :class:`gpflow_gam.GAM` for classes, as scikit-learn's classifier.

    X and the parameters are those of :class:`GAMRegressor`, but for the family.

    :param terms: see :class:`GAMRegressor`.
    :param family: ``"bernoulli"``, ``"categorical"`` or ``"ordinal"`` (text needs an order, as of
        an ordered ``pandas.Categorical``: see :class:`~gpflow_gam.gam.families.Ordinal`); None
        takes the first for two classes and the second for more.
    :param select: see :class:`GAMRegressor`.
    :param offset: see :class:`GAMRegressor`.
    :param missing: see :class:`GAMRegressor`.
    :param variational: see :class:`GAMRegressor`.
    :param max_iterations: see :class:`GAMRegressor`.
    :param tolerance: see :class:`GAMRegressor`.
    :param random_state: see :class:`GAMRegressor`.
    """

    def __init__(
        self,
        terms: Terms | Term | Iterable[Term | Terms] | str | None = None,
        family: str | Family | None = None,
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

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> GAMClassifier:
        """
        Fit to data.

        :param X: [N, D].
        :param y: labels, [N].
        :param sample_weight: how often each row counts, as in :meth:`GAMRegressor.fit`.
        :return: itself.
        :raises ValueError: data that the model cannot be fitted to: one sentence that says why.
        """
        self._fit(X, y, sample_weight, numeric=False)
        return self

    def _family(self, y: AnyNDArray, order: tuple[Any, ...] | None) -> Family:
        classes = np.unique(y)
        if len(classes) < 2:
            raise ValueError(
                f"y must hold at least two classes among rows that count; got only {classes[0]!r}."
            )
        default = Bernoulli() if len(classes) == 2 else Categorical()
        family = default if self.family is None else as_family(self.family)
        if isinstance(family, Binomial):  # of one trial a row
            family = Bernoulli(family.link)
        if not isinstance(family, OF_CLASSES):
            raise ValueError(f"family {family.name!r} is not of classes; take GAMRegressor.")
        if isinstance(family, Ordinal):
            stated = family.labels_of(order, order is not None)
            kind = object if classes.dtype == object else None
            classes = classes if stated is None else np.array(stated, dtype=kind)
        self.classes_ = classes
        return family

    def predict_proba(self, X: Any) -> AnyNDArray:
        """
        The posterior mean of the classes' probabilities.

        :param X: [N, D].
        :return: [N, K], in the order of ``classes_``: sorted, but for ``"ordinal"`` in its order.
        :raises ValueError: other columns than those of the fit, or missing values that are not
            imputed.
        """
        frame = self._rows(X)
        p: AnyNDArray = self.gam_.predict(frame)
        return np.column_stack([1.0 - p, p]) if p.ndim == 1 else p

    def predict(self, X: Any) -> AnyNDArray:
        """
        The most probable class.

        :param X: [N, D].
        :return: labels, [N].
        :raises ValueError: other columns than those of the fit, or missing values that are not
            imputed.
        """
        best = self.predict_proba(X).argmax(axis=1)
        labels: AnyNDArray = self.classes_[best]
        return labels
