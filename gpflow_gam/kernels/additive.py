"""Additive kernels: sums of named components, one sum or one for each latent output."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes, inherit_check_shapes
from gpflow.base import AnyNDArray, TensorType
from gpflow.kernels import Kernel, MultioutputKernel, SeparateIndependent

from .correlation import Columns, kernel_columns, with_precise_distances
from .stacked import StackedKernel, signature, stack

_MAX_STACKED = 2**24
"""Entries of a stacked [C, N, N2] array above which a sum is accumulated one by one instead."""


@dataclass(frozen=True, eq=False)
class ComponentGroup:
    """Components that are evaluated in one batch."""

    indices: tuple[int, ...]  # their places in the additive kernel
    columns: Columns | None
    """The columns the first one reads (all read as many); None: evaluated alone, on all columns."""

    gather: AnyNDArray | None  # [G, d] columns to gather for each; None: evaluated alone

    def inputs(self, X: tf.Tensor) -> tf.Tensor:
        """X [N, D] as the group's kernels read it, [G, N, d]."""
        if self.gather is None:
            return X[None]
        G, d = self.gather.shape
        if d == 0:
            return tf.zeros([G, tf.shape(X)[0], 0], dtype=X.dtype)
        if d == 1 and np.array_equal(self.gather[:, 0], np.arange(X.shape[-1])):
            return tf.expand_dims(tf.transpose(X), -1)  # a gather's gradient is of sixty operations
        return tf.transpose(tf.gather(X, self.gather, axis=-1), [1, 0, 2])


class _OnAllColumns(StackedKernel):
    """One kernel at whole rows of X, whose columns it chooses itself."""

    @classmethod
    def signature(cls, kernel: Kernel, columns: Columns) -> Hashable | None:
        return None

    def K(self, X: tf.Tensor, X2: tf.Tensor) -> tf.Tensor:
        kernel = with_precise_distances(self.kernels[0])
        return kernel(X[0], None if X2 is X else X2[0])[None]

    def K_diag(self, X: tf.Tensor) -> tf.Tensor:
        return self.kernels[0](X[0], full_cov=False)[None]


