"""
The kernel product alone: k(X, X) V against KeOps and against holding the matrix.

Matern-3/2 in 3, 10 and 50 dimensions, 1 and 100 right-hand sides, N = 20 000: million kernel
entries a second, medians of several runs, and seconds of CPU, which are what to compare where other
work is running: threads with even shares of a product wait for the one that has to wait. What the
cores can do is measured beside it, by a matrix product in the same precision: "of peak" is the
share of its operations a second of CPU, counting two a right-hand side and a dimension for every
entry, and none for the kernel's function of the distance. With ``--rows`` it is so many rows of K,
evenly spread, that are multiplied: all take the same time, and all of 100 000 would take KeOps an
hour. With ``--components`` K is a sum of so many kernels, each of D columns of its own, as an
additive model's is: by one product, and by a product a component ("one by one"). With ``--memory``
the peak memory that a product of ten right-hand sides adds in a process of its own (Linux). Run it
with ``python benchmarks/iterncgp/products.py``; KeOps needs
``pip install pykeops``.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import gpflow
import numpy as np
import tensorflow as tf
from tabulate import tabulate

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from recording import add_option, record

from gpflow_gam.newton.operators import KernelProduct

LENGTHSCALE = 0.3
SIZE = 3000
"""Of the matrices whose product says what the cores can do."""
ALL = slice(None)


def problem(
    number: int, dtype: type, dimensions: int = 3, width: int = 10
) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (number, dimensions)).astype(dtype)
    return X, rng.normal(size=(number, width)).astype(dtype)


def parts(X: np.ndarray, components: int) -> list[slice]:
    """Columns of each component."""
    width = X.shape[1] // components
    return [slice(c * width, (c + 1) * width) for c in range(components)]


def kernels(X: np.ndarray, components: int) -> list[gpflow.kernels.Kernel]:
    gpflow.config.set_default_float(X.dtype.type)
    own = parts(X, components)
    return [gpflow.kernels.Matern32(1.0, LENGTHSCALE, active_dims=columns) for columns in own]


def ours(
    X: np.ndarray, V: np.ndarray, rows: slice = ALL, components: int = 1
) -> Callable[[], np.ndarray]:
    found = kernels(X, components)
    product = KernelProduct(gpflow.kernels.Sum(found) if components > 1 else found[0])
    some, points, right = tf.constant(X[rows]), tf.constant(X), tf.constant(V)
    return lambda: product(some, points, right).numpy()


def one_by_one(
    X: np.ndarray, V: np.ndarray, rows: slice, components: int
) -> Callable[[], np.ndarray]:
    products = [KernelProduct(kernel) for kernel in kernels(X, components)]
    some, points, right = tf.constant(X[rows]), tf.constant(X), tf.constant(V)
    return lambda: tf.add_n([product(some, points, right) for product in products]).numpy()


def keops(
    X: np.ndarray, V: np.ndarray, rows: slice = ALL, components: int = 1
) -> Callable[[], np.ndarray]:
    from pykeops.numpy import LazyTensor

    K = 0.0
    for columns in parts(X, components):
        scaled = np.sqrt(3.0) / LENGTHSCALE * np.ascontiguousarray(X[:, columns])
        scaled = scaled.astype(X.dtype)
        some = np.ascontiguousarray(scaled[rows])
        distance = ((LazyTensor(some[:, None]) - LazyTensor(scaled[None])) ** 2).sum(-1).sqrt()
        K = (1.0 + distance) * (-distance).exp() + K
    return lambda: K @ V


def matmul(dtype: type) -> Callable[[], np.ndarray]:
    """What the cores can do: a product of two matrices, by the library that ours is by."""
    A = tf.constant(np.random.default_rng(0).normal(size=(SIZE, SIZE)).astype(dtype))
    return lambda: tf.matmul(A, A).numpy()


def median_seconds(
    runs: dict[str, Callable[[], np.ndarray]], repeats: int
) -> dict[str, tuple[float, float]]:
    """On the clock, and of CPU in all threads; one after the other, again and again."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            begun, used = time.perf_counter(), time.process_time()
            run()
            now = time.perf_counter() - begun, time.process_time() - used
            found[name].append(now)
    middle = statistics.median
    return {name: (middle(t[0] for t in x), middle(t[1] for t in x)) for name, x in found.items()}


