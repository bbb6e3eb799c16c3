"""
Predictions of a generalized additive model from its tables, by numpy alone.

``gpflow_gam.serving.export(gam, "model.json")`` writes the tables, and this file beside them. It
needs Python and numpy::

    import gpflow_gam_scorer as scorer

    model = scorer.load("model.json")
    scorer.predict(model, {"x": [0.1, 0.7], "g": ["a", "b"]})["response"]
"""

from __future__ import annotations

import json
import math
import statistics
from typing import Any

import numpy as np

FORMAT = "gpflow_gam tables"
VERSION = 2
_BLOCK = 4096  # rows at a time
_DRAWS = 1000  # pairs of draws, for class probabilities
_hermegauss: Any = np.polynomial.hermite_e.hermegauss
_NODES, _WEIGHTS = _hermegauss(40)

LINKS: dict[str, Any] = {
    "identity": lambda f: f,
    "log": np.exp,
    "logit": lambda f: 1.0 / (1.0 + np.exp(np.minimum(-f, 700.0))),  # no overflow
    "probit": lambda f: 0.5 * np.vectorize(math.erfc, otypes=[float])(-f / math.sqrt(2.0)),
    "cloglog": lambda f: -np.expm1(-np.exp(np.minimum(f, 700.0))),
    "cauchit": lambda f: 0.5 + np.arctan(f) / math.pi,
    "inverse": lambda f: 1.0 / f,
    "sqrt": np.square,
}
"""From the predictor to the expected response."""
COMPUTED: dict[str, Any] = {
    **{"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide, "**": np.power},
    **{f.__name__: f for f in (np.log, np.exp, np.sqrt, np.sin, np.cos, np.tan)},
    "abs": np.abs,
}
"""What columns may be computed by."""


def load(path: Any) -> dict[str, Any]:
    """
    Read the tables that ``export`` wrote; ValueError if it holds others, or broken ones.

    They are arrays: ``json.dumps(model, default=numpy.ndarray.tolist)`` writes them again.
    """
    with open(path, encoding="utf-8") as file:
        model: dict[str, Any] = json.load(file)
    if not isinstance(model, dict) or model.get("format") != FORMAT:
        raise ValueError(f"{path} holds no tables of gpflow_gam.")
    if model.get("version") != VERSION:
        raise ValueError(f"{path} is of version {model.get('version')}; this reads {VERSION}.")
    try:
        with np.errstate(all="ignore"):
            _check(model)
    except Exception as error:
        raise ValueError(f"{path} holds broken tables ({error!r}).") from None
    return model


def _check(model: Any) -> None:
    """Raise what is wrong with tables, or with a prediction of two rows that are made up."""
    columns, link, terms = (model[key] for key in ("columns", "link", "terms"))
    L = len(model["constant"])
    (bare,) = {term["roots"] is None for term in terms}  # all or none
    rank = range(1 + sum(len(t["roots"][0]) for t in terms if not bare)).index(model["rank"])
    _numbers([*model["constant"], model["offset"]["factor"]], L + 1)
    if link["name"] == "table":
        axis = {"column": "", "knots": link["predictor"], "size": len(link["response"])}
        _numbers(link["response"], _size([axis], {"": {"levels": None}}), len(link["response"][0]))
    for term in terms:  # arrays, once for all
        term["values"] = _numbers(term["values"], _size(term["axes"], columns), L)
        if not bare:
            size = _size(term["root_axes"], columns)
            roots = [_padded(rows, rank) for rows in term["roots"]]
            term["roots"] = list(_numbers(roots, L, size, rank))
            term["left"] = _numbers(_padded(term["left"], size), L, size)
        if (by := term["by"]) is not None:
            levels = columns[by["column"]]["levels"]
            ([None] if levels is None else range(len(levels))).index(by["code"])
    rows = {}
    for name, about in columns.items():
        _computed(0.0 if (tree := about.get("expression")) is None else tree, None)
        value = (about["range"] or [1.0])[0] if about["levels"] is None else about["levels"][0]
        rows[name] = np.array([value, value if about["fill"] is None else about["fill"]], object)
    predict(model, rows)
    _numbers(_responses(link, np.full((1, L), 0.5), None, 0.5)["median"].ravel()[0])


def _numbers(values: Any, *shape: int) -> Any:
    array = np.array(values, float)
    if array.shape != shape or not (np.abs(array) < 1e150).all():  # whose square is finite
        raise ValueError("a table that does not fit its axes, or a number that is not finite")
    return array


def _size(axes: Any, columns: Any) -> int:
    for axis in axes:
        about, knots, period = columns[axis["column"]], axis["knots"], axis.get("period")
        if knots is None:
            fits = axis["size"] == len(about["levels"]) + about["new_levels"]
        else:
            fits = about["levels"] is None and np.diff(_numbers(knots, axis["size"])).min() > 0.0
            fits &= period is None or math.isclose(period, knots[-1] - knots[0])
        if not fits:
            raise ValueError("an axis that does not fit its column, or knots that do not increase")
    return math.prod(axis["size"] for axis in axes)


def predict(model: Any, data: Any, level: float = 0.95) -> dict[str, Any]:
    """
    Predictions of N rows.

    :param model: from :func:`load`.
    :param data: a dict of columns, or a DataFrame.
    :param level: probability of the intervals.
    :return: ``predictor`` and its ``se``, [N] or [N, L]; ``median``, the response at the predictor,
        and ``response``, its expectation, [N] or [N, K] of classes; ``lower`` and ``upper``, the
        interval of the expected response; ``terms``, what each adds to the predictor.
    :raises ValueError: a column that is not there, or a value that the model cannot take.
    """
    columns = {name: _column(name, about, data) for name, about in model["columns"].items()}
    return scored(model, columns, level)


def scored(model: Any, columns: dict[str, Any], level: float = 0.95) -> dict[str, Any]:
    """The same of columns that are numbers: of levels their places, and -1 for new ones."""
    if not 0.0 < level < 1.0:
        raise ValueError(f"level must be a probability between 0 and 1; got {level!r}.")
    number = max(map(len, columns.values()), default=0)
    for name, values in columns.items():
        if len(values) != number:
            raise ValueError(f"column {name!r} has {len(values)} rows where others have {number}.")
    blocks = [
        _predict(model, {k: v[i : i + _BLOCK] for k, v in columns.items()}, level)
        for i in range(0, max(number, 1), _BLOCK)
    ]
    result = {key: np.concatenate([b[key] for b in blocks]) for key in blocks[0] if key != "terms"}
    terms = [b["terms"] for b in blocks]
    return result | {"terms": {k: np.concatenate([t[k] for t in terms]) for k in terms[0]}}


def _predict(model: Any, columns: dict[str, Any], level: float) -> dict[str, Any]:
    number, L = len(next(iter(columns.values()))), len(model["constant"])
    mean = np.tile(np.array(model["constant"], float), (number, 1))
    for name in model["offset"]["columns"]:
        mean[:, 0] += model["offset"]["factor"] * columns[name]
    terms, root, left = {}, None, np.zeros((number, L))
    for term in model["terms"]:
        times = _multiplier(term["by"], columns, number)
        part = times[:, None] * _interpolated(term["axes"], term["values"], columns, number)
        mean += part
        terms[term["name"]] = part[:, 0] if L == 1 else part
        for q, rows in enumerate(term["roots"] or []):
            root = np.zeros((L, number, model["rank"])) if root is None else root
            table = np.c_[_padded(rows, model["rank"]), _padded(term["left"], len(rows))[q]]
            part = times[:, None] * _interpolated(term["root_axes"], table, columns, number)
            root[q] += part[:, :-1]
            left[:, q] += np.maximum(times * part[:, -1], 0.0)
    se = None if root is None else np.sqrt(np.sum(np.square(root), axis=2).T + left)
    result = _responses(model["link"], mean, se, level)
    if se is not None:
        result["se"] = se[:, 0] if L == 1 else se
    return {**result, "predictor": mean[:, 0] if L == 1 else mean, "terms": terms}


def _column(name: str, about: Any, data: Any) -> Any:
    """A column as numbers, [N]: of levels their places, and -1 for new ones."""
    if about.get("expression") is not None and name not in data:
        data = {name: _computed(about["expression"], data)}
    if name not in data:
        raise ValueError(f"data has no column {name!r}.")
    values, levels = np.asarray(data[name]), about["levels"]
    if levels is None and values.dtype.kind in "mM":
        values = values.astype(f"{values.dtype.kind}8[us]").astype(float) / 86_400e6  # days
        values[np.asarray(data[name]) != np.asarray(data[name])] = np.nan
    values = values.ravel().astype(object)
    # of NaN and NaT: that of pandas is neither equal to itself nor not
    missing = np.array([v is None or str(v == v) != "True" for v in values], bool)
    if missing.any():
        if about["fill"] is None:
            raise ValueError(f"column {name!r} has no value in row {int(np.argmax(missing))}.")
        values[missing] = about["fill"]
    if levels is None:
        try:
            numbers = values.astype(float)
        except (TypeError, ValueError):
            what = "numbers, or times as numpy.datetime64 in UTC"
            raise ValueError(f"column {name!r} must hold {what}.") from None
        if not np.isfinite(numbers).all():
            raise ValueError(f"column {name!r} must be finite.")
        return numbers
    places = {level: i for i, level in enumerate(levels)}
    codes = np.array([places.get(v, -1) for v in values], float)
    if not about["new_levels"] and (codes < 0).any():
        raise ValueError(f"column {name!r} has the level {values[np.argmin(codes)]!r}, a new one.")
    return codes


def _computed(tree: Any, data: Any) -> Any:
    """A function and its arguments; a column, of one to try a function; or a number."""
    if isinstance(tree, dict):
        name = tree["column"]
        return _column(name, tree, {name: [1.0]} if data is None else data)
    if not isinstance(tree, list):
        return float(tree)
    with np.errstate(all="ignore"):  # what is not finite is an error of the column
        return COMPUTED[tree[0]](*(_computed(part, data) for part in tree[1:]))


def _padded(rows: Any, rank: int) -> Any:
    """Rows [K, rank] from rows whose zeros at the end are left out."""
    if isinstance(rows, np.ndarray):
        return rows
    return np.array([[*row, *[0.0] * (rank - len(row))] for row in rows]).reshape(-1, rank)


def _multiplier(by: Any, columns: dict[str, Any], number: int) -> Any:
    if by is None:
        return np.ones(number)
    values = columns[by["column"]]
    return values if by["code"] is None else (values == by["code"]).astype(float)


def _interpolated(axes: Any, values: Any, columns: dict[str, Any], number: int) -> Any:
    """Table [K, ...] over the product of axes, straight between knots and beyond the last ones."""
    values = np.asarray(values, float)
    corners = [(np.zeros(number, int), np.ones(number))]
    for axis in axes:
        x = columns[axis["column"]]
        if axis["knots"] is None:  # the last row is that of new levels
            size = axis["size"]
            low, share = np.where(x < 0, size - 1, x).astype(int), None
        else:
            knots = np.asarray(axis["knots"])
            size = len(knots)
            if axis["period"] is not None:
                x = knots[0] + np.mod(x - knots[0], axis["period"])
            low = np.clip(np.searchsorted(knots, x, side="right") - 1, 0, size - 2)
            share = (x - knots[low]) / (knots[low + 1] - knots[low])
        steps = [(low, 1.0)] if share is None else [(low, 1.0 - share), (low + 1, share)]
        corners = [(p * size + i, w * s) for p, w in corners for i, s in steps]
    return sum(w[:, None] * values[p] for p, w in corners)


def _responses(link: Any, mean: Any, se: Any, level: float) -> dict[str, Any]:
    """The response at the predictor, and its expectation and interval where there are errors."""
    if link["name"] == "softmax":
        result = {"median": _softmax(mean)}
        if se is not None:
            number = max(_DRAWS, 2 * mean.shape[1])
            z = np.random.default_rng(0).standard_normal((number, mean.shape[1]))
            z = np.linalg.solve(np.linalg.cholesky(z.T @ z / number), z.T).T  # of unit covariance
            draws = (_softmax(mean + sign * se * one) for one in z for sign in (-1.0, 1.0))
            result["response"] = sum(draws) / (2 * number)
        return result
    f = mean[:, 0]
    result = {"median": inverse(link, f)}
    if se is not None:
        values = [inverse(link, f + se[:, 0] * z) for z in _NODES]
        result["response"] = sum(w * v for w, v in zip(_WEIGHTS, values)) / math.sqrt(2.0 * math.pi)
        if result["median"].ndim == 1:
            half = statistics.NormalDist().inv_cdf(0.5 + 0.5 * level) * se[:, 0]
            ends = [inverse(link, f + sign * half) for sign in (-1.0, 1.0)]
            result["lower"], result["upper"] = np.minimum(*ends), np.maximum(*ends)
    return result


def inverse(link: Any, f: Any) -> Any:
    """The response at a predictor [N]: [N], or [N, C] of a table of several columns."""
    if link.get("unit") is not None:  # on the other side of which the mean goes on positive
        t, k = np.maximum(1.0 - f / link["unit"], 0.0), link["bend"]
        f = np.maximum(f, link["unit"])
        f = f * (np.exp(-t) if k is None else np.power(1.0 + k * t, -1.0 / k))
    if link["name"] != "table":
        return LINKS[link["name"]](f)
    table = np.array(link["response"])
    columns = [np.interp(f, link["predictor"], column) for column in table.T]
    return columns[0] if len(columns) == 1 else np.stack(columns, axis=1)


def _softmax(f: Any) -> Any:
    p = np.exp(f - f.max(axis=-1, keepdims=True))
    return p / p.sum(axis=-1, keepdims=True)
