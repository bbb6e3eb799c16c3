"""The state of a fit of minibatches: its history, reports and checkpoints."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from gpflow.base import AnyNDArray

from .. import archive
from ..version import __version__
from .batches import Batches
from .training import Metrics, TrainableModel, Validation
from .workers import Workers

FILE = "training.state"
FORMAT = 1
_KIND = "gpflow_gam.distribute.fit"


class FailedStepError(RuntimeError):
    """A step could not be computed, or its loss or gradient is NaN or infinite."""


class FitState:
    """
    Steps done, reports of epochs, and the checkpoint from which a restarted fit goes on.

    :param folder: of the checkpoint; None for none.
    :param steps_per_epoch: None where nobody knows.
    :param metrics: None where there is nothing to report but the loss.
    """

    def __init__(
        self,
        model: TrainableModel,
        workers: Workers,
        batches: Batches,
        folder: Path | None,
        seed: int,
        steps_per_epoch: int | None,
        metrics: Metrics | None,
        validation: Validation | None,
    ) -> None:
        if steps_per_epoch is None and metrics is not None:
            raise ValueError(
                "metrics and validation_data are reported once an epoch, and data do not say how "
                "many rows they have: pass steps_per_epoch=."
            )
        self.history: list[float] = []
        self._model, self._workers, self._batches = model, workers, batches
        self._steps_per_epoch, self._metrics, self._validation = (
            steps_per_epoch,
            metrics,
            validation,
        )
        self._epochs: dict[str, list[AnyNDArray]] = {}
        self._folder = folder
        self._saved: int | None = None
        self._variables = {**model.variables, **model.slots}
        self._config = self._configuration(seed)

    @property
    def step(self) -> int:
        return len(self.history)

    def _configuration(self, seed: int) -> dict[str, Any]:
        """Everything that must not change from start to start, nor from worker to worker."""
        optimizer = self._model.optimizer
        options = optimizer.get_config()
        kept = {k: v for k, v in options.items() if k not in ("name", "learning_rate")}
        validation, metrics = self._validation, self._metrics
        config = {
            "seed": seed,
            "batch_size": self._batches.batch_size,
            "num_data": self._model.num_data,
            "data": self._batches.digest(),
            "trained": self._model.trained_names,
            "optimizer": {"class": type(optimizer).__name__, **kept},
            "steps_per_epoch": None if metrics is None else self._steps_per_epoch,
            "metrics": None if metrics is None else metrics.names(),
            "validation_data": None if validation is None else validation.digest(),
        }
        as_in_a_file: dict[str, Any] = json.loads(json.dumps(config, default=str))
        return as_in_a_file

    def check_workers(self) -> None:
        """Raise ValueError if the workers were not started with the same arguments."""
        own = json.dumps(self._config)
        chiefs = self._workers.from_chief(own.encode()).decode()
        if self._workers.count(own != chiefs):
            there = json.loads(chiefs)
            names = [name for name in self._config if self._config[name] != there.get(name)]
            which = f"{', '.join(names)} of this one differ" if names else "another one differs"
            raise ValueError(
                f"the workers were not started with the same arguments: {which} from the chief's."
            )

    # --- steps and epochs ----------------------------------------------------------------------

    def record(self, loss: float, broken: float) -> None:
        """Append a step's loss; ``broken`` counts the numbers of its gradient not finite."""
        self.history.append(loss)
        if not np.isfinite(loss):
            self.fail(self.step, f"the loss is {loss}")
        if broken:
            self.fail(self.step, "the gradient of the loss is NaN or infinite")

    def end_epoch(self) -> dict[str, AnyNDArray]:
        """The epoch's report, if the last step ended one; empty elsewhere."""
        steps, metrics = self._steps_per_epoch, self._metrics
        if metrics is None or steps is None or self.step % steps:
            return {}
        report = metrics.result(metrics.totals())
        report["loss"] = np.mean(self.history[-steps:])
        if self._validation is not None:
            validated = self._validation.evaluate(self._model.model, metrics)
            report |= {f"val_{name}": value for name, value in validated.items()}
        metrics.reset()
        for name, value in report.items():
            self._epochs.setdefault(name, []).append(value)
        return report

    def epochs(self) -> dict[str, AnyNDArray]:
        """All reports [epochs], the mean loss first."""
        steps = self._steps_per_epoch
        if steps is None:
            return {}
        ended = self.step // steps
        losses = np.reshape(self.history[: ended * steps], (ended, steps)).mean(axis=1)
        return {"loss": losses, **{n: np.stack(v) for n, v in self._epochs.items() if n != "loss"}}

    def fail(self, step: int, what: str, cause: Exception | None = None) -> NoReturn:
        kept = ""
        if self._saved is not None:
            kept = f" The checkpoint of step {self._saved} in {self._folder} is from before."
        raise FailedStepError(
            f"step {step}: {what}. If the data are in order lower learning_rate, or raise the "
            f"jitter.{kept}"
        ) from cause

    # --- checkpoint ----------------------------------------------------------------------------

    @property
    def remedy(self) -> str:
        """What to do when a worker is lost."""
        if self._folder is None:
            return "Start all workers again; with checkpoint=folder they would go on from there."
        return (
            "Start all workers again with the same arguments: they go on from step "
            f"{self._saved or 0}, the last in {self._folder}."
        )

    def save(self) -> None:
        """Write the state, on the chief; raise FailedStepError where it is not finite."""
        if self._folder is None or self._saved == self.step:
            return
        # on every worker, since reading a variable may take all of them
        values = {name: v.numpy() for name, v in self._variables.items()}
        for name, value in values.items():
            if np.issubdtype(value.dtype, np.floating) and not np.all(np.isfinite(value)):
                self.fail(self.step, f"{name} is NaN or infinite after it")
        totals = [] if self._metrics is None else self._metrics.totals()
        if self._batches.is_shared:
            positions = [self._batches.position()] if self._workers.chief else []
        else:
            positions = self._workers.gather(self._batches.position())
        if self._workers.chief:
            header = {
                "kind": _KIND,
                "format": FORMAT,
                "version": __version__,
                "config": self._config,
                "epochs": list(self._epochs),
                "totals": len(totals),
                "positions": len(positions),
            }
            arrays = {
                "history": np.array(self.history, dtype=np.float64),
                **{f"variable {name}": value for name, value in values.items()},
                **{f"epoch {name}": np.stack(v) for name, v in self._epochs.items()},
                **{f"total {i}": value for i, value in enumerate(totals)},
                **{f"position {i}": np.frombuffer(p, np.uint8) for i, p in enumerate(positions)},
            }
            archive.write(self._folder / FILE, header, arrays, overwrite=True, compressed=False)
        self._saved = self.step

    def resume(self, num_steps: int) -> int:
        """Take over the chief's checkpoint, if there is one; returns the step it was written at."""
        if self._folder is None:
            return 0
        path, content = self._folder / FILE, b""
        if self._workers.chief:
            self._folder.mkdir(parents=True, exist_ok=True)
            content = path.read_bytes() if path.exists() else b""
        content = self._workers.from_chief(content)
        if not content:
            return 0
        try:
            header, arrays = archive.read(path, _KIND, FORMAT, "checkpoint", content)
        except ValueError as error:
            raise ValueError(f"checkpoint: {error} Remove it to start anew.") from error
        self._check(header["config"], arrays, path)
        self.history = arrays["history"].tolist()
        if self.step > num_steps:
            raise ValueError(
                f"num_steps={num_steps} is less than the {self.step} steps of the checkpoint in "
                f"{self._folder}; raise it, or pass another folder."
            )
        self._saved = self.step
        for name, variable in self._variables.items():
            variable.assign(arrays[f"variable {name}"])
        self._epochs = {name: list(arrays[f"epoch {name}"]) for name in header["epochs"]}
        if self._metrics is not None and header["totals"]:
            self._metrics.assign([arrays[f"total {i}"] for i in range(header["totals"])])
        # for as many workers as there were
        shared = self._batches.is_shared
        if header["positions"] == (1 if shared else self._workers.number):
            position = arrays[f"position {0 if shared else self._workers.index}"]
            self._batches.restore(self.step, position.tobytes())
        return self.step

    def _check(self, config: Mapping[str, Any], arrays: Mapping[str, Any], path: Path) -> None:
        """Raise ValueError if the checkpoint is of another fit."""
        for name, here in self._config.items():
            there = config.get(name)
            if there != here:
                raise ValueError(
                    f"checkpoint: {path} was written by another fit: "
                    f"{_difference(name, there, here)}. Go on with what it was written with, or "
                    "pass another folder."
                )
        for name, variable in self._variables.items():
            value = arrays.get(f"variable {name}")
            there, here = None if value is None else value.shape, tuple(variable.shape)
            if there != here:
                raise ValueError(
                    f"checkpoint: {path} was written by another fit: {name} has shape {there} "
                    f"there, {here} here. Build the model as it was, or pass another folder."
                )


def _difference(name: str, there: Any, here: Any) -> str:
    if name in ("data", "validation_data"):
        return f"its {name} were others"
    if name == "trained":
        only = sorted(set(there or ()) ^ set(here)) or ["their order"]
        return f"the trained parameters differ in {', '.join(only[:3])}"
    return f"{name} was {there}, now it is {here}"
