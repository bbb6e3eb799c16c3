"""How far each effect could be made of the others."""

from __future__ import annotations

import numpy as np
import pandas as pd
from gpflow.base import AnyNDArray

from ..effects import inducing_moments
from ..fits import FittedGAM

_ROWS = 2000


def concurvity(fit: FittedGAM) -> pd.DataFrame:
    """
    The concurvity of each effect with all others together (Wood's ``mgcv::concurvity``).

    Each is between 0 (no problem) and 1 (the effect could be made of the others, so that it cannot
    be told from them):

    Others are those of the same predictor. Weights count rows.

    - ``observed``: of the effect as estimated, ``|P f|^2 / |f|^2`` with P the projection on the
      space of the other effects;
    - ``estimate``: of what the effect's prior makes likely, ``|P Phi|^2 / |Phi|^2`` in the norm of
      Frobenius, Phi the effect's features, whose squares add up to its prior variance.

    :param fit: a fitted GAM.
    :return: a row an effect; for several predictors ``observed`` is of the first.
    """
    found, root = _features(fit)
    rows = []
    for name, (own, f) in found.items():
        others = [spanned for other, (spanned, _) in found.items() if _beside(fit, name, other)]
        basis = _basis(np.concatenate([root[:, None], *others], axis=1))
        rows.append((name, _explained(basis, f), _explained(basis, own)))
    frame = pd.DataFrame(rows, columns=["effect", "observed", "estimate"])
    return frame.set_index("effect")


def pairwise_concurvity(fit: FittedGAM) -> pd.DataFrame:
    """
    The concurvity of each effect with each other one (``mgcv::concurvity(full=FALSE)``).

    The measures are those of :func:`concurvity`, with one effect in the place of all others: which
    of them it is that an effect could be made of. They are not symmetric.

    :param fit: a fitted GAM.
    :return: a matrix for each measure: ``frame.loc["estimate"]`` has a row for the effect that is
        to explain, and a column for the one that is explained; ones on the diagonal.
    """
    found, root = _features(fit)
    names = list(found)
    measures = {m: pd.DataFrame(1.0, index=names, columns=names) for m in ("observed", "estimate")}
    for one, (spanned, _) in found.items():
        basis = _basis(np.concatenate([root[:, None], spanned], axis=1))
        for other, (own, f) in found.items():
            if other != one:
                beside = _beside(fit, one, other)
                measures["observed"].loc[one, other] = beside * _explained(basis, f)
                measures["estimate"].loc[one, other] = beside * _explained(basis, own)
    return pd.concat(measures, names=["measure", "effect"])


def _features(fit: FittedGAM) -> tuple[dict[str, tuple[AnyNDArray, AnyNDArray]], AnyNDArray]:
    """
    Of each effect features [n, M], zero on average, and the estimate [n] made of them.

    Rows are multiplied by the roots of their weights, which come with them, [n]: sums of squares
    are then of rows as often as they count.
    """
    moments = inducing_moments(fit)
    rows = fit.even_rows(_ROWS)
    X, weights = fit.X[rows], fit.weights[rows]
    root = np.sqrt(weights)
    found = {}
    for component in fit.spec.effects:
        features = moments.features(component.name, X).T
        own = root[:, None] * (features - np.average(features, axis=0, weights=weights))
        first = component.predictors_of(fit.num_predictors)[0]
        estimate = own @ moments.mean[moments.block(component.name), first]
        # of the size of the constant: a wide prior is no reason to leave others out
        size = np.linalg.norm(root) / max(float(np.linalg.norm(own)), 1e-300)
        found[component.name] = size * own, estimate
    return found, root


def _beside(fit: FittedGAM, one: str, other: str) -> bool:
    """Whether another effect is in a predictor that one is in, too."""
    places = [fit.spec.component(n).predictors_of(fit.num_predictors) for n in (one, other)]
    return one != other and bool(set(places[0]) & set(places[1]))


def _basis(A: AnyNDArray) -> AnyNDArray:
    """Orthonormal columns that span those of A, but for directions of negligible size."""
    left, size, _ = np.linalg.svd(A, full_matrices=False)
    basis: AnyNDArray = left[:, size > 1e-3 * size[0]]
    return basis


def _explained(basis: AnyNDArray, A: AnyNDArray) -> float:
    total = float(np.sum(A**2))
    return float(np.sum((basis.T @ A) ** 2)) / total if total > 0.0 else 0.0
