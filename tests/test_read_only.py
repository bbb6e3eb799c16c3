"""A fit is a value: what becomes of the model, and who reads it meanwhile, changes no answer."""

from __future__ import annotations

import functools

import gpflow
import numpy as np
import pandas as pd
import pytest
import tensorflow_probability as tfp

import gpflow_gam as gg
from gpflow_gam import factor, s


def table() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.uniform(size=90), "g": rng.choice(list("ab"), 90)})
    frame["y"] = np.sin(5.0 * frame["x"]) + 0.3 * rng.normal(size=90)
    frame["count"] = rng.poisson(np.exp(1.0 + frame["y"]))
    frame["log_n"] = rng.normal(size=90)
    return frame


DATA = table()


def fitted(family: str) -> gg.GAM:
    gam = gg.GAM(s("x", k=6) + factor("g"), family=family, offset="log_n")
    return gam.fit(DATA, y="y" if family in ("gaussian", "student_t") else "count")


@functools.cache
def reference(family: str) -> list[np.ndarray]:
    """Answers of a fit that nobody else has seen."""
    return answers(fitted(family))


def answers(gam: gg.GAM) -> list[np.ndarray]:
    return [
        gam.predict(DATA, interval=0.9).to_numpy(),
        gam.predict(DATA, "observation", se=True)[1],
        gam.log_density(DATA),
        gam.log_density(DATA, unconditional=True),
        gam.effects("s(x)").iloc[:, 1:].to_numpy(),
        gam.sample(DATA, 3, seed=1),
        np.array([gam.summary().deviance_explained]),
        gam.coefficients().select_dtypes("number").to_numpy(),
    ]


def assign(model: gg.models.additive.AdditiveModel) -> None:
    for parameter in model.trainable_parameters:
        parameter.unconstrained_variable.assign_add(0.5 * np.ones(parameter.shape.as_list()))


def replace_parts(model: gg.models.additive.AdditiveModel) -> None:
    model.mean_function = gpflow.functions.Zero()
    assign(model.likelihood)


CHANGES = {
    "assign": assign,
    "freeze": lambda model: gpflow.set_trainable(model, False),
    "kernel": lambda model: setattr(model, "kernel", gpflow.kernels.SquaredExponential()),
    "parts": replace_parts,
}


@pytest.fixture(scope="module", params=["gaussian", "negative_binomial"])
def original(request) -> tuple[str, list[np.ndarray]]:
    return request.param, reference(request.param)


@pytest.mark.slow_but_first
@pytest.mark.parametrize("change", CHANGES)
def test_what_becomes_of_the_model_changes_no_answer(original, change):
    family, before = original
    gam = fitted(family)
    CHANGES[change](gam.model)
    for a, b in zip(answers(gam), before, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


@pytest.mark.slow_but_first
@pytest.mark.usefixtures("remembering")
@pytest.mark.parametrize("family", ["gaussian", "negative_binomial", "student_t"])
def test_readers_share_no_memory_of_transforms(family, monkeypatch):
    """TFP's is one dictionary of the process, and breaks when threads read parameters at once."""
    want = reference(family)
    fresh = fitted(family)

    class Untouchable(dict):
        def setdefault(self, *_: object) -> None:
            raise AssertionError("a reader asks what another thread may be changing")

        __getitem__ = __setitem__ = __iter__ = keys = setdefault

    storage = Untouchable()
    storage.maybe_del = lambda _: None
    monkeypatch.setattr(tfp.bijectors.Bijector.__dict__["_cache"], "storage", storage)
    for a, b in zip(answers(fresh), want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
