"""When a fit is made anew to finer sums over rows, and when it stays as it is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gpflow_gam.gam.fits.refining import Attempt, finer_bins, fit_refined
from gpflow_gam.optimizers import FitResult, TimeBudget


class Fits:
    """Fits that last ten seconds each and lose what they are told to."""

    def __init__(self, interpolation: dict[bool, float], discretisation: dict[Any, float]) -> None:
        self.interpolation, self.discretisation = interpolation, discretisation
        self.now, self.bins, self.asked = 0.0, "usual", []
        self.ended = False

    def fit(self, fine: bool, model: Any) -> Attempt:
        self.now += 10.0
        self.asked.append((self.bins, fine, model))
        result = FitResult(
            elbo=0.0, num_iterations=1, seconds=10.0, converged=not self.ended, message="", method="",
            discretisation=self.discretisation[self.bins], interpolation=self.interpolation[fine],
            ended=self.ended,
        )  # fmt: skip
        return Attempt(SimpleNamespace(fine=fine), f"model {len(self.asked)}", result, None)

    def rebin(self, number: int | None) -> None:
        self.bins = number

    def refined(self, numbers: tuple[int | None, ...], seconds: float | None = None) -> Attempt:
        return fit_refined(self.fit, self.rebin, numbers, TimeBudget(seconds, lambda: self.now))


def test_what_is_smooth_is_fitted_once() -> None:
    fits = Fits({False: 0.05}, {"usual": 1e-4})
    assert fits.refined(finer_bins(10**6)).result.converged
    assert fits.asked == [("usual", False, None)]


def test_nodes_are_refined_from_the_start_and_bins_go_on() -> None:
    fits = Fits({False: 5.0, True: 0.2}, {"usual": 0.1, 1024: 0.01, None: 0.0})
    done = fits.refined((1024, None))
    assert fits.asked == [
        ("usual", False, None),
        ("usual", True, None),
        (1024, True, "model 2"),
        (None, True, "model 3"),
    ]
    assert done.model == "model 4"
    assert done.result.converged  # .2 nats are no matter


@pytest.mark.parametrize(("seconds", "number"), [(15.0, 1), (25.0, 2), (35.0, 3)])
def test_what_time_does_not_do_for_is_not_begun(seconds: float, number: int) -> None:
    fits = Fits({False: 0.5, True: 0.5}, {"usual": 0.1, 1024: 0.1})
    fits.refined((1024,), seconds)
    assert len(fits.asked) == number


def test_a_fit_that_was_ended_stays_as_it_is() -> None:
    fits = Fits({False: 5.0}, {"usual": 0.1})
    fits.ended = True
    fits.refined((1024,))
    assert len(fits.asked) == 1


def test_what_fine_nodes_lose_as_well_is_said() -> None:
    fits = Fits({False: 50.0, True: 30.0}, {"usual": 0.0})
    result = fits.refined(()).result
    assert not result.converged
    assert "matters by 30 nats" in result.message
