"""
What natural gradients in ``fit`` are worth: wide_deep.py's counts, beside plain Adam.

The same network, terms and epochs; Adam at two rates moves q(U) as everything else, or
``NaturalGradientModel`` moves q(U) by natural gradients. Negative ELBO over the number of data,
held-out deviance explained, and seconds. Run it with ``python benchmarks/natural_gradients.py``.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from recording import add_option, record
from sklearn.model_selection import train_test_split
from tabulate import tabulate

import gpflow_gam as gg

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))
from wide_deep import build, explained, load


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--seeds", type=int, default=3)
    add_option(parser)
    arguments = parser.parse_args()
    W, Wt, D, Dt, y, yt = train_test_split(*load(), test_size=0.2, random_state=0)
    rows = []
    for kind, rate in (
        (keras.Model, 0.01),
        (keras.Model, 0.05),
        (gg.layers.NaturalGradientModel, 0.03),
    ):
        scores = []
        for seed in range(arguments.seeds):
            keras.utils.set_random_seed(seed)
            model, features, head = build(len(W), D.shape[1], kind, rate)
            head.adapt(features.predict([W, D], verbose=0), y)
            start = time.perf_counter()
            model.fit([W, D], y, epochs=arguments.epochs, batch_size=256, verbose=0)
            seconds = time.perf_counter() - start
            loss = model.evaluate([W, D], y, batch_size=2048, verbose=0)[0]
            moments = tf.constant(model.predict([Wt, Dt], verbose=0))
            held = explained(yt, head.response(moments).numpy(), float(y.mean()))
            scores.append([loss, held, seconds])
        rows.append([f"{kind.__name__}, Adam {rate}", *np.median(scores, axis=0)])
        print(rows[-1], flush=True)
    heads = ["model", "negative ELBO / N", "held-out deviance explained", "fit, s"]
    print(tabulate(rows, heads, floatfmt=".3f"))
    record(
        "natural_gradients",
        "What natural gradients are worth in model.fit",
        [dict(zip(heads, row)) for row in rows],
        arguments,
        method="model",
        better={heads[1]: "lower", heads[2]: "higher", heads[3]: "lower"},
    )


if __name__ == "__main__":
    main()
