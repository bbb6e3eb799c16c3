"""Natural gradients in ``model.fit``."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from ..variational import OptimalPrecision
from .additive_gp import AdditiveGP
from .binding import features_of


@keras.saving.register_keras_serializable(package="gpflow_gam")
class NaturalGradientModel(keras.Model):
    """
    A :class:`keras.Model` whose ``fit`` moves q(U) of its heads by natural gradients.

    Heads with ``variational="sites"`` take a step of their :attr:`AdditiveGP.rho` towards the
    optimum for each batch (Khan & Lin 2017; see :class:`~gpflow_gam.optimizers.NaturalGradient`);
    the compiled optimiser moves everything else: network, kernels, likelihood. Both see the same
    forward pass. Used as :class:`keras.Model` is: with inputs and outputs, or subclassed.

    A head that is held fixed (``trainable = False``, or ``"variational"`` in its ``frozen``) keeps
    its q. One device only, and no sample weights.
    """

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        if sample_weight is not None:
            raise ValueError(
                "NaturalGradientModel takes no sample_weight; fit a keras.Model with them."
            )
        if tf.distribute.get_strategy().num_replicas_in_sync > 1:
            raise ValueError(
                "NaturalGradientModel trains on one device; under a distribution strategy use a "
                "keras.Model with variational='block'."
            )
        heads = [
            layer
            for layer in self._flatten_layers()
            if isinstance(layer, AdditiveGP)
            and isinstance(layer.model.variational, OptimalPrecision)
        ]
        if not heads:
            raise ValueError(
                "NaturalGradientModel found no AdditiveGP with variational='sites' to move; make "
                "one, or fit a keras.Model."
            )
        if not any(head.has_moving_sites for head in heads):
            return super().train_step(data)  # type: ignore[no-any-return]
        targets = keras.tree.flatten(y)
        if len(heads) > 1 or len(targets) > 1:
            raise ValueError(
                f"NaturalGradientModel takes one head and one target; got {len(heads)} and "
                f"{len(targets)}."
            )
        head = heads[0]
        with tf.GradientTape() as tape, head.stepping():
            y_pred = self(x, training=True)
            loss = self.compute_loss(x=x, y=y, y_pred=y_pred, training=True)
            scaled = self.optimizer.scale_loss(loss)
        found = [features_of(output, head) for output in keras.tree.flatten(y_pred)]
        features = [f for f in found if f is not None]
        if len(features) != 1:
            raise ValueError(
                f"{self.name} must return what {head.name} returns, once, for natural gradients to "
                f"know what it is called with; {len(features)} of its {len(found)} outputs are."
            )
        weights = self.trainable_weights
        gradients = tape.gradient(scaled, weights)
        head.natural_gradient_step(features[0], targets[0])
        self.optimizer.apply_gradients(zip(gradients, weights))
        self._loss_tracker.update_state(loss, sample_weight=tf.shape(targets[0])[0])
        results: dict[str, Any] = self.compute_metrics(x, y, y_pred)
        return results
