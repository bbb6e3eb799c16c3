"""Random GAMs on nasty data, and what has to hold of each."""

import dataclasses
import datetime
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

import gpflow_gam as gg
from gpflow_gam import factor, linear, random_effect, s, te, ti

PACKAGE = str(Path(gg.__file__).parent)
IDENTITY = ("gaussian", "student_t")
LOGARITHMIC = ("poisson", "negative_binomial", "gamma")
CLASSES = ("categorical", "ordinal")
OTHER = ("binomial", "tweedie", "zero_inflated_poisson", "quasipoisson")
FAMILIES = (*IDENTITY, *LOGARITHMIC, *CLASSES, "bernoulli", "beta", "heteroskedastic")

_DAY = pd.Timestamp("2020-01-01")
NUMBERS: dict[str, Callable[[np.random.Generator, int], Any]] = {
    "uniform": lambda rng, n: rng.uniform(size=n),
    "normal": lambda rng, n: rng.standard_normal(n),
    "skewed": lambda rng, n: np.exp(3.0 * rng.standard_normal(n)),
    "ties": lambda rng, n: rng.integers(0, 4, n).astype(float),
    "whole": lambda rng, n: rng.integers(-50, 50, n),
    "two values": lambda rng, n: np.where(rng.uniform(size=n) < 0.5, 0.0, 1e-9),
    "one but one": lambda rng, n: (np.arange(n) == n // 2) * 1.0,
    "narrow": lambda rng, n: 1.0 + 1e-9 * rng.uniform(size=n),
    "far": lambda rng, n: 1e9 + rng.uniform(size=n),
    "outlier": lambda rng, n: np.where(np.arange(n) == n // 3, 1e6, rng.standard_normal(n)),
    "tiny": lambda rng, n: 1e-310 * rng.uniform(size=n),
    "huge": lambda rng, n: 1e150 * rng.uniform(size=n),
    "infinite": lambda rng, n: np.where(np.arange(n) == 1, np.inf, rng.uniform(size=n)),
    "truth": lambda rng, n: rng.uniform(size=n) < 0.5,
    "nullable": lambda rng, n: pd.array(rng.integers(0, 9, n), dtype="Int64"),
    "holes": lambda rng, n: pd.array(
        np.where(rng.uniform(size=n) < 0.1, None, rng.uniform(size=n).round(3)), dtype="Float64"
    ),
    "single": lambda rng, n: rng.uniform(size=n).astype(np.float32),
    "bytes": lambda rng, n: rng.integers(0, 255, n).astype(np.uint8),
    "arrow": lambda rng, n: pd.array(rng.uniform(size=n), dtype=pd.ArrowDtype(pa.float64())),
    "times": lambda rng, n: _DAY + pd.to_timedelta(rng.integers(0, 99, n), "D"),
    "complex": lambda rng, n: rng.uniform(size=n) + 1j,
    "text": lambda rng, n: rng.choice(["1", "2", "x"], n).astype(object),
    "constant": lambda rng, n: np.full(n, 3.0),
}  # fmt: skip
"""Columns that terms read as numbers."""


def _dates(rng: np.random.Generator, n: int) -> Any:
    return pd.Series([datetime.date(2020, 1, 1 + int(i)) for i in rng.integers(0, 3, n)])


LEVELS: dict[str, Callable[[np.random.Generator, int], Any]] = {
    "letters": lambda rng, n: rng.choice(list("abc"), n).astype(object),
    "unicode": lambda rng, n: rng.choice(["ß", "日本", "", "a b", "é"], n).astype(object),
    "category": lambda rng, n: pd.Categorical(rng.choice(["lo", "hi"], n), ["hi", "no", "lo"]),
    "codes": lambda rng, n: rng.integers(0, 3, n),
    "rare": lambda rng, n: np.where(np.arange(n) == n // 2, "rare", "usual").astype(object),
    "intervals": lambda rng, n: pd.cut(rng.uniform(size=n), 3),
    "dates": _dates,
    "days": lambda rng, n: pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 3, n), "D"),
    "many": lambda rng, n: np.arange(n) % max(n // 2, 2),
    "missing": lambda rng, n: np.where(rng.uniform(size=n) < 0.1, None, "a").astype(object),
    "mixed": lambda rng, n: np.array(["a", 1] * n, dtype=object)[:n],
    "arrow text": lambda rng, n: pd.array(rng.choice(["a", "b"], n).tolist(), dtype="string"),
}  # fmt: skip
"""Columns that terms read as levels."""

RESPONSES = ("usual", "usual", "usual", "usual", "outlier", "one but one", "separable", "hole")
TRIALS = 6
RESERVED = ("target", "w", "n")
NAMES = ("x", "y ", "ünï ☃", "a b", "intercept", "f(x)", "1", "n'")
CONTAINERS = ("pandas", "pandas", "dict", "polars", "arrow", "twice")


@dataclasses.dataclass(frozen=True)
class Case:
    """A GAM and its data, all from a few choices."""

    rows: int
    seed: int  # of all numbers
    columns: tuple[str, ...]  # of NUMBERS or LEVELS; "copy" and "collinear" are of the first one
    terms: tuple[str, ...]  # what is made of each column in turn
    pair: str  # the kind of a term of the first two columns, or empty
    family: str
    response: str  # how nasty it is
    container: str  # what the data come in
    weighted: bool
    missing: str


def wild_case(seed: int) -> Case:
    """A random model of columns of any kind."""
    rng = np.random.default_rng(seed)
    usual = ("uniform", "normal", "ties", "whole", "skewed")
    pools = (usual, (*NUMBERS, "copy", "collinear"), tuple(LEVELS))

    def pick(values: tuple[str, ...]) -> str:
        return str(rng.choice(values))

    kinds = tuple(pick(pools[rng.integers(3)]) for _ in range(rng.integers(1, 4)))
    return Case(
        rows=int(rng.integers(8, 61)),
        seed=seed,
        columns=kinds,
        terms=tuple(pick(_terms_of(kind)) for kind in kinds),
        pair=pick(("", "", "te", "ti", "by")) if len(kinds) > 1 else "",
        family=pick(FAMILIES),
        response=pick(RESPONSES),
        container=pick(CONTAINERS),
        weighted=bool(rng.uniform() < 0.25),
        missing=pick(("error", "drop", "impute")),
    )


def _terms_of(kind: str) -> tuple[str, ...]:
    if kind in LEVELS:
        return ("factor", "factor", "random_effect", "s") if kind != "many" else ("random_effect",)
    return ("s", "s", "s", "linear", "matern12", "cyclic", "factor")


def frame(case: Case) -> pd.DataFrame:
    """The data, the response and the weights in it."""
    rng = np.random.default_rng(case.seed)
    n = case.rows
    data: dict[str, Any] = {}
    signal = np.zeros(n)
    for i, kind in enumerate(case.columns):
        if kind in ("copy", "collinear"):
            try:
                values = np.asarray(data[NAMES[0]], dtype=float)
            except (KeyError, TypeError, ValueError):  # there is no first column of numbers
                values = rng.uniform(size=n)
            values = values if kind == "copy" else 1.0 - 3.0 * values
        else:
            values = (LEVELS.get(kind) or NUMBERS[kind])(rng, n)
        data[NAMES[(i + (case.seed % 3 if i else 0) * 2) % len(NAMES)] if i else NAMES[0]] = values
        codes, _ = pd.factorize(np.asarray(values, dtype=object))
        signal += np.sin(codes.argsort().argsort() * 6.0 / n + i)
    table = pd.DataFrame(data)
    table["target"] = _response(case, rng, signal)
    table["w"] = rng.integers(0, 3, n)
    if case.family == "binomial":
        table["n"] = TRIALS
    return table


def _response(case: Case, rng: np.random.Generator, signal: np.ndarray) -> Any:
    n, f = case.rows, signal + 0.3 * rng.standard_normal(case.rows)
    one = np.arange(n) == n // 2
    if case.family in (*IDENTITY, "heteroskedastic"):
        y = f
        if case.response == "outlier":
            y = np.where(one, 1e6, f)
    elif case.family in ("poisson", "negative_binomial", *OTHER):
        y = rng.poisson(np.exp(np.clip(f, -3.0, 3.0))).astype(float)
        if case.family == "binomial":
            y = np.minimum(y, TRIALS)
        elif case.family == "tweedie":
            y = y * rng.uniform(0.5, 1.5, n)
        elif case.family == "zero_inflated_poisson":
            y = y * (rng.uniform(size=n) < 0.7)
        if case.response == "outlier":
            y = np.where(one, 1e7, y)
    elif case.family == "gamma":
        y = np.exp(f) * (1e6 if case.response == "outlier" else 1.0) ** one
    elif case.family == "beta":
        y = np.clip(1.0 / (1.0 + np.exp(-f)), 1e-12, 1.0 - 1e-12)
        if case.response == "outlier":
            y = np.where(one, 1e-300, y)
    else:
        number = 2 if case.family == "bernoulli" else 3
        source = signal if case.response == "separable" else f
        y = np.digitize(source, np.quantile(source, np.arange(1, number) / number)).astype(float)
        if case.family == "categorical":
            y = np.array(["a", "b", "c"], dtype=object)[y.astype(int)]
            return np.where(one, "b", "a").astype(object) if case.response == "one but one" else y
    if case.response == "one but one":
        low = 0.5 if case.family in ("beta", "gamma") else 0.0
        y = np.where(one, 0.75 if case.family == "beta" else 1.0, low)
    if case.response == "hole":
        y = np.where(one, np.nan, y)
    return y


def terms(case: Case, table: pd.DataFrame) -> Any:
    """The terms of a case."""
    names = [c for c in table.columns if c not in RESERVED]
    made = {
        "s": lambda name: s(name, k=6),
        "matern12": lambda name: s(name, k=6, bs="matern12"),
        "cyclic": lambda name: s(name, k=6, bs="cyclic"),
        "linear": linear,
        "factor": factor,
        "random_effect": random_effect,
    }
    result = [made[kind](name) for kind, name in zip(case.terms, names)]
    if case.pair and len(names) > 1:
        a, b = names[:2]
        result.append(
            {
                "te": lambda: te(a, b, k=8),
                "ti": lambda: ti(a, b, k=8),
                "by": lambda: s(a, by=b, k=5),
                "fs": lambda: s(a, b, bs="fs", k=5),
                "sz": lambda: s(a, b, bs="sz", k=5),
            }[case.pair]()
        )
    return gg.terms.Terms(result)


def held(case: Case, table: pd.DataFrame) -> Any:
    """The data in what they come in."""
    if case.container == "dict":
        return {name: table[name].array for name in table}
    if case.container == "polars":
        return pl.from_pandas(table)
    if case.container == "arrow":
        return pa.Table.from_pandas(table, preserve_index=False)
    if case.container == "twice":  # of one name
        return pd.concat([table, table[["w"]]], axis=1) if case.seed % 4 == 0 else table
    return table


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a case ended: as it should, or with a bare error, one that names nothing, or nonsense."""

    kind: str
    text: str = ""  # an error, or what was seen

    @property
    def good(self) -> bool:
        # tails: an exponential of which next to nothing is known has no se, with its warning
        return self.kind in ("fitted", "fitted, tails", "refused", "not built")


def judged(case: Case) -> Outcome:
    """Fit a case, and say how it ended."""
    try:
        table = frame(case)
        data = held(case, table)
    except (pa.ArrowException, TypeError, ValueError) as error:
        return Outcome("not built", str(error))  # other libraries cannot hold it
    with warnings.catch_warnings(action="ignore"):
        try:
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always", gg.HeavyTailWarning)
                gam, mean, se = _fitted(case, table, data)
        except Exception as error:
            return _error(error, table)
        if any(issubclass(w.category, gg.HeavyTailWarning) for w in said):
            return Outcome("not finite" if np.any(np.isnan(mean)) else "fitted, tails", f"{gam}")
        if not (np.all(np.isfinite(mean)) and np.all(np.isfinite(se))):
            return Outcome("not finite", f"{gam}")
        wrong = _insane(case, table, mean)
        if wrong:
            return Outcome("insane", wrong)
        return Outcome("fitted")


def _fitted(case: Case, table: pd.DataFrame, data: Any) -> tuple[gg.GAM, np.ndarray, np.ndarray]:
    family: Any = case.family
    weights = "w" if case.weighted else None
    trials = "n" if family == "binomial" else None
    made = terms(case, table)
    gam = gg.GAM(made, family, weights=weights, trials=trials, missing=case.missing)
    gam.fit(data, "target", progress=False)
    complete = table
    if case.missing != "impute":
        inputs = [c for c in table.columns if c not in RESERVED]
        complete = table[~table[inputs].isna().any(axis=1)]
    mean, se = gam.predict(complete, se=True)
    gam.effects(gam.names[0], unconditional=False)
    return gam, np.asarray(mean), np.asarray(se)


def _error(error: Exception, table: pd.DataFrame) -> Outcome:
    """Whether an error is ours, and names what it is about."""
    where = traceback.extract_tb(error.__traceback__)[-1].filename
    ours = where.startswith(PACKAGE) and type(error) in (ValueError, TypeError)
    text = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    if not ours:
        return Outcome("raw error", f"{text} ({Path(where).name})")
    about = [*map(str, table.columns), "terms", "rows", "missing", "weights", "data"]
    if not any(name in str(error) for name in about):
        return Outcome("unnamed", text)
    return Outcome("refused", text)


def _insane(case: Case, table: pd.DataFrame, mean: np.ndarray) -> str:
    """What is wrong with expected responses at the rows of the fit; empty where nothing is."""
    if case.family in (*CLASSES, "bernoulli"):
        inside = np.all((mean >= 0.0) & (mean <= 1.0))
        return "" if inside else f"probabilities from {mean.min()} to {mean.max()}"
    y = table["target"].to_numpy(dtype=float)
    y = y[np.isfinite(y)]
    low, high = y.min(), y.max()
    reach = high - low
    if case.family == "beta":
        inside = np.all((mean >= 0.0) & (mean <= 1.0))
    elif case.family in LOGARITHMIC:  # between a hundredth and a hundred times
        inside = np.all((mean >= 0.0) & (mean <= 100.0 * max(high, 1.0)))
    else:
        inside = np.all((mean >= low - 2.0 * reach) & (mean <= high + 2.0 * reach))
    return "" if inside else f"from {mean.min():g} to {mean.max():g}, of {low:g} to {high:g}"


RELATIONS = ("sign", "levels", "twice", "zero", "order")
"""Changes of the data that leave a fit as it is; :func:`pair_of` makes them."""
SAME = 0.01
"""Standard deviations of the predictor within which fits are the same."""
_MILD = ("uniform", "normal", "skewed", "ties", "whole", "outlier", "two values", "collinear")
_MILD_LEVELS = ("letters", "rare", "category")
_UNITS = 1e-6
"""Of the predictor's range, beside which its standard deviation is no smaller."""


def mild_case(seed: int) -> Case:
    """A random small model of columns that are awkward and no more."""
    rng = np.random.default_rng(seed)
    number = int(rng.integers(1, 4))
    kinds = [str(rng.choice(_MILD[: None if i else -1])) for i in range(number)]
    if number > 1 and rng.uniform() < 0.5:
        kinds[-1] = str(rng.choice(_MILD_LEVELS))
    lines = ("s", "s", "s", "linear", "linear", "matern12", "cyclic")
    chosen = [str(rng.choice(("factor", "random_effect") if k in LEVELS else lines)) for k in kinds]
    pairs = ("", "", "te", "ti", "by") if number > 1 else ("",)
    if number == 2 and kinds[1] in LEVELS:
        pairs += ("fs", "sz", "by")
    return Case(
        rows=int(np.round(np.exp(rng.uniform(np.log(3), np.log(91))))),
        seed=seed,
        columns=tuple(kinds),
        terms=tuple(chosen),
        pair=str(rng.choice(pairs)),
        family=str(rng.choice((*FAMILIES, *OTHER))),
        response=str(rng.choice(("usual", "usual", "usual", "outlier"))),
        container="pandas",
        weighted=False,
        missing="error",
    )


def pair_of(case: Case, relation: str) -> tuple[pd.DataFrame, pd.DataFrame, np.ndarray]:
    """Data, others that say the same (of RELATIONS), and the second's rows that are the first's."""
    table, rng = frame(case).assign(w=1.0), np.random.default_rng([case.seed, 1])
    n, rows = len(table), np.arange(len(table))
    other = table.copy()
    inputs = list(zip(table.columns, case.columns))
    if relation == "sign":
        for name, kind in inputs:
            if kind not in LEVELS:
                other[name] = -table[name].astype(float)
    elif relation == "levels":
        for name, kind in inputs:
            if kind in LEVELS:
                values = table[name].astype(object)
                known = sorted(set(values))
                turn = rng.integers(len(known)) if len(known) > 2 else 0
                order = np.roll(np.arange(len(known))[::-1], turn)
                other[name] = values.map({v: f"l{i}" for v, i in zip(known, order)})
    elif relation == "order":
        order = rng.permutation(n)
        other, rows = table.iloc[order].reset_index(drop=True), np.argsort(order)
    elif relation == "twice":
        twice = rng.uniform(size=n) < 0.3
        other = pd.concat([table, table[twice]], ignore_index=True)
        table["w"] = 1.0 + twice
    else:
        kept = rng.uniform(size=n) < 0.8
        table, other = table.assign(w=1.0 * kept), table[kept].reset_index(drop=True)
        rows = np.cumsum(kept) - 1
        rows[~kept] = -1
    return table, other, rows


def change(case: Case, relation: str) -> float:
    """The largest difference in standard deviations; inf if one cannot be fitted, NaN if none."""
    table, other, rows = pair_of(case, relation)
    result = []
    with warnings.catch_warnings(action="ignore"):
        for data, weighted in ((table, relation in ("twice", "zero")), (other, False)):
            asked = table[rows >= 0] if data is table else other
            try:
                made, trials = terms(case, data), "n" if case.family == "binomial" else None
                gam = gg.GAM(made, case.family, weights="w" if weighted else None, trials=trials)
                gam.fit(data, "target", progress=False)
                if not gam.fitted.result.converged:
                    return float("nan")
                result.append(gam.predict(asked, "link", se=True, unconditional=False))
            except ValueError:
                result.append(None)
    if result[0] is None or result[1] is None:
        return float("nan" if result[0] is result[1] else "inf")
    (mean, se), (again, _) = result
    again = np.asarray(again)[rows[rows >= 0]]
    if not all(np.all(np.isfinite(v)) for v in (mean, se, again)):
        return float("inf")
    return float(np.max(np.abs(again - mean) / (se + _UNITS * np.ptp(mean, axis=0))))
