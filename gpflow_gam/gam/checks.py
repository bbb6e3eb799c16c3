"""Checks of a finished fit, each of which warns once and says what to do."""

from __future__ import annotations

from collections.abc import Collection

from ..errors import (
    BasisWarning,
    ConvergenceWarning,
    DispersionWarning,
    IdentifiabilityWarning,
    MissingTermWarning,
    ScaleMismatchWarning,
    ShapeWarning,
    SmoothingWarning,
    warn_caller,
)
from ..likelihoods.continuous import SMOOTHING
from .families import Quantile
from .fits import FittedGAM
from .summaries.components import against_shapes
from .summaries.dispersion import sample_dispersion
from .summaries.identifiability import (
    indistinguishable,
    interpolating,
    of_single_rows,
    overlapping,
    undetermined,
)
from .terms import Column, Interaction, Levels, Smooth, Tensor
from .terms.base import column_of
from .terms.smooth import SPLINES

_ALIKE = 20.0
"""Largest ratio of spans between columns that share a lengthscale."""
_SHARP = 1.0 / 3.0
"""Ratio of most residuals' spread to the loss's scale, below which smoothing may be too wide."""
_ROWS = 10_000
"""Rows at which residuals are looked at."""
_CENTRED = ("smooth", "tensor", "line", "curves", "areas")
"""Functions of one level that average to zero over its data."""


def check_fit(fit: FittedGAM) -> None:
    """Warn of what a fit shows to be wrong with it."""
    _check_convergence(fit)
    _check_dispersion(fit)
    _check_means(fit)
    said = {name for pair in (*_check_copies(fit), *_check_overlaps(fit)) for name in pair}
    _check_single_rows(fit)
    _check_determined(fit, said)
    _check_bases(fit)
    _check_by(fit)
    _check_interpolation(fit)
    _check_units(fit)
    _check_shapes(fit)
    _check_bend(fit)


def _check_bend(fit: FittedGAM) -> None:
    family = fit.spec.family
    if not isinstance(family, Quantile):
        return
    which, F = fit.sample_means(_ROWS)
    sharpness = family.sharpness(fit.likelihood, fit.Y[which], F)
    bend = family.smoothing / sharpness
    if sharpness < _SHARP and bend > SMOOTHING / _SHARP:
        warn_caller(
            "some rows are so far from the others that the loss of the quantile is smoothed over "
            f"{bend:.2g} standard deviations of most residuals, and not {family.smoothing:g}: the "
            f"quantile may be far off. Take families.Quantile({family.tau:g}, "
            f"smoothing={SMOOTHING * sharpness:.1g}).",
            SmoothingWarning,
        )


def _check_shapes(fit: FittedGAM) -> None:
    for component, p in against_shapes(fit):
        warn_caller(
            f"the data speak against shape={component.shape!r} of {component.name}: chance alone "
            f"takes an estimate as far from it with probability {p:.1g}. The fit keeps to the "
            "shape, and its errors are those of a shape that is right: look at the effect without.",
            ShapeWarning,
        )


def _check_convergence(fit: FittedGAM) -> None:
    result = fit.result
    if result.converged:
        return
    if "standard errors" in result.message:  # which says how far off estimates are, and what to do
        warn_caller(f"{result.message}.", ConvergenceWarning)
        return
    warn_caller(
        f"the fit did not converge: {result.message}. Estimates and their errors may be far off: "
        "fit again with a larger max_iterations or max_seconds, or fewer terms.",
        ConvergenceWarning,
    )


def _check_dispersion(fit: FittedGAM) -> None:
    result = sample_dispersion(fit)
    if result is not None and result.clear:
        warn_caller(
            f"the response scatters more than family {fit.spec.family.name!r} allows: Pearson "
            f"dispersion {result.value:.2f}, so that standard errors are {result.factor:.1f} times "
            f"too small; {result.remedy}.",
            DispersionWarning,
        )


def _check_means(fit: FittedGAM) -> None:
    """Warn of curves by level without their levels' means: a curve averages to zero."""
    spec = fit.spec
    split = {
        c.term: c.by
        for c in spec.components
        if c.form in _CENTRED and c.by is not None and c.by.code is not None
    }
    lacking: dict[Column, str] = {}
    for label in split:
        by = spec.term(label).by
        assert by is not None
        name = column_of(by)
        if spec.design is not None and name in spec.design.variables:
            continue  # of which the formula makes the means
        means = (
            name in t.columns and t.by is None and not isinstance(t, Interaction)
            for t in spec.terms
        )
        if not any(means):
            lacking.setdefault(name, label)
    for name, label in lacking.items():
        warn_caller(
            f"{label} gives each level of {name!r} a function that averages to zero, and no term "
            f"lets the levels differ on average: add factor({name!r}).",
            MissingTermWarning,
        )


