"""A head trained by itself, on features that stay as they are."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from .additive_gp import AdditiveGP
from .natural_gradients import NaturalGradientModel


def refit(
    head: AdditiveGP,
    features: Any,
    y: Any,
    *,
    epochs: int = 10,
    batch_size: int = 128,
    learning_rate: float = 0.01,
    sample_weight: Any = None,
    **options: Any,
) -> keras.callbacks.History:
    """
    Train a head on features of a trained network: scaling, inducing inputs, kernels and q(U).

    For smooths of many features at once, whose inducing inputs must lie where the features do,
    which is known once the network is trained: :meth:`AdditiveGP.adapt` puts them there, and
    training goes on from it, by natural gradients where the head has ``variational="sites"``. The
    network is not asked, so that this costs a fraction of its training.

    :param head: to train, in no compiled model yet or in one that is compiled again.
    :param features: of all training rows, [N, F], such as a network's ``predict``.
    :param y: responses [N] or [N, K].
    :param epochs: passes over the rows.
    :param batch_size: rows a step.
    :param learning_rate: Adam's, of all that natural gradients do not move.
    :param sample_weight: how often each row counts, [N]; once by default. Not by natural
        gradients.
    :param options: of ``keras.Model.fit``: ``callbacks``, ``validation_data``, ``verbose``, ...
    :return: Keras's record of losses.
    :raises ValueError: the head is held fixed; its ``num_data`` is not N; another number of
        weights, or weights for natural gradients; bad features or responses, see
        :meth:`AdditiveGP.adapt`.
    """
    features = np.asarray(features)
    if not head.trainable:
        raise ValueError(f"{head.name} is held fixed; set head.trainable = True before a refit.")
    if len(features) != head.num_data:
        raise ValueError(
            f"features has {len(features)} rows where {head.name} was told num_data="
            f"{head.num_data}; a refit takes all training rows."
        )
    if sample_weight is not None and np.shape(sample_weight) != (len(features),):
        raise ValueError(
            f"sample_weight must be [{len(features)}], one a row of features; got shape "
            f"{np.shape(sample_weight)}."
        )
    head.adapt(features, y)
    inputs = keras.Input(features.shape[1:], dtype=head.compute_dtype)
    kind = NaturalGradientModel if head.has_moving_sites else keras.Model
    model = kind(inputs, head(inputs))
    model.compile(optimizer=keras.optimizers.Adam(learning_rate), loss=head.loss)
    rows = _batches(head.compute_dtype, batch_size, features, y, sample_weight)
    settings = {"verbose": 0, "shuffle": False, **options}  # rows come shuffled
    normalization = head.normalization
    if normalization == "running":  # of all rows, and so as it shall be
        head.normalization = "adapt"
    try:
        return model.fit(rows, epochs=epochs, **settings)
    finally:
        head.normalization = normalization


def _batches(dtype: str, batch_size: int, *columns: Any) -> tf.data.Dataset:
    """Shuffled rows as the head computes: of arrays Keras would keep single precision."""
    held = [tf.constant(np.asarray(c), dtype) for c in columns if c is not None]
    number = len(held[0])
    shuffled = tf.data.Dataset.range(number).shuffle(number).batch(batch_size)
    return shuffled.map(lambda at: tuple(tf.gather(c, at) for c in held))
