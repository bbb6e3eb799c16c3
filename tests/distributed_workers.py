"""
Run by test_distribute: two workers of one cluster, then a head on two devices.

Each is a fork from before TensorFlow starts, so that it is imported once.
"""

import settings  # noqa: F401
import transforms  # noqa: F401

# isort: split
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import distributed_fit
import distributed_gam
import distributed_layer
import tensorflow as tf


def fork(work: Callable[[], None]) -> int:
    pid = os.fork()
    if pid == 0:
        signal.alarm(240)  # one that waits for ever ends
        try:
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        sys.stdout.flush()
        os._exit(0)
    return pid


def ended(*pids: int) -> bool:
    return not any([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids])


def main(folder: Path, ports: list[str]) -> None:
    cluster = {"worker": [f"127.0.0.1:{port}" for port in ports]}

    def worker(index: int) -> None:
        task = {"cluster": cluster, "task": {"type": "worker", "index": index}}
        os.environ["TF_CONFIG"] = json.dumps(task)
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        distributed_fit.workers(strategy, str(folder / f"fits {index}.npz"))
        distributed_gam.main(strategy, str(folder / f"gam {index}.npz"))
        # whoever leaves first breaks a last exchange that the other still reads
        (folder / f"ended {index}").touch()
        while not all((folder / f"ended {i}").exists() for i in range(2)):
            time.sleep(0.05)

    workers = [fork(lambda i=i: worker(i)) for i in range(2)]
    if not (ended(*workers) and ended(fork(distributed_layer.main))):
        sys.exit(1)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
