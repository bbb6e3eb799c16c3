"""Fits of GAMs to rows of which every worker has its own share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..gam import GAM
from ..gam.fits.options import check_names
from ..optimizers import TimeBudget
from ..optimizers.binned.shared import Exchange
from ..optimizers.minimizers.tracker import Callback, check_on_interrupt
from .endings import Endings
from .workers import workers_of

_MINIBATCH = (
    "batch_size",
    "num_steps",
    "learning_rate",
    "checkpoint",
    "save_every",
    "validation_data",
    "steps_per_epoch",
    "steps_per_call",
)
_REMEDY = "Start all workers again: the fit of a GAM has no checkpoint, and begins anew."


def fit_gam(
    gam: GAM,
    data: Any,
    *,
    y: Any = None,
    strategy: object = None,
    timeout: float = 300.0,
    max_seconds: float | None = None,
    callback: Callback | None = None,
    progress: bool | None = None,
    **options: Any,
) -> GAM:
    """
    Fit a GAM to the rows of all workers.

    :param gam: not fitted; the same on all workers.
    :param data: this worker's share, or a function from a ``tf.distribute.InputContext`` to it.
    :param y: the response, as for :meth:`gpflow_gam.GAM.fit`.
    :param strategy: of the workers.
    :param timeout: seconds that a worker waits for the others in one reduction.
    :param max_seconds: time budget; that of the first worker whose time is up ends the fit.
    :param callback: called once an iteration; a true return value on any worker ends the fit.
    :param progress: a progress bar, on the first worker only.
    :param options: of :meth:`gpflow_gam.GAM.fit`.
    :return: ``gam``, fitted.
    :raises TypeError, ValueError: naming the argument.
    :raises LostWorkerError: another worker is gone.
    """
    workers = workers_of(strategy, timeout)
    # what can be read by rows is data, whatever else it can do
    asked = callable(data) and not hasattr(data, "__iter__")

    def share() -> Any:
        _check(gam, max_seconds, options)  # where the others are told of errors
        return data(workers.context()) if asked else data

    if not workers.several:
        ends: dict[str, Any] = {
            "max_seconds": max_seconds,
            "callback": callback,
            "progress": progress,
        }
        return gam.fit(share(), y, **{k: v for k, v in ends.items() if v is not None}, **options)
    exchange = Exchange(workers.sum, workers.place, workers.number)
    kept = options.get("on_interrupt", "raise")
    with workers.watched(_REMEDY), Endings(exchange, callback, max_seconds, kept) as endings:
        shown = progress if exchange.first else False
        return gam.fit_share(
            share, y, exchange=exchange, callback=endings, progress=shown, **options
        )


def _check(gam: GAM, max_seconds: float | None, options: Mapping[str, Any]) -> None:
    for name in _MINIBATCH:
        if name in options:
            raise ValueError(
                f"{name} is of minibatch training, whose first argument is a function that builds "
                "a model; a GAM is fitted to all rows at once: leave the argument out."
            )
    if gam.is_fitted:
        raise ValueError("build: the GAM is fitted already; pass one that is not.")
    check_names(options)
    check_on_interrupt(options.get("on_interrupt", "raise"))
    TimeBudget(max_seconds)  # raises where it is none
