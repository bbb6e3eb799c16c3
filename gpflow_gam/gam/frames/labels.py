"""Levels as JSON: text, numbers and truth values as they are, others as an object of one key."""

from __future__ import annotations

import base64
import datetime
import decimal
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

_PLAIN = (str, int, float, type(None))  # a bool is an int


def to_json(value: Any) -> Any:
    """A level, or what stands in for a missing value, as JSON can hold it."""
    if isinstance(value, np.generic) and not isinstance(value, (np.datetime64, np.timedelta64)):
        value = value.item()
    if type(value) in (*_PLAIN, bool):
        return value
    for name, (kinds, write, _) in _CODECS.items():
        if isinstance(value, kinds):
            return {name: write(value)}
    raise TypeError(type(value).__name__)


def from_json(value: Any) -> Any:
    """Read a level that :func:`to_json` wrote."""
    if not isinstance(value, (dict, list)):
        return value
    if isinstance(value, dict) and len(value) == 1:
        ((name, content),) = value.items()
        if name in _CODECS:
            return _CODECS[name][2](content)
    raise ValueError(f"{value!r} is no level")


def _instant(value: Any) -> list[Any]:
    stamp = pd.Timestamp(value)
    zone = None if stamp.tz is None else str(stamp.tz)
    return [int(stamp.asm8.view(np.int64)), stamp.unit, zone]


def _from_instant(content: list[Any]) -> pd.Timestamp:
    number, unit, zone = content
    stamp = pd.Timestamp(np.datetime64(number, unit))
    return stamp if zone is None else stamp.tz_localize("UTC").tz_convert(zone)


def _span(value: Any) -> list[Any]:
    delta = pd.Timedelta(value)
    return [int(delta.asm8.view(np.int64)), delta.unit]


_Codec = tuple[type | tuple[type, ...], Callable[[Any], Any], Callable[[Any], Any]]
_CODECS: dict[str, _Codec] = {
    # datetimes of Python are equal to pandas' of the same instant, and hash alike
    "timestamp": ((datetime.datetime, np.datetime64), _instant, _from_instant),
    "date": (datetime.date, lambda v: v.isoformat(), datetime.date.fromisoformat),
    "time": (datetime.time, lambda v: v.isoformat(), datetime.time.fromisoformat),
    "timedelta": (
        (datetime.timedelta, np.timedelta64),
        _span,
        lambda c: pd.Timedelta(np.timedelta64(c[0], c[1])),
    ),
    "period": (
        pd.Period,
        lambda v: [int(v.ordinal), v.freqstr],
        lambda c: pd.Period(ordinal=c[0], freq=c[1]),
    ),
    "interval": (
        pd.Interval,
        lambda v: [to_json(v.left), to_json(v.right), v.closed],
        lambda c: pd.Interval(from_json(c[0]), from_json(c[1]), closed=c[2]),
    ),
    "bytes": (
        bytes,
        lambda v: base64.b64encode(v).decode("ascii"),
        lambda c: base64.b64decode(c, validate=True),
    ),
    "decimal": (decimal.Decimal, str, decimal.Decimal),
    "tuple": (
        tuple,
        lambda v: [to_json(x) for x in v],
        lambda c: tuple(from_json(x) for x in c),
    ),
    "text": (str, str, str),  # of a class derived from it
    "number": ((int, float), lambda v: int(v) if isinstance(v, int) else float(v), lambda c: c),
}
