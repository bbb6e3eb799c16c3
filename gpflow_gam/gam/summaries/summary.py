"""The summary of a fitted GAM: text, HTML and DataFrame."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
from gpflow.base import Parameter
from tabulate import tabulate

from ...measures import NUM_NODES
from ...threads import one_blas_thread
from ..components import Component
from ..effects import coefficients
from ..fits import FittedGAM
from .components import (
    SMOOTH,
    UNLIKELY,
    effective_dof,
    leaves_of,
    p_values,
    parts_of,
    variance_shares,
)
from .dispersion import Dispersion, dispersion

Named = Iterable[tuple[str, str]]


def as_text(rows: Named) -> str:
    """A line each, the values below each other."""
    return "\n".join(f"{name + ':':30s}{value}" for name, value in rows)


def as_html(rows: Named) -> str:
    """A table with a row each."""
    body = "".join(
        f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
        f"<td style='text-align:left'>{html.escape(value)}</td></tr>"
        for name, value in rows
    )
    return f"<table>{body}</table>"


_NOTE = "share: of the predictor's variance. p: p-value of the hypothesis that the effect is zero."
_SHAPES = (
    "shapes: p is how often noise alone takes an estimate as far from the shape as the one without "
    "it is."
)
_FEW = (
    "* effective degrees of freedom are close to M, the number of inducing values: k may be too "
    "small; fit again with twice the k, and see whether they grow."
)
_NUMBERS = ["coefficient", "estimate", "se", "[95 %]"]
_SHOWN = 16
"""Terms of more levels than about these are not printed level by level."""
_OF_LEVELS = ("factor(", "random_effect(")
_CLOSE = 0.8
"""Share of M from which degrees of freedom are close to it."""
_HEADER = ["effect", "edf", "M", "prior sd", "lengthscale", "share [95 %]", "p"]
_COLUMNS = [
    "edf", "M", "k_low", "sd", "lengthscale", "share", "share_lower", "share_upper", "p",
]  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Summary:
    """The summary of a fit; prints as text, and as HTML in notebooks."""

    table: pd.DataFrame
    """
    A row for each effect (and predictor): ``edf``; ``M`` inducing values; ``k_low``, whether edf is
    close to M; ``sd``, the prior standard deviation, NaN of what is not penalised; ``lengthscale``;
    ``share`` of the predictor's variance, with a 95 % credible interval; ``p``, the p-value of the
    hypothesis that the effect is zero. With terms that have a shape also ``shape`` and ``shape_p``:
    how often noise alone is as far from the shape as the estimate without it is.
    """
    terms: str
    family: str
    parameters: dict[str, float]
    """The family's own parameters as learnt; cutpoints of ordered classes."""
    coefficients: pd.DataFrame
    """As :meth:`gpflow_gam.GAM.coefficients`, without terms of more than 16 levels."""
    num_rows: int
    dropped: int
    """Rows left out for missing values."""
    imputed: int
    """Missing values that were filled in."""
    edf: float
    """Effective degrees of freedom in all, the intercept's included."""
    deviance_explained: float | None
    """Against the null model; None where the family has no deviance."""
    dispersion: Dispersion | None
    """Pearson's, for families of counts."""
    elbo: float
    """The bound at the end, log-densities of priors included."""
    converged: bool
    message: str
    seconds: float
    unpenalised: tuple[str, ...] = ()
    """Effects whose variance is large and fixed: ``linear``, ``factor`` without ``shrink``."""

    def to_frame(self) -> pd.DataFrame:
        """The table of effects."""
        return self.table.copy()

    def _header(self) -> list[tuple[str, str]]:
        explained = self.deviance_explained
        rows = f"{self.num_rows:,}" + (f" ({self.dropped:,} dropped)" if self.dropped else "")
        rows += f" ({self.imputed:,} values imputed)" if self.imputed else ""
        family = self.family
        if self.parameters:
            family += " (" + ", ".join(f"{k} {v:.4g}" for k, v in self.parameters.items()) + ")"
        scatter = []
        if self.dispersion is not None:
            value = f"{self.dispersion.value:.2f}"
            if self.dispersion.clear:
                times = f"{self.dispersion.factor:.1f} times too small"
                value += f": standard errors are {times}; {self.dispersion.remedy}"
            scatter = [("Pearson dispersion", value)]
        return [
            ("terms", self.terms),
            ("family", family),
            ("rows", rows),
            ("deviance explained", "none defined" if explained is None else f"{explained:.1%}"),
            *scatter,
            ("effective degrees of freedom", f"{self.edf:.1f}"),
            ("ELBO", f"{self.elbo:.2f}"),
            ("fit", f"{'converged' if self.converged else 'NOT CONVERGED'}: {self.message}"),
            ("time", f"{self.seconds:.1f} s"),
        ]

    def _rows(self) -> list[list[str]]:
        rows = []
        for name, row in self.table.iterrows():
            lengths = row["lengthscale"]
            rows.append(
                [
                    str(name) if not isinstance(name, tuple) else " | ".join(map(str, name)),
                    f"{row['edf']:.2f}",
                    f"{row['M']}{' *' if row['k_low'] else ''}",
                    f"{row['sd']:.3g}" if np.isfinite(row["sd"]) else "",
                    ", ".join(f"{v:.3g}" for v in lengths),
                    f"{row['share']:.3f} [{row['share_lower']:.3f}, {row['share_upper']:.3f}]",
                    f"{row['p']:.3f}" if row["p"] >= 1e-3 else "<.001",
                ]
            )
        return rows

    def __str__(self) -> str:
        header = as_text(self._header())
        effects = tabulate(self._rows(), _HEADER, disable_numparse=True)
        rows = self._coefficients()
        numbers = [tabulate(rows, _NUMBERS, disable_numparse=True)] if rows else []
        return "\n\n".join([header, effects, self._note(), *numbers, *self._more()])

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        body, numbers = (
            tabulate(rows, names, tablefmt="html", disable_numparse=True) if rows else ""
            for rows, names in ((self._rows(), _HEADER), (self._coefficients(), _NUMBERS))
        )
        notes = [f"<p>{html.escape(text)}</p>" for text in (self._note(), *self._more())]
        return f"{as_html(self._header())}{body}{notes[0]}{numbers}{''.join(notes[1:])}"

    def _note(self) -> str:
        few = "\n" + _FEW if self.table["k_low"].any() else ""
        wide = f"\nnot penalised: {', '.join(self.unpenalised)}." if self.unpenalised else ""
        return _NOTE + wide + few + self._shapes()

    def _shapes(self) -> str:
        """Lines on the effects that have a shape, with p-values of the shapes."""
        if "shape" not in self.table:
            return ""
        lines = []
        for name, row in self.table[self.table["shape"] != ""].iterrows():
            label = " | ".join(map(str, name)) if isinstance(name, tuple) else str(name)
            against = " THE DATA SPEAK AGAINST IT." if row["shape_p"] < UNLIKELY else ""
            lines.append(f"{label} is {row['shape']}: p {row['shape_p']:.3f}.{against}")
        return "\n".join(["", _SHAPES, *lines])

    def _coefficients(self) -> list[list[str]]:
        rows = []
        for row in self.coefficients.to_dict("records"):
            name = [row["term"], row.get("predictor", ""), row["level"]]
            interval = f"[{row['lower']:.4g}, {row['upper']:.4g}]"
            label = " | ".join(str(part) for part in name if part not in (None, ""))
            rows.append([label, f"{row['estimate']:.4g}", f"{row['se']:.3g}", interval])
        return rows

    def _more(self) -> list[str]:
        index = self.table.index
        names = dict.fromkeys(index.get_level_values(0) if index.nlevels > 1 else index)
        omitted = [
            n for n in names if n.startswith(_OF_LEVELS) and n not in set(self.coefficients["term"])
        ]
        return [f"of the levels of {', '.join(omitted)} see coefficients()."] if omitted else []


