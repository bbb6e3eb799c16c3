"""What is reported once an epoch: the mean loss, compiled metrics, validation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
from gpflow.base import AnyNDArray

from .metrics import Metrics
from .validation import Validation


class Epochs:
    """
    Reports of a fit, as Keras's ``History`` has them.

    :param steps: of an epoch; None where nobody knows.
    :param model: that is trained.
    :param metrics: of the model; None where there is nothing to report but the loss.
    :param validation: data.
    :raises ValueError: there is something to report, and no epoch.
    """

    def __init__(
        self,
        steps: int | None,
        model: Any,
        metrics: Metrics | None,
        validation: Validation | None,
    ) -> None:
        if steps is None and metrics is not None:
            raise ValueError(
                "metrics and validation_data are reported once an epoch, and data do not say how "
                "many rows they have: pass steps_per_epoch=."
            )
        self.steps = steps
        self.found: dict[str, list[AnyNDArray]] = {}
        """Reports by name, of all epochs that have ended."""
        self._model, self._metrics, self._validation = model, metrics, validation

    @property
    def config(self) -> dict[str, Any]:
        """What a checkpoint must agree with."""
        if self._metrics is None:
            return {"steps_per_epoch": None, "metrics": None, "validation_data": None}
        validation = None if self._validation is None else self._validation.digest()
        return {
            "steps_per_epoch": self.steps,
            "metrics": self._metrics.names(),
            "validation_data": validation,
        }

    def left(self, step: int) -> int | None:
        """
        Steps until something is to be reported; None where that is never.

        :param step: the number of those done.
        """
        if self._metrics is None or self.steps is None:
            return None
        return self.steps - step % self.steps

    def close(self, history: Sequence[float]) -> dict[str, AnyNDArray]:
        """
        End an epoch, if this is the end of one.

        :param history: the losses of all steps so far.
        :return: its report; nothing elsewhere.
        """
        if self._metrics is None or self.steps is None or len(history) % self.steps:
            return {}
        found = self._metrics.result(self._metrics.totals())
        found["loss"] = np.mean(history[-self.steps :])
        if self._validation is not None:
            assert isinstance(self._model, keras.Model)
            validated = self._validation.evaluate(self._model, self._metrics)
            found |= {f"val_{name}": value for name, value in validated.items()}
        self._metrics.reset()
        for name, value in found.items():
            self.found.setdefault(name, []).append(value)
        return found

    def totals(self) -> list[AnyNDArray]:
        """What metrics have added up since the last epoch's end."""
        return [] if self._metrics is None else self._metrics.totals()

    def resume(
        self, found: Mapping[str, Sequence[AnyNDArray]], totals: Sequence[AnyNDArray]
    ) -> None:
        """
        Go on from a checkpoint.

        :param found: reports.
        :param totals: of the epoch that had not ended.
        """
        self.found = {name: list(values) for name, values in found.items()}
        if self._metrics is not None and totals:
            self._metrics.assign(totals)

    def reports(self, history: Sequence[float]) -> dict[str, AnyNDArray]:
        """
        All reports [epochs], the mean loss first.

        :param history: the losses of all steps.
        """
        if self.steps is None:
            return {}
        ended = len(history) // self.steps
        losses = np.reshape(history[: ended * self.steps], (ended, self.steps)).mean(axis=1)
        return {"loss": losses, **{n: np.stack(v) for n, v in self.found.items() if n != "loss"}}
