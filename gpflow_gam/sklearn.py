"""GAMs as scikit-learn's estimators: for pipelines, cross-validation and grids."""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Likelihood
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_array, check_consistent_length, check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from . import errors
from .gam import GAM
from .gam.families import Bernoulli, Binomial, Categorical, Family, Ordinal
from .gam.families import family as as_family
from .gam.frames.encoding import check_complete
from .gam.frames.table import Table, kind_of_time
from .gam.screening import screen_interactions
from .gam.terms import Surv, Terms, factor, linear, s
from .gam.terms.base import Column, Term, as_columns, column_of
from .gam.terms.smooth import Smooth

__all__ = ["GAMClassifier", "GAMRegressor"]

OF_CLASSES = (Bernoulli, Categorical, Ordinal)
"""The families whose responses are labels."""


class _GAMEstimator(BaseEstimator):  # type: ignore[misc]
    """The common part of regressor and classifier."""

    gam_: GAM

    def __init__(
        self,
        terms: Terms | Term | Iterable[Term | Terms] | str | None = None,
        family: str | Family | Likelihood | None = None,
        *,
        k: int | None = None,
        bs: str | None = None,
        shape: Mapping[Column, str] | None = None,
        interactions: int = 0,
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
        self.k = k
        self.bs = bs
        self.shape = shape
        self.interactions = interactions
        self.select = select
        self.offset = offset
        self.missing = missing
        self.variational = variational
        self.max_iterations = max_iterations
        self.tolerance = tolerance
        self.random_state = random_state

    def _family(self, y: AnyNDArray) -> Family:
        raise AssertionError("each estimator has its own")

    def _fit(self, X: Any, y: Any, sample_weight: Any, numeric: bool) -> None:
        if isinstance(y, Surv):
            raise TypeError(
                f"y: {type(self).__name__} takes numbers, not Surv, as scikit-learn splits and "
                "scores one column; fit a gpflow_gam.GAM."
            )
        if isinstance(y, pd.DataFrame) and y.shape[1] == 1:
            y = y.iloc[:, 0]  # whose type has its order
        name, response = getattr(y, "name", None), y
        y = validate_data(self, y=y, y_numeric=numeric)
        if not numeric:
            check_classification_targets(y)
        frame = self._frame(X, reset=True)
        check_consistent_length(frame, y)
        weights = checked_weights(sample_weight, len(y))
        if weights is not None:  # classes and terms are of rows that count
            rows = np.flatnonzero(weights)
            frame, y, weights = frame.iloc[rows].reset_index(drop=True), y[rows], weights[rows]
        table = Table({"y": response})
        order = table.levels("y") if table.ordered("y") else None
        family = self._family(y)
        dtype = None
        if order is not None and isinstance(family, Ordinal):
            dtype = pd.CategoricalDtype(list(order), ordered=True)
        response = pd.Series(y, name=name if isinstance(name, str) else "y", dtype=dtype)
        errors.check_count("interactions", self.interactions, 0)
        gam = self._fitted(self._terms(frame), frame, response, family, weights)
        if self.interactions:
            scores = screen_interactions(gam, max_interactions=self.interactions, seed=self._seed())
            chosen = list(scores["term"][scores["chosen"]])
            if chosen:
                terms = gam.terms + Terms(chosen)
                gam = self._fitted(terms, frame, response, family, weights)
        self.gam_ = gam
        result = gam.fitted.result
        self.n_iter_ = result.num_iterations
        if not result.converged:
            warnings.warn(
                f"the fit did not converge: {result.message}; raise max_iterations.",
                ConvergenceWarning,
                stacklevel=3,
            )

    def _terms(self, frame: pd.DataFrame) -> Any:
        """The terms that are stated, or one a column."""
        if self.terms is None:
            rows = frame if self.missing == "impute" else frame.dropna()
            return automatic_terms(rows, self.offset, self.k, self.bs, self.shape or {})
        for argument, given in (("k", self.k), ("bs", self.bs), ("shape", self.shape)):
            if given:
                raise ValueError(
                    f"{argument} is of smooths that nobody named; state it in terms=, "
                    f"s('x', {argument}=...)."
                )
        return self.terms

    def _fitted(
        self, terms: Any, frame: pd.DataFrame, y: pd.Series, family: Family, weights: Any
    ) -> GAM:
        gam = GAM(
            terms,
            family,
            select=self.select,
            offset=self.offset,
            missing=self.missing,
            variational=self.variational,
            seed=self._seed(),
        )
        _check_places(gam, list(frame.columns))
        if weights is not None:
            gam.weights = _free_name("sample_weight", frame, gam)
            frame = frame.assign(**{gam.weights: weights})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", errors.ConvergenceWarning)  # scikit-learn's follows
            return gam.fit(frame, y, max_iterations=self.max_iterations, tolerance=self.tolerance)

    def _frame(self, X: Any, reset: bool) -> pd.DataFrame:
        """X by the names of its columns, text and times too, or by places where they have none."""
        table = Table(X) if hasattr(X, "columns") and hasattr(X, "__getitem__") else None
        if table is not None and any(
            table.is_levels(name) or kind_of_time(table, name) for name in table.names
        ):
            validate_data(self, X, reset=reset, skip_check_array=True)
            columns = [pd.Series(table.raw(n)).reset_index(drop=True) for n in table.names]
        else:
            holes = self.missing == "impute" or (reset and self.missing == "drop")
            matrix = validate_data(
                self,
                X,
                reset=reset,
                dtype=np.float64,
                ensure_all_finite="allow-nan" if holes else True,
                ensure_min_samples=2 if reset else 1,
            )
            columns = [pd.Series(column) for column in matrix.T]
        if reset:  # names that are numbers are none of scikit-learn's
            self._numbers = list(range(len(columns))) if table is None else table.names
        numbers = getattr(self, "_numbers", list(range(len(columns))))
        if table is not None and table.names != numbers and set(table.names) == set(numbers):
            raise ValueError(
                f"X must have its columns as in the fit, {numbers}; got {table.names}."
            )
        names = getattr(self, "feature_names_in_", numbers)
        return pd.DataFrame(dict(zip(names, columns)))

    def _seed(self) -> int:
        if isinstance(self.random_state, numbers.Integral):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _rows(self, X: Any) -> pd.DataFrame:
        check_is_fitted(self)
        frame = self._frame(X, reset=False)
        if self.gam_.missing == "drop":  # of the fit alone
            check_complete(Table(frame), self.gam_.fitted.spec.inputs)
        return frame


def _check_places(gam: GAM, names: list[Column]) -> None:
    """Columns by place are columns of X: the response and the weights stand after them."""
    columns: list[Column] = [*gam.offset]
    number = len(names)
    for term in gam.terms:
        columns += [*term.columns, *(() if term.by is None else (column_of(term.by),))]
    for column in columns:
        if column in names:
            continue
        if isinstance(column, int) and column >= number:
            raise ValueError(f"terms name column {column}; X has {number}, 0 to {number - 1}.")
        if not isinstance(column, int) and all(isinstance(name, int) for name in names):
            raise ValueError(
                f"terms name column {column!r}, and the columns of X have no names. A step of a "
                "pipeline before this one drops them: keep them by "
                "pipeline.set_output(transform='pandas'), or name columns by place, 0, 1, ..."
            )


def _free_name(name: str, frame: pd.DataFrame, gam: GAM) -> str:
    taken = {*frame.columns, *(c for term in gam.terms for c in term.columns)}
    while name in taken:
        name += "_"
    return name


class GAMRegressor(RegressorMixin, _GAMEstimator):  # type: ignore[misc]
    """
    :class:`gpflow_gam.GAM` for numbers, as scikit-learn's regressor.

    X is a matrix, whose columns terms call 0, 1, ..., or a DataFrame, whose columns go by name and
    may hold text, categories or times. After the fit ``gam_`` is the GAM: summary, effects, plots.

    :param terms: terms or a formula, whose response is but a name; None for a smooth of each
        column, a line where it has two values, a factor where it holds text or categories. With
        as many columns as rows, one smooth of all numeric columns together.
    :param family: as of :class:`gpflow_gam.GAM`, for numbers; None for ``"gaussian"``.
    :param k: inducing inputs of each smooth that ``terms=None`` makes, as of :func:`gpflow_gam.s`.
    :param bs: the basis of these.
    :param shape: shapes of these by column: ``{"age": "increasing"}``.
    :param interactions: how many interactions of two columns may be added: those of which the data
        speak, the best first (:func:`gpflow_gam.screening.screen_interactions`).
    :param select: whether smooths that are not there shall vanish: see :class:`gpflow_gam.GAM`.
    :param offset: column(s) of X added to the predictor.
    :param missing: what to do with rows that lack a value: ``"error"``, ``"drop"`` (of the fit
        alone) or ``"impute"``: see :class:`gpflow_gam.GAM`.
    :param variational: the family of q(U); None for the one that suits.
    :param max_iterations: of L-BFGS; the fit warns where they do not suffice.
    :param tolerance: improvement of the ELBO, in nats, that no longer counts.
    :param random_state: of everything random.
    """

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

    def _family(self, y: AnyNDArray) -> Family:
        family = as_family("gaussian" if self.family is None else self.family)
        if isinstance(family, OF_CLASSES):
            raise ValueError(f"family {family.name!r} is of classes; take GAMClassifier.")
        return family

    def predict(self, X: Any, return_std: bool = False, *, interval: float | None = None) -> Any:
        """
        The expected response.

        :param X: [N, D].
        :param return_std: adds its posterior standard deviation, noise left out; for that of new
            responses see ``gam_.predict(X, "observation", se=True)``.
        :param interval: the probability of credible intervals of the expected response.
        :return: [N], or a pair of them; with ``interval`` a frame of estimate, se, lower and upper.
        :raises ValueError: other columns than those of the fit, or missing values that are not
            imputed.
        """
        frame = self._rows(X)
        return self.gam_.predict(frame, se=return_std, interval=interval)


class GAMClassifier(ClassifierMixin, _GAMEstimator):  # type: ignore[misc]
    """
    :class:`gpflow_gam.GAM` for classes, as scikit-learn's classifier.

    For X and all other parameters see :class:`GAMRegressor`.

    :param family: ``"bernoulli"``, ``"categorical"`` or ``"ordinal"`` (text needs an order, as of
        an ordered ``pandas.Categorical``: see :class:`~gpflow_gam.gam.families.Ordinal`); None
        takes the first for two classes and the second for more. ``classes_`` is sorted, as all of
        scikit-learn's; the order is that of ``gam_``. Some of scikit-learn's tools, such as
        ``VotingClassifier`` and ``cross_val_predict`` of probabilities, replace labels by their
        places in sorted order before they fit: for these, give integers in order in place of text.
    """

    classes_: AnyNDArray

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
        # of the rows that were complete, and sorted, which scorers count on
        labels = self.gam_.fitted.spec.levels
        self.classes_ = np.unique(np.concatenate([self.classes_[:0], labels]))  # of the same type
        return self

    def _family(self, y: AnyNDArray) -> Family:
        classes = np.unique(y)
        if len(classes) < 2:
            (only,) = classes.tolist() or [None]
            raise ValueError(
                f"y must hold at least two classes among rows that count; got only {only!r}."
            )
        default = Bernoulli() if len(classes) == 2 else Categorical()
        family = default if self.family is None else as_family(self.family)
        if isinstance(family, Binomial):  # of one trial a row
            family = Bernoulli(family.link)
        if not isinstance(family, OF_CLASSES):
            raise ValueError(f"family {family.name!r} is not of classes; take GAMRegressor.")
        self.classes_ = classes
        return family

    def predict_proba(self, X: Any) -> AnyNDArray:
        """
        The posterior mean of the classes' probabilities.

        :param X: [N, D].
        :return: [N, K], in the order of ``classes_``, which is sorted also for ``"ordinal"``.
        :raises ValueError: other columns than those of the fit, or missing values that are not
            imputed.
        """
        frame = self._rows(X)
        p: AnyNDArray = self.gam_.predict(frame)
        p = np.column_stack([1.0 - p, p]) if p.ndim == 1 else p
        return p[:, np.argsort(np.array(self.gam_.fitted.spec.levels))]

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


def automatic_terms(
    frame: pd.DataFrame,
    offset: Column | Iterable[Column] | None,
    k: int | None,
    bs: str | None,
    shapes: Mapping[Column, str],
) -> Terms:
    """A smooth, a line or a factor for every column that varies and is no offset."""
    names = list(frame.columns)
    offsets = [] if offset is None else as_columns("offset", offset)
    for name in shapes:
        if name not in names:
            raise ValueError(
                f"shape: X has no column {name!r}; it has {', '.join(map(str, names))}."
            )
    table = Table(frame)
    terms: list[Term] = []
    for name in names:
        distinct = frame[name].nunique()
        if name in offsets or distinct < 2:
            continue
        if table.is_levels(name):
            # a fold of a cross-validation need not hold every level
            terms.append(factor(name, unseen="prior"))
        else:
            smooth = s(name, bs=bs, k=k, shape=shapes.get(name))
            terms.append(linear(name) if distinct == 2 else smooth)
    curves = [t for t in terms if isinstance(t, Smooth)]
    if len(terms) >= len(frame) and len(curves) > 1 and not shapes:
        # too many to tell apart: one function of them together
        together = s(*(t.columns[0] for t in curves), bs=bs, k=k)
        terms = [together, *(t for t in terms if t not in curves)]
    return Terms(terms)


def checked_weights(weights: Any, number: int) -> AnyNDArray | None:
    """Sample weights [N], checked; None without weights."""
    if weights is None:
        return None
    w: AnyNDArray = check_array(
        weights, ensure_2d=False, dtype=np.float64, input_name="sample_weight"
    )
    if w.shape != (number,):
        raise ValueError(f"sample_weight must be [N], one a row, {number}; got shape {w.shape}.")
    if np.any(w < 0.0) or not np.any(w > 0.0):
        raise ValueError(
            f"sample_weight must not be negative, and not all zero; got {w.min():g} in row "
            f"{int(w.argmin())}."
        )
    return w
