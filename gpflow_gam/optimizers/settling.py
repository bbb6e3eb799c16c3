"""Sites that settle while hyperparameters stay."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import gpflow
import numpy as np
from gpflow.base import AnyNDArray

from ..models import AdditiveSVGP
from .position import Position, State
from .rounds import Rounds, Seen
from .solution import Solution

_PASSES = 30
"""At most."""


def settled_at(
    model: AdditiveSVGP, rounds: Rounds, x: AnyNDArray, solution: Solution, tolerance: float
) -> Seen:
    """
    The posterior at hyperparameters that stay, sites having settled there.

    :param model: whose parameters are set to them.
    :param rounds: of the fit.
    :param x: coordinates of the kernels' hyperparameters, then of the likelihood's parameters, [K].
    :param solution: whose sites are where they begin.
    :param tolerance: of the fit, in nats.
    :return: whose ELBO lacks the priors of what stays.
    :raises NotPositiveDefinite: at these.
    """
    number = len(rounds.hyperparameters)
    rounds.hyperparameters.set(x[:number])
    rounds.family.set(x[number:])
    with _held(model):
        inner = Rounds(model.kernel, model.likelihood, rounds.rows, None)
    begin = Position(State(solution.data, np.zeros(0), np.zeros(0)), settled=True)
    return inner.run(begin, 0.1 * tolerance, _PASSES)[0]


@contextlib.contextmanager
def _held(model: AdditiveSVGP) -> Iterator[None]:
    """The model's parameters, none of which is to be learnt."""
    learnt = list(model.trainable_parameters)
    for parameter in learnt:
        gpflow.set_trainable(parameter, False)
    try:
        yield
    finally:
        for parameter in learnt:
            gpflow.set_trainable(parameter, True)