class AdditiveKernel(Kernel):
    """
    A sum of kernels, each the prior of one named component of a generalized additive model.

    Works wherever a GPflow kernel does; unlike :class:`gpflow.kernels.Sum` it keeps which part is
    which, and evaluates like components in one batch.

    :param components: a mapping name -> kernel, or a sequence of kernels, which are named after
        the columns they read (``f0``, ``f1_2``, ``constant``). Every kernel carries its own
        ``active_dims``.
    :raises TypeError: a component is no single-output GPflow kernel.
    :raises ValueError: no component, a duplicate or empty name, or one kernel object used twice.
    """

    def __init__(self, components: Mapping[str, Kernel] | Sequence[Kernel]) -> None:
        super().__init__()
        named = _named(components)
        for name, kernel in named.items():
            if not isinstance(kernel, Kernel) or isinstance(kernel, MultioutputKernel):
                raise TypeError(
                    f"components[{name!r}] must be a single-output gpflow kernel; "
                    f"got {type(kernel).__name__}."
                )
        if len({id(k) for k in named.values()}) < len(named):
            raise ValueError(
                "components holds the same kernel object twice; give each component its own "
                "(copy it with gpflow.utilities.deepcopy)."
            )
        self.components: dict[str, Kernel] = named

    @property
    def names(self) -> tuple[str, ...]:
        """Component names, in order."""
        return tuple(self.components)

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """Component kernels, in order."""
        return tuple(self.components.values())

    @property
    def num_components(self) -> int:
        """Number of components, C."""
        return len(self.components)

    @property
    def members(self) -> AnyNDArray | None:
        """Mask of the components of each latent output, [L, C] of bool; None if all enter all."""
        return None

    def __getitem__(self, name: str) -> Kernel:
        """The kernel of the component called ``name``."""
        try:
            return self.components[name]
        except KeyError:
            raise KeyError(f"no component {name!r}; there are {', '.join(self.names)}.") from None

    @property
    def columns(self) -> tuple[Columns | None, ...]:
        """The columns of X that each component reads; None for "every column"."""
        return tuple(kernel_columns(k) for k in self.kernels)

    @property
    def num_columns(self) -> int:
        """The least number of columns an input must have."""
        return max((max(c, default=-1) + 1 for c in self.columns if c is not None), default=0)

    def check_inputs(self, X: TensorType, argument: str = "X") -> None:
        """
        :param X: [..., N, D] inputs.
        :param argument: what to call them in the message.
        :raises ValueError: a component reads a column that ``X`` lacks.
        """
        width = X.shape[-1]
        for name, columns in zip(self.names, self.columns):
            missing = [c for c in columns or () if c >= width]
            if missing:
                raise ValueError(
                    f"component {name!r} reads column {missing[0]}, but {argument} has only "
                    f"{width} column(s) (0 to {width - 1}); mend its active_dims or {argument}."
                )

    def groups(self, sizes: Sequence[Hashable] | None = None) -> tuple[ComponentGroup, ...]:
        """The components in batches of equal formula (and equal ``sizes``), first come first."""
        result: dict[Hashable, list[int]] = {}
        for i, (kernel, columns) in enumerate(zip(self.kernels, self.columns)):
            own = signature(kernel, columns)
            key: Hashable = (
                ("alone", i) if own is None else (own, None if sizes is None else sizes[i])
            )
            result.setdefault(key, []).append(i)
        groups = []
        for key, indices in result.items():
            columns = self.columns[indices[0]]
            alone = isinstance(key, tuple) and key[0] == "alone"
            gather = None if alone else np.array([self.columns[i] for i in indices], dtype=np.int32)
            groups.append(ComponentGroup(tuple(indices), None if alone else columns, gather))
        return tuple(groups)

    def stacked(self, group: ComponentGroup) -> StackedKernel:
        """The batched evaluation of a ``group``, at its :meth:`~ComponentGroup.inputs`."""
        kernels = [self.kernels[i] for i in group.indices]
        if group.columns is None:
            return _OnAllColumns(kernels, ())
        return stack(kernels, group.columns)

    # --- per component ----------------------------------------------------------------------

    @check_shapes(
        "X: [N, D]",
        "X2: [N2, D]",
        "return: [C, N, N2] if X2 is not None",
        "return: [C, N, N] if X2 is None",
    )
    def K_components(self, X: TensorType, X2: TensorType | None = None) -> tf.Tensor:
        """
        The covariance of every component.

        :param X: inputs, [N, D].
        :param X2: further inputs, [N2, D]; X itself by default.
        :return: [C, N, N2].
        :raises ValueError: a component reads a column that ``X`` lacks.
        """
        self.check_inputs(X)
        groups, blocks = self.groups(), []
        for group in groups:
            rows = group.inputs(X)
            others = rows if X2 is None else group.inputs(X2)
            blocks.append(self.stacked(group).K(rows, others))
        return _in_order(blocks, groups)

    @check_shapes("X: [N, D]", "return: [C, N]")
    def K_diag_components(self, X: TensorType) -> tf.Tensor:
        """
        The prior variance of every component.

        :param X: inputs, [N, D].
        :return: [C, N].
        :raises ValueError: a component reads a column that ``X`` lacks.
        """
        self.check_inputs(X)
        groups = self.groups()
        blocks = [self.stacked(group).K_diag(group.inputs(X)) for group in groups]
        return _in_order(blocks, groups)

    # --- as any kernel ----------------------------------------------------------------------

    @inherit_check_shapes
    def K(self, X: TensorType, X2: TensorType | None = None) -> tf.Tensor:
        self.check_inputs(X)
        if self._stacks(X, X2):
            return tf.reduce_sum(self.K_components(X, X2), axis=0)
        return functools.reduce(tf.add, (with_precise_distances(k)(X, X2) for k in self.kernels))

    @inherit_check_shapes
    def K_diag(self, X: TensorType) -> tf.Tensor:
        self.check_inputs(X)
        if len(X.shape) == 2:
            return tf.reduce_sum(self.K_diag_components(X), axis=0)
        return functools.reduce(tf.add, (k(X, full_cov=False) for k in self.kernels))

    def _stacks(self, X: TensorType, X2: TensorType | None) -> bool:
        other = X if X2 is None else X2
        if len(X.shape) != 2 or len(other.shape) != 2:
            return False
        rows, columns = X.shape[0], other.shape[0]
        # Large covariances gain nothing from a batch and would be held C times over.
        return (
            rows is None
            or columns is None
            or (self.num_components * int(rows) * int(columns) <= _MAX_STACKED)
        )


