"""A head's components as curves over their feature."""

from __future__ import annotations

import numpy as np
import pandas as pd
import tensorflow as tf
from gpflow.base import AnyNDArray
from scipy.stats import norm

from .head import GPHead

_REACH = 3.0
"""How many spreads from its location a feature is shown."""


def component_curve(
    head: GPHead,
    name: str,
    grid: AnyNDArray | None = None,
    *,
    level: float = 0.95,
    num_points: int = 100,
) -> pd.DataFrame:
    """
    A component of one feature with pointwise credible limits, on the predictor's scale.

    :param head: the layer.
    :param name: the component's name, such as ``"s(0)"``; see :attr:`GPHead.names`.
    :param grid: values of the feature [n]; by default three spreads about its location, or every
        level, or one period.
    :param level: probability of the limits.
    :param num_points: of the default grid.
    :return: columns ``<feature index>``, ``predictor`` (its name, empty where there is one),
        ``estimate``, ``se``, ``lower``, ``upper``.
    :raises ValueError: an unknown name, or a component of several features.
    """
    index = head.names.index(name) if name in head.names else -1
    if index < 0:
        raise ValueError(f"there is no component {name!r}; there are {', '.join(head.names)}.")
    component = head.structure.components[index]
    if len(component.margins) != 1 or component.by is not None:
        raise ValueError(f"component {name!r} is no function of one feature.")
    place = component.margins[0].column
    feature = head.structure.features[place]
    width = max(head.structure.features) + 1
    if grid is None:
        grid = _default_grid(head, place, component.margins[0].period, num_points)
    features: AnyNDArray = np.zeros((len(grid), width))
    features[:, feature] = np.asarray(grid, dtype=np.float64)
    moments = np.asarray(head(tf.constant(features), output="components"))[:, index]
    z = norm.ppf(0.5 + 0.5 * level)
    frames = []
    for k, predictor in enumerate(head.specification.names):
        mean, se = moments[:, k, 0], np.sqrt(np.maximum(moments[:, k, 1], 0.0))
        frames.append(
            pd.DataFrame(
                {
                    feature: grid,
                    "predictor": predictor,
                    "estimate": mean,
                    "se": se,
                    "lower": mean - z * se,
                    "upper": mean + z * se,
                }
            )
        )
    return pd.concat(frames, ignore_index=True)


def _default_grid(head: GPHead, place: int, period: float | None, num_points: int) -> AnyNDArray:
    if place in head.structure.num_levels:
        return np.arange(float(head.structure.num_levels[place]))
    if period is not None:
        return np.linspace(0.0, period, num_points)
    scaled: AnyNDArray = np.zeros((num_points, head.structure.width))
    scaled[:, place] = np.linspace(-_REACH, _REACH, num_points)
    if head.normalization is None:
        return scaled[:, place]
    values: AnyNDArray = head.scaling.inverse(scaled)[:, place]
    return values
