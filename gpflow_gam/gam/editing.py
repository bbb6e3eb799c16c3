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
from .effects.effect import stacked_frame
from .fits import FittedGAM
from .fits.prediction import labelled
from .frames.encoding import Encoder, Fill, check_complete, filled
from .frames.table import Table
from .tables import coded, columns_read, counted_by, increasing, is_number
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
        bins: Sequence[float] | None = None,
    ) -> EditedGAM:
        """
        Change one table by hand, with a record of what was changed and why.

        The GAM stays as it is. The result predicts, can be edited further, and
        :func:`gpflow_gam.serving.export` writes it, its edits included. It has no intervals: they
        would be of the tables that were fitted.

        :param term: the name of an effect, of a GAM with one predictor.
        :param reason: why, in words.
        :param monotone: the closest table that never falls (``"increasing"``) or never rises, by
            least squares over the rows of the data. Of one column of numbers, as ``bins`` are.
        :param values: the effect at levels or at values of the column (of two columns, at pairs of
            these; of times, at days since 1970), on the link's scale.
        :param bins: ends of intervals, as those of :meth:`gpflow_gam.GAM.tables`: the effect is its
            average in each, and beyond the last ones what it is in these.
        :param cap: the least and the greatest effect, on the link's scale.
        :return: a GAM that is its tables.
        :raises ValueError: an effect that is no such table; not one change; a bad argument.
        """
        if not isinstance(reason, str) or not reason.strip():
            raise ValueError("reason must say why the table is changed.")
        given = {"monotone": monotone, "values": values, "cap": cap, "bins": bins}
        given = {name: value for name, value in given.items() if value is not None}
        if len(given) != 1:
            raise ValueError(f"edit: give one of monotone, values, cap and bins; got {[*given]}.")
        tables = self._edited()
        model = copy.deepcopy(tables.document)
        entry = next((t for t in model["terms"] if t["name"] == term and t["axes"]), None)
        if entry is None:
            names = ", ".join(t["name"] for t in model["terms"] if t["axes"])
            raise ValueError(f"term: there is no table {term!r}; the tables are {names}.")
        if len(model["constant"]) > 1:
            raise ValueError(f"edit: {term} is a table of several predictors.")
        axes = entry["axes"]
        at = np.reshape(entry["values"], [axis["size"] for axis in axes])
        if monotone is not None:
            at = tables._monotone(term, axes, at, monotone)
        elif bins is not None:
            axes, at = tables._in_bins(term, axes, at, bins)
        elif values is not None:
            axes, at = _with_values(model["columns"], axes, at, values)
        elif cap is not None:
            ends = np.atleast_1d(np.asarray(cap, dtype=object))
            if len(ends) != 2 or not all(map(is_number, ends)) or ends[0] > ends[1]:
                raise ValueError(f"cap must be the least and the greatest effect; got {cap!r}.")
            at = np.clip(at, float(ends[0]), float(ends[1]))
        entry["axes"], entry["values"] = axes, at.reshape(-1, 1).tolist()
        shown: dict[str, Any] = dict(given)  # as JSON can hold it
        if values is not None:
            shown["values"] = {str(k): float(v) for k, v in values.items()}
        if bins is not None:
            shown["bins"] = [float(b) if np.isfinite(b) else None for b in bins]
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

    def tables(self) -> dict[str, pd.DataFrame]:
        """The tables as they are now, on the link's scale: ``estimate`` at each knot or level."""
        frames, readers = {}, {str(r.name): r for r in self._encoder.readers}
        for term in (t for t in self.document["terms"] if t["axes"]):
            shown: dict[Any, Any] = {}
            for axis in term["axes"]:
                reader, knots = readers[axis["column"]], axis["knots"]
                levels = self.document["columns"][axis["column"]]["levels"] or ()
                places = [*levels, None][: axis["size"]]  # None is a new level
                shown[reader.name] = reader.shown(np.array(knots)) if knots else places
            rows = pd.MultiIndex.from_product([*shown.values()]).to_frame(index=False)
            columns = {name: rows[i] for i, name in enumerate(shown)}
            parts, names = {"estimate": np.array(term["values"])}, self.document["predictors"]
            frames[term["name"]] = stacked_frame(columns, parts, "predictor", names)
        return frames

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
        self, term: str, axes: Sequence[Any], at: AnyNDArray, direction: str
    ) -> AnyNDArray:
        """The closest table that never turns, by rows of the data at its knots."""
        check_choice("monotone", direction, ("increasing", "decreasing"))
        x, of_rows = self._rows("monotone", term, axes)
        knots = np.array(axes[0]["knots"])
        if axes[0]["period"] is not None:
            raise ValueError(f"monotone: {term} has a period.")
        nearest = np.searchsorted(0.5 * (knots[1:] + knots[:-1]), x)
        weights = np.bincount(nearest, of_rows, len(at))
        weights += 1e-6 * weights.sum()  # where there are no data
        increasing = direction == "increasing"
        return np.asarray(isotonic_regression(at, sample_weight=weights, increasing=increasing))

    def _in_bins(
        self, term: str, axes: Sequence[Any], at: AnyNDArray, bins: Sequence[float]
    ) -> tuple[list[dict[str, Any]], AnyNDArray]:
        """Steps: two knots at each break, and averages over the rows between these."""
        x, weights = self._rows("bins", term, axes)
        ends = increasing("bins", axes[0]["column"], bins, infinite=True).astype(np.float64)
        knots, period, edges = np.array(axes[0]["knots"]), axes[0]["period"], ends.copy()
        if period is None:  # open ones end where the table does
            edges[0] = ends[0] if np.isfinite(ends[0]) else min(knots[0], ends[1] - 1.0)
            edges[-1] = ends[-1] if np.isfinite(ends[-1]) else max(knots[-1], edges[-2] + 1.0)
        elif np.isclose(ends[-1] - ends[0], period):
            x = ends[0] + np.mod(x - ends[0], period)
        else:
            raise ValueError(f"bins: those of a period must cover it once, {period:g}; got {bins}.")
        there = (x >= ends[0]) & (x < ends[-1])
        place = np.searchsorted(ends, x[there], side="right") - 1
        f = np.interp(x, knots, at, period=period)
        mass, sums = (np.bincount(place, w[there], len(ends) - 1) for w in (weights, weights * f))
        even = np.linspace(edges[:-1], edges[1:], 17)  # where there are no data
        means = np.interp(even, knots, at, period=period).mean(axis=0)
        np.divide(sums, mass, out=means, where=mass > 0.0)
        # not so near to each other that a spreadsheet takes the two for one
        below = edges[1:] - 1e-9 * (edges[-1] - edges[0])
        knots, steps = np.ravel([edges[:-1], below], order="F"), np.repeat(means, 2)
        if period is not None:
            knots, steps = np.append(knots, edges[-1]), np.append(steps, steps[0])
        return [{**axes[0], "knots": knots.tolist(), "size": len(knots)}], steps

    def _rows(self, option: str, term: str, axes: Sequence[Any]) -> tuple[AnyNDArray, AnyNDArray]:
        """The column of a curve in the rows of the data, and what these count by."""
        if len(axes) > 1 or axes[0]["knots"] is None:
            raise ValueError(f"{option}: {term} is no function of a number.")
        if self._fit is None or not self._fit.data.available:
            raise ValueError(f"{option}: the rows of the data, which it weighs by, are not here.")
        component = self._fit.spec.component(term)
        return self._fit.X[:, component.margins[0].column], counted_by(self._fit, component)

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
    columns: Mapping[str, Any],
    axes: Sequence[dict[str, Any]],
    at: AnyNDArray,
    values: Mapping[Any, float],
) -> tuple[list[dict[str, Any]], AnyNDArray]:
    """Axes and their table with given values at levels or knots, which may be new."""
    axes, at = [axis.copy() for axis in axes], at.copy()
    for key, value in values.items():
        keys, place = key if len(axes) > 1 and isinstance(key, tuple) else (key,), []
        known = [columns[axis["column"]]["levels"] for axis in axes]
        fits = len(keys) == len(axes) and is_number(value)
        if not fits or any(v is None and not is_number(k) for v, k in zip(known, keys)):
            raise ValueError(f"values: {key!r}: {value!r} is no finite number at a place.")
        for i, (axis, levels, part) in enumerate(zip(axes, known, keys)):
            if levels is not None:
                if part not in levels:
                    raise ValueError(f"values: {part!r} is none of the levels {list(levels)}.")
                place.append(list(levels).index(part))
                continue
            knots, x, period = np.array(axis["knots"]), float(part), axis["period"]
            if period is not None:
                x = knots[0] + (x - knots[0]) % period
            k = int(np.searchsorted(knots, x))
            if k == len(knots) or knots[k] != x:
                if not knots[0] < x < knots[-1]:
                    raise ValueError(
                        f"values: {part!r} is no place between the knots of the table."
                    )
                low, high = at.take(k - 1, i), at.take(k, i)
                share = (x - knots[k - 1]) / (knots[k] - knots[k - 1])
                at = np.insert(at, k, low + share * (high - low), axis=i)
                knots = np.insert(knots, k, x)
            place.append(k)
            axis |= {"knots": knots.tolist(), "size": len(knots)}
        at[tuple(place)] = value
        for i, axis in enumerate(axes):
            if axis["period"] is not None:  # its ends are one and the same point
                np.moveaxis(at, i, 0)[-1] = at.take(0, i)
    return axes, at
