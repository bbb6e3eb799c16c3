"""A head trained by itself, on features that stay as they are."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

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
    :param options: of ``keras.Model.fit``: ``callbacks``, ``validation_data``, ``verbose``, ...
    :return: Keras's record of losses.
    :raises ValueError: the head is held fixed; its ``num_data`` is not N; bad features or
        responses, see :meth:`AdditiveGP.adapt`.
    """
    features = np.asarray(features)
    if not head.trainable:
        raise ValueError(f"{head.name} is held fixed; set head.trainable = True before a refit.")
    if len(features) != head.num_data:
        raise ValueError(
            f"features has {len(features)} rows where {head.name} was told num_data="
            f"{head.num_data}; a refit takes all training rows."
        )
    head.adapt(features, y)
    inputs = keras.Input(features.shape[1:])
    kind = NaturalGradientModel if head.has_moving_sites else keras.Model
    model = kind(inputs, head(inputs))
    model.compile(optimizer=keras.optimizers.Adam(learning_rate), loss=head.loss)
    settings = {"verbose": 0, **options}
    return model.fit(features, np.asarray(y), batch_size=batch_size, epochs=epochs, **settings)