@one_blas_thread()
def summarise(fit: FittedGAM, seed: int = 0) -> Summary:
    """The summary of a fit."""
    spec = fit.spec
    components = spec.effects
    names = spec.predictor_names
    shares, tests = variance_shares(fit, seed), p_values(fit)
    rows: list[dict[str, Any]] = []
    index: list[Any] = []
    units = np.broadcast_to(fit.units[0], len(names))
    for c, component in enumerate(components):
        dof, p = effective_dof(fit, component), tests[component.name]
        sd, lengths = _scales(fit, component)
        for i in component.predictors_of(len(names)):
            name = names[i]
            lower, upper = np.quantile(shares[:, c, i], [0.025, 0.975])
            index.append(component.name if len(names) == 1 else (component.name, name))
            row = {
                "edf": dof[i],
                "M": len(component.inducing),
                "k_low": _k_low(component, float(dof[i])),
                "sd": sd * units[i],
                "lengthscale": lengths,
                "share": shares[:, c, i].mean(),
                "share_lower": lower,
                "share_upper": upper,
                "p": p[i],
            }
            if fit.shaped is not None:
                tail = fit.shape_tail(component.name, i) if component.shape else np.nan
                row |= {"shape": component.shape, "shape_p": tail}
            rows.append(row)
    labels = (
        pd.Index(index, name="effect")
        if len(names) == 1
        else pd.MultiIndex.from_tuples(index, names=["effect", "predictor"])
    )
    columns = [*_COLUMNS, *([] if fit.shaped is None else ["shape", "shape_p"])]
    discrepancies = fit.discrepancies()
    deviance = discrepancies.deviance
    total = sum(float(effective_dof(fit, c).sum()) for c in spec.components)
    result = fit.result
    return Summary(
        pd.DataFrame(rows, index=labels if rows else None, columns=columns),
        repr(spec.terms),
        spec.family.name,
        spec.family.parameters(fit.likelihood, spec.levels),
        coefficients(fit, most=_SHOWN),
        fit.number,
        fit.dropped,
        sum(fill.count for fill in spec.fills),
        total,
        None if deviance is None else 1.0 - deviance[0] / deviance[1],
        dispersion(fit, discrepancies),
        result.elbo,
        result.converged,
        result.message,
        result.seconds,
        tuple(c.name for c in components if not c.shrink),
    )


