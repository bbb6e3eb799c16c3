"""Base of the Keras layers with an additive Gaussian process."""

from __future__ import annotations

import abc
import contextlib
import re
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Literal, NoReturn, get_args

import gpflow
import keras
import numpy as np
import pandas as pd
import tensorflow as tf
from gpflow.base import AnyNDArray, Parameter
from gpflow.likelihoods import Likelihood
from gpflow.utilities import parameter_dict, set_trainable

from ..errors import check_choice, check_level
from ..gam.components.plan import Component
from ..gam.terms.base import column_of
from ..kernels import AdditiveKernel
from ..kernels.correlation import float_type
from ..likelihoods.base import (
    check_width,
    checked_observations,
    num_labels,
    observation_width,
    possible_observations,
)
from ..likelihoods.predictive import (
    expected_log_density,
    predictive_log_density,
    summarised_response,
)
from ..posteriors import AdditivePosterior
from .effects import draw_head, head_effects, head_summary
from .losses import (
    FORWARD,
    HEAD,
    ExpectedLogLikelihood,
    Forward,
    as_leading,
    as_many,
    as_rows,
    codes_of,
    metric_of,
    read_once,
)
from .structure import HeadSpecification

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Normalization = Literal["running", "adapt", None]
MOMENTUM = 0.99
_ROUNDINGS = 64.0
"""A spread is larger than so many roundings of the feature's location."""


def constant_weight(
    layer: keras.Layer, name: str, shape: tuple[int, ...], initializer: Any = "zeros"
) -> keras.Variable:
    """A new weight of a layer that no training moves."""
    dtype = layer.compute_dtype
    return layer.add_weight(
        name=name, shape=shape, dtype=dtype, initializer=initializer, trainable=False
    )


class FeatureScaling(tf.Module):
    """``(x - location) / spread`` of D features; :meth:`update` and :meth:`set` change the two."""

    # Unlike in batch normalisation a row's value never depends on the rows beside it. A feature
    # that varies by no more than its location's rounding is divided by 1.
    def __init__(self, shifted: AnyNDArray, scaled: AnyNDArray, owner: keras.Layer) -> None:
        super().__init__()
        self.shifted = np.asarray(shifted, dtype=bool)
        self.scaled = np.asarray(scaled, dtype=bool)
        shape = self.shifted.shape
        self.location = constant_weight(owner, "location", shape)
        self.variance = constant_weight(owner, "variance", shape, "ones")
        self.count = constant_weight(owner, "count", ())

    def variables_by_name(self) -> dict[str, keras.Variable]:
        return {"location": self.location, "variance": self.variance, "count": self.count}

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        location = tf.convert_to_tensor(self.location)
        return (x - location) / self._spread(location)

    def _spread(self, location: tf.Tensor) -> tf.Tensor:
        variance = tf.convert_to_tensor(self.variance)
        info = np.finfo(variance.dtype.as_numpy_dtype)
        least = tf.maximum(tf.square(_ROUNDINGS * info.eps * location), info.tiny)
        return tf.sqrt(tf.where(variance > least, variance, tf.ones_like(variance)))

    def inverse(self, x: AnyNDArray) -> AnyNDArray:
        """Features [N, D] before they were scaled."""
        location = tf.convert_to_tensor(self.location)
        values: AnyNDArray = x * self._spread(location).numpy() + location.numpy()
        return values

    def set(self, x: AnyNDArray) -> None:
        """Take location and spread from data [N, D]."""
        location = np.where(self.shifted, x.mean(axis=0), 0.0)
        variance = np.mean(np.square(x - location), axis=0)
        self.location.assign(location)
        self.variance.assign(np.where(self.scaled, variance, 1.0))
        self.count.assign(self.count + len(x))

    def update(self, x: tf.Tensor) -> None:
        """Let location and spread follow a training batch [N, D], averaged over all replicas."""
        # rows of early batches count alike, later batches exponentially; others than finite not
        x = tf.stop_gradient(x)
        holds = tf.reduce_all(tf.math.is_finite(x), axis=1, keepdims=True)
        rows = over_replicas(tf.reduce_sum(tf.cast(holds, x.dtype)))

        def averaged(values: tf.Tensor) -> tf.Tensor:
            finite = tf.where(holds, values, tf.zeros_like(values))
            return tf.math.divide_no_nan(over_replicas(tf.reduce_sum(finite, axis=0)), rows)

        mean = averaged(x)
        variance = averaged(tf.square(x - mean))
        some = tf.cast(rows > 0.0, x.dtype)
        count = tf.convert_to_tensor(self.count) + rows
        rate = some * tf.maximum(tf.math.divide_no_nan(rows, count), 1.0 - MOMENTUM)
        location = tf.convert_to_tensor(self.location)
        distance = mean - location if self.shifted.any() else mean
        moved = _chosen(self.shifted, location + rate * distance, location)
        # around what the location was: for a feature without one, the mean square
        gap = _chosen(self.shifted, (1.0 - rate) * tf.square(distance), tf.square(mean))
        old = tf.convert_to_tensor(self.variance)
        new = (1.0 - rate) * old + rate * (variance + gap)  # exact where old is far larger
        self.location.assign(moved)
        self.variance.assign(_chosen(self.scaled, new, old))
        self.count.assign(count)


