"""Additive priors: kernels of named components, those of one kind one batch; a known mean."""

from __future__ import annotations

import abc
import functools
import itertools
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes, inherit_check_shapes
from gpflow.base import AnyNDArray, Parameter, TensorType
from gpflow.functions import MeanFunction
from gpflow.kernels import (
    Constant,
    Kernel,
    MultioutputKernel,
    Periodic,
    Product,
    SquaredExponential,
    Sum,
)

from ..bijectors import identity, read_together
from .correlation import PROFILES, Columns, kernel_columns, with_precise_distances

Kernels = Sequence[Kernel]


class StackedKernel(abc.ABC):
    """
    G kernels of one :func:`signature`, their parameters read and stacked once.

    A short-lived view: it holds the parameters' values at the moment it was made, so make it where
    it is used, inside the gradient tape and the ``tf.function``.

    :param kernels: the kernels.
    :param columns: the columns of X that the first kernel's inputs hold; they fix the local order.
    """

    def __init__(self, kernels: Kernels, columns: Columns) -> None:
        self.kernels = list(kernels)
        self.columns = columns

    @classmethod
    @abc.abstractmethod
    def signature(cls, kernel: Kernel, columns: Columns) -> Hashable | None:
        """A value that is equal for each ``kernel`` of these ``columns`` that stacks, or None."""

    level: tf.Tensor | None = None
    """
    A constant [G, 1] that ``rest`` takes out; None where there is none, and no such argument.

    Kernels that are nearly constant for long lengthscales have one: what is left keeps its digits.
    """

    @abc.abstractmethod
    def K(self, X: tf.Tensor, X2: tf.Tensor, rest: bool = False) -> tf.Tensor:
        """
        Covariances [G, N, N2] of kernels at their ``X`` [G, N, d] and ``X2`` [G, N2, d].

        With ``rest`` less the level.
        """

    @abc.abstractmethod
    def K_diag(self, X: tf.Tensor, rest: bool = False) -> tf.Tensor:
        """Variances [G, N] of each kernel at its own ``X`` [G, N, d], with ``rest`` as of ``K``."""


def rest_of(stacked: StackedKernel, rest: bool = True) -> dict[str, bool]:
    """The argument that takes a level out, where there is one."""
    return {"rest": True} if rest and stacked.level is not None else {}


class Alone(StackedKernel):
    """One kernel that has no class of its own, at [B, N, d]; without columns at rows [1, N, D]."""

    def __init__(self, kernels: Kernels, columns: Columns | None = None) -> None:
        super().__init__(kernels, columns or ())
        self._kernel, self._whole = kernels[0], columns is None

    @classmethod
    def signature(cls, kernel: Kernel, columns: Columns) -> Hashable | None:
        return None

    def _inputs(self, X: tf.Tensor) -> tf.Tensor:
        """As rows of which the kernel takes its columns, zero in others."""
        if self._whole or list(self.columns) == list(range(X.shape[-1])):
            return X
        where = np.zeros((len(self.columns), max(self.columns, default=-1) + 1))
        where[np.arange(len(self.columns)), list(self.columns)] = 1.0
        return tf.matmul(X, tf.constant(where, dtype=X.dtype))

    def K(self, X: tf.Tensor, X2: tf.Tensor, rest: bool = False) -> tf.Tensor:
        kernel, other = with_precise_distances(self._kernel), None
        if X2 is not X:
            other = self._inputs(X2)[0]
        if X.shape[0] == 1:  # a user's own may be of matrices alone
            return kernel(self._inputs(X)[0], other)[None]
        return kernel(self._inputs(X), other)

    def K_diag(self, X: tf.Tensor, rest: bool = False) -> tf.Tensor:
        if X.shape[0] == 1:
            return self._kernel(self._inputs(X)[0], full_cov=False)[None]
        return self._kernel(self._inputs(X), full_cov=False)


_CLASSES: dict[type, type[StackedKernel]] = {}


