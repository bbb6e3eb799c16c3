"""Graphs that a fit has traced are gone with it: they hold megabytes, and everything they read."""

from __future__ import annotations

import gc

import gpflow
import numpy as np
import pandas as pd
import pytest
from tensorflow.python.framework import ops
from tensorflow.python.framework.func_graph import FuncGraph

import gpflow_gam as gg
from gpflow_gam import s


def graphs() -> int:
    gc.collect()
    return sum(isinstance(result, FuncGraph) for result in gc.get_objects())


def data(rng, n=60):
    X = rng.uniform(size=(n, 2))
    return X, rng.poisson(np.exp(np.sin(5.0 * X[:, :1]))).astype(float)


def kernel():
    own = gpflow.kernels.SquaredExponential, gpflow.kernels.Matern32
    return gg.kernels.AdditiveKernel([k(active_dims=[d]) for d, k in enumerate(own)])


def sparse_model(X, likelihood, family):
    inducing = gg.inducing_variables.select(X, kernel(), num_inducing=6)
    options = {"variational": family, "num_data": len(X)}
    return gg.models.AdditiveSVGP(kernel(), likelihood, inducing, **options)


def sites(rng):
    X, Y = data(rng)
    model = sparse_model(X, gpflow.likelihoods.StudentT(), gg.variational.OptimalPrecision())
    gg.optimizers.fit(model, (X, Y), max_iterations=5)
    return model


def minibatches(rng):
    X, Y = data(rng)
    model = sparse_model(X, gg.likelihoods.NegativeBinomial(), gg.variational.BlockPrecision())
    gg.optimizers.fit(model, (X, Y), batch_size=20, max_iterations=9)
    return model


def newton(rng):
    model = gg.models.IterNCGP(data(rng), kernel(), gg.likelihoods.NegativeBinomial())
    gg.optimizers.fit(model, max_rounds=1, max_iterations=9)
    return model


def table(rng):
    X, Y = data(rng)
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": Y[:, 0]})
    gam = gg.GAM(s("a", k=6) + s("b", k=6), family="negative_binomial", variational="mean_field")
    return gam.fit(frame, "y")


@pytest.mark.slow
@pytest.mark.parametrize("fitted", [sites, minibatches, newton, table])
def test_fits_leave_no_graph_and_no_rule(fitted, rng):
    fitted(rng)
    before, rules = graphs(), len(ops.gradient_registry._registry)
    fitted(rng)
    assert graphs() == before
    assert len(ops.gradient_registry._registry) == rules
