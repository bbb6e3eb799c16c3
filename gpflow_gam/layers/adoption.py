"""GPflow parameters as weights of a Keras layer: the same variables, not copies."""

from __future__ import annotations

import re
from collections.abc import Iterable

import keras
import tensorflow as tf
from gpflow.base import Parameter
from gpflow.utilities import parameter_dict, set_trainable


class Adopted:
    """
    Every variable of a GPflow module as a Keras variable, by the path of its parameter.

    Without adoption Keras would neither train nor save them, and say nothing. The Keras variable
    wraps the very ``tf.Variable`` (unconstrained) that GPflow reads, so that ``fit``, files and
    GPflow's own optimisers share state. Which ones are in Keras's list of trainable weights is
    settled by the structure alone, never by flags, so that flags cannot reorder saved state.

    :param module: the GPflow module.
    """

    def __init__(self, module: tf.Module) -> None:
        self.parameters: dict[str, Parameter] = {}
        self.variables: dict[str, keras.Variable] = {}
        for path, leaf in parameter_dict(module).items():
            name = path.lstrip(".")
            is_parameter = isinstance(leaf, Parameter)
            variable = leaf.unconstrained_variable if is_parameter else leaf
            # set_trainable() marks a mirrored variable itself, whose property asks its copies
            flag = vars(variable).get("_trainable", variable.trainable)
            free = bool(flag) and variable.shape.num_elements() > 0
            if is_parameter:
                self.parameters[name] = leaf
            self.variables[name] = keras.Variable(
                variable,
                dtype=variable.dtype.name,
                trainable=free,
                autocast=False,
                name=re.sub(r"[^A-Za-z0-9_.-]+", "_", name),  # optimisers name scopes after it
            )
        self._free = {name for name, v in self.variables.items() if v.trainable}

    def freeze(self, frozen: Iterable[str], trainable: bool = True) -> None:
        """
        Set every flag, Keras's and GPflow's.

        :param frozen: beginnings of paths that are held fixed.
        :param trainable: False holds all of them fixed.
        """
        frozen = tuple(frozen)
        for name in self._free:
            flag = trainable and not is_below(name, frozen)
            self.variables[name].trainable = flag
            set_trainable(self.parameters[name], flag)

    def require(self, prefixes: Iterable[str]) -> None:
        """
        :raises ValueError: a prefix that is the beginning of no path.
        """
        for prefix in prefixes:
            if not any(is_below(name, [prefix]) for name in self.variables):
                raise ValueError(
                    f"frozen: no parameter's path begins with {prefix!r}; there are "
                    f"{', '.join(dict.fromkeys(name.split('.')[0] for name in self.variables))}, "
                    "and what is within them."
                )


def is_below(name: str, prefixes: Iterable[str]) -> bool:
    """
    Whether a path is one of the prefixes, or inside of one.

    :param name: such as ``"kernel.components['s(0)'].kernels[1].base.variance"``.
    :param prefixes: such as ``"kernel"``.
    """
    return any(
        name == prefix or (name.startswith(prefix) and name[len(prefix)] in ".[")
        for prefix in prefixes
    )
