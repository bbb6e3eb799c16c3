"""Minibatch training on a strategy's replicas: batches, steps, metrics, validation, checkpoints."""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

import keras
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray

from .. import archive
from ..bijectors import by_path
from ..errors import check_count, check_positive
from ..gam import GAM
from ..likelihoods.base import checked_data
from ..models import AdditiveSVGP
from ..optimizers.minimizers import Traced
from ..variational import OptimalPrecision
from ..version import __version__
from .gam import fit_gam
from .workers import Workers, check_alike, first_difference

Model: TypeAlias = "AdditiveSVGP | keras.Model"
LearningRate = float | Callable[[], keras.optimizers.Optimizer] | None
Share = tuple[Any, ...]
"""X and Y, and sample weights where there are any; X and Y may be dicts or tuples."""
Data: TypeAlias = "tuple[Any, ...] | Callable[[Any], tf.data.Dataset]"


# --- arrays and datasets as Keras's ``fit`` takes them ------------------------------------------


def named(share: Share) -> dict[str, Any]:
    """The parts of a share, under names for messages: ``X['wide']``."""
    return {
        name + "".join(f"[{key!r}]" for key in path): leaf
        for name, part in zip(("X", "Y", "sample_weight"), share)
        for path, leaf in keras.tree.flatten_with_path(part)
    }


def arrays_of(data: Any, name: str = "data") -> Share:
    """X, Y and perhaps sample weights as numpy arrays; ``name`` is for messages."""
    if not isinstance(data, (tuple, list)) or len(data) not in (2, 3):
        got = f"{len(data)} entries" if isinstance(data, (tuple, list)) else type(data).__name__
        raise ValueError(f"{name} must be arrays (X, Y), or (X, Y, sample_weight); got {got}.")
    arrays: Share = keras.tree.lists_to_tuples(keras.tree.map_structure(np.asarray, tuple(data)))
    sizes = {part: len(np.atleast_1d(values)) for part, values in named(arrays).items()}
    if len(set(sizes.values())) != 1:
        counted = ", ".join(f"{part} has {size} rows" for part, size in sizes.items())
        raise ValueError(f"{name}: {counted or 'no array'}; X and Y must have equally many rows.")
    if 0 in sizes.values():
        raise ValueError(f"{name} holds no rows.")
    for part, weights in named(arrays).items():
        if part.startswith("sample_weight"):  # one of all outputs, or one of each
            bad = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
            if len(bad):
                raise ValueError(
                    f"{name}: {part} must be finite and not negative; entry {bad[0]} is not."
                )
    return arrays


def number_of_rows(share: Share) -> int:
    """N of arrays [N, ...]."""
    return len(tf.nest.flatten(share)[0])


def checksum(share: Share) -> int:
    """Tells other numbers from these."""
    value = 0
    for part in map(np.asarray, tf.nest.flatten(share)):
        part = part.astype(str) if part.dtype == object else part
        value = zlib.crc32(np.ascontiguousarray(part).data, value)
    return value