def _chosen(which: AnyNDArray, x: tf.Tensor, other: tf.Tensor) -> tf.Tensor:
    return x if which.all() else tf.where(which, x, other)


def over_replicas(x: tf.Tensor) -> tf.Tensor:
    """The sum over all replicas of what each has."""
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return x
    return context.all_reduce(tf.distribute.ReduceOp.SUM, x)


def of_all_replicas(x: tf.Tensor) -> tf.Tensor:
    """The rows that all replicas have, in each."""
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return x
    return context.all_gather(x, axis=0)


def asserted(X: tf.Tensor, holds: tf.Tensor, message: list[Any]) -> tf.Tensor:
    """X, once the assertion has passed, which XLA drops."""
    check = tf.debugging.Assert(tf.reduce_all(holds), message)
    with tf.control_dependencies([] if check is None else [check]):
        return tf.identity(X)


Output = Literal["moments", "components", "response", "interval"]
_SINGLE_JITTER = 1e-4


class Adopted:
    """Each ``tf.Variable`` of a GPflow module as a Keras variable, by its parameter's path."""

    # which of them Keras lists as trainable follows from the structure alone, so that flags cannot
    # reorder saved state
    def __init__(self, module: tf.Module) -> None:
        self.parameters: dict[str, Parameter] = {}
        self.variables: dict[str, keras.Variable] = {}
        self._free: list[str] = []
        for path, leaf in parameter_dict(module).items():
            name = path.lstrip(".")
            is_parameter = isinstance(leaf, Parameter)
            variable = leaf.unconstrained_variable if is_parameter else leaf
            # set_trainable() marks a mirrored variable itself, whose property asks its copies
            flag = vars(variable).get("_trainable", variable.trainable)
            free = bool(flag) and variable.shape.num_elements() > 0
            if is_parameter:
                self.parameters[name] = leaf
                if free:
                    self._free.append(name)
            self.variables[name] = keras.Variable(
                variable,
                dtype=variable.dtype.name,
                trainable=free and not (is_parameter and is_moved(leaf)),
                autocast=False,
                name=re.sub(r"[^A-Za-z0-9_.-]+", "_", name),  # optimisers name scopes after it
            )

    def freeze(self, frozen: Iterable[str], trainable: bool = True) -> None:
        """Set every flag, Keras's and GPflow's."""
        frozen = tuple(frozen)
        for name in self._free:
            flag = trainable and not is_below(name, frozen)
            self.variables[name].trainable = flag and not is_moved(self.parameters[name])
            set_trainable(self.parameters[name], flag)

    def below(self, prefixes: Iterable[str]) -> list[Parameter]:
        """The trainable parameters with such a path."""
        prefixes = tuple(prefixes)
        return [self.parameters[name] for name in self._free if is_below(name, prefixes)]

    def require(self, prefixes: Iterable[str]) -> None:
        """Raises ValueError for a prefix that begins no path."""
        for prefix in prefixes:
            if not any(is_below(name, [prefix]) for name in self.variables):
                raise ValueError(
                    f"frozen: no parameter's path begins with {prefix!r}; there are "
                    f"{', '.join(dict.fromkeys(name.split('.')[0] for name in self.variables))}, "
                    "and what is within them."
                )

    def check_flags(self, frozen: Sequence[str]) -> None:
        """Raises ValueError for a flag of GPflow's that training by Keras would not heed."""
        for name in self._free:
            if not (is_below(name, frozen) or self.parameters[name].trainable):
                raise ValueError(
                    f"{name} is not trainable for GPflow, which is nothing to Keras: write "
                    f"head.frozen = (*head.frozen, {name!r}), or set that flag back."
                )


