"""Which head a loss or metric reads."""

from __future__ import annotations

import weakref
from typing import Any

import tensorflow as tf

from .moments import MomentReader

_HEADS: weakref.WeakSet[MomentReader] = weakref.WeakSet()
_MAKER = "_gpflow_gam_head"
"""The attribute of a head's output that says whose it is."""
_FEATURES = "_gpflow_gam_features"
"""That of an output in training which says of what it is."""


def register(head: MomentReader) -> None:
    """Make a head known by its name."""
    _HEADS.add(head)


def signed(output: tf.Tensor, head: MomentReader, features: tf.Tensor | None = None) -> tf.Tensor:
    """
    A head's output that says whose it is, as long as nothing is computed from it.

    :param output: of a call.
    :param head: that was called.
    :param features: it was called with, where training asks for them: see :func:`features_of`.
    """
    setattr(output, _MAKER, weakref.ref(head))
    if features is not None:
        setattr(output, _FEATURES, features)
    return output


def features_of(output: Any, head: MomentReader) -> tf.Tensor | None:
    """
    What ``head`` was called with, in training, to return ``output``.

    :param output: of a model, or of anything.
    :param head: a layer.
    :return: [N, F]; None where ``output`` is not what the head returned.
    """
    made = getattr(output, _MAKER, None)
    return None if made is None or made() is not head else getattr(output, _FEATURES, None)


class OfHead:
    """
    Something that reads a head, which it does not own.

    Keras saves what it finds by walking attributes: through a plain one the head's weights would
    be filed under the loss, and be lost to a model that is not compiled.
    """

    _reference: weakref.ref[MomentReader] | None
    _head_name: str | None

    def _attach(self, head: MomentReader | None, head_name: str | None) -> None:
        if head is None and head_name is None:
            raise ValueError("head must be the layer whose output is read; got None.")
        self._reference = None if head is None else weakref.ref(head)
        self._head_name = head_name if head is None else head.name

    def _layer(self, y_pred: Any = None) -> MomentReader:
        """
        The head; where only its name is known, the one of that name that made ``y_pred``.

        :raises ValueError: it is gone, there is none or there are several of its name, or another
            one made ``y_pred``.
        """
        found = None if self._reference is None else self._reference()
        if found is None and self._reference is not None:
            raise ValueError("the layer of this loss or metric is gone; compile the model again.")
        made = getattr(y_pred, _MAKER, None)
        maker: MomentReader | None = None if made is None else made()
        if found is None and maker is not None and maker.name == self._head_name:
            found = maker
        if found is None:
            return _head_named(str(self._head_name))
        if maker is not None and maker is not found:
            raise ValueError(
                f"the loss or metric of layer {found.name!r} is given the output of another one, "
                f"{maker.name!r}; compile with the loss and the metrics of the head whose output "
                "that is."
            )
        self._reference = weakref.ref(found)
        return found


def _head_named(name: str) -> MomentReader:
    found = [head for head in _HEADS if head.name == name]
    if not found:
        raise ValueError(
            f"there is no layer {name!r} for this loss or metric; build its model first."
        )
    if len(found) > 1:
        raise ValueError(
            f"there are {len(found)} layers {name!r}, and this loss or metric says no more than "
            "that name: compile its model again with head.loss and head.metric(...), or give the "
            "layers names of their own."
        )
    return found[0]
