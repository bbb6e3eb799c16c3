"""Replicates side by side, in processes that do not fight over the cores."""

from __future__ import annotations

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor

THREADS = (
    "TF_NUM_INTRAOP_THREADS",
    "TF_NUM_INTEROP_THREADS",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
)


def pool(jobs: int) -> ProcessPoolExecutor:
    """
    Of ``jobs`` fresh processes with a thread each: small fits are not quicker with more.

    Threads that wait for each other take half of the time where as many processes as cores fit
    models of a few hundred rows. Variables of the environment that are set already are kept.
    """
    for name in THREADS:
        os.environ.setdefault(name, "1")
    return ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn"))
