"""
A GAM from import to prediction: seconds and memory, of one version of the package after another.

Small and quick on purpose: what is compared with peers, and at which size, is ``speed.py``'s.
Each class is set up anew in a process of its own; ``number = 1`` because a fit is long beside a
clock's tick, ``warmup_time = 0`` so that the first fit of a process is seen as it is.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np


def counts(rows: int, columns: int = 8) -> dict[str, np.ndarray]:
    """Counts of a sum of smooth functions, and their columns."""
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(rows, columns))
    predictor = 0.25 * np.sum(np.sin((1.0 + np.arange(columns)) * x), axis=1)
    data = {f"x{j}": x[:, j] for j in range(columns)}
    return {**data, "y": rng.poisson(np.exp(predictor)).astype(float)}


FORMULA = "y ~ " + " + ".join(f"s(x{j}, k=20)" for j in range(8))


class Import:
    """Of the package, beyond what it stands on."""

    number, repeat, warmup_time = 1, 3, 0
    timeout = 300

    def time_import(self) -> None:
        subprocess.run([sys.executable, "-c", "import gpflow_gam"], check=True)

    def time_import_of_what_it_stands_on(self) -> None:
        code = "import tensorflow, tensorflow_probability, gpflow"
        subprocess.run([sys.executable, "-c", code], check=True)


class Fit:
    """Eight smooths of twenty, by the number of rows."""

    params = (2_000, 20_000, 200_000)
    param_names = ("rows",)
    number, repeat, warmup_time = 1, 3, 0
    timeout = 600

    def setup(self, rows: int) -> None:
        import gpflow_gam as gg

        self.gg, self.data = gg, counts(rows)
        self.fitted = gg.GAM(FORMULA, family="poisson").fit(self.data, progress=False)

    def time_fit(self, rows: int) -> None:
        self.gg.GAM(FORMULA, family="poisson").fit(self.data, progress=False)

    def time_refit(self, rows: int) -> None:
        self.fitted.refit(progress=False)

    def time_read(self, rows: int) -> None:
        for name in self.fitted.names:
            self.fitted.effects(name)
        self.fitted.summary()

    def time_predict(self, rows: int) -> None:
        self.fitted.predict(self.data, "terms", se=True)

    def peakmem_fit(self, rows: int) -> None:
        self.time_fit(rows)

    def track_elbo(self, rows: int) -> float:
        """What the time was spent for: a fit that is quicker and worse shows."""
        return float(self.fitted.fitted.result.elbo)


class Train:
    """A Keras network with a head: ten steps of a compiled model, tracing included."""

    number, repeat, warmup_time = 1, 3, 0
    timeout = 600

    def setup(self) -> None:
        import keras

        import gpflow_gam as gg

        data = counts(1_280, 2)
        self.x, self.y = np.stack([data["x0"], data["x1"]], axis=1), data["y"]
        self.keras, self.gg = keras, gg

    def time_ten_steps(self) -> Any:
        inputs = self.keras.Input((2,))
        terms = self.gg.s(0, k=10) + self.gg.s(1, k=10)
        head = self.gg.layers.AdditiveGP(terms, "poisson", num_data=len(self.y))
        model = self.keras.Model(inputs, head(inputs))
        model.compile("adam", loss=head.loss)
        return model.fit(self.x, self.y, batch_size=128, verbose=0)
