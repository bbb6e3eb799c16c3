"""A report on a fitted GAM: one HTML page that needs nothing else."""

from __future__ import annotations

import html
import io
import platform
import re
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from gpflow.base import AnyNDArray

from ..archive import replacing, writable
from ..likelihoods.times import EXACT, entry
from ..version import __version__
from .comparison import compare
from .families import Levels
from .fits import FittedGAM
from .fits.specification import POSITION
from .frames.encoding import LevelColumn
from .plotting import styled
from .summaries.checks import problems
from .terms.base import Column
from .terms.smooth import KINDS, Smooth, Tensor

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .gam import GAM

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1b1b; --rule: #c9c9c9; --paper: #fff; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e6e6; --rule: #555; --paper: #161616; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
       max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; line-height: 1.25; } h2 { font-size: 1.2rem; margin-top: 2.2rem; }
div.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .85rem; margin: .6rem 0;
        border-top: 2px solid var(--ink); border-bottom: 2px solid var(--ink); }
th, td { padding: .25rem .7rem; text-align: right; border-bottom: 1px solid var(--rule); }
th:first-child, td:first-child { text-align: left; }
td { font-variant-numeric: tabular-nums; }
figure { margin: 1rem 0; background: #fff; padding: .5rem; }
svg { width: 100%; height: auto; display: block; }
pre { font-size: .8rem; overflow-x: auto; }
li.warning { margin: .4rem 0; }
"""
_PAPERS = {
    "exact": "Titsias, M. (2009). Variational learning of inducing variables in sparse Gaussian "
    "processes. AISTATS.",
    "sparse": "Adam, V., Durrande, N. and John, S. T. (2018). Scalable GAM using sparse "
    "variational Gaussian processes. arXiv:1812.11106.",
    "iterncgp": "Tatzel, L., Wenger, J., Schneider, F. and Hennig, P. (2025). Accelerating "
    "non-conjugate Gaussian processes by trading off computation for uncertainty. TMLR.",
    "tests": "Wood, S. N. (2013). On p-values for smooth components of an extended generalized "
    "additive model. Biometrika 100, 221-228.",
    "residuals": "Dunn, P. K. and Smyth, G. K. (1996). Randomized quantile residuals. Journal of "
    "Computational and Graphical Statistics 5, 236-244.",
    "loo": "Vehtari, A., Gelman, A. and Gabry, J. (2017). Practical Bayesian model evaluation "
    "using leave-one-out cross-validation and WAIC. Statistics and Computing 27, 1413-1432.",
}


def write_report(
    gam: GAM,
    path: str | Path,
    others: Mapping[str, Any] | None,
    title: str | None,
    overwrite: bool,
) -> None:
    """Write a page on a fitted GAM."""
    fit, target = gam.fitted, writable(path, overwrite)
    name = title or f"A generalized additive model of {fit.spec.response}"
    columns = _data(fit).to_html(index=False, border=0, na_rep="", float_format="{:.4g}".format)
    sections = [
        _section("Model", gam.summary()._repr_html_()),
        _section("Data", columns),
        _section("Effects", _figure(gam.draw(style="paper"), "effects"), _CAPTION),
    ]
    with styled("paper"):
        sections.append(_section("Checks", _warnings(fit), _figure(gam.appraise(), "checks")))
    papers = ["iterncgp"] if fit.spec.engine == "iterncgp" else ["sparse"]
    papers += ["exact"] if fit.spec.variational == "exact" else []
    papers += ["tests", *(["residuals"] if _has_residuals(fit) else [])]
    if others:
        compared = compare({"this model": gam, **others})
        sections.append(_section("Comparison with other models", compared._repr_html_()))
        papers.append("loo")
    sections.append(_section("Methods", f"<p>{html.escape(_methods(fit, bool(others)))}</p>"))
    listed = "".join(f"<li>{html.escape(_PAPERS[p])}</li>" for p in papers)
    sections.append(_section("References", f"<ul>{listed}</ul>"))
    tables = [("effects", gam.effects()), ("coefficients", gam.coefficients())]
    copies = "".join(_copy(what, table) for what, table in tables)
    sections.append(_section("Tables to copy", copies))
    page = (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(name)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{html.escape(name)}</h1>\n{''.join(sections)}</body>\n</html>\n"
    )
    with replacing(target) as file:
        file.write(page.encode())


def _section(title: str, *parts: str) -> str:
    return f"<h2>{html.escape(title)}</h2>\n<div class='wide'>{''.join(parts)}</div>\n"


def _copy(name: str, table: pd.DataFrame) -> str:
    """A table as text that spreadsheets take, folded away."""
    text = html.escape(table.to_csv(sep="\t", index=False, float_format="%.6g"))
    return f"<details><summary>{name}, {len(table)} rows</summary><pre>{text}</pre></details>"


def _figure(figure: Figure, name: str) -> str:
    """A figure as vectors inside the page; it is closed."""
    import matplotlib.pyplot as plt

    text = io.StringIO()
    with plt.rc_context({"svg.hashsalt": name}):  # the same page each time
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    plt.close(figure)
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :]
    # parts keep the names by which others use them, which are the page's own: no two may share one
    used = set(re.findall(r'(?:url\(#|href="#)([^")]+)', svg))
    svg = re.sub(r' id="([^"]*)"', lambda m: m[0] if m[1] in used else "", svg)
    svg = re.sub(r'( id="|url\(#|href="#)', rf"\g<1>{name}-", svg)
    return f"<figure>{svg}</figure>"


def _data(fit: FittedGAM) -> pd.DataFrame:
    """A row for each column that the model reads."""
    spec = fit.spec
    roles: dict[Column | None, str] = {spec.weights: "weights", POSITION: "order in time"}
    roles |= dict.fromkeys(spec.offset, "offset")
    rows = [_column(spec.response, "response", spec.levels, fit.Y[:, 0])]
    if spec.trials is not None:
        rows.append(_column(spec.trials, "trials", None, fit.Y[:, 1]))
    if spec.censoring is not None and spec.censoring.type != "interval":
        *starts, event = spec.censoring.columns[1:]
        rows += [_column(start, "entry", None, entry(fit.Y)) for start in starts]
        rows.append(_column(event, "event", (0, 1), fit.Y[:, 2] == EXACT))
    read: dict[tuple[Column, Levels | None], tuple[Any, list[AnyNDArray]]] = {}
    for reader, values in zip(spec.encoder.readers, fit.X.T):
        levels = reader.levels if isinstance(reader, LevelColumn) else None
        if reader.column is not None:
            _, parts = read.setdefault((reader.column, levels), (reader, []))
            parts.append(values / reader.factor)
    for (name, levels), (reader, parts) in read.items():
        row = _column(name, roles.get(name, "predictor"), levels, np.concatenate(parts))
        if levels is None and reader.time:
            ends = pd.Series(reader.shown(np.array([row[end] for end in _ENDS])))
            row |= dict(zip(_ENDS, (str(end).split(".")[0] for end in ends)))
            row["holds"] = reader.time
        rows.append(row)
    return pd.DataFrame(rows)


_ENDS = ("minimum", "median", "maximum")


def _column(name: Column, role: str, levels: Levels | None, values: AnyNDArray) -> dict[str, Any]:
    row: dict[str, Any] = {"column": name, "role": role, "holds": "numbers"}
    if levels is None:
        return row | dict(zip(_ENDS, np.quantile(values, [0.0, 0.5, 1.0])))
    counts = np.bincount(values.astype(int), minlength=len(levels))
    shown = [f"{level} ({number:,})" for level, number in zip(levels, counts)]
    more = ", ..." if len(shown) > _SHOWN else ""
    return row | {
        "holds": f"{len(levels)} levels",
        "values": ", ".join(shown[:_SHOWN]) + more,
    }


_SHOWN = 6  # levels of a column
_CAPTION = (
    "<p>Effects on the scale of the linear predictor, each zero on average over the data, with "
    "pointwise 95&nbsp;% credible bands; edf: effective degrees of freedom.</p>"
)


def _warnings(fit: FittedGAM) -> str:
    texts = [
        f"<li class='warning'><b>{kind.__name__}</b>: {html.escape(text)}</li>"
        for text, kind in problems(fit)
    ]
    return f"<ul>{''.join(texts)}</ul>" if texts else "<p>No check has found anything amiss.</p>"


def _has_residuals(fit: FittedGAM) -> bool:
    """True if there are quantile residuals."""
    return (
        fit.spec.family.cdf(fit.likelihood, fit.Y[:1], fit.predict_link(fit.X[:1])[0]) is not None
    )


def _methods(fit: FittedGAM, compared: bool) -> str:
    """What was done, as the methods section of an article says it."""
    spec = fit.spec
    kinds: set[str] = set()
    for term in spec.terms:
        if isinstance(term, Tensor):
            kinds |= {KINDS[kind].words for kind in term.kinds}
        elif isinstance(term, Smooth):
            kinds.add(KINDS[term.kind].words if term.kernel is None else type(term.kernel).__name__)
    kernels = ", ".join(sorted(kinds))
    left = f" ({fit.dropped:,} with missing values were left out)" if fit.dropped else ""
    link = spec.family.link_name if hasattr(spec.family, "link") else ""
    alone = spec.variational == "mean_field"
    trials = "" if spec.trials is None else f" of {spec.trials} trials"
    parts = [repr(spec.terms), *(f"the offset {name}" for name in spec.offset)]
    text = (
        f"We modelled {spec.response_spec}{trials} in {fit.number:,} observations{left} by a "
        f"generalized additive model with Gaussian process priors, with family {spec.family.name}"
        + (f" and {link} link" if link else "")
        + f". The linear predictor was the sum of {' and '.join(parts)}. "
    )
    if spec.weights is not None:
        text += f"Rows counted as {spec.weights} says. "
    if spec.ar1 is not None:
        text += f"The noise was autoregressive of first order along {spec.ar1}. "
    if kernels:
        text += (
            f"Smooth effects had Gaussian process priors ({kernels}), conditioned to average to "
            "zero over the data. "
        )
    if spec.engine == "iterncgp":
        text += (
            "The posterior was found by Newton steps with a probabilistic linear solver, whose "
            "remaining error is part of the reported uncertainty (Tatzel et al., 2025). "
        )
    else:
        exactly = " in its collapsed form (Titsias, 2009)" if spec.variational == "exact" else ""
        joint = "independent Gaussians for" if alone else "a Gaussian that keeps correlations of"
        text += (
            "The posterior was found by sparse variational inference with inducing points for each "
            f"effect and {joint} the effects{exactly} (Adam et al., 2018). "
        )
    chosen = {"elbo": "the marginal likelihood", "ncv": "neighbourhood cross-validation"}
    text += (
        f"Variances and lengthscales were chosen by {chosen[fit.criterion]}. Intervals are 95 % "
        "credible intervals. P-values test that an effect is zero (Wald tests of parametric terms; "
        "Wood, 2013, of smooths and random effects). "
    )
    if _has_residuals(fit):
        text += "Fit was checked by randomised quantile residuals (Dunn and Smyth, 1996). "
    if compared:
        text += "Models were compared by leave-one-out cross-validation (Vehtari et al., 2017). "
    packages = ", ".join(f"{p} {version(p)}" for p in ("gpflow", "tensorflow", "numpy"))
    return text + (
        f"We used gpflow_gam {__version__} with {packages} and Python {platform.python_version()}."
    )
