"""Networks that differ in their head alone, and in what it needs of the features before it."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable

import gpflow
import keras
import numpy as np
from gpflow.base import AnyNDArray
from problems import Problem
from random_features import RandomFeatures, laplace_factors, mean_field, variances
from scipy.special import softmax as softmax_of

import gpflow_gam as gg

RATE, BATCH, BLOCKS, WIDTH, NUM_FEATURES = 0.003, 64, 2, 64, 8
RHO = 0.03  # of natural gradients, as in digits.py
ADAM_KL, NATURAL_KL = 1 / 20, 1 / 5
NUM_JOINT, RHO_JOINT, LENGTHSCALE = 100, 0.1, 4.0
MAX_SECONDS = 20.0  # of IterNCGP's fit
NUM_SCORES = 200
NUM_RANDOM, RIDGE = 1024, 1.0
NUM_DRAWS, DROPPED = 30, 0.2
NUM_MEMBERS = 5


@dataclasses.dataclass(frozen=True)
class Prediction:
    """
    :param probabilities: of classes, [N, K].
    :param variance: of them, added up over classes, [N]; None where the method has none.
    :param score: the variance of the likeliest class's score, [N]; None as well.
    """

    probabilities: AnyNDArray
    variance: AnyNDArray | None = None
    score: AnyNDArray | None = None


@dataclasses.dataclass(frozen=True)
class Trained:
    """
    :param predict: at inputs.
    :param parameters: that training moves.
    """

    predict: Callable[[AnyNDArray], Prediction]
    parameters: int


def network(
    problem: Problem, *, spectral: bool = False, dropout: bool = False
) -> tuple[keras.KerasTensor, keras.KerasTensor]:
    """
    Inputs and 64 features, by residual blocks.

    :param spectral: every layer's largest singular value is bounded (Miyato et al. 2018), which
        with residual blocks keeps distances within bounds (Liu et al. 2020).
    :param dropout: before the features and in every block.
    """

    bound = gg.layers.SpectralBound(problem.bound) if spectral else None
    inputs = keras.Input(problem.X.shape[1:])
    x = problem.layer(bound)(inputs)
    for _ in range(BLOCKS):
        branch = problem.layer(bound)(x)
        x = keras.layers.Add()([x, keras.layers.Dropout(DROPPED)(branch) if dropout else branch])
    if len(x.shape) > 2:
        x = keras.layers.Flatten()(keras.layers.AveragePooling2D(2)(x))
        x = keras.layers.Dense(WIDTH, activation="relu", kernel_constraint=bound)(x)
    return inputs, keras.layers.Dropout(DROPPED)(x) if dropout else x


def train(model: keras.Model, problem: Problem, loss: object) -> None:
    # to nothing at the end: spectral normalisation is undone by the last step, if that is long
    steps = problem.epochs * -(-len(problem.X) // BATCH)
    rate = keras.optimizers.schedules.CosineDecay(RATE, steps)
    model.compile(optimizer=keras.optimizers.Adam(rate), loss=loss)
    model.fit(problem.X, problem.y, epochs=problem.epochs, batch_size=BATCH, verbose=0)


def size(model: keras.Model) -> int:
    return sum(int(np.prod(w.shape)) for w in model.trainable_weights)


CROSS_ENTROPY = "sparse_categorical_crossentropy"


def softmax(
    problem: Problem, *, bottleneck: bool = False, spectral: bool = False, dropout: bool = False
) -> tuple[keras.Model, keras.Model]:
    """A trained network with a Dense head, and its features."""
    inputs, x = network(problem, spectral=spectral, dropout=dropout)
    if bottleneck:
        x = keras.layers.Dense(NUM_FEATURES)(x)
    outputs = keras.layers.Dense(problem.num_classes, activation="softmax")(x)
    model = keras.Model(inputs, outputs)
    train(model, problem, CROSS_ENTROPY)
    return model, keras.Model(inputs, x)


def dense(problem: Problem, bottleneck: bool = False) -> Trained:
    model, _ = softmax(problem, bottleneck=bottleneck)
    return Trained(lambda X: Prediction(model.predict(X, verbose=0)), size(model))


def dropout(problem: Problem) -> Trained:
    """Gal & Ghahramani 2016."""
    model, _ = softmax(problem, dropout=True)
    return Trained(
        lambda X: _averaged([_call(model, X, training=True) for _ in range(NUM_DRAWS)]),
        size(model),
    )


def ensemble(problem: Problem) -> Trained:
    """Lakshminarayanan et al. 2017."""
    members = [softmax(problem)[0] for _ in range(NUM_MEMBERS)]
    return Trained(
        lambda X: _averaged([m.predict(X, verbose=0) for m in members]),
        sum(size(m) for m in members),
    )


def _call(model: keras.Model, X: AnyNDArray, training: bool) -> AnyNDArray:
    parts = np.array_split(X, max(len(X) // 500, 1))
    return np.concatenate([np.asarray(model(part, training=training)) for part in parts])


def _averaged(draws: list[AnyNDArray]) -> Prediction:
    return Prediction(np.mean(draws, axis=0), np.var(draws, axis=0).sum(axis=1))


def _of_scores(p: AnyNDArray, mean: AnyNDArray, variance: AnyNDArray) -> Prediction:
    """Scores are normal, independent of each other; the variance is that of draws."""
    noise = np.random.default_rng(0).normal(size=(NUM_SCORES, *mean.shape))
    draws = softmax_of(mean + np.sqrt(variance) * noise, axis=-1)
    likeliest = np.take_along_axis(variance, p.argmax(axis=1)[:, None], axis=1)[:, 0]
    return Prediction(p, draws.var(axis=0).sum(axis=1), likeliest)


def sngp(problem: Problem) -> Trained:
    """Liu et al. 2020."""
    inputs, x = network(problem, spectral=True)
    features = RandomFeatures(NUM_RANDOM)(x)
    penalty = keras.regularizers.L2(0.5 * RIDGE / len(problem.X))
    outputs = keras.layers.Dense(problem.num_classes, kernel_regularizer=penalty)(features)
    model = keras.Model(inputs, outputs)
    train(model, problem, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    both = keras.Model(inputs, [features, outputs])
    phi, scores = (a.astype(float) for a in both.predict(problem.X, verbose=0))
    factors = laplace_factors(phi, mean_field(scores, np.zeros_like(scores)), RIDGE)

    def predict(X: AnyNDArray) -> Prediction:
        phi, scores = (a.astype(float) for a in both.predict(X, verbose=0))
        variance = variances(factors, phi)
        return _of_scores(mean_field(scores, variance), scores, variance)

    return Trained(predict, size(model))


def additive_terms() -> gg.terms.Terms:
    """A smooth and a line of each of eight features."""
    return sum((gg.s(i) + gg.linear(i) for i in range(NUM_FEATURES)), gg.terms.Terms())


def gp_head(problem: Problem, terms: gg.terms.Terms, natural: bool) -> gg.layers.AdditiveGP:
    return gg.layers.AdditiveGP(
        terms,
        "softmax",
        num_classes=problem.num_classes,
        num_data=len(problem.X),
        kl_weight=NATURAL_KL if natural else ADAM_KL,
        num_inducing=8,
        variational="sites" if natural else "block",
        rho=RHO,
    )


def additive(problem: Problem, *, natural: bool = False, spectral: bool = False) -> Trained:
    """Adam, Durrande & John 2018, behind a bottleneck of eight features."""
    inputs, x = network(problem, spectral=spectral)
    features = keras.layers.Dense(NUM_FEATURES)(x)
    head = gp_head(problem, additive_terms(), natural)
    kind = gg.layers.NaturalGradientModel if natural else keras.Model
    model = kind(inputs, head(features))
    train(model, problem, head.loss)
    return _with_head(head, keras.Model(inputs, features), size(model))


def joint(problem: Problem) -> Trained:
    """A smooth of all 64 features of a bounded network, trained after it."""
    model, features = softmax(problem, spectral=True)
    # by a kernel without lines: away from all data it is the prior again, mean and variance
    kernel = gpflow.kernels.Matern52(variance=2.0, lengthscales=LENGTHSCALE)
    head = gp_head(problem, gg.s(*range(WIDTH), k=NUM_JOINT, kernel=kernel), natural=True)
    head.rho = RHO_JOINT
    gg.layers.refit(head, features.predict(problem.X, verbose=0), problem.y)
    return _with_head(head, features, size(model))


def newton(problem: Problem) -> Trained:
    """Tatzel et al. 2025, on the features of a trained network with a bottleneck."""
    model, features = softmax(problem, bottleneck=True)
    head = gg.layers.IterNCGP(additive_terms(), "softmax", num_classes=problem.num_classes)
    known = features.predict(problem.X, verbose=0)
    head.fit(known, problem.y, max_seconds=MAX_SECONDS, progress=False)
    return _with_head(head, features, size(model))


def _with_head(head: gg.layers.GPHead, features: keras.Model, parameters: int) -> Trained:
    known = keras.Input(features.output.shape[1:])
    both = keras.Model(known, [head(known), head(known, output="response")])

    def predict(X: AnyNDArray) -> Prediction:
        moments, p = both.predict(features.predict(X, verbose=0), verbose=0)
        return _of_scores(p, moments[..., 0], moments[..., 1])

    return Trained(predict, parameters)


METHODS: dict[str, Callable[[Problem], Trained]] = {
    "Dense": dense,
    "Dense, 8 features": lambda problem: dense(problem, bottleneck=True),
    "MC dropout": dropout,
    "ensemble of 5": ensemble,
    "SNGP": sngp,
    "AdditiveGP": additive,
    "AdditiveGP, natural gradients": lambda problem: additive(problem, natural=True),
    "AdditiveGP, spectral": lambda problem: additive(problem, spectral=True),
    "AdditiveGP, joint": joint,
    "IterNCGP": newton,
}
"""By name: trained on a problem."""


def timed(method: Callable[[Problem], Trained], problem: Problem) -> tuple[Trained, float]:
    start = time.perf_counter()
    trained = method(problem)
    return trained, time.perf_counter() - start
