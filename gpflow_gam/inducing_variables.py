"""Inducing variables of additive models, and where to put them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import tensorflow as tf
from check_shapes import Shape
from gpflow.base import AnyNDArray, Parameter, TensorData
from gpflow.config import default_float
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel

from .bijectors import identity
from .errors import check_choice, check_count
from .kernels import AdditiveKernel
from .kernels.shaped import level_columns
from .measures import cluster_means

__all__ = ["AdditiveInducingVariables", "select"]


class AdditiveInducingVariables(InducingVariables):
    """
    Inducing inputs ``Z_c`` [M_c, D_c] of each component, in the columns that the component reads.

    The inducing values are those of the components, ``U_c = f_c(Z_c)``, stacked in order to
    U in R^P, P = sum of the M_c. Columns stand in the order of the kernel's ``active_dims``
    (ascending for products and sums); a constant has ``Z_c`` of shape [1, 0].

    :param components: a mapping name -> Z_c, or a sequence in the order of the kernel's
        components, which are then named ``Z0``, ``Z1``, ...
    :param trainable: whether the inputs are optimised with the ELBO. False by default: on a grid
        in one dimension they gain little, and site updates hold them fixed.
    :raises ValueError: no component, an empty Z_c, a Z_c that is no matrix or is not finite.
    """

    def __init__(
        self,
        components: Mapping[str, TensorData] | Sequence[TensorData],
        *,
        trainable: bool = False,
    ) -> None:
        super().__init__()
        if not isinstance(components, Mapping):
            components = {f"Z{i}": Z for i, Z in enumerate(components)}
        if not components:
            raise ValueError("components is empty; give the inducing inputs of each component.")
        self.components: dict[str, Parameter] = {
            name: Parameter(
                _valid_inputs(name, Z),
                transform=identity(),
                trainable=trainable,
                # a SavedModel takes no variable with brackets in its name, as s(x) has
                name="Z_" + re.sub(r"[^A-Za-z0-9_.-]", "_", name),
            )
            for name, Z in components.items()
        }

    @property
    def names(self) -> tuple[str, ...]:
        """Component names, in order."""
        return tuple(self.components)

    @property
    def inputs(self) -> tuple[Parameter, ...]:
        """Z_c of every component, in order."""
        return tuple(self.components.values())

    def __getitem__(self, name: str) -> Parameter:
        """Z_c of the component called ``name``."""
        return self.components[name]

    @property
    def sizes(self) -> tuple[int, ...]:
        """M_c of every component."""
        return tuple(int(Z.shape[0]) for Z in self.inputs)

    @property
    def num_inducing(self) -> tf.Tensor:
        """P, how many inducing values there are in all."""
        return tf.constant(sum(self.sizes))

    @property
    def shape(self) -> Shape:
        """(P, None, 1): components may live in different numbers of columns."""
        return (sum(self.sizes), None, 1)


def check_compatible(inducing_variable: AdditiveInducingVariables, kernel: AdditiveKernel) -> None:
    if not isinstance(inducing_variable, AdditiveInducingVariables):
        raise TypeError(
            "inducing_variable must be AdditiveInducingVariables; "
            f"got {type(inducing_variable).__name__}."
        )
    if len(inducing_variable.names) != kernel.num_components:
        raise ValueError(
            f"inducing_variable has {len(inducing_variable.names)} components, the kernel has "
            f"{kernel.num_components} ({', '.join(kernel.names)})."
        )
    automatic = tuple(f"Z{i}" for i in range(kernel.num_components))
    if inducing_variable.names not in (automatic, kernel.names):
        raise ValueError(
            f"inducing_variable names its components {inducing_variable.names}, the kernel "
            f"{kernel.names}; they must be the same, in the same order."
        )
    for name, Z, columns in zip(kernel.names, inducing_variable.inputs, kernel.columns):
        if columns is not None and Z.shape[1] != len(columns):
            raise ValueError(
                f"inducing_variable of component {name!r} has {Z.shape[1]} column(s), but the "
                f"component reads {len(columns)} ({list(columns)})."
            )


def _valid_inputs(name: str, Z: TensorData) -> AnyNDArray:
    Z = np.asarray(Z, dtype=default_float())
    if Z.ndim != 2:
        raise ValueError(
            f"inducing_variable of component {name!r} must be a matrix [M, D_c]; "
            f"got shape {Z.shape}."
        )
    if Z.shape[0] == 0:
        raise ValueError(
            f"inducing_variable of component {name!r} is empty (M_c = 0); a component needs at "
            "least one inducing input."
        )
    if not np.all(np.isfinite(Z)):
        raise ValueError(f"inducing_variable of component {name!r} holds NaN or infinite values.")
    return Z


_MAX_ROWS = 20_000  # rows looked at: more only cost k-means and greedy


def select(
    X: TensorData,
    kernel: AdditiveKernel,
    num_inducing: int | Mapping[str, int],
    strategy: str = "quantiles",
    *,
    seed: int = 0,
) -> AdditiveInducingVariables:
    """
    Inducing inputs for every component of ``kernel``.

    Strategies:

    - ``"greedy"``: greedy conditional variance, a pivoted Cholesky factorisation of the kernel at
      its present parameters (Burt, Rasmussen & van der Wilk 2020);
    - ``"quantiles"`` (default): evenly spaced quantiles for a component of one varying column,
      centres of k-means clusters (scikit-learn) for several. Levels (of factors, areas) each get
      their share, and one at least, so that a component may have more than M.

    Only rows are used at which the component's prior variance is positive (a ``by=`` component
    sees the rows of its level), and a component never gets more inputs than it has distinct rows:
    exact copies would make its covariance singular. Constants get one.

    :param X: inputs [N, D].
    :param kernel: the components.
    :param num_inducing: M, for all components or by name.
    :param strategy: one of these.
    :param seed: makes random choices reproducible.
    :raises ValueError: bad X, M < 1, a name that is no component, an unknown strategy.
    """
    X = np.asarray(X, dtype=default_float())
    if X.ndim != 2 or len(X) == 0:
        raise ValueError(f"X must be a matrix [N, D] with N >= 1; got shape {X.shape}.")
    if not np.all(np.isfinite(X)):
        raise ValueError("X must be finite; drop or impute the rows with missing values.")
    kernel.check_inputs(X)
    check_choice("strategy", strategy, ("greedy", "quantiles"))
    numbers = num_inducing
    if not isinstance(numbers, Mapping):
        numbers = dict.fromkeys(kernel.names, numbers)
    unknown = [n for n in numbers if n not in kernel.names]
    missing = [n for n in kernel.names if n not in numbers]
    if unknown or missing:
        raise ValueError(
            f"num_inducing must have one entry a component ({', '.join(kernel.names)}); "
            f"unknown: {unknown}, missing: {missing}."
        )
    chosen = {}
    for i, (name, own, columns) in enumerate(zip(kernel.names, kernel.kernels, kernel.columns)):
        number = numbers[name]
        check_count(f"num_inducing of component {name!r}", number)
        # one stream a component: adding a component does not move the others' inputs
        rng = np.random.default_rng([seed, i])
        read = range(X.shape[1]) if columns is None else columns
        known = set() if strategy == "greedy" else level_columns(own)
        levels = [place for place, column in enumerate(read) if column in known]
        rows = X if levels else _some(X, rng)  # none of a rare level may be among some
        rows = rows[np.asarray(own(tf.constant(rows), full_cov=False)) > 0.0]
        if not len(rows):
            raise ValueError(
                f"component {name!r} has no prior variance at any row of X (a level that does not "
                "occur?), so that no inducing inputs can be chosen."
            )
        points = rows[:, list(read)]
        distinct = np.unique(points, axis=0)
        if points.shape[1] == 0:
            Z = np.zeros((1, 0))
        elif len(distinct) <= number:
            Z = distinct
        elif strategy == "greedy":
            Z = distinct[_greedy(own, embed(distinct, columns, X.shape[1]), number)]
        else:
            Z = _within_levels(points, levels, number, rng)
        chosen[name] = np.unique(Z, axis=0)
    return AdditiveInducingVariables(chosen)


def embed(Z: AnyNDArray, columns: tuple[int, ...] | None, width: int) -> AnyNDArray:
    """Z [M, d] as rows of X [M, width], zero in columns that it does not have."""
    if columns is None:
        return Z
    full = np.zeros((len(Z), width))
    full[:, list(columns)] = Z
    return full


def _some(X: AnyNDArray, rng: np.random.Generator) -> AnyNDArray:
    if len(X) <= _MAX_ROWS:
        return X
    return X[np.sort(rng.choice(len(X), _MAX_ROWS, replace=False))]


def _within_levels(
    X: AnyNDArray, levels: list[int], M: int, rng: np.random.Generator
) -> AnyNDArray:
    """Each combination's share of M, at its codes: between two of them there is nothing."""
    codes, which, counts = np.unique(X[:, levels], axis=0, return_inverse=True, return_counts=True)
    share, seed, result = -(-M // len(codes)), int(rng.integers(2**31)), []
    parts = np.split(X[np.argsort(which.ravel(), kind="stable")], np.cumsum(counts)[:-1])
    for code, rows in zip(codes, parts):
        Z = np.unique(rows, axis=0)
        if len(Z) > share:
            Z = _quantiles(_some(rows, rng), share, seed)
        Z[:, levels] = code  # of means, which round
        result.append(Z)
    return np.concatenate(result)


def _quantiles(X: AnyNDArray, M: int, seed: int) -> AnyNDArray:
    """Even quantiles of one varying column; clusters' means of several."""
    varying = np.ptp(X, axis=0) > 0.0
    if np.count_nonzero(varying) != 1:
        return cluster_means(X, np.ones(len(X)), M, seed)[0]
    Z = np.repeat(X[:1], M, axis=0)
    # of the distinct values: heavy ties must not swallow whole quantiles
    Z[:, varying] = np.quantile(np.unique(X[:, varying]), np.linspace(0.0, 1.0, M))[:, None]
    return Z


def _greedy(kernel: Kernel, X: AnyNDArray, M: int) -> list[int]:
    """Pivoted Cholesky: each input is where the others leave most variance."""
    variances = np.asarray(kernel(tf.constant(X), full_cov=False))
    row = lambda i: np.asarray(kernel(tf.constant(X[[i]]), tf.constant(X)))[0]  # noqa: E731
    # where the rest is explained to rounding more inputs would only be singular
    return pivoted_cholesky(variances, row, M, 1e-10 * variances.max())[1]


_EQUAL = 1e-13  # difference of variances left that is rounding, against the largest at the start


def pivoted_cholesky(
    variances: AnyNDArray, row: Callable[[int], AnyNDArray], most: int, least: float
) -> tuple[AnyNDArray, list[int], AnyNDArray]:
    """
    Rows of a partial Cholesky factor, its pivots, and the variances that it leaves.

    By one row of the matrix at a time (Harbrecht, Peters & Schneider 2012): the next pivot is where
    most variance is left, the first of equal ones. It ends where no more than ``least`` is.
    """
    rest, factor = np.array(variances), np.zeros((min(most, len(variances)), len(variances)))
    chosen: list[int] = []
    equal = _EQUAL * np.max(variances, initial=0.0)
    for j, out in enumerate(factor):
        largest = np.max(rest)
        if largest <= least:  # NaN goes on, to be seen in the factor
            break
        best = int(np.argmax(rest >= largest - equal))
        length = np.sqrt(rest[best])
        out[:] = (row(best) - factor[:j, best] @ factor[:j]) / length
        out[best] = length  # white noise is on the diagonal only
        chosen.append(best)
        rest = np.maximum(rest - np.square(out), 0.0)
        rest[chosen] = 0.0
    return factor, chosen, rest
