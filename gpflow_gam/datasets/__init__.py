"""Small real data that come with the package."""

from __future__ import annotations

import csv
import gzip
from importlib.resources import files

import numpy as np
from gpflow.base import AnyNDArray

__all__ = ["bikeshare"]


_TEXT = {"mnth", "weathersit"}
_WHOLE = {
    "season", "day", "hr", "holiday", "weekday", "workingday", "casual", "registered", "bikers",
}  # fmt: skip


def bikeshare() -> dict[str, AnyNDArray]:
    """
    Hires of every hour of 2011, with the weather: 8 645 rows.

    Columns: ``season`` (1 winter to 4 autumn), ``mnth`` (text), ``day`` (of the year), ``hr``
    (0 to 23), ``holiday``, ``weekday`` (0 Sunday), ``workingday`` (0 or 1), ``weathersit`` (text),
    ``temp``, ``atemp``, ``hum``, ``windspeed`` (all scaled to about [0, 1]), ``casual``,
    ``registered`` and their sum ``bikers``.

    UCI Bike Sharing (Fanaee-T & Gama 2014; CC BY 4.0), in the form of the Python package ISLP
    (BSD-3-Clause).

    :return: column name -> [8645]; ``pandas.DataFrame(bikeshare())`` makes a data frame.
    """
    path = files(__package__).joinpath("bikeshare.csv.gz")
    with path.open("rb") as stream, gzip.open(stream, "rt", encoding="utf-8", newline="") as text:
        header, *rows = csv.reader(text)
    columns = {}
    for name, values in zip(header, zip(*rows)):
        kind = str if name in _TEXT else np.int64 if name in _WHOLE else np.float64
        columns[name] = np.array(values).astype(kind)
    return columns
