"""A fresh process: what importing does, and forks before and after TensorFlow has computed."""

from __future__ import annotations

import subprocess
import sys

import pytest

import gpflow_gam as gg

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
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=300, check=False
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    return ran.stdout.split("--\n")


@pytest.mark.slow
def test_import_prints_nothing_and_shows_the_nouns(fresh: list[str]) -> None:
    assert fresh[1] == "", "importing printed something"
    for noun in gg.__all__:
        assert f"'{noun}'" in fresh[2].splitlines()[1]


def test_import_leaves_what_is_dear_and_what_is_others(fresh: list[str]) -> None:
    assert fresh[2].splitlines()[0] == "set()"


def test_a_fork_computes_or_says_why_not(fresh: list[str]) -> None:
    assert fresh[3].strip() == "[0, 7, 7, 7, 7] (40,)"
