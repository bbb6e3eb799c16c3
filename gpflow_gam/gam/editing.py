"""Tables of GAMs that are changed by hand, with a record of what was changed and why."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
from gpflow.base import AnyNDArray
from sklearn.isotonic import isotonic_regression

from ..errors import check_choice
from . import scorer
from .fits import FittedGAM
from .fits.prediction import labelled
from .frames.encoding import Encoder, Fill, check_complete, filled
from .frames.table import Table
from .tables import coded, columns_read, is_number
from .terms.base import variables_of


class Editable:
    """What has tables that can be changed by hand."""

    def _edited(self) -> EditedGAM:
        raise NotImplementedError

    def edit(
        self,
        term: str,
        *,
        reason: str,
        monotone: Literal["increasing", "decreasing"] | None = None,
        values: Mapping[Any, float] | None = None,
        cap: tuple[float, float] | None = None,
    ) -> EditedGAM:
        """
        Change one table by hand, with a record of what was changed and why.

        The GAM stays as it is. The result predicts, can be edited further, and
        :func:`gpflow_gam.serving.export` writes it, its edits included. It has no intervals: they
        would be of the tables that were fitted.

        :param term: the name of an effect of one column, of a GAM with one predictor.
        :param reason: why, in words.
        :param monotone: the closest table that never falls (``"increasing"``) or never rises, by
            least squares over the rows of the data.
        :param values: the effect at levels or at values of the column, on the link's scale.
        :param cap: the least and the greatest effect, on the link's scale.
        :return: a GAM that is its tables.
        :raises ValueError: an effect that is no such table; not one change; a bad argument.
        """
        if not isinstance(reason, str) or not reason.strip():
            raise ValueError("reason must say why the table is changed.")
        given = {"monotone": monotone, "values": values, "cap": cap}
        given = {name: value for name, value in given.items() if value is not None}
        if len(given) != 1:
            raise ValueError(f"edit: give one of monotone, values and cap; got {list(given)}.")
        tables = self._edited()
        model = copy.deepcopy(tables.document)
        entry = next((t for t in model["terms"] if t["name"] == term and t["axes"]), None)
        if entry is None:
            names = ", ".join(t["name"] for t in model["terms"] if t["axes"])
            raise ValueError(f"term: there is no table {term!r}; the tables are {names}.")
        if len(entry["axes"]) > 1 or len(model["constant"]) > 1:
            raise ValueError(f"edit: {term} is no table of one column and one predictor.")
        (axis,) = entry["axes"]
        at = np.array([row[0] for row in entry["values"]])
        if monotone is not None:
            at = tables._monotone(term, axis, at, monotone)
        elif values is not None:
            axis, at = _with_values(model["columns"][axis["column"]]["levels"], axis, at, values)
        elif cap is not None:
            ends = np.atleast_1d(np.asarray(cap, dtype=object))
            if len(ends) != 2 or not all(map(is_number, ends)) or ends[0] > ends[1]:
                raise ValueError(f"cap must be the least and the greatest effect; got {cap!r}.")
            at = np.clip(at, float(ends[0]), float(ends[1]))
        entry["axes"], entry["values"] = [axis], at[:, None].tolist()
        change = {"values": {str(k): float(v) for k, v in (values or {}).items()}}
        shown = {**given, **(change if values is not None else {})}
        effects = [tables._effect(m) for m in (tables.document, model)]
        model["edits"].append(
            {
                "term": term,
                "change": shown,
                "reason": reason,
                "deviance": [e[0] for e in effects],
                "mean": [e[1] for e in effects],
            }
        )
        return EditedGAM(tables._fit, tables._encoder, tables._fills, model)


class EditedGAM(Editable):
    """
    A GAM whose tables were changed by hand, as :meth:`gpflow_gam.GAM.edit` gives it.

    It predicts, without intervals, which no longer hold, can be edited further, and
    :func:`gpflow_gam.serving.export` writes it with its ``edits``.
    """

    def __init__(
        self,
        fit: FittedGAM | None,
        encoder: Encoder,
        fills: Sequence[Fill],
        document: dict[str, Any],
    ) -> None:
        self._fit, self._encoder, self._fills, self.document = fit, encoder, fills, document

    def __getstate__(self) -> dict[str, Any]:
        """The tables and their edits: what a pickle holds, without the fit and its data."""
        return {**vars(self), "_fit": None}

    def __repr__(self) -> str:
        return f"EditedGAM({len(self.document['edits'])} edits)"

    @property
    def edits(self) -> pd.DataFrame:
        """The changes: reasons, and deviance and mean response before and after each."""
        return pd.DataFrame(self.document["edits"])

    def predict(
        self, data: Any, type: Literal["response", "link", "terms"] = "response", **others: Any
    ) -> Any:
        """
        Predictions from the tables.

        :param data: as of :meth:`gpflow_gam.GAM.predict`.
        :param type: the response at the predictor, [N] or [N, K] of classes; ``"link"``, the
            predictor, [N] or [N, L]; or ``"terms"``, a table with a column for each term.
        :param others: none, as edited tables have no ``se`` and no ``interval``.
        :return: the predictions.
        :raises ValueError: a column that is not there, or a value that the model cannot take.
        :raises TypeError: an argument that is none of these.
        """
        if others:
            raise TypeError(f"predict: no {', '.join(others)} of edits: bands were the fit's.")
        names = {"response": "median", "link": "predictor", "terms": "terms"}
        check_choice("type", type, names)
        keys = columns_read(self.document, self._encoder)
        table = filled(Table(data), self._fills)
        check_complete(table, variables_of(self._encoder.sources(keys)))
        X = self._encoder.encode(table, keys)
        answer = scorer.scored(self.document, coded(self.document, self._encoder, X))[names[type]]
        return labelled(pd.DataFrame(answer), data) if type == "terms" else answer

    def _edited(self) -> EditedGAM:
        return self

    def _monotone(
        self, term: str, axis: Mapping[str, Any], at: AnyNDArray, direction: str
    ) -> AnyNDArray:
        """The closest table that never turns, by rows of the data at its knots."""
        check_choice("monotone", direction, ("increasing", "decreasing"))
        if axis["knots"] is None or axis["period"] is not None:
            raise ValueError(f"monotone: {term} is no function of a number.")
        if self._fit is None or not self._fit.data.available:
            raise ValueError("monotone: the rows of the data, which it weighs by, are not here.")
        X, component, knots = self._fit.X, self._fit.spec.component(term), np.array(axis["knots"])
        x = X[:, component.margins[0].column]
        nearest = np.searchsorted(0.5 * (knots[1:] + knots[:-1]), x)
        of_rows = self._fit.weights * np.square(component.multiplier(X))
        weights = np.bincount(nearest, of_rows, len(at))
        weights += 1e-6 * weights.sum()  # where there are no data
        increasing = direction == "increasing"
        return np.asarray(isotonic_regression(at, sample_weight=weights, increasing=increasing))

    def _effect(self, model: Mapping[str, Any]) -> tuple[float | None, float | None]:
        """Deviance and mean response of the data; None where they are not there."""
        fit = self._fit
        if fit is None or not fit.data.available:
            return None, None
        X, factor = fit.X, fit.units[0]
        f = scorer.scored(model, coded(model, fit.spec.encoder, X))["predictor"]
        F = ((f - fit.units[1]) / factor).reshape(len(X), 1)
        family, weights = fit.spec.family, fit.weights
        response = family.mean(fit.likelihood, F)
        of_classes = response.size > len(X)
        mean = None if of_classes else float(np.average(np.ravel(response), weights=weights))
        deviance = family.deviance(fit.likelihood, fit.Y, F)
        total = None if deviance is None else float(np.sum(weights * np.ravel(deviance)))
        return total, mean


def _with_values(
    levels: Sequence[Any] | None,
    axis: Mapping[str, Any],
    at: AnyNDArray,
    values: Mapping[Any, float],
) -> tuple[dict[str, Any], AnyNDArray]:
    """An axis and its table with given values at levels or knots, which may be new."""
    axis, at = dict(axis), at.copy()
    for key, value in values.items():
        if not is_number(value) or (levels is None and not is_number(key)):
            raise ValueError(f"values: {key!r}: {value!r} is no finite number at a place.")
        if levels is not None:
            if key not in levels:
                raise ValueError(f"values: {key!r} is none of the levels {list(levels)}.")
            at[list(levels).index(key)] = value
            continue
        knots, x, period = np.array(axis["knots"]), float(key), axis["period"]
        if period is not None:
            x = knots[0] + (x - knots[0]) % period
        place = int(np.searchsorted(knots, x))
        if place == len(knots) or knots[place] != x:
            if not knots[0] < x < knots[-1]:
                raise ValueError(f"values: {key!r} is no place between the knots of the table.")
            knots, at = np.insert(knots, place, x), np.insert(at, place, 0.0)
        at[place] = value
        if period is not None:  # one and the same point
            at[-1] = at[0]
        axis |= {"knots": knots.tolist(), "size": len(knots)}
    return axis, at
