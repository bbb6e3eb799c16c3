"""An IterNCGP that one thread reads while another fits it."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from iterncgp_cases import data, fit, fitted

from gpflow_gam.newton import weights
from gpflow_gam.newton.solvers import ReducedNewton


def _few(rng):
    return fitted("counts", rng, solver=ReducedNewton(num_actions=5))


def test_a_prediction_that_a_fit_overtakes_leaves_nothing_behind(rng, monkeypatch):
    """What it has computed of the fit before is not taken for that of the new one."""
    model = _few(rng)
    X, original = model.data[0][:7], weights.ActionWeights.of_fit
    begun, fitted_again = threading.Event(), threading.Event()

    def of_fit(state):
        if threading.current_thread() is reader:
            begun.set()
            assert fitted_again.wait(60.0)
        return original(state)

    monkeypatch.setattr(weights.ActionWeights, "of_fit", of_fit)
    found = []
    reader = threading.Thread(target=lambda: found.append(model.predict_f(X)))
    reader.start()
    assert begun.wait(60.0)
    model.solver = ReducedNewton(num_actions=40)
    model.forget_run()
    fit(model)
    fitted_again.set()
    reader.join()
    fresh = fitted("counts", np.random.default_rng(0), solver=model.solver)
    fresh.data = model.data
    fit(fresh)
    expected = fresh.predict_f(X)
    for a, b in zip(model.predict_f(X), expected):
        np.testing.assert_allclose(a, b, atol=1e-6)
    assert np.abs(found[0][1] - expected[1]).max() > 1e-3


@pytest.mark.usefixtures("remembering")
def test_a_snapshot_is_read_while_the_model_is_fitted(rng):
    model = _few(rng)
    X, post = model.data[0][:7], model.posterior()
    expected, done, found = post.predict_f(X), threading.Event(), []

    def read():
        while not done.is_set() or not found:
            found.append(post.predict_f(X))

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    try:
        model.data = data(rng, 60)["counts"]
        fit(model, hyperparameters=True)
    finally:
        done.set()
        for reader in readers:
            reader.join()
    assert len(found) > 1
    for moments in found:
        for a, b in zip(moments, expected):
            np.testing.assert_array_equal(a, b)
    assert np.abs(model.predict_f(X)[0] - expected[0]).max() > 1e-3
