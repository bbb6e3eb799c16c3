"""How far each effect could be made of the others."""

from __future__ import annotations

import numpy as np
import pandas as pd
from gpflow.base import AnyNDArray

from ..effects import inducing_moments
from ..fits import FittedGAM
from .shares import even_rows

_ROWS = 2000


def concurvity(fit: FittedGAM) -> pd.DataFrame:
    """
    The concurvity of each effect with all others together (Wood's ``mgcv::concurvity``).

    Each is between 0 (no problem) and 1 (the effect could be made of the others, so that it cannot
    be told from them):

    Others are those of the same predictor.

    - ``observed``: of the effect as estimated, ``|P f|^2 / |f|^2`` with P the projection on the
      space of the other effects;
    - ``estimate``: of what the effect's prior makes likely, ``|P Phi|^2 / |Phi|^2`` in the norm of
      Frobenius, Phi the effect's features, whose squares add up to its prior variance.

    :return: a row an effect; for several predictors ``observed`` is of the first.
    """
    moments = inducing_moments(fit)
    X = fit.X[even_rows(fit, _ROWS)]
    components = fit.spec.components[1:]
    features = [moments.features(c.name, X).T for c in components]
    places = [c.predictors_of(fit.num_predictors) for c in components]
    rows = []
    for i, component in enumerate(components):
        beside = [f for j, f in enumerate(features) if j != i and set(places[i]) & set(places[j])]
        others = [np.ones((len(X), 1)), *beside]
        basis = _basis(np.concatenate(others, axis=1))
        own = features[i] - features[i].mean(axis=0)
        f = own @ moments.mean[moments.block(component.name), places[i][0]]
        rows.append((component.name, _explained(basis, f), _explained(basis, own)))
    frame = pd.DataFrame(rows, columns=["effect", "observed", "estimate"])
    return frame.set_index("effect")


def _basis(A: AnyNDArray) -> AnyNDArray:
    """Orthonormal columns that span those of A, but for directions of negligible size."""
    left, size, _ = np.linalg.svd(A, full_matrices=False)
    basis: AnyNDArray = left[:, size > 1e-3 * size[0]]
    return basis


def _explained(basis: AnyNDArray, A: AnyNDArray) -> float:
    total = float(np.sum(A**2))
    return float(np.sum((basis.T @ A) ** 2)) / total if total > 0.0 else 0.0