def register_stacked(*kernel_types: type) -> Callable[[type[StackedKernel]], type[StackedKernel]]:
    """
    Class decorator: this :class:`StackedKernel` evaluates ``kernel_types``.

    It is used for exactly these classes: a subclass may change the formula.

    :param kernel_types: subclasses of :class:`gpflow.kernels.Kernel`.
    :return: the decorator.
    """

    def register(stacked: type[StackedKernel]) -> type[StackedKernel]:
        _CLASSES.update(dict.fromkeys(kernel_types, stacked))
        return stacked

    return register


class StackableKernel(Kernel):
    """A GPflow kernel whose formula is that of its :class:`StackedKernel`."""

    @inherit_check_shapes
    def K(self, X: TensorType, X2: TensorType | None = None) -> tf.Tensor:
        stacked = self._stacked()
        if X2 is None:  # leading dimensions take the place of G
            flat = tf.reshape(X, tf.concat([[-1], tf.shape(X)[-2:]], axis=0))
            if len(X.shape) == 2:
                flat.set_shape([1, *X.shape])
            shape = tf.concat([tf.shape(X)[:-1], tf.shape(X)[-2:-1]], axis=0)
            return tf.reshape(stacked.K(flat, flat), shape)
        rows, columns = (tf.reshape(x, [1, -1, x.shape[-1]]) for x in (X, X2))
        shape = tf.concat([tf.shape(X)[:-1], tf.shape(X2)[:-1]], axis=0)
        return tf.reshape(stacked.K(rows, columns), shape)

    @inherit_check_shapes
    def K_diag(self, X: TensorType) -> tf.Tensor:
        rows = tf.reshape(X, [1, -1, X.shape[-1]])
        return tf.reshape(self._stacked().K_diag(rows), tf.shape(X)[:-1])

    def _stacked(self) -> StackedKernel:
        known = next(_CLASSES[cls] for cls in type(self).__mro__ if cls in _CLASSES)
        return known([self], kernel_columns(self) or ())


def signature(kernel: Kernel, columns: Columns | None) -> Hashable | None:
    """A value that is equal for kernels that stack, None for one that does not."""
    stacked = _CLASSES.get(type(kernel))
    if stacked is None or columns is None:
        return None
    own = stacked.signature(kernel, columns)
    return None if own is None else (type(kernel), len(columns), own)


def stack(kernels: Kernels, columns: Columns) -> StackedKernel:
    """The batched evaluation of kernels of equal :func:`signature`."""
    return _CLASSES[type(kernels[0])](kernels, columns)


def stack_or_alone(kernels: Kernels, columns: Columns) -> StackedKernel:
    """:func:`stack`, or one kernel that has no batched form."""
    known = signature(kernels[0], columns) is not None
    return stack(kernels, columns) if known else Alone(kernels, columns)


# --- classes of kernels in one batch --------------------------------------------------------------


def stack_parameters(parameters: Sequence[Parameter], rank: int) -> tf.Tensor:
    """Parameters of equal shape as [G, 1, ..., 1, *shape] of the given rank."""
    stacked = read_together(parameters, tf.stack)
    shape = stacked.shape.as_list()
    if len(shape) == rank:
        return stacked
    return tf.reshape(stacked, [shape[0]] + [1] * (rank - len(shape)) + shape[1:])


def stack_variances(kernels: Kernels) -> tf.Tensor:
    """Variances [G, 1] (GPflow also lets a variance have shape [1])."""
    return tf.reshape(stack_parameters([k.variance for k in kernels], rank=2), [-1, 1])


def local_positions(kernel: Kernel, columns: Columns) -> list[int]:
    """Positions among ``columns`` of those that ``kernel`` reads."""
    reads = kernel_columns(kernel)
    assert reads is not None  # only reached where every column is known
    return [columns.index(c) for c in reads]


def take(X: tf.Tensor, positions: Sequence[int]) -> tf.Tensor:
    """``X[..., positions]``, free where that is all of X in order."""
    if list(positions) == list(range(X.shape[-1])):
        return X
    return tf.gather(X, np.asarray(positions, dtype=np.int32), axis=-1)


def fill(value: tf.Tensor, X: tf.Tensor) -> tf.Tensor:
    """``value`` [G, 1] at every point of X [G, N, d]: [G, N]."""
    return tf.broadcast_to(value, tf.shape(X)[:-1])