def _in_order(blocks: Sequence[tf.Tensor], groups: Sequence[ComponentGroup]) -> tf.Tensor:
    """Blocks [G, ...] of all groups as one tensor [C, ...] in the order of components."""
    order = [i for group in groups for i in group.indices]
    x = tf.concat(blocks, axis=0)
    return x if order == list(range(len(order))) else tf.gather(x, np.argsort(order), axis=0)


def _named(components: Mapping[str, Kernel] | Sequence[Kernel]) -> dict[str, Kernel]:
    if isinstance(components, Kernel) or not isinstance(components, (Mapping, Sequence)):
        raise TypeError(
            "components must be a mapping name -> kernel or a sequence of kernels; "
            f"got {type(components).__name__}."
        )
    if len(components) == 0:
        raise ValueError("components is empty; an additive kernel needs at least one.")
    if not isinstance(components, Mapping):
        return _auto_named(components)
    named: dict[str, Kernel] = {}
    for name, kernel in components.items():
        if not isinstance(name, str) or not name:
            raise ValueError(f"component names must be non-empty strings; got {name!r}.")
        named[name] = kernel
    return named


def _auto_named(components: Sequence[Kernel | tuple[str, Kernel]]) -> dict[str, Kernel]:
    named: dict[str, Kernel] = {}
    for item in components:
        if isinstance(item, tuple) and len(item) == 2:  # explicit pairs keep duplicates visible
            name, kernel = item
            if name in named:
                raise ValueError(f"components holds two components named {name!r}; rename one.")
        else:
            columns, kernel = kernel_columns(item) if isinstance(item, Kernel) else None, item
            own = "constant" if columns == () else "f" + "_".join(map(str, columns or ()))
            names = itertools.chain([own], (f"{own}#{k}" for k in itertools.count(2)))
            name = next(n for n in names if n not in named)
        named[name] = kernel
    return named


class SeparateAdditive(AdditiveKernel):
    """
    Components of which each enters some of L latent outputs: ``rho_l(x) = sum_{c in l} f_cl(x)``.

    The additive counterpart of :class:`gpflow.kernels.SeparateIndependent`: outputs are independent
    a priori, and a component that enters several of them is a function of its own in each, with
    one kernel, and so the same hyperparameters.
    """

    def __init__(
        self, components: Mapping[str, Kernel] | Sequence[Kernel], members: AnyNDArray
    ) -> None:
        super().__init__(components)
        self._members: AnyNDArray = np.array(members, dtype=bool)
        self._members.setflags(write=False)

    @classmethod
    def of(
        cls, kernels: SeparateIndependent | Mapping[str, Kernel] | Sequence[Kernel]
    ) -> SeparateAdditive:
        """From one kernel an output; components are named after outputs that they do not share."""
        if isinstance(kernels, SeparateIndependent):
            kernels = list(kernels.kernels)
        if not isinstance(kernels, Mapping):
            kernels = {str(i): k for i, k in enumerate(kernels)}
        own: dict[int, tuple[Kernel, list[tuple[int, str]]]] = {}
        for i, kernel in enumerate(kernels.values()):
            if not isinstance(kernel, AdditiveKernel):
                kernel = AdditiveKernel({"f": kernel})
            for name, part in kernel.components.items():
                enters = own.setdefault(id(part), (part, []))[1]
                enters.append((i, name if not enters else enters[0][1]))
        outputs = list(kernels)
        components: dict[str, Kernel] = {}
        members = np.zeros((len(outputs), len(own)), dtype=bool)
        for c, (part, enters) in enumerate(own.values()):
            which = [i for i, _ in enters]
            name = enters[0][1]
            if len(which) < len(outputs) or len(outputs) == 1:
                name = f"{','.join(outputs[i] for i in which)}:{name}"
            while name in components:
                name += "'"
            components[name] = part
            members[which, c] = True
        return cls(components, members)

    @property
    def members(self) -> AnyNDArray:
        return self._members

    @property
    def latent_kernels(self) -> tuple[AdditiveKernel, ...]:
        """An additive kernel for each output, of the same components."""
        named = list(self.components.items())
        return tuple(
            AdditiveKernel(dict(named[c] for c in np.flatnonzero(own))) for own in self._members
        )

    def K(self, X: TensorType, X2: TensorType | None = None) -> TensorType:
        raise TypeError(_NO_SUM)

    def K_diag(self, X: TensorType) -> TensorType:
        raise TypeError(_NO_SUM)


_NO_SUM = (
    "this kernel has a covariance for each of its outputs and no single one; evaluate one of its "
    "latent_kernels."
)
