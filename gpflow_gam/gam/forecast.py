"""Forecasts from rolling origins, and their scores."""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ..errors import ExtrapolationWarning, check_count
from ..metrics import crps, pinball
from .fits.reading import in_memory
from .terms.base import Column

__all__ = ["backtest"]


_JOINTLY = 500  # rows that are drawn together: scores are of each by itself


def backtest(
    gam: Any,
    data: Any,
    y: Column | None = None,
    *,
    time: Column,
    horizon: Any,
    origins: int | Iterable[Any] = 10,
    window: Any = None,
    forget: float = 1.0,
    quantiles: Sequence[float] = (0.05, 0.5, 0.95),
    num_samples: int = 1000,
    seed: int = 0,
    **options: Any,
) -> pd.DataFrame:
    """
    Score forecasts from rolling origins: fit up to a time, predict what follows, move on.

    At each origin the GAM is fitted to the rows up to it, from where the last fit ended, and
    predicts the rows after it and at most ``horizon`` later. These have told it nothing: with
    origins at every time this is leave-future-out cross-validation (Bürkner, Gabry & Vehtari
    2020), by fits in place of weights. Columns are taken as they are in the rows that are
    predicted: score with what is known at the origin, such as a forecast of the weather.

    Forecasts average over uncertain hyperparameters, as those of :meth:`gpflow_gam.GAM.sample` do.
    Estimates, quantiles and CRPS are of draws.

    :param gam: a :class:`~gpflow_gam.GAM`, fitted or not; it stays as it is.
    :param data: all rows, in any order, as of :meth:`gpflow_gam.GAM.fit`; read into memory.
    :param y: the response's column; that of the formula, or of the fit, by default.
    :param time: a column of numbers or dates.
    :param horizon: how far from an origin is predicted: a number in the column's unit, or of
        dates what ``pandas.Timedelta`` takes, as ``"7D"``.
    :param origins: times, those without a time zone in the column's, or how many: the last is a
        horizon before the last row, and the others are a horizon apart.
    :param window: rows before ``origin - window`` are left out of the fit; None for none.
    :param forget: factor of the weights of earlier rows at each further origin, by
        :meth:`gpflow_gam.GAM.update`.
    :param quantiles: probabilities of quantiles, increasing; the first and the last are the ends
        of an interval.
    :param num_samples: draws of each response, two or more.
    :param seed: of draws.
    :param options: of :meth:`gpflow_gam.GAM.fit`.
    :return: a line a forecast: ``origin``, ``time``, ``row`` (its number in ``data``),
        ``observed``, ``estimate`` (the mean of draws), ``lower``, ``upper``, ``covered`` (whether
        within), ``crps`` and ``pinball_0.05`` and so on (lower is better), and ``log_density``, the
        log score (higher is better). Take means of these, by origin or by distance from it. With
        ``missing="drop"`` rows that lack a value are left out.
    :raises TypeError: no GAM; ``horizon``, ``window`` or ``origins`` in another unit than time.
    :raises ValueError: naming the argument; a response that is no number; origins without rows to
        fit to, or none with rows to predict.
    """
    check_count("num_samples", num_samples, 2)
    levels = [float(q) for q in np.atleast_1d(quantiles)]
    if len(levels) < 2 or not np.all(np.diff([0.0, *levels, 1.0]) > 0.0):
        raise ValueError(f"quantiles must increase, between 0 and 1, two or more; got {levels}.")
    if forget != 1.0 and window is not None:
        raise ValueError("window and forget are two ways to let rows go; give one of them.")
    if isinstance(gam, str):
        raise TypeError(f"backtest takes a GAM, fitted or not: backtest(GAM({gam!r}), ...).")
    table = in_memory(data)
    times: Any = pd.Series(table.values(time))
    dates = pd.api.types.is_datetime64_any_dtype(times)
    if times.isna().any() or not (dates or pd.api.types.is_numeric_dtype(times)):
        raise ValueError(
            f"time: column {time!r} must hold numbers or dates in every row; "
            "pandas.to_datetime makes dates of other objects."
        )
    for name, span in (("horizon", horizon), ("window", window)):
        plain = isinstance(span, numbers.Real) and not isinstance(span, np.timedelta64)
        if span is not None and dates == plain:
            unit = "spans of time such as '7D'" if dates else "numbers"
            raise TypeError(f"{name} must be of {unit}, as {time!r} is; got {span!r}.")
        if span is not None and not (pd.Timedelta(span).value if dates else span) > 0:
            raise ValueError(f"{name} must be positive; got {span!r}.")
    ahead = pd.Timedelta(horizon) if dates else horizon
    back = pd.Timedelta(window) if dates and window is not None else window
    begins: list[Any]
    if isinstance(origins, (int, np.integer)):
        check_count("origins", origins)
        begins = [times.max() - (i + 1) * ahead for i in reversed(range(origins))]
    elif not np.iterable(origins) or isinstance(origins, str):
        raise TypeError(f"origins must be times, or how many; got {origins!r}.")
    else:
        begins = sorted(_in_zone(t, times.dt.tz) if dates else t for t in origins)

    def until(end: Any) -> pd.Series:
        return times <= end + 1e-9 * ahead  # where differences of times are rounded

    model = object.__new__(type(gam))
    vars(model).update(vars(gam), _fit=None)
    if y is None and gam.is_fitted:
        y = gam.fitted.spec.response_spec
    frames: list[pd.DataFrame] = []
    seen: pd.Series | None = None
    last = 0
    for number, origin in enumerate(begins):
        past = until(origin)
        future = until(origin + ahead) & ~past
        if back is not None:
            past &= ~until(origin - back)
        if not past.any():
            raise ValueError(f"origins: there are no rows to fit to at {origin}.")
        if seen is not None and forget != 1.0:
            new = past & ~seen
            if new.any():
                passed = number - last  # some may have brought no rows
                model.update(table.rows(new.to_numpy()), y, forget=forget**passed, **options)
                last = number
        else:
            fit = model.fit if seen is None else model.refit
            fit(table.rows(past.to_numpy()), y, **options)
        seen = past
        spec = model.fitted.spec
        if spec.levels is not None or spec.censoring is not None:
            raise ValueError(
                "backtest scores responses that are numbers, neither classes nor Surv."
            )
        if not future.any():
            continue
        rows = table.rows(future.to_numpy())
        parts = [rows.part(i, i + _JOINTLY) for i in range(0, rows.num_rows, _JOINTLY)]
        asked: dict[str, Any] = {"type": "observation", "seed": seed + number}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExtrapolationWarning)  # which is what is scored
            draws = np.concatenate([model.sample(p, num_samples, **asked) for p in parts], axis=1)
            densities = model.log_density(rows, unconditional=True)
        observed = np.asarray(rows.values(spec.response), dtype=float)
        ends = np.quantile(draws, levels, axis=0)
        scores = {
            "origin": origin,
            "time": times[future].array,
            "row": np.flatnonzero(future),
            "observed": observed,
            "estimate": draws.mean(axis=0),
            "lower": ends[0],
            "upper": ends[-1],
            "covered": (ends[0] <= observed) & (observed <= ends[-1]),
            "crps": crps(observed, draws),
            **{f"pinball_{q:g}": pinball(observed, end, q) for q, end in zip(levels, ends)},
            "log_density": densities,
        }
        frame = pd.DataFrame(scores)
        frames.append(frame.dropna(subset=["observed", "estimate"]))
    if not frames:
        raise ValueError("origins: there are no rows to predict after any of them.")
    return pd.concat(frames, ignore_index=True)


def _in_zone(origin: Any, zone: Any) -> pd.Timestamp:
    """A time in the zone of a column, in which one without a zone is."""
    time = pd.Timestamp(origin)
    if zone is None and time.tz is not None:
        raise TypeError(f"origins: {time} has a time zone, and the column of times has none.")
    return time.tz_localize(zone) if time.tz is None else time
