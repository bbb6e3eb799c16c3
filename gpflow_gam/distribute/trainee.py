"""What a step needs of a model: its loss on a share, its variables, its optimiser."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf
from gpflow.utilities import parameter_dict

from ..layers import AdditiveGP
from ..likelihoods import checked_data
from ..models import AdditiveSVGP
from ..variational import OptimalPrecision
from .arrays import named
from .batches import ArrayBatches, Batches, StreamBatches
from .result import Model

LearningRate = float | Callable[[], keras.optimizers.Optimizer] | None


class Trainee:
    """
    A model under training. Made in the strategy's scope.

    :param model: as ``build`` returned it.
    :param batches: what it will be trained on.
    :param learning_rate: Adam's, or a function that makes an optimiser, or None for the default.
    :param validated: whether there are validation data.
    :raises TypeError: no such model, or no optimiser.
    :raises ValueError: a model that these data or these steps do not fit.
    """

    def __init__(
        self,
        model: Model,
        batches: Batches,
        learning_rate: LearningRate,
        validated: bool = False,
    ) -> None:
        self.model, self._replicas = model, batches.replicas
        self.has_metrics = False
        if isinstance(model, AdditiveSVGP):
            _check_svgp(model, batches)
            if validated:
                raise ValueError(
                    "validation_data are of a keras.Model; build returned an AdditiveSVGP, whose "
                    "predictive density at other rows is model.predict_log_density((X, Y))."
                )
            _settle_flags(model)
            self.trained: list[Any] = list(model.trainable_variables)
            self.variables = _by_path(model)
            self.num_data: int | None = model.num_data
        elif isinstance(model, keras.Model):
            _check_keras(model, batches)
            self.has_metrics = _build_metrics(model, batches)
            self.trained = list(model.trainable_variables)
            self.variables = _by_layer(model)
            self.num_data = batches.num_data
        else:
            raise TypeError(
                "build must return an AdditiveSVGP or a compiled keras.Model; it returned "
                f"{type(model).__name__}."
            )
        if not self.trained:
            raise ValueError("build returned a model in which nothing is trainable.")
        self.optimizer = _optimizer(model, learning_rate)
        self.optimizer.build(self.trained)

    @property
    def trained_names(self) -> list[str]:
        """Names of what is trained, in the order of the optimiser's slots."""
        names = {id(v): name for name, v in self.variables.items()}
        return [names[id(_plain(v))] for v in self.trained]

    @property
    def slots(self) -> dict[str, tf.Variable]:
        """
        The optimiser's variables, except the learning rate: that is the caller's at each start, so
        that a fit that broke may go on with a lower one.
        """
        found = [v for v in self.optimizer.variables if v.name != "learning_rate"]
        return {f"optimizer {i}": _plain(v) for i, v in enumerate(found)}

    def loss(self, X: Any, Y: Any, sample_weight: Any = None) -> tuple[tf.Tensor, Any]:
        """
        A replica's part of the loss, the sum of which over the replicas is the loss of the whole
        batch, and the model's outputs.

        :param X: the replica's share [B / R, ...], or several in a dict or tuple.
        :param Y: the same of responses.
        :param sample_weight: [B / R].
        """
        if isinstance(self.model, AdditiveSVGP):
            # Each share's bound is scaled to all the data, and holds KL and priors once: the mean
            # over shares is the bound of their union.
            return self.model.training_loss((X, Y)) / self._replicas, None
        # Keras divides its losses, and those of add_loss, by the number of replicas itself.
        outputs = self.model(X, training=True)
        loss = self.model.compute_loss(x=X, y=Y, y_pred=outputs, sample_weight=sample_weight)
        return loss, outputs

    def finish(self) -> None:
        """Take the parameters' averages, where the optimiser keeps them, as Keras's ``fit``."""
        self.optimizer.finalize_variable_values(self.trained)

    def report(self, outputs: Any, X: Any, Y: Any, sample_weight: Any = None) -> None:
        """
        Let the replica's metrics add up a share.

        :param outputs: of the model.
        :param X: the share, as for :meth:`loss`.
        :param Y: the same.
        :param sample_weight: the same.
        """
        if self.has_metrics:
            self.model.compute_metrics(X, Y, outputs, sample_weight=sample_weight)


def _check_svgp(model: AdditiveSVGP, batches: Batches) -> None:
    if len(batches.structure) != 2 or any(tf.nest.is_nested(part) for part in batches.structure):
        raise ValueError(
            "data of an AdditiveSVGP are one X and one Y, without sample_weight; got "
            f"{', '.join(named(batches.structure))}."
        )
    _check_rows(batches, [1])
    if model.num_data is None:
        raise ValueError(
            "build returned an AdditiveSVGP without num_data, which scales the bound of a batch; "
            "pass AdditiveSVGP(..., num_data=N)."
        )
    if batches.num_data is not None and batches.num_data != model.num_data:
        raise ValueError(
            f"num_data={model.num_data} of the model that build returned is not the "
            f"{batches.num_data} rows of data; the bound would be of neither."
        )
    if isinstance(model.variational, OptimalPrecision):
        raise ValueError(
            "build returned an AdditiveSVGP with OptimalPrecision, whose q no gradient step moves; "
            "use another family, such as gpflow_gam.variational.BlockPrecision()."
        )
    if isinstance(batches, ArrayBatches):  # the first bad row, while it can be named
        X, Y = checked_data(batches.arrays, model.kernel, model.likelihood)
        batches.arrays = X.numpy(), Y.numpy()


