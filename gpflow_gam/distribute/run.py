"""How far a fit has come: its history, its checkpoints, and what ends it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

import numpy as np
from gpflow.base import AnyNDArray

from .batches import Batches
from .checkpoint import Config, State, check, pack, read, unpack, write
from .epochs import Epochs
from .result import Callback, FailedStepError, StepProgress
from .trainee import Trainee
from .workers import Workers


class Run:
    """
    How far a fit has come.

    :param trainee: what is trained.
    :param workers: of the strategy.
    :param batches: that it is trained on.
    :param epochs: what is reported.
    :param folder: of the checkpoint.
    :param seed: of the batches.
    """

    def __init__(
        self,
        trainee: Trainee,
        workers: Workers,
        batches: Batches,
        epochs: Epochs,
        folder: Path | None,
        seed: int,
    ) -> None:
        self.trainee, self.workers, self.folder = trainee, workers, folder
        self.batches, self.epochs = batches, epochs
        self.config = _configuration(trainee, batches, epochs, seed)
        self.history: list[float] = []
        self._saved: int | None = None
        self._variables = {**trainee.variables, **trainee.slots}

    @property
    def step(self) -> int:
        """Steps done."""
        return len(self.history)

    @property
    def remedy(self) -> str:
        """What to do when a worker is lost."""
        if self.folder is None:
            return "Start all workers again; with checkpoint=folder they would go on from there."
        return (
            "Start all workers again with the same arguments: they go on from step "
            f"{self._saved or 0}, the last in {self.folder}."
        )

    def agree(self) -> None:
        """
        :raises ValueError: the workers were not started with the same arguments.
        """
        mine = json.dumps(self.config)
        chiefs = self.workers.from_chief(mine.encode()).decode()
        if self.workers.count(mine != chiefs):
            there, here = json.loads(chiefs), self.config
            names = [n for n in here if here[n] != there.get(n)]
            raise ValueError(
                "the workers were not started with the same arguments: "
                + (f"{', '.join(names)} of this one differ from the chief's." if names else "")
                + ("" if names else "another one differs from the chief.")
            )

    def resume(self, num_steps: int) -> int:
        """
        Take over the chief's checkpoint, if there is one.

        :return: the step it was written at.
        :raises ValueError: it is of another fit, or damaged, or past the last step.
        """
        content = b""
        if self.folder is not None and self.workers.chief:
            self.folder.mkdir(parents=True, exist_ok=True)
            content = read(self.folder)
        content = self.workers.from_chief(content)
        if self.folder is None or not content:
            return 0
        saved = unpack(content, self.folder)
        shapes = {name: tuple(v.shape) for name, v in self._variables.items()}
        check(saved, self.config, shapes, self.folder)
        if saved.step > num_steps:
            raise ValueError(
                f"num_steps={num_steps} is less than the {saved.step} steps of the checkpoint in "
                f"{self.folder}; raise it, or pass another folder."
            )
        for name, variable in self._variables.items():
            variable.assign(saved.arrays[name])
        self.history, self._saved = list(saved.history), saved.step
        self.epochs.resume(saved.epochs, saved.totals)
        self._go_to(saved)
        return saved.step

    def note(self, told: AnyNDArray) -> None:
        """
        Some steps more.

        :param told: the loss of each, and how many numbers of its gradient were not finite,
            [steps, 2].
        :raises FailedStepError: either was broken.
        """
        for loss, broken in told.tolist():
            self.history.append(loss)
            if not np.isfinite(loss):
                self.broken(self.step, f"the loss is {loss}")
            if broken:
                self.broken(self.step, "the gradient of the loss is NaN or infinite")

    def ask(self, callback: Callback, seconds: float, epoch: Mapping[str, AnyNDArray]) -> bool:
        """
        Whether the callback of any worker ends the fit.

        :param callback: of this one.
        :param seconds: since the start.
        :param epoch: its report, where this is the end of one.
        """
        model = self.trainee.model
        progress = StepProgress(self.step, self.history[-1], seconds, model, epoch)
        return self.workers.count(bool(callback(progress))) > 0

    def save(self) -> None:
        """
        Write the state.

        :raises FailedStepError: it is broken.
        """
        if self.folder is None or self._saved == self.step:
            return
        # on every worker, since reading a variable may take all of them
        arrays = {name: v.numpy() for name, v in self._variables.items()}
        for name, value in arrays.items():
            if np.issubdtype(value.dtype, np.floating) and not np.all(np.isfinite(value)):
                self.broken(self.step, f"{name} is NaN or infinite after it")
        state = State(
            self.config,
            self.step,
            self.history,
            arrays,
            self.epochs.found,
            self.epochs.totals(),
            self._places(),
        )
        if self.workers.chief:
            write(pack(state), self.folder)
        self._saved = self.step

    def _places(self) -> list[bytes]:
        if self.batches.is_shared:
            return [self.batches.place()] if self.workers.chief else []
        return self.workers.gather(self.batches.place())

    def _go_to(self, saved: State) -> None:
        """Where the data were when it was saved, if it says so for as many workers as there are."""
        if len(saved.places) == (1 if self.batches.is_shared else self.workers.number):
            place = saved.places[0 if self.batches.is_shared else self.workers.place]
            self.batches.go_to(saved.step, place)

    def broken(
        self, step: int, what: str, cause: Exception | None = None, last: int = 0
    ) -> NoReturn:
        """
        :param step: that broke, counted from 1.
        :param what: broke.
        :param cause: if it was another error.
        :param last: of the steps of one call, of which ``step`` is the first and any may have.
        :raises FailedStepError: always.
        """
        kept = ""
        if self._saved is not None:
            kept = f" The checkpoint of step {self._saved} in {self.folder} is from before."
        where = f"{step} or one up to {last}" if last > step else f"{step}"
        raise FailedStepError(
            f"step {where}: {what}. If the data are in order lower learning_rate, or raise the "
            f"jitter.{kept}"
        ) from cause


def _configuration(trainee: Trainee, batches: Batches, epochs: Epochs, seed: int) -> Config:
    """
    What must not change between a checkpoint and the fit that goes on from it, nor from worker to
    worker.

    :param trainee: what is trained.
    :param batches: that it is trained on.
    :param epochs: what is reported.
    :param seed: of the batches.
    """
    options = dict(trainee.optimizer.get_config())
    for name in ("name", "learning_rate"):
        options.pop(name, None)
    config = {
        "seed": seed,
        "batch_size": batches.batch_size,
        "num_data": trainee.num_data,
        "data": batches.digest(),
        "trained": trainee.trained_names,
        "optimizer": {"class": type(trainee.optimizer).__name__, **options},
        **epochs.config,
    }
    found: Config = json.loads(json.dumps(config, default=str))  # as a file gives it back
    return found
