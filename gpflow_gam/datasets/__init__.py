"""Small real data that come with the package."""

from __future__ import annotations

from importlib.resources import files

import pandas as pd

__all__ = ["bikeshare"]

_MNTH = ["Jan", "Feb", "March", "April", "May", "June", "July", "Aug", "Sept", "Oct", "Nov", "Dec"]
_ORDERED = {
    "mnth": _MNTH,
    "weathersit": ["clear", "cloudy/misty", "light rain/snow", "heavy rain/snow"],
}


def bikeshare() -> pd.DataFrame:
    """
    Hires of every hour of 2011, with the weather: 8 645 rows.

    Columns: ``season`` (1 winter to 4 autumn), ``mnth`` (in order), ``day`` (of the year), ``hr``
    (0 to 23), ``holiday``, ``weekday`` (0 Sunday), ``workingday`` (0 or 1), ``weathersit`` (in
    order), ``temp``, ``atemp``, ``hum``, ``windspeed`` (all scaled to about [0, 1]), ``casual``,
    ``registered`` and their sum ``bikers``.

    UCI Bike Sharing (Fanaee-T & Gama 2014; CC BY 4.0), in the form of the Python package ISLP
    (BSD-3-Clause).

    :return: a data frame of these columns.
    """
    with files(__package__).joinpath("bikeshare.csv.gz").open("rb") as stream:
        frame = pd.read_csv(stream, compression="gzip", float_precision="round_trip")
    ordered = {name: pd.CategoricalDtype(levels, True) for name, levels in _ORDERED.items()}
    return frame.astype(ordered)
