"""A fresh process: what importing does, and forks before and after TensorFlow has computed."""

import gc

import gpflow
import numpy as np
import pandas as pd
import pytest
from programs import python
from tensorflow.python.framework import ops
from tensorflow.python.framework.func_graph import FuncGraph

import gpflow_gam as gg
from gpflow_gam import s

SCRIPT = """
import os, signal, sys
import gpflow
from check_shapes.config import get_rewrite_docstrings
before = get_rewrite_docstrings()
print("--")
import gpflow_gam as gg
print("--")
assert get_rewrite_docstrings() == before
print(set(sys.modules) & {"sklearn.cluster", "gpflow_gam.gam.plotting", "gpflow_gam.sklearn"})
print(dir(gg))
print("--", flush=True)  # a fork would print it again

import numpy as np, pandas as pd

x = np.linspace(0.0, 1.0, 40)
data = pd.DataFrame({"x": x, "y": np.sin(6.0 * x) + 0.1 * np.cos(50.0 * x)})

def fitted():
    return gg.GAM(gg.s("x", k=4)).fit(data, "y", progress=False)

def in_a_fork(work):
    pid = os.fork()
    if pid == 0:
        signal.alarm(100)  # a fork that waits for ever fails
        try:
            work()
        except gg.ForkedProcessError as error:
            assert "multiprocessing.get_context('spawn')" in str(error)
            os._exit(7)
        except BaseException as error:
            print(repr(error), file=sys.stderr)
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

found = [in_a_fork(fitted)]
gam = fitted()
for work in (
    lambda: gam.predict(data), fitted, lambda: gg.optimizers.fit(gam.model), gam.summary
):
    found.append(in_a_fork(work))
print(found, gam.predict(data).shape)
"""


@pytest.fixture(scope="module")
def fresh() -> list[str]:
    """What a process prints that imports GPflow, us, looks at itself and forks; in four parts."""
    return python(SCRIPT).split("--\n")


@pytest.mark.slow
def test_import_prints_nothing_and_shows_the_nouns(fresh: list[str]) -> None:
    assert fresh[1] == "", "importing printed something"
    for noun in gg.__all__:
        assert f"'{noun}'" in fresh[2].splitlines()[1]


def test_import_leaves_what_is_dear_and_what_is_others(fresh: list[str]) -> None:
    assert fresh[2].splitlines()[0] == "set()"


def test_a_fork_computes_or_says_why_not(fresh: list[str]) -> None:
    assert fresh[3].strip() == "[0, 7, 7, 7, 7] (40,)"


# --- graphs that a fit has traced are gone with it -----------------------------------------------


def graphs() -> int:
    gc.collect()
    return sum(isinstance(result, FuncGraph) for result in gc.get_objects())


def data(rng, n=60):
    X = rng.uniform(size=(n, 2))
    return X, rng.poisson(np.exp(np.sin(5.0 * X[:, :1]))).astype(float)


def kernel():
    own = gpflow.kernels.SquaredExponential, gpflow.kernels.Matern32
    return gg.kernels.AdditiveKernel([k(active_dims=[d]) for d, k in enumerate(own)])


def sparse(likelihood, family, **options):
    def fitted(rng):
        X, Y = data(rng)
        inducing = gg.inducing_variables.select(X, kernel(), num_inducing=6)
        own = {"variational": family(), "num_data": len(X)}
        model = gg.models.AdditiveSVGP(kernel(), likelihood(), inducing, **own)
        gg.optimizers.fit(model, (X, Y), **options)

    return fitted


vi, NB = gg.variational, gg.likelihoods.NegativeBinomial
SITES = sparse(gpflow.likelihoods.StudentT, vi.OptimalPrecision, max_iterations=5)
MINIBATCHES = sparse(NB, vi.BlockPrecision, batch_size=20, max_iterations=9)


def newton(rng):
    model = gg.models.IterNCGP(data(rng), kernel(), gg.likelihoods.NegativeBinomial())
    gg.optimizers.fit(model, max_rounds=1, max_iterations=9)


def table(rng):
    X, Y = data(rng)
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": Y[:, 0]})
    gam = gg.GAM(s("a", k=6) + s("b", k=6), family="negative_binomial", variational="mean_field")
    gam.fit(frame, "y")


@pytest.mark.slow
@pytest.mark.parametrize("fitted", [SITES, MINIBATCHES, newton, table])
def test_fits_leave_no_graph_and_no_rule(fitted, rng):
    fitted(rng)
    before, rules = graphs(), len(ops.gradient_registry._registry)
    fitted(rng)
    assert graphs() == before
    assert len(ops.gradient_registry._registry) == rules