def _check_rows(batches: Batches, ranks: list[int]) -> None:
    """
    :param batches: of which a stream's elements have to be rows.
    :param ranks: of a row of each input.
    """
    if not isinstance(batches, StreamBatches):
        return
    inputs = named(batches.structure[:1])
    if len(inputs) == len(ranks) and all(
        spec.shape.rank is not None and spec.shape.rank > rank
        for spec, rank in zip(inputs.values(), ranks)
    ):
        name, spec = next(iter(inputs.items()))
        raise ValueError(
            f"data must be a dataset of rows; its {name} has shape {tuple(spec.shape)}, where the "
            f"model's rows have rank {ranks[0]}: they are batches of a fixed size; end the dataset "
            "in .unbatch()."
        )


def _settle_flags(model: AdditiveSVGP) -> None:
    """
    Make ``gpflow.set_trainable`` hold on replicas.

    It writes to the variable that stands for all of them, which asks the first replica's when it
    is read: so under a strategy every parameter stays trainable.
    """
    for variable in _by_path(model).values():
        flag = vars(variable).get("_trainable")
        if flag is not None and isinstance(variable, tf.distribute.DistributedValues):
            for component in tf.distribute.get_strategy().experimental_local_results(variable):
                component._trainable = flag


def _check_keras(model: keras.Model, batches: Batches) -> None:
    if not model.compiled:
        raise ValueError(
            "build returned a keras.Model that is not compiled; call model.compile(optimizer=..., "
            "loss=...) in it."
        )
    if any(isinstance(m, AdditiveGP) and m.has_moving_sites for m in model._flatten_layers()):
        raise ValueError(
            "build returned a network whose head has variational='sites', whose q no gradient step "
            "moves; use another family, such as variational='block'."
        )
    if type(model).train_step is not keras.Model.train_step:
        raise ValueError(
            f"build returned a {type(model).__name__} with a train_step of its own, which is not "
            "taken here; change the loss by compute_loss, or fit it by its own fit."
        )
    if getattr(model, "inputs", None):
        _check_rows(batches, [len(t.shape) - 1 for t in model.inputs])
    if not model.built:  # no variable may be made inside a compiled step
        X = next(iter(batches.shares(0, [0]).values()))[0]
        model(tf.nest.map_structure(lambda x: x[:1], X), training=False)


def _build_metrics(model: keras.Model, batches: Batches) -> bool:
    """
    Make the variables of metrics and of several outputs' losses, of which none may be made inside a
    compiled step.

    :return: whether there is more to report than the loss.
    """
    several = len(keras.tree.flatten(batches.structure[1])) > 1
    if several or any(metric is not model._loss_tracker for metric in model.metrics):
        model._symbolic_build(data_batch=batches.specs())
    return any(metric is not model._loss_tracker for metric in model.metrics)


def _optimizer(model: Model, learning_rate: LearningRate) -> keras.optimizers.Optimizer:
    if learning_rate is None and isinstance(model, keras.Model):
        found = model.optimizer
    elif callable(learning_rate):
        found = learning_rate()
    else:
        found = keras.optimizers.Adam(0.01 if learning_rate is None else learning_rate)
    if not isinstance(found, keras.optimizers.Optimizer):
        raise TypeError(
            "learning_rate must be a number or a function that returns a keras.optimizers."
            f"Optimizer; it returned {type(found).__name__}."
        )
    if isinstance(found, keras.optimizers.LossScaleOptimizer):
        raise ValueError(
            "the optimiser scales the loss for float16, which is not distributed here; train in "
            "float32 or float64."
        )
    return found


def _by_path(model: AdditiveSVGP) -> dict[str, tf.Variable]:
    """Unconstrained values, which no transform rounds."""
    return {
        path: p.unconstrained_variable if hasattr(p, "unconstrained_variable") else p
        for path, p in parameter_dict(model).items()
    }


def _by_layer(model: keras.Model) -> dict[str, tf.Variable]:
    """
    Paths with their automatic numbers counted anew from 0: what is ``dense`` in one process is
    ``dense_7`` in one that made seven others before. Metrics are left out.
    """
    metrics = {id(v) for v in model.metrics_variables}
    variables = [v for v in model.variables if id(v) not in metrics]
    parts = {part for v in variables for part in v.path.split("/")}
    anew: dict[str, str] = {}
    used: Counter[str] = Counter()
    for part in sorted(parts, key=_name_and_number):
        name, _ = _name_and_number(part)
        anew[part] = f"{name}_{used[name]}"
        used[name] += 1
    found: dict[str, tf.Variable] = {}
    for v in variables:
        path = "/".join(anew[part] for part in v.path.split("/"))
        used[path] += 1
        found[path if used[path] == 1 else f"{path} {used[path]}"] = _plain(v)
    return found


def _name_and_number(part: str) -> tuple[str, int]:
    match = re.fullmatch(r"(.*?)_(\d+)", part)
    return (match[1], int(match[2])) if match else (part, 0)


def _plain(variable: Any) -> tf.Variable:
    return variable.value if isinstance(variable, keras.Variable) else variable
