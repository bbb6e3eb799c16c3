"""What workers of a cluster do that have shares of the rows of a table, and that table."""

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

import gpflow_gam as gg
from gpflow_gam import factor, s, te
from gpflow_gam.optimizers.binned import bins

N, CUT = 3000, 1000
TERMS = s("x", k=8, bs="se") + s("z", k=6, bs="se", by=factor("g")) + te("x", "z", k=9)


def few_kept() -> None:
    """So few rows are kept as they are that one process fits sums, too."""
    bins.KEPT_ROWS = 1500


def table(number: int = N) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"x": rng.uniform(size=number), "z": rng.normal(size=number)})
    data["g"] = rng.choice(list("abc"), number)
    data["w"] = rng.integers(1, 3, number).astype(float)
    data["o"] = 0.1 * rng.normal(size=number)
    predictor = np.sin(6.0 * data["x"]) + 0.3 * data["z"] + data["o"]
    data["count"] = rng.poisson(np.exp(predictor))
    data["y"] = predictor + 0.3 * rng.normal(size=number)
    data["part"] = (np.arange(number) >= CUT * number // N).astype(int)
    return data


def gam(family: str = "poisson") -> gg.GAM:
    return gg.GAM(TERMS, family, weights="w", offset="o")


def share(context: tf.distribute.InputContext) -> pd.DataFrame:
    data = table()
    return data[data["part"] == context.input_pipeline_id]


def main(strategy: tf.distribute.Strategy, path: str) -> None:
    few_kept()
    worker = strategy.cluster_resolver.task_id
    own: Any = {"y": "count", "strategy": strategy, "timeout": 60.0}
    fitted = gg.distribute.fit(gam(), share, **own)
    np.savez(
        path,
        *(fitted.predict(table(), "link", se=True, unconditional=False)),
        told=json.dumps(vars(fitted.fitted.communication)),
        deviance=fitted.summary().deviance_explained,
    )
    # what one cannot fit is an error on all
    with pytest.raises(ValueError, match="has no row"):
        gg.distribute.fit(gam(), lambda c: table()[: 0 if worker else 9], **own)