def _check_copies(fit: FittedGAM) -> list[tuple[str, str]]:
    result = indistinguishable(fit)
    for one, other in result:
        warn_caller(
            f"{one} and {other} are functions of the same thing: each of their columns can be told "
            "from the other. The data settle their sum alone, and what each shows is what the "
            "prior makes of it; drop one of the two.",
            IdentifiabilityWarning,
        )
    return result


def _check_overlaps(fit: FittedGAM) -> list[tuple[str, str]]:
    result = overlapping(fit)
    for one, other in result:
        warn_caller(
            f"{one} and {other} are of the same column, and what the one can be the other can: the "
            "data settle their sum alone, and what each shows is what the prior makes of it. Drop "
            f"{'the line, which the smooth has' if 'linear' in one + other else 'one of the two'}.",
            IdentifiabilityWarning,
        )
    return result


def _check_single_rows(fit: FittedGAM) -> None:
    for name in of_single_rows(fit):
        warn_caller(
            f"{name} has a level for every row, so that what a level adds cannot be told from the "
            f"noise of family {fit.spec.family.name!r}: the data settle the variance of their sum "
            "alone. Drop the term, or give rows that belong together one level.",
            IdentifiabilityWarning,
        )


def _check_determined(fit: FittedGAM, said: Collection[str]) -> None:
    """Warn of effects that are left to their prior, but for those of which it is ``said`` why."""
    for name, levels in undetermined(fit):
        if name in said:
            continue
        shown = ", ".join(map(repr, levels[:6])) + (", ..." if len(levels) > 6 else "")
        which = f" of level{'s' * (len(levels) > 1)} {shown}" if levels else ""
        warn_caller(
            f"the data do not determine {name}{which}: responses are all alike there, or split by "
            "it, or the column follows from other terms. What bounds the estimate is a very wide "
            "prior. Drop the term, join levels, or shrink it: shrink=True.",
            IdentifiabilityWarning,
        )


def _check_interpolation(fit: FittedGAM) -> None:
    for name in interpolating(fit):
        warn_caller(
            f"{name} has one row an area and goes through nearly all of them: what neighbours "
            f"share did not tell effects from the noise of family {fit.spec.family.name!r}. Give "
            "areas several rows, or explain the response by columns of numbers.",
            IdentifiabilityWarning,
        )


def _check_bases(fit: FittedGAM) -> None:
    smooths = [t for t in fit.spec.terms if isinstance(t, (Smooth, Tensor))]
    asked = dict.fromkeys(bs for t in smooths for bs in t.bases if bs in SPLINES)
    if asked:
        warn_caller(
            f"bs={', '.join(map(repr, asked))} of mgcv: smooths are Gaussian processes here, and "
            "these are the default's (bs='se'). Leave bs out to say so; bs='iou' goes on beyond "
            "the data as splines do.",
            BasisWarning,
        )


def _check_by(fit: FittedGAM) -> None:
    """A column of numbers that is levels in another term may be meant as levels."""
    spec = fit.spec
    for term in spec.terms:
        name = None if term.by is None else column_of(term.by)
        keys = spec.encoder.columns
        levels = {t.columns[0] for t in spec.terms if isinstance(t, Levels) and t.by is None}
        if name in levels and (name, "number") in keys and isinstance(term, (Smooth, Tensor)):
            warn_caller(
                f"{term.label} is multiplied by the numbers in {name!r}, which factor({name!r}) "
                f"takes as levels: for a curve for each level write by=factor({name!r}).",
                MissingTermWarning,
            )


def _check_units(fit: FittedGAM) -> None:
    names = [name for name, _ in fit.spec.encoder.columns]
    for component in fit.spec.components:
        if component.form != "smooth" or len(component.margins) == 1:
            continue
        short, *_, long = sorted(component.margins, key=lambda m: m.span)
        if long.span > _ALIKE * short.span:
            columns = ", ".join(repr(names[m.column]) for m in component.margins)
            warn_caller(
                f"{component.name} has one lengthscale for {names[short.column]!r}, which spans "
                f"{short.span:.3g}, and {names[long.column]!r}, which spans {long.span:.3g}: if "
                f"their units differ, write s({columns}, isotropic=False), which learns one each.",
                ScaleMismatchWarning,
            )
