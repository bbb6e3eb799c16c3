"""Inducing inputs of every component of an additive model."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import gpflow
import numpy as np
import tensorflow as tf
from check_shapes import Shape
from gpflow.base import AnyNDArray, Parameter, TensorData
from gpflow.config import default_float
from gpflow.inducing_variables import InducingVariables

from ..bijectors import identity
from ..kernels import AdditiveKernel


class AdditiveInducingVariables(InducingVariables):
    """
    Inducing inputs ``Z_c`` [M_c, D_c] of each component, in the columns that the component reads.

    The inducing values are those of the components, ``U_c = f_c(Z_c)``, stacked in order to
    U in R^P, P = sum of the M_c. Columns stand in the order of the kernel's ``active_dims``
    (ascending for products and sums); a constant has ``Z_c`` of shape [1, 0].

    :param components: a mapping name -> Z_c, or a sequence in the order of the kernel's
        components, which are then named ``Z0``, ``Z1``, ...
    :param trainable: whether the inputs are optimised with the ELBO. False by default: on a grid
        in one dimension they gain little, and site updates hold them fixed.
    :raises ValueError: no component, an empty Z_c, a Z_c that is no matrix or is not finite.
    """

    def __init__(
        self,
        components: Mapping[str, TensorData] | Sequence[TensorData],
        *,
        trainable: bool = False,
    ) -> None:
        super().__init__()
        if not isinstance(components, Mapping):
            components = {f"Z{i}": Z for i, Z in enumerate(components)}
        if not components:
            raise ValueError("components is empty; give the inducing inputs of each component.")
        self.components: dict[str, Parameter] = {
            name: Parameter(
                _valid_inputs(name, Z),
                transform=identity(),
                trainable=trainable,
                name=_variable_name(name),
            )
            for name, Z in components.items()
        }

    @property
    def names(self) -> tuple[str, ...]:
        """Component names, in order."""
        return tuple(self.components)

    @property
    def inputs(self) -> tuple[Parameter, ...]:
        """Z_c of every component, in order."""
        return tuple(self.components.values())

    def __getitem__(self, name: str) -> Parameter:
        """Z_c of the component called ``name``."""
        return self.components[name]

    @property
    def sizes(self) -> tuple[int, ...]:
        """M_c of every component."""
        return tuple(int(Z.shape[0]) for Z in self.inputs)

    @property
    def num_inducing(self) -> tf.Tensor:
        """P, how many inducing values there are in all."""
        return tf.constant(sum(self.sizes))

    @property
    def shape(self) -> Shape:
        """(P, None, 1): components may live in different numbers of columns."""
        return (sum(self.sizes), None, 1)


def joined(
    parts: Sequence[AdditiveInducingVariables], names: Sequence[str], members: AnyNDArray
) -> AdditiveInducingVariables:
    """
    The inducing inputs of outputs with components of their own, a component of several once.

    :param parts: of each output, in the order of its components.
    :param names: of all components.
    :param members: which of them enter which output, [L, C].
    :raises ValueError: an output has other numbers of components.
    """
    if [len(part.inputs) for part in parts] != members.sum(axis=1).tolist():
        raise ValueError(
            f"inducing_variable has {[len(part.inputs) for part in parts]} components an output, "
            f"the kernel has {members.sum(axis=1).tolist()}."
        )
    found: dict[str, Parameter] = {}
    for part, own in zip(parts, members):
        for c, Z in zip(np.flatnonzero(own), part.inputs):
            found.setdefault(names[c], Z)
    whole = AdditiveInducingVariables({name: found[name] for name in names})
    for name in names:
        gpflow.set_trainable(whole[name], found[name].trainable)
    return whole


def check_compatible(inducing_variable: AdditiveInducingVariables, kernel: AdditiveKernel) -> None:
    """
    :raises TypeError: not ours.
    :raises ValueError: other numbers or names of components, or a Z_c of the wrong width.
    """
    if not isinstance(inducing_variable, AdditiveInducingVariables):
        raise TypeError(
            "inducing_variable must be AdditiveInducingVariables; "
            f"got {type(inducing_variable).__name__}."
        )
    if len(inducing_variable.names) != kernel.num_components:
        raise ValueError(
            f"inducing_variable has {len(inducing_variable.names)} components, the kernel has "
            f"{kernel.num_components} ({', '.join(kernel.names)})."
        )
    automatic = tuple(f"Z{i}" for i in range(kernel.num_components))
    if inducing_variable.names not in (automatic, kernel.names):
        raise ValueError(
            f"inducing_variable names its components {inducing_variable.names}, the kernel "
            f"{kernel.names}; they must be the same, in the same order."
        )
    for name, Z, columns in zip(kernel.names, inducing_variable.inputs, kernel.columns):
        if columns is not None and Z.shape[1] != len(columns):
            raise ValueError(
                f"inducing_variable of component {name!r} has {Z.shape[1]} column(s), but the "
                f"component reads {len(columns)} ({list(columns)})."
            )


def _variable_name(component: str) -> str:
    """A SavedModel takes no variable with brackets in its name, as those of ``s(x)`` have."""
    return "Z_" + re.sub(r"[^A-Za-z0-9_.-]", "_", component)


def _valid_inputs(name: str, Z: TensorData) -> AnyNDArray:
    Z = np.asarray(Z, dtype=default_float())
    if Z.ndim != 2:
        raise ValueError(
            f"inducing_variable of component {name!r} must be a matrix [M, D_c]; "
            f"got shape {Z.shape}."
        )
    if Z.shape[0] == 0:
        raise ValueError(
            f"inducing_variable of component {name!r} is empty (M_c = 0); a component needs at "
            "least one inducing input."
        )
    if not np.all(np.isfinite(Z)):
        raise ValueError(f"inducing_variable of component {name!r} holds NaN or infinite values.")
    return Z
