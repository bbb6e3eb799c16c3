"""When a fit is made anew to finer sums over rows, and when it stays as it is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gpflow_gam.gam.fits.fit import Attempt, finer_bins, fit_refined
from gpflow_gam.optimizers import FitResult, TimeBudget


class Fits:
    """Fits that last ten seconds each and lose what they are told to."""

    def __init__(self, curve: float, surface: float, discretisation: dict[Any, float]) -> None:
        """:param curve: what it loses to usual nodes; a hundredth of that to fine ones."""
        self.lost, self.discretisation = {"curve": curve, "surface": surface}, discretisation
        self.now, self.bins, self.asked = 0.0, "usual", []
        self.ended, self.lost_later = False, surface

    def fit(self, fine: tuple[str, ...], model: Any) -> Attempt:
        self.now += 10.0
        self.asked.append((self.bins, fine, model))
        parts = {k: v / 100.0 if k in fine else v for k, v in self.lost.items()}
        self.lost["surface"] = self.lost_later
        result = FitResult(
            elbo=0.0, num_iterations=1, seconds=10.0, converged=not self.ended, message="",
            method="",
            discretisation=self.discretisation[self.bins], interpolation=sum(parts.values()),
            interpolation_by=parts, interpolation_shift=sum(parts.values()) ** 0.5,
            ended=self.ended,
        )  # fmt: skip
        return Attempt(SimpleNamespace(refined=fine), f"model {len(self.asked)}", result, None)

    def rebin(self, number: int | None) -> None:
        self.bins = number

    def refined(self, numbers: tuple[int | None, ...], seconds: float | None = None) -> Attempt:
        return fit_refined(self.fit, self.rebin, (), numbers, TimeBudget(seconds, lambda: self.now))


def test_what_is_smooth_is_fitted_once() -> None:
    fits = Fits(0.05, 0.01, {"usual": 1e-4})
    assert fits.refined(finer_bins(10**6)).result.converged
    assert fits.asked == [("usual", (), None)]


def test_nodes_are_refined_from_the_start_with_bins_and_bins_go_on() -> None:
    fits = Fits(5.0, 0.04, {"usual": 0.1, 1024: 0.01, None: 0.0})
    done = fits.refined((1024, None))
    assert fits.asked == [
        ("usual", (), None),
        (1024, ("curve",), None),  # the surface loses next to nothing
        (None, ("curve",), "model 2"),
    ]
    assert done.model == "model 3"
    assert done.result.converged


def test_what_comes_to_lose_is_refined_next() -> None:
    fits = Fits(5.0, 0.04, {"usual": 0.0})
    fits.lost_later = 3.0  # a better fit is a rougher one
    result = fits.refined(()).result
    assert [fine for _, fine, _ in fits.asked] == [(), ("curve",), ("curve", "surface")]
    assert result.interpolation == pytest.approx(0.08)


@pytest.mark.parametrize(("seconds", "number"), [(15.0, 1), (25.0, 2), (35.0, 3)])
def test_what_time_does_not_do_for_is_not_begun(seconds: float, number: int) -> None:
    fits = Fits(0.5, 0.0, {"usual": 0.1, 1024: 0.1, 2048: 0.1, None: 0.1})
    fits.refined((1024, 2048, None), seconds)
    assert len(fits.asked) == number


def test_a_fit_that_was_ended_stays_as_it_is() -> None:
    fits = Fits(5.0, 5.0, {"usual": 0.1})
    fits.ended = True
    fits.refined((1024,))
    assert len(fits.asked) == 1


def test_what_fine_nodes_lose_as_well_is_said() -> None:
    fits = Fits(3000.0, 0.0, {"usual": 0.0})
    result = fits.refined(()).result
    assert not result.converged
    assert "off by up to 5.5 of its standard errors" in result.message


def test_nats_that_move_no_effect_are_no_matter() -> None:
    """Of many rows each loses next to nothing, and what they lose together has no direction."""
    fits = Fits(20.0, 0.0, {"usual": 0.0})
    result = fits.refined(()).result
    assert result.interpolation == pytest.approx(0.2)
    assert result.converged