# --- stationary ----------------------------------------------------------------------------------


def _by_dimension(X: tf.Tensor, X2: tf.Tensor) -> list[tuple[tf.Tensor, tf.Tensor]]:
    """Each column of X [G, N, d] as [G, N, 1], and of X2 [G, N2, d] as [G, 1, N2]."""
    number, across = X.shape[-1], tf.linalg.matrix_transpose(X2)
    if number == 1:
        return [(X, across)]
    return list(zip(tf.split(X, number, axis=-1), tf.split(across, number, axis=-2)))


@register_stacked(Periodic, *PROFILES)
class StackedStationary(StackedKernel):
    """
    Isotropic stationary kernels, with or without ARD, and periodic squared exponentials.

    The latter have distances of sines (MacKay 1998, eq. 47, in GPflow's parameterisation).
    """

    level: tf.Tensor

    def __init__(self, kernels: Kernels, columns: Columns) -> None:
        super().__init__(kernels, columns)
        bases = [k.base_kernel if isinstance(k, Periodic) else k for k in kernels]
        self.profile = PROFILES[type(bases[0])]
        self.lengthscales = stack_parameters([k.lengthscales for k in bases], rank=2)
        self.variances = self.level = stack_variances(bases)
        self._scale = tf.expand_dims(self.lengthscales, 1) / self.profile.scale
        self._periods: tf.Tensor | None = None
        if isinstance(kernels[0], Periodic):
            self._periods = stack_parameters([k.period for k in kernels], rank=3)

    @classmethod
    def signature(cls, kernel: Kernel, columns: Columns) -> Hashable | None:
        base, period = kernel, None
        if isinstance(kernel, Periodic):
            # GPflow's periodic Matern kernels use the 1-norm of the sines: they go one at a time.
            base, period = kernel.base_kernel, tuple(kernel.period.shape)
            if type(base) is not SquaredExponential:
                return None
        if not columns or kernel_columns(base) != columns:  # scales are by place
            return None
        return tuple(base.lengthscales.shape), tuple(base.variance.shape), period

    def _distances(self, X: tf.Tensor, X2: tf.Tensor) -> tf.Tensor:
        """Squared distances [G, N, N2], in lengthscales and times the profile's scale."""
        # One difference per dimension: components read few columns, and unlike the expanded
        # square |x|^2 - 2 x'y + |y|^2 this loses no digits for inputs far from the origin.
        if self._periods is None:
            # scaled before they are squared: one pass over [G, N, N2] less
            if X.dtype != tf.float64:  # far from the origin X / scale is rounded more
                middle = tf.stop_gradient(tf.reduce_mean(X2, axis=1, keepdims=True))
                X, X2 = X - middle, X2 - middle
            pairs = _by_dimension(X / self._scale, X2 / self._scale)
            return tf.add_n([tf.square(a - b) for a, b in pairs])
        shape = [len(self.kernels), 1, X.shape[-1]]
        units = [tf.broadcast_to(unit, shape) for unit in (self._periods / np.pi, self._scale)]
        each = zip(_by_dimension(X, X2), *(tf.split(unit, shape[-1], axis=-1) for unit in units))
        return tf.add_n([tf.square(tf.sin((a - b) / turn) / s) for (a, b), turn, s in each])

    def K(self, X: tf.Tensor, X2: tf.Tensor, rest: bool = False) -> tf.Tensor:
        correlation = self.profile.tensor(self._distances(X, X2), deficit=rest)
        return self.variances[:, :, None] * correlation

    def K_diag(self, X: tf.Tensor, rest: bool = False) -> tf.Tensor:
        return tf.zeros(tf.shape(X)[:-1], X.dtype) if rest else fill(self.variances, X)


# --- linear, constant ----------------------------------------------------------------------------