def added_memory(number: int) -> float:
    """MB that a product in float32 adds to what a fresh process holds, compilation included."""
    code = (
        "import products, numpy as np\n"
        "def held(key):\n"
        "    lines = open('/proc/self/status').read().splitlines()\n"
        "    return next(int(l.split()[1]) for l in lines if l.startswith(key)) / 1024\n"
        "products.ours(*products.problem(64, np.float32))()\n"
        f"run = products.ours(*products.problem({number}, np.float32))\n"
        "open('/proc/self/clear_refs', 'w').write('5')\n"  # the peak starts anew
        "before = held('VmRSS'); run(); print(held('VmHWM') - before)"
    )
    folder = Path(__file__).parent
    out = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, check=True)
    return float(out.stdout.decode().strip().splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--n", type=int, nargs="+", default=[20_000])
    parser.add_argument("--dimensions", type=int, nargs="+", default=[3, 10, 50])
    parser.add_argument("--widths", type=int, nargs="+", default=[1, 100])
    parser.add_argument(
        "--components", type=int, nargs="+", default=[1], help="of sums, each of D columns"
    )
    parser.add_argument("--rows", type=int, help="of K; all without it")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--memory", action="store_true", help="print what a product adds, too")
    add_option(parser)
    arguments = parser.parse_args()
    rows, skipped = [], []
    sums = arguments.components != [1]
    for number, D, C, width, dtype in itertools.product(
        arguments.n,
        arguments.dimensions,
        arguments.components,
        arguments.widths,
        (np.float32, np.float64),
    ):
        X, V = problem(number, dtype, D * C, width)
        some = ALL if arguments.rows is None else slice(0, number, max(1, number // arguments.rows))
        runs = {"ours": ours(X, V, some, C)}
        try:
            runs["KeOps"] = keops(X, V, some, C)
        except ImportError:
            skipped = ["pykeops"]
        first = [run() for run in runs.values()]  # what is compiled is so here
        error = None
        if len(first) == 2:
            error = float(np.abs(first[1] - first[0]).max() / np.abs(first[0]).max())
        if sums:
            runs["ours, one by one"] = one_by_one(X, V, some, C)
            runs["ours, one by one"]()
        runs["matmul"] = matmul(dtype)
        found = median_seconds(runs, arguments.repeats)
        _, worked = found.pop("matmul")
        peak = 2.0 * SIZE**3 / worked
        entries = len(first[0]) * number
        where = {
            "N": number,
            "D": D,
            **({"C": C} if sums else {}),
            "right-hand sides": width,
            "type": dtype.__name__,
        }
        for name, (seconds, worked) in found.items():
            row = {**where, "product": name, "s": seconds, "CPU s": worked}
            row["million entries/s"] = entries / seconds / 1e6
            row["of peak"] = 2.0 * (C * D + width) * entries / worked / peak
            rows.append({**row, "peak, Gflop/CPU s": peak / 1e9, "difference": error})
        print(rows[-len(found) :], flush=True)
    print(tabulate(rows, headers="keys", floatfmt=".3g"))
    name, title = "iterncgp_products", "Kernel products: k(X, X) V beside KeOps, Matern-3/2"
    if arguments.rows is not None:
        name, title = name + "_rows", title + f", {arguments.rows} rows of K"
    if sums:
        name, title = "iterncgp_products_sums", title.replace("k(X, X)", "sums of k(X, X)")
    record(
        name,
        title,
        rows,
        arguments,
        within=["N", "D", *(["C"] if sums else []), "right-hand sides", "type"],
        method="product",
        ours=["ours", "ours, one by one"] if sums else ["ours"],
        better={"s": "lower", "CPU s": "lower"},
        skipped=skipped,
        peers=["pykeops"],
    )
    if arguments.memory and Path("/proc/self/clear_refs").exists():
        sizes = (5_000, 20_000, 80_000)
        memory = [[n, added_memory(n), n**2 * 4 / 2**20] for n in sizes]
        print(tabulate(memory, ["N", "MB added", "MB of the matrix"], floatfmt=".0f"))


if __name__ == "__main__":
    main()
