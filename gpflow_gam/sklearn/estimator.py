"""What the regressor and the classifier share."""

from __future__ import annotations

import numbers
import tempfile
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from gpflow.base import AnyNDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_consistent_length, check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from .. import errors
from ..gam import GAM
from ..gam.families import Bernoulli, Categorical, Family, Ordinal
from ..gam.families import family as as_family
from ..gam.frames import Table, is_levels
from ..gam.terms import Column, Smooth, Surv, Term, Terms, as_terms
from ..gam.terms.base import column_of
from .automatic import automatic_terms
from .weights import checked_weights, counted

OF_CLASSES = (Bernoulli, Categorical, Ordinal)
"""The families whose responses are labels."""


class GAMEstimator(BaseEstimator):  # type: ignore[misc]
    """What the two estimators share; their parameters are stored as they come."""

    terms: Terms | Term | Iterable[Term | Terms] | str | None
    family: Any
    select: bool
    offset: Column | Iterable[Column] | None
    missing: str
    variational: str | None
    max_iterations: int
    tolerance: float
    random_state: int | np.random.RandomState | None
    gam_: GAM

    def _family(self, y: AnyNDArray, order: tuple[Any, ...] | None) -> Family:
        raise AssertionError("each estimator has its own")

    def _fit(self, X: Any, y: Any, sample_weight: Any, numeric: bool) -> None:
        if isinstance(y, Surv):
            raise TypeError(
                f"y: {type(self).__name__} takes numbers, not Surv, as scikit-learn splits and "
                "scores one column; fit a gpflow_gam.GAM."
            )
        if isinstance(y, pd.DataFrame) and y.shape[1] == 1:
            y = y.iloc[:, 0]  # whose type has its order
        name, given = getattr(y, "name", None), y
        y = validate_data(self, y=y, y_numeric=numeric)
        if not numeric:
            check_classification_targets(y)
        frame = self._frame(X, reset=True)
        check_consistent_length(frame, y)
        weights = checked_weights(sample_weight, len(y))
        own = None if self.family is None else as_family(self.family)
        frame, y, weights = counted(frame, y, weights, own is None or not own.needs_trials)
        stated = Table({"y": given})
        order = stated.levels("y") if stated.ordered("y") else None
        family = self._family(y, order)
        gam = GAM(
            automatic_terms(frame, self.offset) if self.terms is None else self.terms,
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
        dtype = None
        if order is not None and isinstance(family, Ordinal):
            dtype = pd.CategoricalDtype(list(order), ordered=True)
        response = pd.Series(y, name=name if isinstance(name, str) else "y", dtype=dtype)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", errors.ConvergenceWarning)  # its own is said below
            gam.fit(frame, response, max_iterations=self.max_iterations, tolerance=self.tolerance)
        self.gam_ = gam
        result = gam.fitted.result
        self.n_iter_ = result.num_iterations
        if not result.converged:
            warnings.warn(
                f"the fit did not converge: {result.message}; raise max_iterations.",
                ConvergenceWarning,
                stacklevel=3,
            )

    def _frame(self, X: Any, reset: bool) -> pd.DataFrame:
        """
        X by the names of its columns, or by their places 0, 1, ... where they have none.

        scikit-learn's validation makes one matrix of floats, which text does not survive: a frame
        with columns of levels has its names checked here, and its values by the GAM.
        """
        table = Table(X) if hasattr(X, "columns") and hasattr(X, "__getitem__") else None
        if table is not None and any(is_levels(table, name) for name in table.names):
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
        return self._frame(X, reset=False)

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        gam = state.pop("gam_", None)
        if gam is not None:  # variables of TensorFlow do not pickle; GAM's file holds every bit
            with tempfile.TemporaryDirectory() as folder:
                gam.save(Path(folder) / "gam")
                state["_gam_file"] = (Path(folder) / "gam").read_bytes()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        file = state.pop("_gam_file", None)
        super().__setstate__(state)
        if file is not None:
            given = () if isinstance(self.terms, (str, type(None))) else as_terms(self.terms)
            kernels = {
                t.label: t.kernel for t in given if isinstance(t, Smooth) and t.kernel is not None
            }
            with tempfile.TemporaryDirectory() as folder:
                (Path(folder) / "gam").write_bytes(file)
                self.gam_ = GAM.load(Path(folder) / "gam", kernels=kernels)


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