def is_moved(parameter: Parameter) -> bool:
    """True if optimizers of Keras move another variable in its place."""
    return hasattr(parameter.transform, "moves")


def is_below(name: str, prefixes: Iterable[str]) -> bool:
    """True if a path is one of the prefixes, or inside of one."""
    return any(
        name == prefix or (name.startswith(prefix) and name[len(prefix)] in ".[")
        for prefix in prefixes
    )


_IS_TRACING: ContextVar[bool] = ContextVar("is_tracing", default=False)
"""A context variable: other threads may predict meanwhile."""


class HeadInput:
    """The features [N, F] of a call within :func:`trace_heads`; nothing can compute with it."""

    def __init__(self, head: GPHead, features: tf.Tensor) -> None:
        if len(features.shape) != 2:
            raise ValueError(f"{head.name} is given features {features.shape}, which are no rows")
        self.head = head
        self.features = features

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError(f"something is computed from what {self.head.name} returns")

    def __repr__(self) -> str:
        return f"what {self.head.name} returns"


@contextlib.contextmanager
def trace_heads() -> Iterator[None]:
    """Within it, heads return their inputs as :class:`HeadInput`, and compute nothing."""
    token = _IS_TRACING.set(True)
    try:
        yield
    finally:
        _IS_TRACING.reset(token)


