"""Fits that go on: to the rows that there are, and to further ones."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pandas as pd
from gpflow.base import AnyNDArray

from ... import optimizers
from ...models import IterNCGP
from ...optimizers.binned import bins
from ..families import Binomial, Ordinal
from ..frames import Fill, LevelColumn, NumericColumn, Table, filled
from ..frames.distinct import merged_categories
from ..terms import Column, Expression
from .build import build_model
from .fitted import FittedGAM
from .fitting import Roles, fit_model, fit_newton
from .sharing import SharedFit
from .specification import Specification
from .stating import counting_columns
from .streaming import fit_source
from .warm import carry_over, marginals_of_rows


def fit_again(fit: FittedGAM, seed: int, options: dict[str, Any]) -> FittedGAM:
    """
    Go on with a fit to the rows that it was to, from where it ended.

    :param fit: a fitted GAM.
    :param seed: of minibatches.
    :param options: of :func:`gpflow_gam.optimizers.fit`.
    :return: the fit.
    :raises ValueError: the rows are not there.
    """
    _check_rows(fit, "refit")
    check_same_criterion(fit, options, "refit()")
    spec, options = fit.spec, {k: v for k, v in options.items() if k != "criterion"}
    if isinstance(fit.trained, IterNCGP):  # itself: it resumes its last fit
        result = fit_newton(fit.trained, options)
        return dataclasses.replace(fit, model=fit.trained, result=result)
    if fit.whole is None:
        return fit_model(spec, fit.X, fit.Y, fit.dropped, seed, options, None, None, fit, True)
    model = build_model(spec, fit.X, fit.whole.Y, fit.whole.number, fit.whole.columns.weights)
    assert not isinstance(model, IterNCGP)
    carry_over(fit, model)
    solution, exact = fit.solution, spec.variational == "exact"
    assert solution is not None
    begin = None if exact else marginals_of_rows(solution)
    rows = fit.whole.rows(spec, model.kernel, fit.X)
    given = {"seed": seed, **options, "collapsed": exact}
    result, solution = optimizers.fit_rows(model, rows, start=begin, **given)
    return FittedGAM(spec, model, fit.X, fit.Y, result, fit.dropped, solution, fit.whole)


def fit_more(fit: FittedGAM, data: Table, *, missing: str, seed: int, **options: Any) -> FittedGAM:
    """
    Fit to the rows of a fit and further ones, from where it ended.

    Inducing inputs, levels and what effects are centred by are those of all rows, as of a first
    fit to them.

    :param fit: a fitted GAM.
    :param data: further rows, the response among them.
    :param missing: what becomes of rows that lack a value; what stands in for one is what stood in
        before.
    :param seed: as for :func:`fit_source`, and so are options.
    :return: the fit.
    :raises ValueError: the rows of the fit are not there; or as :func:`fit_source`.
    """
    spec, data = fit.spec, data.counted(counting_columns(fit.spec))
    _check_rows(fit, "update")
    check_same_criterion(fit, options, "update()")
    if spec.design is not None:
        raise ValueError(
            f"update: of the columns that {spec.design.text} is made of nothing is kept; call "
            "refit(data) with all rows, which starts from what is known."
        )
    names = [*(name for name, _ in spec.encoder.columns), spec.trials]
    computed = [name for name in names if isinstance(name, Expression)]
    if computed:
        raise ValueError(
            f"update: of the columns that {computed[0]} is computed of nothing is kept; call "
            "refit(data) with all rows, which starts from what is known."
        )
    if fit.whole is not None:
        raise ValueError(
            f"update: of more than {bins.KEPT_ROWS} rows a fit keeps codes, to which no rows "
            "can be added; call refit(data) with all rows, which starts from what is known."
        )
    fills = tuple(
        Fill(f.name, f.value, f.count + int(data.missing(f.name).sum())) for f in spec.fills
    )
    roles = Roles(spec.response, spec.offset, spec.weights, spec.trials)
    table = _joined(fit, filled(data, fills))
    found = fit_source(
        spec.terms,
        spec.family,
        roles,
        table,
        # nothing is left to stand in for
        missing="error" if missing == "impute" else missing,
        seed=seed,
        start=fit,
        **options,
    )
    return dataclasses.replace(
        found,
        model=found.trained,
        spec=dataclasses.replace(found.spec, fills=fills),
        dropped=fit.dropped + found.dropped,
    )


def check_same_criterion(fit: FittedGAM, options: dict[str, Any], asked: str = "") -> None:
    """
    Check that a fit does not go on by another criterion without a word.

    :param asked: what cannot go on by any other than the ELBO.
    :raises ValueError: it would, or it cannot.
    """
    criterion = options.get("criterion")
    last = "elbo" if fit.solution is None or fit.solution.hessian is None else "ncv"
    if asked and criterion == "ncv":
        raise ValueError(f"criterion='ncv': {asked} has no rows to leave out; pass {_ALL}")
    if criterion is None and last == "ncv":
        raise ValueError(
            f"criterion: the last fit was by 'ncv'; pass {_ALL} For the ELBO, which explains rows "
            "that depend on each other by rougher effects, pass criterion='elbo'."
        )


_ALL = "refit(data, criterion='ncv', groups=...) all rows and their groups."


def _check_rows(fit: FittedGAM, asked: str) -> None:
    if not fit.has_data:
        raise ValueError(
            f"{asked}: this GAM was loaded from a file without its data (save(data=False)); call "
            "refit(data) with all rows, which starts from what is known."
        )
    if isinstance(fit, SharedFit):
        raise ValueError(
            f"{asked}: the rows of this fit are held by several processes; fit to all of them."
        )


# --- rows as users know them ---------------------------------------------------------------------


def _joined(fit: FittedGAM, data: Table) -> Table:
    """The rows of a fit, and others after them."""
    spec = fit.spec
    columns: dict[Column, Any] = {}
    kinds: dict[Column, set[str]] = {}
    for name, kind in spec.encoder.columns:
        kinds.setdefault(name, set()).add(kind)
    for name, own in kinds.items():
        if "number" in own:
            numbers = spec.encoder.columns[name, "number"]
            assert isinstance(numbers, NumericColumn)
            columns[name] = numbers.joined(fit.X[:, spec.place(name)], data)
        else:
            reader = spec.encoder.columns[name, "level"]
            assert isinstance(reader, LevelColumn)
            codes = fit.X[:, spec.encoder.index(name, "level")].astype(int)
            columns[name] = _with_levels(reader.levels, codes, data, name)
    if fit.Y.shape[1] != (1 if spec.trials is None else 2):
        raise ValueError(
            f"update: family {spec.family.name!r} has a response of several columns; call "
            "refit(data) with all rows."
        )
    if spec.levels is None:
        shares = isinstance(spec.family, Binomial) and spec.family.proportion
        values = spec.family.observed(fit.Y) if shares else fit.Y[:, 0]
        columns[spec.response] = _concatenated(values, data.values(spec.response))
    else:
        codes = fit.Y[:, 0].astype(int)
        columns[spec.response] = _labels(spec, codes, data)
    if spec.trials is not None:
        columns[spec.trials] = _concatenated(fit.Y[:, 1], data.values(spec.trials))
    return Table(columns)


def _concatenated(values: AnyNDArray, more: AnyNDArray) -> Any:
    return pd.concat([pd.Series(values), pd.Series(more)], ignore_index=True).to_numpy()


def _with_levels(levels: tuple[Any, ...], codes: AnyNDArray, data: Table, name: Column) -> Any:
    """A column of levels, in the order of a category where they have one."""
    known = np.empty(len(levels), dtype=object)
    known[:] = levels
    # by way of pandas: numpy makes whole numbers of times
    more = pd.Series(data.values(name)).astype(object).to_numpy()
    whole = np.concatenate([known[codes], more])
    order = data.levels(name)
    if order is None and levels == tuple(sorted(levels, key=lambda v: (isinstance(v, str), v))):
        return whole
    if order is None:
        order = tuple(dict.fromkeys(v for v in whole[len(codes) :] if not pd.isna(v)))
    new = [v for v in order if v not in levels]
    dtype = pd.CategoricalDtype([*levels, *new])
    if data.ordered(name):
        own = [pd.CategoricalDtype(list(part), ordered=True) for part in (levels, order)]
        dtype = merged_categories(own, name)
    return pd.Categorical(whole, dtype=dtype)


def _labels(spec: Specification, codes: AnyNDArray, data: Table) -> Any:
    """The response, whose labels are in the fit's order where further rows state none."""
    assert spec.levels is not None
    found = _with_levels(spec.levels, codes, data, spec.response)
    if not isinstance(spec.family, Ordinal) or data.ordered(spec.response):
        return found
    if any(isinstance(level, str) for level in spec.levels):
        known = list(spec.levels)
        new = [v for v in dict.fromkeys(np.asarray(found, dtype=object)) if v not in known]
        if any(not pd.isna(v) for v in new):
            raise ValueError(
                f"update: {spec.response!r} has the label {new[0]!r}, which is none of the fit's "
                f"({', '.join(map(repr, known))}), and no order; make it an ordered categorical of "
                "all labels."
            )
        return pd.Categorical(found, categories=known, ordered=True)
    return np.asarray(found, dtype=object)
