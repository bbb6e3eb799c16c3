"""Which columns of X a kernel reads."""

from __future__ import annotations

import numpy as np
from gpflow.kernels import Combination, Constant, Kernel

Columns = tuple[int, ...]


def kernel_columns(kernel: Kernel) -> Columns | None:
    """The columns of X that ``kernel`` reads, sorted, or ``None`` for "every column"."""
    if isinstance(kernel, Constant):
        return ()
    if isinstance(kernel, Combination):
        union: set[int] = set()
        for part in kernel.kernels:
            columns = kernel_columns(part)
            if columns is None:
                return None
            union.update(columns)
        return tuple(sorted(union))
    return _active_columns(kernel)


def _active_columns(kernel: Kernel) -> Columns | None:
    dims = kernel.active_dims
    if isinstance(dims, slice):
        start = 0 if dims.start is None else dims.start
        if dims.stop is None or dims.stop < 0 or start < 0:
            return None
        return tuple(range(start, dims.stop, dims.step or 1))
    columns = tuple(int(c) for c in np.ravel(dims))
    negative = [c for c in columns if c < 0]
    if negative:
        raise ValueError(
            f"active_dims {list(columns)} of {type(kernel).__name__} count from the end; a "
            "component needs columns counted from the start (0, 1, ...)."
        )
    if len(set(columns)) < len(columns):
        raise ValueError(f"active_dims {list(columns)} of {type(kernel).__name__} repeat a column.")
    return columns