@register_stacked(Constant)
class StackedConstant(StackedKernel):
    """Constants, which read nothing."""

    def __init__(self, kernels: Kernels, columns: Columns) -> None:
        super().__init__(kernels, columns)
        self.variances = stack_variances(kernels)

    @classmethod
    def signature(cls, kernel: Kernel, columns: Columns) -> Hashable | None:
        return ()

    def K(self, X: tf.Tensor, X2: tf.Tensor, rest: bool = False) -> tf.Tensor:
        shape = [tf.shape(X)[0], tf.shape(X)[1], tf.shape(X2)[1]]
        return tf.broadcast_to(self.variances[:, :, None], shape)

    def K_diag(self, X: tf.Tensor, rest: bool = False) -> tf.Tensor:
        return fill(self.variances, X)


# --- products and sums ---------------------------------------------------------------------------


@register_stacked(Product, Sum)
class StackedCombination(StackedKernel):
    """Products and sums whose parts stack one by one."""

    def __init__(self, kernels: Kernels, columns: Columns) -> None:
        super().__init__(kernels, columns)
        each = list(zip(*(k.kernels for k in kernels)))
        self.positions = [local_positions(parts[0], columns) for parts in each]
        self.parts = [stack(parts, kernel_columns(parts[0]) or ()) for parts in each]
        self._combine = tf.add if isinstance(kernels[0], Sum) else tf.multiply

    @classmethod
    def signature(cls, kernel: Kernel, columns: Columns) -> Hashable | None:
        parts = []
        for part in kernel.kernels:
            own = signature(part, kernel_columns(part))
            if own is None:
                return None
            parts.append((own, tuple(local_positions(part, columns))))
        return tuple(parts)

    def K(self, X: tf.Tensor, X2: tf.Tensor, rest: bool = False) -> tf.Tensor:
        result = []
        for part, at in zip(self.parts, self.positions):
            own = take(X, at)
            result.append(part.K(own, own if X2 is X else take(X2, at)))
        return functools.reduce(self._combine, result)

    def K_diag(self, X: tf.Tensor, rest: bool = False) -> tf.Tensor:
        each = zip(self.parts, self.positions)
        return functools.reduce(self._combine, [p.K_diag(take(X, at)) for p, at in each])


# --- the kernels ----------------------------------------------------------------------------------


_MAX_STACKED = 2**24
"""Entries of a stacked [C, N, N2] array above which a sum is accumulated one by one instead."""


@dataclass(frozen=True, eq=False)
class ComponentGroup:
    """Components that are evaluated in one batch."""

    indices: tuple[int, ...]  # their places in the additive kernel
    columns: Columns | None  # of the first (all read as many); None: alone, and on all columns
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


