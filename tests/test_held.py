"""Parameters of a GAM's model that the user holds: refits, updates and files keep them."""

from __future__ import annotations

import copy
import pickle

import gpflow
import numpy as np
import pandas as pd
import pytest

import gpflow_gam as gg
from gpflow_gam import s


def _data() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    x = 10.0 * rng.uniform(size=150)
    table = pd.DataFrame({"x": x, "z": rng.uniform(size=150)})
    table["y"] = 100.0 + 30.0 * np.sin(x) + 10.0 * rng.standard_normal(150)
    table["count"] = rng.negative_binomial(3, 3.0 / (3.0 + np.exp(1.0 + np.sin(x)))) + 0.0
    return table


def _held(gam: gg.GAM) -> list[tuple[bool, float]]:
    parts = (gam.model.kernel["s(x)"], gam.model.likelihood)
    return [(p.trainable, float(p.numpy())) for part in parts for p in part.parameters]


@pytest.fixture(scope="module", params=[("gaussian", "y"), ("negative_binomial", "count")])
def fits(request: pytest.FixtureRequest) -> tuple[pd.DataFrame, str, gg.GAM, gg.GAM]:
    """A fit, and its refit with the curve's kernel and the likelihood held at other values."""
    (family, y), table = request.param, _data()
    free = gg.GAM(s("x") + s("z"), family=family).fit(table, y)
    held = copy.deepcopy(free)
    for part in (held.model.kernel["s(x)"], held.model.likelihood):
        for parameter in part.trainable_parameters:
            parameter.assign(0.8 * parameter.numpy())
        gpflow.set_trainable(part, False)
    before = held.predict(table)
    expected = _held(held)
    assert held.predict(table).tobytes() == before.tobytes()  # a fit is a value
    held.refit()
    assert _held(held) == expected
    return table, y, free, held


@pytest.mark.slow
def test_a_refit_is_that_of_a_model_with_held_parameters(fits):
    table, _, free, held = fits
    mean, se = held.predict(table, "link", se=True, unconditional=False)
    # the same optimum from elsewhere: a model by hand, its other parameters far off
    model = copy.deepcopy(held).model
    for parameter in model.kernel["s(z)"].trainable_parameters:
        parameter.assign(1.3 * parameter.numpy())
    X, Y = held.fitted.X, held.fitted.Y
    data = () if isinstance(model, gg.models.AdditiveSGPR) else ((X, Y),)
    assert gg.optimizers.fit(model, *data).converged
    by_hand, variance = model.posterior().predict_f(X)
    shift = held.fitted.units
    np.testing.assert_allclose(
        mean, shift[1] + shift[0] * np.asarray(by_hand)[:, 0], atol=0.03 * np.min(se), rtol=0.0
    )
    np.testing.assert_allclose(se, shift[0] * np.sqrt(np.asarray(variance)[:, 0]), rtol=0.03)
    assert np.max(np.abs(mean - free.predict(table, "link"))) > 0.3 * np.min(se)


@pytest.mark.slow_but_first
def test_held_parameters_stay_held(fits, tmp_path):
    table, y, _, held = fits
    held.save(tmp_path / "with.gam")
    held.save(tmp_path / "without.gam", data=False)
    expected, link = _held(held), held.predict(table, "link", se=True)
    for other in (
        gg.GAM.load(tmp_path / "with.gam"),
        gg.GAM.load(tmp_path / "without.gam"),
        pickle.loads(pickle.dumps(held)),
    ):
        assert _held(other) == expected
        for a, b in zip(other.predict(table, "link", se=True), link):
            np.testing.assert_array_equal(a, b)
    for refitted in (
        gg.GAM.load(tmp_path / "with.gam").refit(),
        copy.deepcopy(held).refit(table, y),
        copy.deepcopy(held).update(table.head(20)),
    ):
        assert _held(refitted) == expected