class GPHead(keras.Layer, abc.ABC):
    """Base of :class:`AdditiveGP` and :class:`IterNCGP`: terms, response, scaling and state."""

    _first = "adapt(features)"
    """The call by which it learns the scaling of its features."""
    loss_weight: float = 1.0
    """Factor of its loss, the KL divergence included."""
    predictive_share: float | tf.Variable = 1.0
    """Share of the predictors' variance that class probabilities are averaged over."""

    def __init__(
        self,
        specification: HeadSpecification,
        normalization: Normalization,
        output: Output,
        level: float,
        frozen: Sequence[str],
        **options: Any,
    ) -> None:
        if options.get("dtype") is None:
            options["dtype"] = gpflow.default_float().__name__
        super().__init__(**options)
        check_choice("dtype", self.compute_dtype, ("float32", "float64"))
        check_choice("normalization", normalization, get_args(Normalization))
        check_choice("output", output, get_args(Output))
        check_level(level)
        self.specification = specification
        self.structure = specification.structure(normal=normalization == "running")
        self.normalization = normalization
        self.output_kind = output
        self.level = level
        self._frozen = tuple(frozen)
        with self._precision():
            self._gp = self._build_model()
        self._adopted = Adopted(self._gp)
        self._adopted.require(self._frozen)
        # an attribute that Keras sees: its trackers take the variables out of this list
        self._gp_variables = list(self._adopted.variables.values())
        kinds = np.array(self.structure.kinds)
        self.scaling = FeatureScaling(
            kinds == "number", (kinds == "number") | (kinds == "multiplier"), self
        )
        self._set_flags()
        self.built = True
        self.supports_masking = True
        self._trained_in: Callable[[], Any] = lambda: None
        self._untrained_in: Callable[[], Any] = lambda: None

    @abc.abstractmethod
    def _build_model(self) -> gpflow.models.GPModel:
        """The GPflow model, on scaled features."""

    @abc.abstractmethod
    def posterior(self) -> AdditivePosterior:
        """
        The posterior on scaled features at the present weights: a snapshot.

        :meth:`scaled` turns features into its inputs.
        """

    @abc.abstractmethod
    def _moments(self, X: tf.Tensor, training: bool) -> tuple[tf.Tensor, Any]:
        """Moments of the predictor at scaled features, [N, L, M], and what a loss takes over."""

    def _component_marginals(self, X: tf.Tensor, training: bool) -> tuple[tf.Tensor, tf.Tensor]:
        """Means and variances [N, C] or [N, C, L] of components at scaled features."""
        return self.posterior().predict_components(X)  # type: ignore[no-any-return]

    @property
    def kernel(self) -> AdditiveKernel:
        """The components' priors, on scaled features."""
        return self._gp.kernel

    @property
    def likelihood(self) -> Likelihood:
        """The response's likelihood."""
        return self._gp.likelihood

    @property
    def names(self) -> tuple[str, ...]:
        """The components' names, the intercept first."""
        return self.kernel.names

    @property
    def num_predictors(self) -> int:
        """L."""
        return self.specification.num_predictors

    @property
    def parameters(self) -> dict[str, gpflow.Parameter]:
        """GPflow's parameters by path, such as ``"likelihood.variance"``."""
        return dict(self._adopted.parameters)

    @property
    def frozen(self) -> tuple[str, ...]:
        """Beginnings of the paths of parameters that training leaves alone; can be set."""
        return self._frozen

    @frozen.setter
    def frozen(self, prefixes: Sequence[str]) -> None:
        self._adopted.require(prefixes)
        self._frozen = tuple(prefixes)
        self._set_flags()

    @property
    def trainable(self) -> bool:
        return bool(self._trainable)

    @trainable.setter
    def trainable(self, value: bool) -> None:
        # Keras sets every variable's flag, whatever is frozen
        self._trainable = bool(value)
        if hasattr(self, "_adopted"):
            self._set_flags()

    def _set_flags(self) -> None:
        self._adopted.freeze(self._frozen, self._trainable)

    def adapt(self, features: Any, y: Any = None) -> None:
        """
        Take scaling, inducing inputs and centring measures from features; start from ``y``.

        :param features: [..., F]: raw inputs, or what the network gives for a first batch.
        :param y: responses [...] or [..., K], as in ``fit``; sets the predictor's constant and the
            likelihood's parameters.
        :raises ValueError: features that are not finite or too few; another number of responses;
            one whose spread is far from ``scale``.
        """
        features, y = self._rows(features, y)
        if len(features) < 2:
            raise ValueError(f"features has {len(features)} row(s); adapt needs at least 2.")
        if not np.all(np.isfinite(features)):
            raise ValueError("features must be finite; drop or impute the rows that are not.")
        if self.normalization is not None:
            self.scaling.set(features[:, list(self.structure.features)])
        X = self.scaled(features).numpy()
        with self._precision():
            components = self.structure.adapted(X)
            self.specification.adapt_measures(self.kernel, components)
            self._adapt_inducing(components)
            if y is not None:
                self.specification.adapt_response(self._gp, X, np.asarray(self._observed(y)[0]))

    def _rows(self, features: Any, y: Any = None) -> tuple[AnyNDArray, AnyNDArray | None]:
        """Features [N, F] and responses [N] or [N, K] from arrays with any leading dimensions."""
        features = np.asarray(features, dtype=np.float64)
        self._check_width(features.shape)
        leading = features.shape[:-1]
        if y is not None:
            y = np.asarray(y)
            if y.shape[: len(leading)] != leading:
                raise ValueError(f"features are of {leading} rows, y has shape {y.shape}.")
            y = y.reshape(-1, *y.shape[len(leading) :])
        return features.reshape(-1, features.shape[-1]), y

    def scaled(self, features: tf.Tensor) -> tf.Tensor:
        """
        The columns of X [N, D] that the components read, from features [N, F].

        :param features: [N, F].
        :raises ValueError: too few features, or another rank.
        :raises tf.errors.InvalidArgumentError: a code that is no level, degrees out of range, or no
            scaling yet; where XLA drops assertions :meth:`readable` tells such rows.
        """
        X = self._read(features)
        for place, inside, domain in self._domains(X):
            message = f"feature {self.structure.features[place]} must {domain}; got"
            X = asserted(X, inside, [message, tf.boolean_mask(X[:, place], ~inside)])
        if self.normalization is None:
            return X
        message = f"{self.name} does not know its features yet: call {self._first} first"
        return self.scaling(asserted(X, self._known(), [message]))

    def scaled_unchecked(self, features: tf.Tensor) -> tf.Tensor:
        """The same of rows that are :meth:`readable`, for formats without assertions."""
        X = self._read(features)
        return X if self.normalization is None else self.scaling(X)

    def unscaled(self, X: AnyNDArray) -> AnyNDArray:
        """The features [N, D] that components read, of what :meth:`scaled` makes of them."""
        return X if self.normalization is None else self.scaling.inverse(X)

    def like_seen(self, number: int) -> AnyNDArray:
        """Features [number, F] with the location and spread of those seen, but independent."""
        structure, X = self.structure, self.structure.reference(number)
        features: AnyNDArray = np.zeros((number, max(structure.features) + 1))
        # of a feature that multiplies, and is read as a number too, the number stays
        places = sorted(range(structure.width), key=lambda i: structure.kinds[i] != "multiplier")
        features[:, [structure.features[i] for i in places]] = self.unscaled(X)[:, places]
        return features

    def readable(self, features: tf.Tensor) -> tf.Tensor:
        """Rows of features [N, F] that are finite and within their domains, truth values [N]."""
        # for code in which no assertion can fail; none before features are known
        X = self._read(features)
        valid = tf.reduce_all(tf.math.is_finite(X), axis=1)
        for _, inside, _ in self._domains(X):
            valid &= inside
        return valid & self._known()

    def _read(self, features: tf.Tensor) -> tf.Tensor:
        features = tf.cast(features, self.compute_dtype)
        self._check_width(features.shape)
        columns = self.structure.features
        first, last = columns[0], columns[-1] + 1
        if tuple(columns) == tuple(range(first, last)):  # a gather is dear to differentiate
            return features[:, first:last]
        return tf.gather(features, list(columns), axis=1)

    def _domains(self, X: tf.Tensor) -> list[tuple[int, tf.Tensor, str]]:
        """Columns of X that hold codes or degrees: place, rows within [N], and the domain."""
        checks = []
        for place, count in self.structure.num_levels.items():
            x = X[:, place]
            inside = tf.equal(x, tf.round(x)) & (x >= 0.0) & (x < count)
            checks.append((place, inside, f"hold codes 0 to {count - 1}"))
        for place, (low, high) in self.structure.degrees.items():
            inside = (X[:, place] >= low) & (X[:, place] <= high)
            checks.append((place, inside, f"be degrees from {low:g} to {high:g}"))
        return checks

    @property
    def is_ready(self) -> bool:
        """False until scaling is set, where that takes :meth:`GPHead.adapt`."""
        return bool(np.asarray(self._known()))

    def _known(self) -> tf.Tensor:
        if self.normalization != "adapt":
            return tf.constant(True)
        return tf.convert_to_tensor(self.scaling.count) > 0.0

    def _check_width(self, shape: Any) -> None:
        if len(shape) < 2:
            raise ValueError(f"{self.name} takes features [..., F]; got shape {tuple(shape)}.")
        most = max(self.structure.features)
        if shape[-1] is not None and shape[-1] <= most:
            term = next(
                t.label
                for t in self.specification.terms
                if most in t.columns or (t.by is not None and column_of(t.by) == most)
            )
            raise ValueError(
                f"{term} reads feature {most}, but {self.name} is given {shape[-1]} feature(s) "
                f"(0 to {shape[-1] - 1})."
            )

    def _adapt_inducing(self, components: Sequence[Component]) -> None:
        """Move inducing inputs, where there are any."""

    def _follow(self, x: tf.Tensor) -> None:
        """Let what depends on the features' distribution follow a training batch [N, D]."""
        self.scaling.update(x)

    def call(
        self,
        inputs: tf.Tensor,
        training: bool | None = None,
        output: Output | None = None,
        mask: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """
        Predict from features.

        :param inputs: [N, F], or with more dimensions in front, [..., F]: each of their rows is
            one, and so are those of outputs.
        :param mask: of a sequence's steps, [...]: training leaves out the others.
        :param output: another :attr:`output_kind` for this call: ``"moments"``, mean and variance
            of the predictor [N, L, 2] (of several that are correlated a posteriori [N, L, 2 + L],
            their covariances behind); ``"components"``, the same of every component
            [N, C, L, 2], whose means add up to the predictor's; ``"response"``, the expected
            response [N], class probabilities [N, K]; ``"interval"``, that with its equal-tailed
            credible interval [N, 3] or [N, K, 3].
        """
        if output is not None:
            check_choice("output", output, get_args(Output))
        if _IS_TRACING.get():
            return HeadInput(self, inputs)
        self._check_width(inputs.shape)
        rank = inputs.shape.rank
        rows = inputs if rank == 2 else as_rows(inputs, rank - 1)
        # before the first batch there is none; outside of `_precision`, as replicas wait
        if training and self.trainable and self.normalization == "running":
            known = self._read(rows)
            if mask is not None:
                nan = tf.constant(np.nan, known.dtype)
                known = tf.where(tf.reshape(mask, [-1, 1]), known, nan)
            self._follow(known)
        with self._precision():
            flat, state = self._predicted(rows, output or self.output_kind, bool(training))
        outputs = flat if rank == 2 else as_leading(flat, inputs, 1)
        setattr(outputs, HEAD, weakref.ref(self))
        if training:
            counted = tf.shape(rows)[0]
            if mask is not None:
                counted = tf.math.count_nonzero(mask, dtype=tf.int32)
            setattr(outputs, FORWARD, Forward(rows, counted, state))
        eagerly, here = tf.executing_eagerly(), weakref.ref(tf.compat.v1.get_default_graph())
        if training and not eagerly:
            self._trained_in = here
        # eagerly the last call counts
        self._untrained_in = here if not (training and eagerly) else lambda: None
        return outputs

    def has_trained_here(self) -> bool:
        """True if the present graph has a training call, whose output a loss must be given."""
        graph = self._trained_in() if self.trainable and not tf.executing_eagerly() else None
        here = tf.compat.v1.get_default_graph()
        while graph is not None and graph is not here:  # as a loop over steps may have its own
            graph = getattr(graph, "outer_graph", None)
        return graph is here

    def _predicted(self, inputs: tf.Tensor, kind: Output, training: bool) -> tuple[tf.Tensor, Any]:
        X = self.scaled(inputs)
        if kind == "components":
            return self._masked(inputs, self._component_moments(X, training)), None
        plain, state = self._moments(X, training)
        moments = self._masked(inputs, plain)
        if kind == "moments":
            return moments, state
        if kind == "response":
            return self.response(moments), None
        return tf.stack([self.response(moments), *self.interval(moments)], axis=-1), None

    def _masked(self, inputs: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
        """Values [N, ...], NaN in rows that cannot be read: XLA drops assertions."""
        holds = tf.reshape(self.readable(inputs), [-1] + [1] * (values.shape.rank - 1))
        return tf.where(holds, values, tf.constant(np.nan, values.dtype))

    def _component_moments(self, X: tf.Tensor, training: bool) -> tf.Tensor:
        mean, var = self._component_marginals(X, training)
        if self.num_predictors == 1:
            mean, var = mean[..., None], var[..., None]
        return tf.stack([mean + tf.cast(self.constants(), mean.dtype), var], axis=-1)

    def constants(self) -> tf.Tensor:
        """The predictor's constant, [C, L]: all of it in the intercept, 0 in other components."""
        constant = tf.convert_to_tensor(self._gp.mean_function.constant)
        return tf.pad(constant[None], [[0, len(self.names) - 1], [0, 0]])

    def compute_output_spec(
        self,
        inputs: Any,
        training: bool | None = None,
        output: Output | None = None,
        mask: Any = None,
    ) -> keras.KerasTensor:
        self._check_width(inputs.shape)
        kind = self.output_kind if output is None else output
        check_choice("output", kind, get_args(Output))
        leading, L = inputs.shape[:-1], self.num_predictors
        number = num_labels(self.likelihood)
        classes = () if number is None else (number,)
        shape = {
            "moments": (L, self.num_moments),
            "components": (len(self.names), L, 2),
            "response": classes,
            "interval": (*classes, 3),
        }[kind]
        return keras.KerasTensor((*leading, *shape), dtype=self.compute_dtype)

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, ...]:
        spec = self.compute_output_spec(keras.KerasTensor(input_shape))
        return tuple(spec.shape)

    def effects(
        self, term: str | None = None, grid: Any = None, *, level: float = 0.95
    ) -> pd.DataFrame:
        """
        An effect, or all of them, on the predictor's scale, with pointwise credible intervals.

        Features are in the units in which the layer is given them, so those that are columns of a
        table are in the table's. An effect with a factor for ``by`` is that of its level, one with
        a number for ``by`` is what it is where that is 1.

        :param term: its name, such as ``"s(0)"``, see :attr:`names`; by default all effects of one
            or two features, one after the other.
        :param grid: values of its feature [n], or of its features [n, d], a dict of features by
            index, or a DataFrame; by default three spreads about the location of each, every level,
            or one period.
        :param level: probability of the intervals.
        :return: columns: the features by index, ``predictor`` where there are several,
            ``estimate``, ``se``, ``lower``, ``upper``; of all effects ``term`` is first.
        :raises ValueError: an unknown effect, a grid that does not fit it, no grid for an effect of
            more than two features, a level that is no probability.
        """
        return head_effects(self, term, grid, level)

    def draw(self, terms: str | Iterable[str] | None = None, *, level: float = 0.95) -> Figure:
        """
        Draw the effects: curves with bands, levels, maps.

        :param terms: names of effects; by default all of one or two features.
        :param level: probability of the bands.
        :return: a figure of its own, not pyplot's.
        :raises ValueError: an unknown effect; a level that is no probability.
        """
        return draw_head(self, terms, level)

    def summary(self) -> pd.DataFrame:
        """
        A row for each effect (and predictor): what was learnt of it.

        :return: columns ``term``, ``predictor`` where there are several, ``sd``, the standard
            deviation of the estimated effect over features; ``se``, the root mean square of its
            standard errors; ``prior_sd``, that of its prior; ``lengthscale``, a tuple in the units
            of its features but those of levels, empty where there is not one for each, as on a
            globe. Averages are over features
            that are normal, with the location and the spread that the layer has seen, and
            independent of each other.
        """
        return head_summary(self)

    @property
    def loss(self) -> ExpectedLogLikelihood:
        """The loss to compile a model with whose output are this head's moments."""
        return ExpectedLogLikelihood(self)

    def metric(self, metric: str | keras.metrics.Metric) -> keras.metrics.Metric:
        """
        A metric for ``compile``, of the response where ``y_pred`` are moments.

        :param metric: ``"nlpd"`` (negative log predictive density), ``"accuracy"``, or a Keras
            metric of (y, response) or its name.
        """
        return metric_of(self, metric)

    @property
    def num_moments(self) -> int:
        """Moments of each predictor, M."""
        return 2

    def response(self, moments: tf.Tensor) -> tf.Tensor:
        """
        The expected response [...], or class probabilities [..., K], from moments.

        :param moments: what the layer returns, [..., L, M].
        """
        mean, var, X, restored = self._unpacked(moments)
        with float_type(self.compute_dtype):
            summary = summarised_response(self.likelihood, X, mean, self._shared(var))
        return restored(summary.mean)

    def interval(self, moments: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """
        Equal-tailed credible interval of the expected response, each end as :meth:`response`.

        :param moments: what the layer returns, [..., L, M].
        """
        mean, var, X, restored = self._unpacked(moments)
        summary = summarised_response(self.likelihood, X, mean, var, self.level)
        return restored(summary.lower), restored(summary.upper)

    def negative_expected_log_likelihood(self, y: tf.Tensor, moments: tf.Tensor) -> tf.Tensor:
        """``-E_q[log p(y | rho)]`` of each row, [...]; NaN for a y [...] that is impossible."""
        return -self._by_row(expected_log_density, y, moments)

    def predict_log_density(self, y: tf.Tensor, moments: tf.Tensor) -> tf.Tensor:
        """
        ``log E_q[p(y | rho)]`` of each row, [...]; NaN for a y that is impossible.

        :param y: responses, [...] or [..., K].
        :param moments: what the layer returns, [..., L, M].
        """

        def density(
            likelihood: Likelihood, X: tf.Tensor, mean: tf.Tensor, var: tf.Tensor, Y: tf.Tensor
        ) -> tf.Tensor:
            return predictive_log_density(likelihood, X, mean, self._shared(var), Y)

        return self._by_row(density, y, moments)

    def _observe(
        self, forward: Forward, y: tf.Tensor, moments: tf.Tensor, weight: tf.Tensor
    ) -> tf.Tensor:
        """The loss of each row, [...]; learns from a batch what gradients do not move."""
        return self.negative_expected_log_likelihood(y, moments)

    def _by_row(
        self, density: Callable[..., tf.Tensor], y: tf.Tensor, moments: tf.Tensor
    ) -> tf.Tensor:
        mean, var, X, restored = self._unpacked(moments)
        Y, possible = self._observed(y, moments)
        with float_type(self.compute_dtype):  # GPflow's draws have no type of their own
            values = density(read_once(self.likelihood), X, mean, var, Y)
        values = tf.cast(values, self.compute_dtype)
        return restored(tf.where(possible, values, tf.constant(np.nan, self.compute_dtype)))

    def _shared(self, var: tf.Tensor) -> tf.Tensor:
        return tf.cast(self.predictive_share, var.dtype) * var

    def _unpacked(
        self, moments: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        """Mean and variance by row, no inputs [N, 1], and what gives rows their dimensions."""
        moments = tf.convert_to_tensor(moments)
        shape = (self.num_predictors, self.num_moments)
        rank = moments.shape.rank
        if rank is None or rank < 3 or tuple(moments.shape[-2:]) != shape:
            raise ValueError(
                f"y_pred must be the moments [..., {shape[0]}, {shape[1]}] that {self.name} gives "
                f"with output='moments'; got shape {tuple(moments.shape)}."
            )
        rows = tf.cast(as_rows(moments, rank - 2), self.compute_dtype)
        var = rows[..., 2:] if shape[1] > 2 else rows[..., 1]
        nothing = tf.zeros_like(rows[:, 0, :1])
        return rows[..., 0], var, nothing, lambda x: as_leading(x, moments, 2)

    def response_matrix(self, y: Any, moments: tf.Tensor | None = None) -> tf.Tensor:
        """Responses as the likelihood takes them, Y [N, K]; one-hot labels become codes [N, 1]."""
        # rows that are not one-hot fail in the graph, and become -1 where XLA drops assertions;
        # moments are of the same rows, where these may have several dimensions in the place of N
        leading = 1 if moments is None else len(moments.shape) - 2
        y = tf.convert_to_tensor(y)
        if y.dtype == tf.string:
            raise ValueError(
                "y must be numbers, labels as codes 0, 1, ...; got text. "
                "levels, codes = np.unique(y, return_inverse=True) has both."
            )
        Y = tf.cast(y, self.compute_dtype)
        width = observation_width(self.likelihood, self.num_predictors)
        if Y.shape.rank is None:  # in a function that was called with [N] and with [N, K]
            Y = tf.reshape(Y, [-1, width])
        elif Y.shape.rank not in (leading, leading + 1):
            rows = "N" if leading == 1 else ", ".join("N" * leading)
            raise ValueError(f"y must be [{rows}] or [{rows}, K]; got shape {Y.shape}.")
        else:
            Y = as_rows(Y, leading)
        if Y.shape.rank == 1:
            Y = Y[:, None]
        if width == 1 and Y.shape[1] is not None and Y.shape[1] == num_labels(self.likelihood):
            Y = codes_of(Y)
        else:
            check_width(Y.shape[1], self.likelihood, self.num_predictors, "y")
        return Y if moments is None else as_many(Y, tf.reduce_prod(tf.shape(moments)[:leading]))

    def _observed(
        self, y: tf.Tensor, moments: tf.Tensor | None = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Y [N, K] once it is known to be possible, and which rows are, [N]: XLA drops checks."""
        Y = self.response_matrix(y, moments)
        possible = possible_observations(Y, self.likelihood)
        return checked_observations(Y, self.likelihood, "y"), possible

    def _state(self) -> dict[str, keras.Variable]:
        """Every variable by its path."""
        scaling = {f"scaling.{k}": v for k, v in self.scaling.variables_by_name().items()}
        return {**self._adopted.variables, **scaling}

    def save_own_variables(self, store: Any) -> None:
        for path, variable in self._state().items():
            store[path] = np.asarray(variable)

    def load_own_variables(self, store: Any) -> None:
        """Assign what a store holds, by name, as Keras's order follows flags: all or nothing."""
        state = self._state()
        stored = {str(key) for key in store.keys()}  # noqa: SIM118  no mapping in older Keras
        missing, unknown = sorted(set(state) - stored), sorted(stored - set(state))
        misfit = ""
        if missing or unknown:
            first = f"it lacks {missing[0]}" if missing else f"it holds {unknown[0]}"
            misfit = f"{first} ({len(missing)} missing, {len(unknown)} unknown)"
        values = {path: np.asarray(store[path]) for path in state if path in stored}
        for path, value in values.items():
            shape = tuple(state[path].shape)
            if not misfit and value.shape != shape:
                misfit = f"{path} is {value.shape} there, {shape} here"
        if misfit:
            raise ValueError(
                f"the file does not fit {self.name}: {misfit}; was it saved with other terms?"
            )
        for path, value in values.items():
            state[path].assign(value)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "dtype": self.compute_dtype,
            **self.specification.to_json(),
            "normalization": self.normalization,
            "output": self.output_kind,
            "level": self.level,
            "frozen": list(self._frozen),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> GPHead:
        """The layer that :meth:`get_config` described, its weights at their start."""
        config = dict(config)
        levels = config.get("num_levels") or {}
        config["num_levels"] = {int(f): k for f, k in levels.items()}
        frozen = config.pop("frozen", None)
        layer = cls(**config)
        if frozen is not None:
            layer.frozen = frozen
        return layer

    def _precision(self) -> AbstractContextManager[None]:
        """GPflow's float type and jitter for this layer, one thread at a time."""
        return float_type(
            self.compute_dtype, _SINGLE_JITTER if self.compute_dtype == "float32" else 0.0
        )