class AdditiveKernel(Kernel):
    """
    A sum of kernels, each the prior of one named component of a generalized additive model.

    Works wherever a GPflow kernel does; unlike :class:`gpflow.kernels.Sum` it keeps which part is
    which, and evaluates like components in one batch.

    :param components: a mapping name -> kernel, or a sequence of kernels, which are named after
        the columns they read (``f0``, ``f1_2``, ``constant``). Every kernel carries its own
        ``active_dims``.
    :param members: which of them enter each of L latent outputs, [L, C] of bool; by default all
        enter all. Outputs are independent a priori, as of GPflow's ``SeparateIndependent``; a
        component that enters several is a function of its own in each, with one kernel.
    :raises TypeError: a component is no single-output GPflow kernel.
    :raises ValueError: no component, an empty name, one kernel object used twice, or ``members``
        of another shape.
    """

    members: AnyNDArray | None
    """Mask of the components of each latent output, [L, C] of bool; None if all enter all."""

    def __init__(
        self,
        components: Mapping[str, Kernel] | Sequence[Kernel],
        members: AnyNDArray | Sequence[Sequence[bool]] | None = None,
    ) -> None:
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
        if members is not None:
            members = np.asarray(members, dtype=bool)
            if members.ndim != 2 or members.shape[1] != len(named):
                raise ValueError(
                    f"members must be [L, {len(named)}], a column for each component; got shape "
                    f"{members.shape}."
                )
        self.members = members

    @classmethod
    def separate(cls, kernels: Sequence[AdditiveKernel]) -> AdditiveKernel:
        """One kernel, with ``members``, of the kernels of several outputs, one each."""
        # components are named after outputs that lack others'
        own: dict[int, tuple[Kernel, list[tuple[int, str]]]] = {}
        for i, kernel in enumerate(kernels):
            for name, part in kernel.components.items():
                enters = own.setdefault(id(part), (part, []))[1]
                enters.append((i, name if not enters else enters[0][1]))
        components: dict[str, Kernel] = {}
        members = np.zeros((len(kernels), len(own)), dtype=bool)
        for c, (part, enters) in enumerate(own.values()):
            which = [i for i, _ in enters]
            name = enters[0][1]
            if len(which) < len(kernels) or len(kernels) == 1:
                name = f"{','.join(map(str, which))}:{name}"
            while name in components:
                name += "'"
            components[name] = part
            members[which, c] = True
        return cls(components, members)

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
    def latent_kernels(self) -> tuple[AdditiveKernel, ...]:
        """An additive kernel for each output that has ``members``, of the same components."""
        named = list(self.components.items())
        masks = () if self.members is None else self.members
        return tuple(AdditiveKernel(dict(named[c] for c in np.flatnonzero(own))) for own in masks)

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
        """Raise ValueError where a component reads a column that X [..., N, D] lacks."""
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
        return Alone(kernels) if group.columns is None else stack(kernels, group.columns)

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
        """The prior variance of every component at X [N, D], [C, N]."""
        self.check_inputs(X)
        groups = self.groups()
        blocks = [self.stacked(group).K_diag(group.inputs(X)) for group in groups]
        return _in_order(blocks, groups)

    # --- as any kernel ----------------------------------------------------------------------

    @inherit_check_shapes
    def K(self, X: TensorType, X2: TensorType | None = None) -> tf.Tensor:
        self._check_sum(X)
        if self._stacks(X, X2):
            return tf.reduce_sum(self.K_components(X, X2), axis=0)
        return functools.reduce(tf.add, (with_precise_distances(k)(X, X2) for k in self.kernels))

    @inherit_check_shapes
    def K_diag(self, X: TensorType) -> tf.Tensor:
        self._check_sum(X)
        if len(X.shape) == 2:
            return tf.reduce_sum(self.K_diag_components(X), axis=0)
        return functools.reduce(tf.add, (k(X, full_cov=False) for k in self.kernels))

    def _check_sum(self, X: TensorType) -> None:
        if self.members is not None:
            raise TypeError(
                "this kernel has a covariance for each of its outputs and no single one; evaluate "
                "one of its latent_kernels."
            )
        self.check_inputs(X)

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
    if isinstance(components, Mapping):
        for name in components:
            if not isinstance(name, str) or not name:
                raise ValueError(f"component names must be non-empty strings; got {name!r}.")
        return dict(components)
    named: dict[str, Kernel] = {}
    for kernel in components:
        columns = kernel_columns(kernel) if isinstance(kernel, Kernel) else None
        own = "constant" if columns == () else "f" + "_".join(map(str, columns or ()))
        names = itertools.chain([own], (f"{own}#{k}" for k in itertools.count(2)))
        named[next(name for name in names if name not in named)] = kernel
    return named


class OffsetMean(MeanFunction):
    """``m(x) = constant + sum of the offset columns``, the offsets in the first predictor only."""

    def __init__(self, constant: TensorType, columns: Sequence[int]) -> None:
        super().__init__()
        self.constant = Parameter(constant, transform=identity(), trainable=False)
        self.columns = list(columns)

    @inherit_check_shapes
    def __call__(self, X: TensorType) -> tf.Tensor:
        X = tf.convert_to_tensor(X)
        shape = tf.concat([tf.shape(X)[:-1], tf.shape(self.constant)], axis=0)
        mean = tf.broadcast_to(tf.cast(self.constant, X.dtype), shape)
        if not self.columns:
            return mean
        offset = tf.reduce_sum(tf.gather(X, self.columns, axis=-1), axis=-1, keepdims=True)
        others = tf.zeros(tf.concat([tf.shape(X)[:-1], tf.shape(self.constant) - 1], 0), X.dtype)
        return mean + tf.concat([offset, others], axis=-1)
