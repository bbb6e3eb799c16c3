"""A GAM's fit to rows of which the workers of a strategy hold a share each."""

from __future__ import annotations

import dataclasses
import functools
import re
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any

import numpy as np

from ..gam import GAM
from ..gam.families import Cox, Survival
from ..gam.families.encoding import Described
from ..gam.fits import FittedGAM
from ..gam.fits.data import CodedData, Communication
from ..gam.fits.fit import BY_SUMS, fit_from_null_model, specify, with_chains
from ..gam.fits.fitted import between_of
from ..gam.fits.reading import (
    PartialSummary,
    Share,
    first_rows,
    needs_table,
    partial_summary,
    read_in_blocks,
    read_in_codes,
    reading,
    with_response,
    with_trials,
    with_variables,
)
from ..gam.fits.specification import (
    Request,
    check_names,
    check_together,
    needs_all_rows,
    too_many,
)
from ..gam.frames.blocks import Blocks
from ..gam.frames.encoding import Holes
from ..models import IterNCGP
from ..optimizers import TimeBudget
from ..optimizers.laplace import with_centre
from ..optimizers.minimizers import INTERRUPTED, Callback, FitProgress, OnInterrupt
from ..storage import Communicator
from .workers import Workers, check_alike

_REMEDY = "Start all workers again: the fit of a GAM has no checkpoint, and begins anew."


def fit_gam(
    gam: GAM,
    data: Any,
    *,
    y: Any = None,
    strategy: object = None,
    timeout: float = 300.0,
    **options: Any,
) -> GAM:
    """Fit a GAM to the rows of all workers; see :func:`gpflow_gam.distribute.fit`."""
    workers = Workers(strategy, timeout)

    def share() -> Any:
        # what can be read by rows is data, whatever else it can do
        is_function = callable(data) and not hasattr(data, "__iter__")
        return data(workers.context()) if is_function else data

    if workers.number == 1:
        return gam.fit(share(), y, **options)
    communicator = workers.communicator
    callback, max_seconds = options.pop("callback", None), options.pop("max_seconds", None)
    stop = StopSync(communicator, callback, max_seconds, options.get("on_interrupt", "raise"))
    options["progress"] = options.get("progress") if communicator.first else False
    with workers.watched(_REMEDY), stop:
        return fit_share(gam, share, y, communicator=communicator, callback=stop, **options)


class StopSync:
    """A fit's callback on every worker, in which all decide together whether they go on."""

    # Budgets and Ctrl-C are asked about once an iteration: if one stopped in between others would
    # wait.

    def __init__(
        self,
        communicator: Communicator,
        callback: Callback | None,
        max_seconds: float | None,
        on_interrupt: OnInterrupt = "raise",
    ) -> None:
        self._keep = on_interrupt == "keep"
        self._communicator, self._callback = communicator, callback
        self._budget = TimeBudget(max_seconds)
        self._interrupted = False
        self._handler: Any = None

    def __call__(self, progress: FitProgress) -> bool | str:
        """True, or a reason, if the fit ends; RuntimeError if workers went apart or one failed."""
        failed: Exception | None = None
        asked = False
        try:
            asked = self._callback is not None and bool(self._callback(progress))
        except Exception as error:  # the others are told first
            failed = error
        elbos = np.zeros(self._communicator.number)
        elbos[self._communicator.place] = progress.elbo
        flags = np.array(
            [failed is not None, asked, self._budget.spent, self._interrupted], dtype=np.float64
        )
        counts, elbos = self._communicator.total([flags, elbos])
        if failed is not None:
            raise failed
        if counts[0]:
            raise RuntimeError("the callback of another worker failed; see its error.")
        if np.any(elbos != elbos[0]):
            raise RuntimeError(
                "the workers' processors or libraries round differently, so that their fits went "
                "apart; run the same versions on machines of one kind."
            )
        if counts[3] and not self._keep:
            raise KeyboardInterrupt
        reasons = ("stopped by the callback", "time budget used up", INTERRUPTED)
        return next((why for count, why in zip(counts[1:], reasons) if count), False)

    def __enter__(self) -> StopSync:
        if threading.current_thread() is threading.main_thread():
            self._handler = signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(self, *error: object) -> None:
        if self._handler is not None:
            signal.signal(signal.SIGINT, self._handler)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self._interrupted:  # pressed twice
            raise KeyboardInterrupt
        self._interrupted = True


_APART = "needs all rows in one memory, which rows shared out among workers are not."
_CLOSED = (
    "sums over the rows of all workers are there during the fit alone; what a fitted GAM tells "
    "needs none."
)


