"""What a fitted GAM says of rows on average."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import pandas as pd

from . import effects as _effects
from .predictor import Predictor
from .terms import Column

Scale = Literal["response", "link"]


class Averager(Predictor):
    """
    Averages of a fitted GAM's predictions over rows of data, as they are or with columns set.

    Rows are those of ``data``, or those of the fit that count: all, or 2000, evenly spread.
    Frequency weights count. Estimates are means of :meth:`predict` over the rows; limits are from
    joint posterior draws of whole functions at all of them, and are of these rows: what is
    uncertain is the function, not which rows there are. What columns do is the fitted function's
    doing, which is causal only as far as the model is.
    """

    def partial_dependence(
        self,
        columns: Column | Sequence[Column],
        grid: Any = None,
        *,
        data: Any = None,
        scale: Scale = "response",
        level: float = 0.95,
        num_points: int | None = None,
        unconditional: bool = True,
        num_samples: int = 1000,
        seed: int | None = None,
    ) -> pd.DataFrame:
        """
        The mean over rows of the expected response, with columns set to each value of a grid.

        (Friedman 2001.) Past a link this is another curve than ``effects(scale="response")``, which
        has the other effects at their average; and it has what a column does in all of the terms
        that read it.

        :param columns: a column, or several.
        :param grid: values of the column, a dict of columns or a DataFrame; by default all levels,
            or an even grid over the data of the fit.
        :param data: rows to average over; the columns need not be in them.
        :param scale: ``"response"``, or ``"link"`` for the predictor.
        :param level: probability of the limits.
        :param num_points: of the default grid on each axis.
        :param unconditional: whether limits allow for uncertain hyperparameters, as those of
            :meth:`effects`.
        :param num_samples: posterior draws.
        :param seed: the GAM's own by default.
        :return: the grid's columns, ``estimate``, ``se``, ``lower``, ``upper`` and, for the whole
            curve at once, ``lower_simultaneous`` and ``upper_simultaneous``; ``class`` (or
            ``predictor``) where there are several, with a curve each.
        :raises ValueError: naming the argument or column.
        """
        return _effects.partial_dependence(
            self.fitted,
            columns,
            grid,
            data,
            drop=self.missing == "drop",
            scale=scale,
            level=level,
            num_points=num_points,
            unconditional=unconditional,
            num_samples=num_samples,
            seed=self.seed if seed is None else seed,
        )

    def avg_predictions(
        self,
        data: Any = None,
        *,
        by: Column | Sequence[Column] | None = None,
        at: Mapping[Column, Any] | None = None,
        scale: Scale = "response",
        level: float = 0.95,
        unconditional: bool = True,
        num_samples: int = 1000,
        seed: int | None = None,
    ) -> pd.DataFrame:
        """
        Expected responses, averaged over rows (``avg_predictions`` of R's marginaleffects).

        :param data: rows to average over.
        :param by: columns of the data: an average for each combination of their values.
        :param at: columns that are set for all rows, to each combination of the given values, as
            ``{"dose": [0, 1]}``; they need not be in the data.
        :param scale: ``"response"``, or ``"link"`` for the predictor.
        :param level: probability of the limits.
        :param unconditional: whether limits allow for uncertain hyperparameters.
        :param num_samples: posterior draws.
        :param seed: the GAM's own by default.
        :return: a row an average: the columns of ``at`` and ``by``, ``estimate``, ``se``,
            ``lower``, ``upper``; ``class`` (or ``predictor``) where there are several.
        :raises ValueError: naming the argument or column.
        """
        return _effects.avg_predictions(
            self.fitted,
            data,
            by,
            at,
            drop=self.missing == "drop",
            scale=scale,
            level=level,
            unconditional=unconditional,
            num_samples=num_samples,
            seed=self.seed if seed is None else seed,
        )

    def avg_comparisons(
        self,
        columns: Column | Sequence[Column] | Mapping[Column, Any],
        data: Any = None,
        *,
        by: Column | Sequence[Column] | None = None,
        comparison: Literal["difference", "ratio"] = "difference",
        scale: Scale = "response",
        level: float = 0.95,
        unconditional: bool = True,
        num_samples: int = 1000,
        seed: int | None = None,
    ) -> pd.DataFrame:
        """
        What a change of a column changes on average (``avg_comparisons`` of marginaleffects).

        :param columns: one column, several, or a mapping of each to what is compared. A column of
            numbers is moved by one, or by the step that is given, as ``{"x": 0.1}``; of a pair
            ``{"x": (2, 5)}`` the second value is compared with the first. Levels are compared with
            the first of them, or of those that are given.
        :param data: rows to average over.
        :param by: columns of the data: comparisons for each combination of their values.
        :param comparison: ``"difference"`` of averages, or their ``"ratio"``.
        :param scale: ``"response"``, or ``"link"`` for the predictor.
        :param level: probability of the limits.
        :param unconditional: whether limits allow for uncertain hyperparameters.
        :param num_samples: posterior draws.
        :param seed: the GAM's own by default.
        :return: a row a comparison: ``column``, ``contrast``, the columns of ``by``, ``estimate``,
            ``se``, ``lower``, ``upper``; ``class`` (or ``predictor``) where there are several.
        :raises ValueError: naming the argument or column.
        """
        return _effects.avg_comparisons(
            self.fitted,
            columns,
            data,
            by,
            comparison=comparison,
            drop=self.missing == "drop",
            scale=scale,
            level=level,
            unconditional=unconditional,
            num_samples=num_samples,
            seed=self.seed if seed is None else seed,
        )
