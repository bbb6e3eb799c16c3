"""Where a fit by rounds stands, and how a checkpoint holds it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from gpflow.base import AnyNDArray

from ..statistics import PseudoData
from .checkpoint import Record
from .pace import Pace


@dataclasses.dataclass
class State:
    """
    Where a fit stands.

    :param data: the sites' sums.
    :param u: coordinates of the kernels' hyperparameters.
    :param phi: coordinates of the likelihood's parameters.
    """

    data: PseudoData
    u: AnyNDArray
    phi: AnyNDArray

    def towards(self, other: State, share: float) -> State:
        """Part of the way."""
        return State(
            self.data.towards(other.data, share),
            self.u + share * (other.u - self.u),
            self.phi + share * (other.phi - self.phi),
        )


@dataclasses.dataclass(frozen=True)
class Position:
    """
    Between two rounds of a fit.

    :param state: where it stands.
    :param elbo: there, once there was a round.
    :param rounds: how many there were.
    :param gain: of the last one, in nats, as if it had gone all the way to its target.
    :param settled: whether the sites are near their fixed point, so that it pays to learn
        hyperparameters at once.
    :param learnt: whether the last round learnt hyperparameters.
    :param pace: of the rounds so far.
    :param signed: whether sites have their negative weights, as they do once the fit without has
        converged.
    """

    state: State
    elbo: float = 0.0
    rounds: int = 0
    gain: float = 0.0
    settled: bool = False
    learnt: bool = False
    pace: Pace = dataclasses.field(default_factory=Pace)
    signed: bool = False

    def record(self, history: Sequence[float]) -> Record:
        """
        As a checkpoint holds it.

        :param history: ELBOs so far.
        """
        data = self.state.data
        arrays = {"precision": data.precision, "shift": data.shift}
        arrays |= {f"mass {i}": m for i, m in enumerate(data.masses)}
        arrays |= {"u": self.state.u, "phi": self.state.phi, "history": np.array(history)}
        numbers = {"elbo": self.elbo, "rounds": self.rounds, "gain": self.gain}
        flags = {k: bool(getattr(self, k)) for k in ("settled", "learnt", "signed")}
        return Record({**numbers, **flags, "pace": dataclasses.asdict(self.pace)}, arrays)

    @classmethod
    def of(cls, record: Record) -> Position:
        """What :meth:`record` gave."""
        own, numbers = record.arrays, dict(record.numbers)
        masses = tuple(own[f"mass {i}"] for i in range(sum(k.startswith("mass ") for k in own)))
        state = State(PseudoData(own["precision"], own["shift"], masses), own["u"], own["phi"])
        return cls(state, pace=Pace(**numbers.pop("pace")), **numbers)
