"""Functions whose Sobol indices are known in closed form."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
from gpflow.kernels import IsotropicStationary, Matern32, SquaredExponential
from SALib.test_functions import Ishigami, Sobol_G
from scipy.stats import qmc

KINDS = ("first", "total")


@dataclasses.dataclass(frozen=True)
class Function:
    """
    A function of independent uniform inputs, and its Sobol indices.

    :param name: what it is called.
    :param lower: where every input begins.
    :param upper: where every input ends.
    :param base: the kernel that suits it: as smooth as it is, which a user knows of a simulator.
    :param evaluate: values [N] at X [N, D].
    :param first: first-order indices, [D].
    :param total: total indices, [D].
    :param second_order: both, of the function less what three and more inputs do together.
    """

    name: str
    lower: float
    upper: float
    base: type[IsotropicStationary]
    evaluate: Callable[[np.ndarray], np.ndarray]
    first: np.ndarray
    total: np.ndarray
    second_order: tuple[np.ndarray, np.ndarray]

    @property
    def dimension(self) -> int:
        return len(self.first)

    @property
    def inputs(self) -> list[str]:
        return [f"x{i + 1}" for i in range(self.dimension)]

    @property
    def problem(self) -> dict[str, object]:
        """As SALib wants to have it."""
        bounds = [[self.lower, self.upper]] * self.dimension
        return {"num_vars": self.dimension, "names": self.inputs, "bounds": bounds}

    def design(self, number: int, seed: int) -> np.ndarray:
        """The first points [N, D] of a scrambled Sobol' sequence."""
        u = qmc.Sobol(self.dimension, seed=seed).random(number)
        return self.lower + (self.upper - self.lower) * u

    def least_errors(self) -> dict[str, float]:
        """Mean absolute errors of a second-order model that knows the function, by kind."""
        pairs = zip(KINDS, self.second_order, (self.first, self.total))
        return {kind: float(np.abs(best - true).mean()) for kind, best, true in pairs}


def ishigami(a: float = 7.0, b: float = 0.1) -> Function:
    """sin x1 + a sin^2 x2 + b x3^4 sin x1 on [-pi, pi]^3 (Ishigami & Homma 1990)."""

    def evaluate(X: np.ndarray) -> np.ndarray:
        values: np.ndarray = (1.0 + b * X[:, 2] ** 4) * np.sin(X[:, 0]) + a * np.sin(X[:, 1]) ** 2
        return values

    # E x3^4 = pi^4 / 5, Var x3^4 = pi^8 / 9 - pi^8 / 25 and E sin^2 = 1/2
    first = np.array([0.5 * (1.0 + b * np.pi**4 / 5.0) ** 2, a**2 / 8.0, 0.0])
    both = 0.5 * b**2 * np.pi**8 * (1.0 / 9.0 - 1.0 / 25.0)
    whole = first.sum() + both
    indices = first / whole, (first + np.array([both, 0.0, both])) / whole
    return Function("Ishigami", -np.pi, np.pi, SquaredExponential, evaluate, *indices, indices)


def sobol_g(a: tuple[float, ...] = (0.0, 1.0, 4.5, 9.0, 99.0, 99.0)) -> Function:
    """
    The product of (|4 x_i - 2| + a_i) / (1 + a_i) on [0, 1]^D (Sobol' 1993, 2003).

    Factors have mean one, so that a set of inputs has the product of ``1 / (3 (1 + a_i)^2)``.
    """
    offsets = np.array(a)

    def evaluate(X: np.ndarray) -> np.ndarray:
        values: np.ndarray = np.prod((np.abs(4.0 * X - 2.0) + offsets) / (1.0 + offsets), axis=1)
        return values

    own = 1.0 / (3.0 * (1.0 + offsets) ** 2)
    whole = np.prod(1.0 + own) - 1.0
    total = own * np.prod(1.0 + own) / (1.0 + own) / whole
    with_others = own * (own.sum() - own)
    known = own.sum() + 0.5 * with_others.sum()
    best = own / known, (own + with_others) / known
    return Function("Sobol' G", 0.0, 1.0, Matern32, evaluate, own / whole, total, best)


def check_closed_forms() -> None:
    """
    The functions and their indices are those that SALib has, to rounding.

    :raises AssertionError: they are not.
    """
    X = np.random.default_rng(0).uniform(-3.0, 3.0, size=(100, 3))
    np.testing.assert_allclose(ishigami().evaluate(X), Ishigami.evaluate(X), rtol=1e-12)
    np.testing.assert_allclose(ishigami().first, [0.3139, 0.4424, 0.0], atol=5e-5)
    a = np.array([0.0, 1.0, 4.5, 9.0, 99.0, 99.0])
    function, U = sobol_g(tuple(a)), np.random.default_rng(0).uniform(size=(100, 6))
    np.testing.assert_allclose(function.evaluate(U), Sobol_G.evaluate(U, a), rtol=1e-12)
    np.testing.assert_allclose(function.first, Sobol_G.sensitivity_index(a), rtol=1e-12)
    np.testing.assert_allclose(function.total, Sobol_G.total_sensitivity_index(a), rtol=1e-12)
