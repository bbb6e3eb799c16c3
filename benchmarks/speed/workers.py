"""
Workers of a cluster on this machine, each a process on a core of its own with a share of the rows.

Run with a task as JSON this is one of them; its last line is JSON.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from columns import read
from ours import peak
from running import GivenUp, Numbers, Settings
from workloads import Model


def share(folder: Path, index: int, number: int) -> pd.DataFrame:
    """The rows of one of so many workers."""
    every = read(folder / "train")
    return every[index * len(every) // number : (index + 1) * len(every) // number].copy()


def work(task: dict[str, Any]) -> Numbers:
    """
    A fit to this worker's share: seconds from the share to the fitted GAM, a pass and its search,
    and what was sent.
    """
    import tensorflow as tf

    import gpflow_gam as gg

    index, number = task["index"], task["number"]
    strategy = tf.distribute.MultiWorkerMirroredStrategy() if number > 1 else None
    data = share(Path(task["folder"]), index, number)
    gam, ends = gg.GAM(task["formula"], family=task["family"]), []
    begin = time.perf_counter()
    gg.distribute.fit(gam, data, strategy=strategy, callback=lambda _: ends.append(time.time()))
    numbers: Numbers = {"first": time.perf_counter() - begin, "memory_mb": peak()}
    passes = gam.fitted.result.num_iterations
    numbers |= {"iterations": passes, "pass_s": float(np.median(np.diff(ends[-passes:])))}
    if number > 1:
        sent = gam.fitted.communication
        numbers |= {"sent_kb": sent.bytes_a_pass / 1e3, "reductions": sent.reductions}
    if index == 0:
        size = 100_000
        some = share(Path(task["folder"]), 0, 1)[:size]
        truth = np.fromfile(Path(task["folder"]) / "truth.bin", "<f8")[:size]
        result = gam.predict(some, "link")
        numbers["rmse"] = float(np.sqrt(np.mean((result - truth) ** 2)))
    return numbers


def cluster(model: Model, number: int, folder: Path, settings: Settings) -> Numbers:
    """
    So many workers: of seconds and memory the most, of the rest what the first one says.

    :raises GivenUp: one failed, or took too long.
    """
    addresses = [f"127.0.0.1:{port}" for port in _ports(number)]
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    task = {"folder": str(folder), "formula": model.ours, "family": model.family, "number": number}
    started = []
    for i in range(number):
        role = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": i}}
        own = {"TF_CONFIG": json.dumps(role)} if number > 1 else {}
        arguments = [sys.executable, __file__, json.dumps({**task, "index": i})]
        core = {cores[i % len(cores)]} if cores else None
        started.append(
            subprocess.Popen(
                arguments,
                env={**os.environ, **own},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                preexec_fn=None if core is None else lambda c=core: os.sched_setaffinity(0, c),
            )
        )
    end, result = time.monotonic() + settings.limit, []
    try:
        for process in started:
            out, errors = process.communicate(timeout=max(end - time.monotonic(), 1.0))
            if process.returncode:
                raise GivenUp((errors.strip().splitlines() or ["a worker failed"])[-1])
            result.append(json.loads(out.strip().splitlines()[-1]))
    except subprocess.TimeoutExpired:
        raise GivenUp(f"longer than {settings.limit:g} s") from None
    finally:
        for process in started:
            process.kill()
    most = {k: max(each[k] for each in result) for k in ("first", "pass_s", "memory_mb")}
    return {**result[0], **most}


def _ports(number: int) -> list[int]:
    """Ports that are free."""
    sockets = [socket.socket() for _ in range(number)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


if __name__ == "__main__":
    print(json.dumps(work(json.loads(sys.argv[1])), default=float))