def _k_low(component: Component, dof: float) -> bool:
    """
    True if a function may need more inducing values (``k.check`` of R's mgcv).

    Not where there is one for each value of its column: more would change nothing.
    """
    M = len(component.inducing)
    if component.form not in SMOOTH:
        return False
    nodes = len(component.nodes)
    if len(component.margins) == 1:
        nodes = len(component.margins[0].nodes)
    # so many stand for more values than there are nodes
    complete = 0 < nodes <= M + 1 and nodes < NUM_NODES.get(len(component.margins), 150)
    return not complete and dof > _CLOSE * M


def _scales(fit: FittedGAM, component: Component) -> tuple[float, tuple[float, ...]]:
    """Prior standard deviation, straight part and deviation together, and lengthscales."""
    parts = parts_of(fit, component)
    if not parts:
        return float("nan"), ()
    # a level is no part of how a function varies
    varying = [part for part in parts if part.name != "level"]
    total = sum(part.unit * float(fit.value(part.variance)) for part in varying)
    lengths: list[float] = []
    for leaf in leaves_of(fit.model.kernel[component.name]):
        if isinstance(getattr(leaf, "lengthscales", None), Parameter):
            lengths += np.atleast_1d(fit.value(leaf.lengthscales)).tolist()
    return float(np.sqrt(total)), tuple(lengths)