class Batches:
    """Batches that follow from the step alone, of which each replica has an equal share."""

    # Those of arrays come in a new order each epoch; of a function each worker has a dataset of its
    # own, whose batches its replicas take in turn.
    def __init__(self, data: Data, batch_size: int, workers: Workers, seed: int) -> None:
        replicas = workers.replicas
        if batch_size % replicas:
            raise ValueError(
                f"batch_size={batch_size} must be a multiple of the {replicas} replicas, each of "
                "which takes an equal share; try "
                f"{batch_size - batch_size % replicas or replicas}."
            )
        self.batch_size, self.seed, self._local = batch_size, seed, workers.local
        self.rows = batch_size // replicas  # of a share
        self.num_data: int | None = None
        self.digest: int | None = None  # tells other arrays from these
        self.arrays: Share | None = None
        self._order: tuple[int, AnyNDArray] | None = None
        self._iterator: Iterator[Share] | None = None
        if isinstance(data, (tuple, list)):
            self.arrays = arrays_of(data)
            self.num_data = number_of_rows(self.arrays)
            if batch_size > self.num_data:
                raise ValueError(
                    f"batch_size={batch_size} is more than the {self.num_data} rows of data; lower "
                    "it."
                )
            self.digest = checksum(self.arrays)
            self.first = self.shares(0)[self._local[0]]
        elif callable(data):
            self._dataset = data(workers.context())
            spec = self._dataset.element_spec
            dense = all(isinstance(s, tf.TensorSpec) for s in tf.nest.flatten(spec))
            if not (isinstance(spec, tuple) and len(spec) in (2, 3) and dense):
                raise ValueError(
                    "data must give a dataset of pairs (X, Y) of tensors, or of (X, Y, "
                    f"sample_weight); it gives {spec}."
                )
            first = next(iter(self._dataset), None)
            if first is None:
                raise ValueError("data gives a dataset without a batch.")
            self.first = self._checked(first)
        else:
            raise TypeError(
                "data must be a pair of arrays (X, Y), or a function from a "
                "tf.distribute.InputContext to a tf.data.Dataset of batches; got "
                f"{type(data).__name__}."
            )

    def shares(self, step: int) -> dict[int, Share]:
        """X [B / R, ...], Y and perhaps sample weights of the local replicas at a step, from 0."""
        if self.arrays is not None and self.num_data is not None:
            epoch, batch = divmod(step, self.num_data // self.batch_size)
            if self._order is None or self._order[0] != epoch:
                rng = np.random.default_rng((self.seed, epoch))
                self._order = epoch, rng.permutation(self.num_data)
            starts = {r: batch * self.batch_size + r * self.rows for r in self._local}
            return {
                r: _sliced(self.arrays, self._order[1][start : start + self.rows])
                for r, start in starts.items()
            }
        if self._iterator is None:  # a resumed fit begins after what was read
            read = step * len(self._local)
            self._iterator = iter(self._dataset.repeat().skip(read).prefetch(1))
        return {r: self._checked(next(self._iterator)) for r in self._local}

    def _checked(self, share: Share) -> Share:
        sizes = {name: v.shape[0] if v.shape.rank else 1 for name, v in named(share).items()}
        if set(sizes.values()) != {self.rows}:
            counted = ", ".join(f"{rows} rows of {name}" for name, rows in sizes.items())
            raise ValueError(
                f"data gives a batch of {counted}; each replica needs batch_size / replicas = "
                f"{self.rows}. End the dataset in .batch({self.rows}, drop_remainder=True)."
            )
        return share


def _sliced(arrays: Share, rows: AnyNDArray | slice) -> Share:
    """Some rows of arrays, as tensors."""
    return tf.nest.map_structure(lambda v: tf.convert_to_tensor(v[rows]), arrays)


@contextlib.contextmanager
def _taken_as_parts(model: keras.Model, replicas: int) -> Iterator[None]:
    """Divides losses that sum rows: Keras multiplies what replicas report by their number."""
    each = {id(loss): loss for loss in keras.tree.flatten(model.loss)}.values()
    summed = [loss for loss in each if getattr(loss, "reduction", "") == "sum"]
    for loss in summed:
        loss.call = lambda *args, call=loss.call: call(*args) / replicas
    try:
        yield
    finally:
        for loss in summed:
            del loss.call


def _reason(error: tf.errors.OpError) -> str:
    """What a message says was wrong, without stacks, nodes, and the errors of other replicas."""
    text = str(error.message)
    said = re.search(r"assertion failed: .*", text) or re.search(r"(?<=^  \(0\) ).*", text, re.M)
    lines = [x for x in text.splitlines() if x and not x[0].isspace()]
    return said.group() if said else lines[-1] if lines else type(error).__name__


class Validation:
    """Held-out rows, the same on all workers; replicas take whole batches, as one device does."""

    def __init__(self, data: Any, batch_size: int, workers: Workers, model: keras.Model) -> None:
        self._arrays = arrays_of(data, "validation_data")
        self._starts = range(0, number_of_rows(self._arrays), batch_size)
        self.digest = checksum(self._arrays)
        self._workers, self.model = workers, model

        def on_replica(has_batch: tf.Tensor, *tensors: tf.Tensor) -> tf.Tensor:
            def test() -> tf.Tensor:
                model.test_step(tf.nest.pack_sequence_as(self._arrays, tensors))
                return tf.constant(True)

            return tf.cond(has_batch, test, lambda: tf.constant(False))

        def test(*tensors: tf.Tensor) -> Any:
            with _taken_as_parts(model, workers.replicas):
                return workers.strategy.run(on_replica, args=tensors)

        self._test = Traced(test)

    def evaluate(self) -> dict[str, AnyNDArray]:
        """The loss and the metrics, by name; metrics begin anew."""
        self.model.reset_metrics()
        size, replicas = self._starts.step, self._workers.replicas
        for start in self._starts[::replicas]:
            starts = range(start, self._starts.stop, size)[:replicas]
            batches = [_sliced(self._arrays, slice(i, i + size)) for i in starts]
            # whether there is a batch for the replica, and its tensors; the first's where not
            flat = {i: [tf.constant(True), *tf.nest.flatten(b)] for i, b in enumerate(batches)}
            idle = [tf.constant(False), *flat[0][1:]]
            flat = {r: flat.get(r, idle) for r in self._workers.local}
            try:
                self._test(*self._workers.distributed(flat))
            except tf.errors.InvalidArgumentError as error:
                raise ValueError(
                    f"validation_data cannot be evaluated: {_reason(error)}"
                ) from error
        return _reported(self.model)


# --- what can be trained -----------------------------------------------------------------------


def _check_svgp(model: AdditiveSVGP, batches: Batches) -> None:
    if len(batches.first) != 2 or any(tf.nest.is_nested(part) for part in batches.first):
        raise ValueError(
            "data of an AdditiveSVGP are one X and one Y, without sample_weight; got "
            f"{', '.join(named(batches.first))}."
        )
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
    if batches.arrays is not None:  # the first bad row, while it can be named
        X, Y = checked_data(batches.arrays, model.kernel, model.likelihood)
        batches.arrays = X.numpy(), Y.numpy()


def _check_keras(model: keras.Model) -> None:
    if not model.compiled:
        raise ValueError(
            "build returned a keras.Model that is not compiled; call model.compile(optimizer=..., "
            "loss=...) in it."
        )
    if type(model).train_step is not keras.Model.train_step:
        raise ValueError(
            f"build returned a {type(model).__name__} with a train_step of its own, which is not "
            "taken here; change the loss by compute_loss, or fit it by its own fit."
        )


def _optimizer(model: Model, learning_rate: LearningRate) -> keras.optimizers.Optimizer:
    if learning_rate is None and isinstance(model, keras.Model):
        optimizer = model.optimizer
    elif callable(learning_rate):
        optimizer = learning_rate()
    else:
        optimizer = keras.optimizers.Adam(0.01 if learning_rate is None else learning_rate)
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        raise ValueError(
            "the optimizer scales the loss for float16, which is not distributed here; train in "
            "float32 or float64."
        )
    return optimizer


def _check_on_replicas(model: Model, optimizer: keras.optimizers.Optimizer) -> None:
    """Raise ValueError for what replicas cannot do as one device does it."""
    for loss in keras.tree.flatten(getattr(model, "loss", None)):
        if getattr(loss, "reduction", "") == "mean_with_sample_weight":
            raise ValueError(
                f"the loss {loss.name!r} has reduction='mean_with_sample_weight', for which "
                "replicas would need each other's weights; take 'sum_over_batch_size'."
            )
    for name in ("gradient_accumulation_steps", "ema_overwrite_frequency"):
        if value := getattr(optimizer, name, None):  # inside a cond, in which replicas cannot meet
            raise ValueError(
                f"the optimizer has {name}={value}, which Keras cannot do on several replicas; "
                "leave it out (averages are taken over at the end in any case, and a larger "
                "batch_size does what accumulation does)."
            )


def _plain(variable: Any) -> tf.Variable:
    return variable.value if isinstance(variable, keras.Variable) else variable


def _mark_trainable_on_replicas(variables: Mapping[str, tf.Variable]) -> None:
    """Make ``gpflow.set_trainable`` hold on replicas, the first of which is asked."""
    for variable in variables.values():
        flag = vars(variable).get("_trainable")
        if flag is not None and isinstance(variable, tf.distribute.DistributedValues):
            for component in tf.distribute.get_strategy().experimental_local_results(variable):
                component._trainable = flag


def _by_layer(model: keras.Model) -> dict[str, tf.Variable]:
    """By paths, with a number for those in them: ``dense`` may be ``dense_7`` another time."""
    metrics = {id(v) for v in model.metrics_variables}
    variables = [v for v in model.variables if id(v) not in metrics]
    paths = [re.sub(r"_\d+(?=/|$)", "", v.path) for v in variables]
    return {f"{path} {i}": _plain(v) for i, (path, v) in enumerate(zip(paths, variables))}


def _reported(model: keras.Model) -> dict[str, AnyNDArray]:
    """The metrics' values, by name."""
    return {k: np.asarray(v, np.float64) for k, v in model.get_metrics_result().items()}


# --- the fit of a model --------------------------------------------------------------------------

FILE = "training.state"
FORMAT = 3
_KIND = "gpflow_gam.distribute.fit"


class FailedStepError(RuntimeError):
    """A step could not be computed, or its loss or gradient is NaN or infinite."""


class Training:
    """A model with its optimizer and metrics on all replicas, its steps, and its checkpoint."""

    def __init__(
        self,
        model: Model,
        batches: Batches,
        workers: Workers,
        learning_rate: LearningRate,
        folder: Path | None,
        validation_data: Any,
        steps_per_epoch: int | None,
    ) -> None:
        self.model, self._batches, self._workers, self._folder = model, batches, workers, folder
        self.history: list[float] = []
        self._epochs: dict[str, list[AnyNDArray]] = {}
        self._saved: int | None = None
        self._has_metrics, self._validation = False, None
        self._steps_per_epoch = steps_per_epoch
        if steps_per_epoch is None and batches.num_data is not None:
            self._steps_per_epoch = batches.num_data // batches.batch_size
        if isinstance(model, AdditiveSVGP):
            if validation_data is not None:
                raise ValueError(
                    "validation_data are of a keras.Model; build returned an AdditiveSVGP, whose "
                    "predictive density at other rows is model.predict_log_density((X, Y))."
                )
            _check_svgp(model, batches)
            variables, num_data = by_path(model), model.num_data
            _mark_trainable_on_replicas(variables)
        elif isinstance(model, keras.Model):
            _check_keras(model)
            self._build(model)
            variables, num_data = _by_layer(model), batches.num_data
            if validation_data is not None:
                size = batches.batch_size
                self._validation = Validation(validation_data, size, workers, model)
        else:
            raise TypeError(
                "build must return an AdditiveSVGP or a compiled keras.Model; it returned "
                f"{type(model).__name__}."
            )
        if self._steps_per_epoch is None and (self._has_metrics or self._validation is not None):
            raise ValueError(
                "metrics and validation_data are reported once an epoch, and data do not say how "
                "many rows they have: pass steps_per_epoch=."
            )
        self.trained: list[Any] = list(model.trainable_variables)
        if not self.trained:
            raise ValueError("build returned a model in which nothing is trainable.")
        # TensorFlow sends gradients as one vector, also those of several types
        types = sorted({tf.as_dtype(v.dtype).name for v in self.trained})
        if workers.replicas > 1 and len(types) > 1:
            raise ValueError(
                f"build returned a model that trains numbers of {' and '.join(types)}, and several "
                "replicas add up gradients of one type alone: give heads dtype='float32', or call "
                "keras.config.set_floatx('float64') before the network is made."
            )
        self.optimizer = _optimizer(model, learning_rate)
        if workers.replicas > 1:
            _check_on_replicas(model, self.optimizer)
        self.optimizer.build(self.trained)
        clips = ("clipnorm", "global_clipnorm", "clipvalue")
        self._clips = any(getattr(self.optimizer, name) is not None for name in clips)
        self._step = Traced(lambda *t: workers.strategy.run(self._on_replica, args=t))
        self._variables = {**variables, **self._state()}
        names = {id(v): name for name, v in variables.items()}
        options = self.optimizer.get_config()
        kept = {k: v for k, v in options.items() if k not in ("name", "learning_rate")}
        config = {
            "seed": batches.seed,
            "batch_size": batches.batch_size,
            "num_data": num_data,
            "checksum of data": batches.digest,
            "trained": [names[id(_plain(v))] for v in self.trained],
            "optimizer": {"class": type(self.optimizer).__name__, **kept},
            "steps_per_epoch": self._steps_per_epoch,
            "checksum of validation_data": self._validation and self._validation.digest,
            **{f"shape of {name}": tuple(v.shape) for name, v in self._variables.items()},
        }
        # what must not change from start to start, nor from worker to worker
        self._config = json.loads(json.dumps(config, default=str))
        told = {name: json.dumps(value) for name, value in self._config.items()}
        check_alike(workers.communicator.gathered(told))

    def _build(self, model: keras.Model) -> None:
        """Make all variables: none may be made inside a compiled step."""
        X, Y, *_ = self._batches.first
        if not model.built:
            model(tf.nest.map_structure(lambda x: x[:1], X), training=False)
        if len(keras.tree.flatten(Y)) > 1 or len(model.metrics) > 1:
            model._symbolic_build(data_batch=self._batches.first)
        self._has_metrics = len(model.metrics) > 1  # than the mean loss
        for v in model.metrics_variables if self._workers.replicas > 1 else ():
            if v.aggregation != "sum":  # each replica adds up its own rows', and reading adds these
                raise ValueError(
                    f"the metric variable {v.path} is of aggregation {v.aggregation!r}, which "
                    "several replicas cannot report; make it by add_variable(aggregation='sum')."
                )

    def _state(self) -> dict[str, tf.Variable]:
        """The optimizer's variables but for the learning rate, and the metrics'."""
        # a start may change the rate; a step in the middle of an epoch has added some metrics up
        slots = [v for v in self.optimizer.variables if v.name != "learning_rate"]
        metrics = getattr(self.model, "metrics_variables", ())
        metrics = {id(v): v for v in metrics}.values()
        return {
            f"{kind} {i}": _plain(v)
            for kind, some in (("optimizer", slots), ("metric", metrics))
            for i, v in enumerate(some)
        }

    # --- steps and epochs ----------------------------------------------------------------------

    @property
    def step(self) -> int:
        return len(self.history)

    def take_step(self, shares: dict[int, Share]) -> None:
        """Raises FailedStepError if it cannot be computed, or if a number is not finite."""
        flat = {replica: tf.nest.flatten(share) for replica, share in shares.items()}
        try:
            loss, broken = self._workers.first(self._step(*self._workers.distributed(flat)))
        except tf.errors.InvalidArgumentError as error:
            self._fail(self.step + 1, _reason(error), error)
        self.history.append(float(loss))
        if not np.isfinite(loss):
            self._fail(self.step, f"the loss is {loss}")
        if broken:
            self._fail(self.step, "the gradient of the loss is NaN or infinite")

    def _on_replica(self, *tensors: tf.Tensor) -> tf.Tensor:
        """The whole batch's loss, and how many numbers of the gradient are not finite, [2]."""
        options, total = self._workers.options, tf.distribute.ReduceOp.SUM
        context = tf.distribute.get_replica_context()
        X, Y, *weight = tf.nest.pack_sequence_as(self._batches.first, tensors)
        weights = weight[0] if weight else None
        with tf.GradientTape() as tape:
            if isinstance(self.model, AdditiveSVGP):
                # Each share's bound is scaled to all the data, and holds KL and priors once: the
                # mean over shares is the bound of their union.
                loss = self.model.training_loss((X, Y)) / self._workers.replicas
            else:
                # Keras divides its losses, and those of add_loss, by the number of replicas itself.
                outputs = self.model(X, training=True)
                loss = self.model.compute_loss(x=X, y=Y, y_pred=outputs, sample_weight=weights)
        sources = [_plain(v) for v in self.trained]
        gradients = [
            tf.convert_to_tensor(g)
            for g in tape.gradient(loss, sources, unconnected_gradients="zero")
        ]
        broken = [tf.math.count_nonzero(~tf.math.is_finite(g), dtype=tf.float64) for g in gradients]
        report = tf.stack([tf.cast(loss, tf.float64), tf.add_n(broken)])
        report = context.all_reduce(total, report, options)
        if self._clips and self._workers.replicas > 1:
            # Keras clips each replica's gradient and sums afterwards: so one of them hands in the
            # whole gradient, the others zeros.
            whole = context.all_reduce(total, gradients, options)
            first = tf.equal(context.replica_id_in_sync_group, 0)
            gradients = [tf.where(first, g, tf.zeros_like(g)) for g in whole]
        self.optimizer.apply(gradients, self.trained)
        if self._has_metrics:
            self.model.compute_metrics(X, Y, outputs, sample_weight=weights)
        return report

    def end_epoch(self) -> dict[str, AnyNDArray]:
        """The epoch's report, if the last step ended one; empty elsewhere."""
        steps = self._steps_per_epoch
        if steps is None or self.step % steps:
            return {}
        report: dict[str, AnyNDArray] = {"loss": np.mean(self.history[-steps:])}
        if isinstance(self.model, keras.Model):
            report = _reported(self.model) | report
            if self._validation is not None:
                validated = self._validation.evaluate()
                report |= {f"val_{name}": value for name, value in validated.items()}
            self.model.reset_metrics()
        for name, value in report.items():
            self._epochs.setdefault(name, []).append(value)
        return report

    def epochs(self) -> dict[str, AnyNDArray]:
        return {name: np.stack(values) for name, values in self._epochs.items()}

    def _fail(self, step: int, what: str, cause: Exception | None = None) -> NoReturn:
        kept = ""
        if self._saved is not None:
            kept = f" The checkpoint of step {self._saved} in {self._folder} is from before."
        raise FailedStepError(
            f"step {step}: {what}. If the data are in order lower learning_rate, or raise the "
            f"jitter.{kept}"
        ) from cause

    # --- checkpoint ----------------------------------------------------------------------------

    @property
    def remedy(self) -> str:
        """Advice for users when a worker is lost."""
        if self._folder is None:
            return "Start all workers again; with checkpoint=folder they would go on from there."
        return (
            "Start all workers again with the same arguments: they go on from step "
            f"{self._saved or 0}, the last in {self._folder}."
        )

    def save(self) -> None:
        """Write the state, on the chief; raise FailedStepError where it is not finite."""
        if self._folder is None or self._saved == self.step:
            return
        # on every worker, since reading a variable may take all of them
        values = {name: v.numpy() for name, v in self._variables.items()}
        for name, value in values.items():
            if np.issubdtype(value.dtype, np.floating) and not np.all(np.isfinite(value)):
                self._fail(self.step, f"{name} is NaN or infinite after it")
        if self._workers.index == 0:
            header = {
                "kind": _KIND,
                "format": FORMAT,
                "version": __version__,
                "config": self._config,
                "epochs": list(self._epochs),
            }
            arrays = {
                "history": np.array(self.history, dtype=np.float64),
                **{f"variable {name}": value for name, value in values.items()},
                **{f"epoch {name}": values for name, values in self.epochs().items()},
            }
            archive.write(self._folder / FILE, header, arrays, overwrite=True, compressed=False)
        self._saved = self.step

    def resume(self, num_steps: int) -> int:
        """Take over the chief's checkpoint, if there is one; returns the step it was written at."""
        if self._folder is None:
            return 0
        path, content = self._folder / FILE, b""
        if self._workers.index == 0:
            self._folder.mkdir(parents=True, exist_ok=True)
            content = path.read_bytes() if path.exists() else b""
        content = self._workers.communicator.gathered(content)[0]
        if not content:
            return 0
        try:
            header, arrays = archive.read(path, _KIND, FORMAT, "checkpoint", content)
        except ValueError as error:
            raise ValueError(f"checkpoint: {error} Remove it to start anew.") from error
        if other := first_difference(header["config"], self._config):
            name, there, here = other
            raise ValueError(
                f"checkpoint: {path} was written by another fit: {name} was {there}, now it is "
                f"{here}. Go on with what it was written with, or pass another folder."
            )
        self.history = arrays["history"].tolist()
        if self.step > num_steps:
            raise ValueError(
                f"num_steps={num_steps} is less than the {self.step} steps of the checkpoint in "
                f"{self._folder}; raise it, or pass another folder."
            )
        self._saved = self.step
        for name, variable in self._variables.items():
            variable.assign(arrays[f"variable {name}"])
        self._epochs = {name: list(arrays[f"epoch {name}"]) for name in header["epochs"]}
        return self.step


@dataclass(frozen=True)
class StepProgress:
    """The state of a running fit, as callbacks see it."""

    step: int
    """Steps done, counted from 1 over all restarts."""

    loss: float
    """Loss of the step's batch, at the parameters before the step."""

    seconds: float
    """Time since this start of the fit."""

    model: Model = field(repr=False)
    """The model that is being fitted."""

    epoch: Mapping[str, AnyNDArray] = field(default_factory=dict)
    """
    The mean loss, compiled metrics and validation losses (`loss`, `val_loss`, ...) where an epoch
    ended at this step; empty at other steps.
    """


StepCallback = Callable[[StepProgress], bool | None]
"""Called once a step on every worker; a true return value on any of them ends the fit on all."""


@dataclass(frozen=True)
class DistributedFit:
    """The result of a distributed fit. Equal on every worker, but for the time."""

    model: Model
    """The fitted model; its variables live on the replicas and are read as any others are."""

    history: AnyNDArray = field(repr=False, default_factory=lambda: np.zeros(0))
    """The loss of each step's batch, from the first step on, restarts or not [steps]."""

    epochs: Mapping[str, AnyNDArray] = field(repr=False, default_factory=dict)
    """
    As the history of Keras's ``fit``: of each epoch that has ended the mean `loss` of its steps,
    compiled metrics by their names, and the same of validation data as `val_loss` and so on
    [epochs]. Empty where the data do not say how long an epoch is and ``steps_per_epoch`` does not,
    either.
    """

    resumed_from: int = 0
    """The step of the checkpoint that this start went on from; 0 without one."""

    seconds: float = 0.0
    """Duration of this start, in seconds."""


def fit(build: Any, data: Any, **arguments: Any) -> Any:
    """
    Fit on one device, several devices of a host, or several hosts.

    A GAM is fitted to rows of which every worker has a share, and is the same on all workers: that
    of one process which reads the shares one after the other, up to rounding.

    A model that a function builds is trained on minibatches. The updates are those of one device,
    whatever the number of replicas, but for layers that look at a batch as a whole, such as batch
    normalisation, or that draw random numbers, and for losses under masks.

    With several hosts run the same program on each, with ``TF_CONFIG`` set. Where a worker dies
    the others end with a :class:`LostWorkerError`; start all of them again to go on. See
    :doc:`/distribution`.

    :param build: a GAM; or a function that makes the model, in the strategy's scope: an
        :class:`~gpflow_gam.models.AdditiveSVGP` with ``num_data``, or a compiled ``keras.Model``
        without a ``train_step`` of its own. A ``compute_loss`` of its own returns the replica's
        part of the loss, divided by the number of replicas, as for Keras's ``fit``.
    :param data: of a GAM the rows of this worker, as :meth:`gpflow_gam.GAM.fit` takes them (a
        table, the paths of Parquet files, tables one after the other), or a function from a
        ``tf.distribute.InputContext`` to them. Of a model one of

        - X [N, ...] and Y [N, ...], all of them on every worker, shuffled anew each epoch. For a
          Keras model X and Y may be dicts, lists or tuples of arrays, and sample weights [N], those
          of all outputs or of each, may come third: the loss is the sum of weighted rows over their
          number, as in Keras's ``fit``;
        - a function from a ``tf.distribute.InputContext`` to a ``tf.data.Dataset`` of batches (x,
          y) or (x, y, sample_weight) of ``batch_size / replicas`` rows: each worker's own share of
          the data, read over and over. To be resumed it must come in the same order each time.
    :param strategy: a ``MirroredStrategy`` or ``MultiWorkerMirroredStrategy``; by default that of
        the scope, or one device.
    :param y: of a GAM, the response's name, or its values in the rows of this worker.
    :param options: of a GAM, those of :meth:`gpflow_gam.GAM.fit`. Where ``max_seconds``,
        ``callback`` or Ctrl-C ends the fit on one worker, it ends on all, after the same iteration.
    :param batch_size: rows of a step, over all replicas.
    :param num_steps: steps in all, restarts included.
    :param learning_rate: Adam's, or a function that returns a Keras optimizer; by default 0.01, or
        the optimizer that the Keras model was compiled with. It is no part of a checkpoint.
    :param seed: of the order of the rows of arrays.
    :param checkpoint: folder for the state of the fit; goes on from the one that is there. Only the
        chief's is read and written.
    :param save_every: steps from one to the next; the last step is saved too.
    :param callback: called on every worker after each step; a true return value ends the fit.
    :param timeout: seconds that a worker waits for the others in a step.
    :param validation_data: of a Keras model, rows on which loss and metrics are evaluated once an
        epoch: arrays (X, Y) or (X, Y, sample_weight), the same on all workers, which share its
        batches of ``batch_size`` rows out among themselves.
    :param steps_per_epoch: after how many steps the metrics of a Keras model are reported and begun
        anew, and validation data evaluated; by default the whole batches among the rows of
        ``data``, where their number can be known.
    :return: the GAM, fitted; or a :class:`DistributedFit`.
    :raises TypeError: arguments of the wrong kind.
    :raises ValueError: arguments that do not fit together, or a checkpoint of another fit.
    :raises FailedStepError: a step's loss or gradient is NaN or infinite, or cannot be computed;
        the last checkpoint from before stays.
    :raises LostWorkerError: another worker is gone.
    """
    if isinstance(build, GAM):
        return fit_gam(build, data, **arguments)
    return _fit_model(build, data, **arguments)


def _fit_model(
    build: Callable[[], Model],
    data: Data,
    *,
    batch_size: int,
    num_steps: int,
    strategy: tf.distribute.Strategy | None = None,
    learning_rate: LearningRate = None,
    seed: int = 0,
    checkpoint: str | os.PathLike[str] | None = None,
    save_every: int = 100,
    callback: StepCallback | None = None,
    timeout: float = 300.0,
    validation_data: Any = None,
    steps_per_epoch: int | None = None,
) -> DistributedFit:
    check_count("batch_size", batch_size)
    check_count("num_steps", num_steps)
    check_count("save_every", save_every)
    check_count("steps_per_epoch", steps_per_epoch)
    rate = learning_rate
    if isinstance(rate, (int, float)):
        check_positive("learning_rate", rate)
    start = time.perf_counter()
    workers = Workers(strategy, timeout)
    batches = Batches(data, batch_size, workers, seed)
    folder = None if checkpoint is None else Path(checkpoint)
    with workers.scope():
        with workers.watched("It was lost before the first step; start all workers again."):
            training = Training(
                build(), batches, workers, rate, folder, validation_data, steps_per_epoch
            )
            resumed = training.resume(num_steps)
        ended = False
        while training.step < num_steps and not ended:
            shares = batches.shares(training.step)
            with workers.watched(training.remedy):
                training.take_step(shares)
                epoch, step = training.end_epoch(), training.step
                if step % save_every == 0:
                    training.save()
                if callback is not None:
                    seconds = time.perf_counter() - start
                    loss = training.history[-1]
                    progress = StepProgress(step, loss, seconds, training.model, epoch)
                    wishes = workers.communicator.total([bool(callback(progress))])
                    ended = bool(wishes[0] > 0)
                if ended or step == num_steps:
                    training.save()
                    workers.communicator.total([1.0])  # the last checkpoint is there before this
        # their averages, where the optimizer keeps them, as Keras's fit
        training.optimizer.finalize_variable_values(training.trained)
    seconds = time.perf_counter() - start
    history = np.array(training.history)
    return DistributedFit(training.model, history, training.epochs(), resumed, seconds)
