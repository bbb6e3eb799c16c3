"""Run by test_distribute as the workers of one cluster: all that two processes are needed for."""

from __future__ import annotations

import settings  # noqa: F401
import transforms  # noqa: F401

# isort: split
import sys

import distributed_fit
import distributed_gam
import tensorflow as tf


def main(fits: str, gam: str) -> None:
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    distributed_fit.workers(strategy, fits)
    distributed_gam.main(strategy, gam)


if __name__ == "__main__":
    main(*sys.argv[1:])