def fit_share(
    gam: GAM,
    data: Callable[[], Any],
    y: Any = None,
    *,
    communicator: Communicator,
    posterior: str = "laplace",
    **options: Any,
) -> GAM:
    """Fit a GAM to rows of which ``data`` gives this process's share; all processes call this."""
    opened: list[tuple[Request, Blocks]] = []

    def open_share() -> dict[str, str]:
        check_names(options)
        source, response = with_response(data(), y, gam._response)
        asked = dataclasses.replace(gam._request(response), progress=options.get("progress"))
        needs = needs_all_rows(asked, options)
        if asked.missing == "impute":
            needs = "missing='impute'"
        if asked.ar1 is not None:
            needs = "ar1"
        if asked.family.calibrated:  # by several fits, and so are stated degrees of freedom
            needs = f"family {asked.family.name!r}"
        if options.get("checkpoint") is not None:
            needs = "checkpoint="
        if stated := next((t.label for t in asked.terms if t.edf is not None), None):
            needs = f"edf= of {stated}"
        if needs_table(asked.terms):
            needs = "a formula that transforms columns, or has '.',"
        terms = with_variables(asked.terms, lambda: first_rows(source, asked))
        opened.append((dataclasses.replace(asked, terms=terms), read_in_blocks(source, asked)))
        if needs:
            raise ValueError(f"{needs} {_APART}")
        check_together(asked, options, posterior)
        return _arguments(opened[0][0], options | {"posterior": posterior})

    check_alike(communicator.together(open_share))
    chosen = {k: v for k, v in options.items() if k not in ("criterion", "groups")}
    ((asked, blocks),) = opened
    asked = with_trials(asked, blocks, communicator.together)
    shares = _shares(communicator, asked, blocks)
    here, total = shares[communicator.place], sum(s.number for s in shares)
    dropped = sum(s.dropped for s in shares)
    parts = communicator.together(lambda: _summarised(asked, blocks, here, total))
    _check_kinds(parts)
    summary = functools.reduce(PartialSummary.merged, parts).whole(asked, dropped)
    found = read_in_codes(asked, blocks, summary, dropped, here, communicator, total)
    spec = specify(found)
    if spec.variational not in BY_SUMS:
        raise ValueError(too_many(_APART))
    result = fit_from_null_model(found.rows, spec, seed=asked.seed, **chosen)
    if posterior == "mcmc":
        result = with_chains(result, asked.seed)
    return gam._accept(_finished(result, communicator), options)


def _finished(fit: FittedGAM, communicator: Communicator) -> FittedGAM:
    """With what would need all rows, while all workers are there."""
    data = fit.data
    assert isinstance(data, CodedData)
    known: dict[str, Any] = {"offset": fit.mean_offset(), "discrepancies": fit.discrepancies()}
    known["response"] = Described.of(data.responses, fit.spec.levels)
    if isinstance(fit.spec.family, Cox):
        known["starts"] = fit.starts()
    elif isinstance(fit.spec.family, Survival):
        known["reach"] = fit.reach()
    solution, model = fit.solution, fit.model
    assert solution is not None
    assert not isinstance(model, IterNCGP)
    solution = with_centre(model, solution.with_curvature(model.likelihood))
    solution = dataclasses.replace(solution, between=between_of(solution, model))
    told = Communication(communicator.number, communicator.reductions, communicator.bytes)
    communicator.close(_CLOSED)
    data = dataclasses.replace(data, **known, communication=told)
    return dataclasses.replace(fit, data=data, _solution=solution)


# --- shares -----------------------------------------------------------------------------------


def _shares(communicator: Communicator, request: Request, blocks: Blocks) -> list[Share]:
    """Rows of each process, in their order."""
    # Rows' numbers settle the sample, and so bins: they must be known before it is drawn, which
    # takes a pass of its own where rows are dropped or nobody knows how many there are.

    def count() -> tuple[int, int]:
        number = blocks.num_rows
        if request.missing == "error" and number is not None:
            return number, 0
        holes = Holes()
        for block in reading(blocks, "counting rows", request):
            holes.add(block, request.columns_needed)
        return holes.num_rows - holes.incomplete, holes.incomplete

    counts = communicator.together(count)
    empty = [i for i, (number, _) in enumerate(counts) if number == 0]
    if empty:
        complete = " without missing values" * (request.missing == "drop")
        raise ValueError(
            f"data: worker {empty[0]} has no row of a weight above zero{complete}; give each "
            "worker a share of the rows, or start fewer."
        )
    starts = np.cumsum([0, *(number for number, _ in counts)]).tolist()
    return [Share(number, start, gone) for (number, gone), start in zip(counts, starts)]


def _summarised(request: Request, blocks: Blocks, share: Share, total: int) -> PartialSummary:
    """Summary of this process's rows."""
    result, holes = partial_summary(request, blocks, share.start)
    holes.check(request.missing)
    if result is None or result.summary is None or result.summary.number != share.number:
        raise ValueError("data gave other rows the second time; it must give the same each time.")
    sample = result.summary.sample.of_total(total)
    result.summary = dataclasses.replace(result.summary, sample=sample)
    return result


def _check_kinds(parts: Sequence[PartialSummary]) -> None:
    """Raise ValueError if a column holds numbers on one worker and levels on another."""
    first = dict(parts[0].kinds)
    for place, part in enumerate(parts):
        for name, kinds in part.kinds.items():
            if first.get(name) != kinds:
                raise ValueError(
                    f"column {name!r} is read as {' and '.join(kinds)} by worker {place} and as "
                    f"{' and '.join(first.get(name, ('nothing',)))} by worker 0; give the shares "
                    "the same columns, of the same types."
                )


# --- arguments --------------------------------------------------------------------------------


def _arguments(request: Request, options: Mapping[str, Any]) -> dict[str, str]:
    """Arguments that must be the same on all processes, as text."""
    names = ("terms", "family", "offset", "weights", "trials", "missing", "variational", "seed")
    stated = {name: getattr(request, name) for name in names} | {"y": request.response_spec}
    stated |= {k: v for k, v in options.items() if k not in ("callback", "progress")}
    # of a kernel or a likelihood its kind is all that is known, not where it is in memory
    return {name: re.sub(r" at 0x[0-9a-f]+", "", repr(value)) for name, value in stated.items()}
