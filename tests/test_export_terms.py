"""ONNX and LiteRT files of all kinds of terms and of terms for each parameter: as the GAM says."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pandas as pd
import pytest
from exported_files import arguments, description, exported, prior_variance, run

import gpflow_gam as gg
from gpflow_gam.layers import AdditiveGP

pytestmark = pytest.mark.filterwarnings("ignore::gpflow_gam.ExtrapolationWarning")
pytest.importorskip("onnx", reason="the package onnx writes what is tested here")

N = 120
AREAS = {"p": ["q"], "q": ["p", "r"], "r": ["q", "s"], "s": ["r"]}


def rows(number: int = N, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "x": rng.uniform(size=number),
            "z": rng.uniform(size=number),
            "t": np.arange(float(number)) % 40.0,
            "lat": rng.uniform(-80.0, 80.0, number),
            "lon": rng.uniform(-180.0, 180.0, number),
            "g": rng.choice(["a", "b", "c"], number),
            "area": rng.choice(list(AREAS), number),
        }
    )


def responses() -> dict[str, Any]:
    data, rng = rows(), np.random.default_rng(1)
    rho, scale = np.sin(3.0 * data["x"]), np.exp(data["z"] - 1.5)
    probability = np.stack([rho, data["z"], np.zeros(N)], axis=1)
    probability = np.exp(probability) / np.exp(probability).sum(axis=1, keepdims=True)
    counts = rng.poisson(np.exp(rho) * rng.gamma(2.0, 0.5, N))
    return {
        "number": 50.0 * (rho + scale * rng.standard_normal(N)),  # in a unit of its own
        "calm": rho + 0.1 * rng.standard_normal(N),
        "count": counts,
        "zeros": counts * (rng.uniform(size=N) < 0.7),
        "positive": rng.gamma(1.0 / scale, scale * np.exp(rho)),
        "share": rng.beta(2.0 + rho, 3.0),
        "truth": rho + rng.standard_normal(N) > 0.5,
        "class": np.array(["u", "v", "w"])[
            (probability.cumsum(axis=1) < rng.uniform(size=(N, 1))).sum(axis=1)
        ],
    }


# a narrow prior: rounding is of the prior's size, which is thirty times as large without
LEVELS = gg.factor("g", shrink=True)
BOTH = {"mean": gg.s("x", k=5), "scale": gg.s("z", k=4)}
QUICK: dict[str, tuple[Any, Any, str]] = {
    "shape and scale": (
        {"mean": gg.s("x", k=5, shape="increasing") + LEVELS, "scale": gg.s("z", k=4)},
        "gamma",
        "positive",
    ),
}
SLOW: dict[str, tuple[Any, Any, str]] = {
    "convex": (gg.s("x", k=6, shape="convex") + gg.linear("z"), "gaussian", "number"),
    "falling": (gg.s("x", k=6, shape="decreasing") + gg.s("z", k=4), "gamma", "positive"),
    "shape of te": (gg.te("x", "z", k=5, shape=("increasing", None)), "bernoulli", "truth"),
    "shape by level": (gg.s("x", by="g", k=5, shape="concave"), "gaussian", "number"),
    "shapes": (gg.s("x", k=6, shape="increasing") + gg.s("z", k=5), "poisson", "count"),
    "scale": (
        {"mean": gg.s("x", k=5) + gg.factor("g"), "scale": gg.s("z", k=4)},
        "gaussian",
        "number",
    ),
    "gamma": (BOTH, "gamma", "positive"),
    "gamma inverse": (BOTH, gg.families.Gamma("inverse"), "positive"),
    "gaussian log": (BOTH, gg.families.Gaussian("log"), "positive"),
    "negative binomial": (BOTH, "negative_binomial", "count"),
    "beta": (BOTH, "beta", "share"),
    "student_t": ({"location": gg.s("x", k=5), "scale": gg.s("z", k=4)}, "student_t", "number"),
    "lognormal": (
        {"location": gg.s("x", k=5), "scale": gg.linear("z")},
        "lognormal",
        "positive",
    ),
    "weibull": ({"location": gg.s("x", k=5), "scale": LEVELS}, "weibull", "positive"),
    "hurdle": ({"mean": gg.s("x", k=5), "zero": gg.s("z", k=4)}, "hurdle_poisson", "zeros"),
    "classes": ({"u": gg.s("x", k=5), "v": gg.s("z", k=4)}, "categorical", "class"),
    "zero inflated": (gg.s("x", k=4), "zero_inflated_poisson", "zeros"),
    "tweedie": (gg.s("x", k=4), "tweedie", "positive"),
    "cloglog": (gg.s("x", k=4), gg.families.Bernoulli("cloglog"), "truth"),
    "probit": (gg.s("x", k=4), gg.families.Bernoulli("probit"), "truth"),
    "fs": (gg.s("x", "g", bs="fs", k=4) + gg.te("x", "z", k=3), "gaussian", "number"),
    "by": (gg.s("x", by="z", k=4) + gg.linear("z"), "gaussian", "number"),
    "quantile": (
        {"quantile": gg.s("x", k=5), "scale": gg.linear("x")},
        gg.families.Quantile(tau=0.8),
        "number",
    ),
    "no intercept": (
        {"mean": gg.factor("g") + gg.s("x", k=4) - 1, "scale": gg.s("z", k=4)},
        "gaussian",
        "number",
    ),
    "cyclic": (gg.s("t", bs="cyclic", period=40, k=5), "gaussian", "number"),
    "periodic te": (gg.te("t", "x", bs=("cyclic", "se"), k=4), "gaussian", "number"),
    "matern12": (gg.s("x", bs="matern12", k=6), "gaussian", "number"),
    "matern32": (gg.s("x", bs="matern32", k=6), "bernoulli", "truth"),
    "ou": (gg.s("t", bs="ou"), "gaussian", "number"),
    "rw": (gg.s("t", bs="rw"), "gaussian", "number"),
    "iou": (gg.s("x", bs="iou", k=8), "gaussian", "number"),
    "ad": (gg.s("x", bs="ad", k=12), "gaussian", "number"),
    "sos": (gg.s("lat", "lon", bs="sos", k=12), "gaussian", "number"),
    "mrf": (gg.s("area", bs="mrf", neighbours=AREAS), "poisson", "count"),
    "sz": (gg.s("x", k=4) + gg.s("x", "g", bs="sz", k=4), "gaussian", "number"),
    "ti": (gg.s("x", k=4) + gg.s("z", k=4) + gg.ti("x", "z", k=4), "gaussian", "number"),
    "two lengths": (gg.s("x", "z", isotropic=False, k=9), "gaussian", "number"),
    "arccosine": (
        gg.s("x", kernel=gpflow.kernels.ArcCosine(order=1), k=6),
        "gaussian",
        "calm",
    ),
    "rational": (
        gg.s("x", kernel=gpflow.kernels.RationalQuadratic(), k=6),
        "gaussian",
        "calm",
    ),
    "cosine": (gg.s("x", kernel=gpflow.kernels.Cosine(), k=6), "gaussian", "calm"),
    "polynomial": (gg.s("x", kernel=gpflow.kernels.Polynomial(3), k=6), "gaussian", "calm"),
    "exponential": (gg.s("x", kernel=gpflow.kernels.Exponential(), k=6), "gaussian", "calm"),
    "vanished": (gg.s("x", kernel=gpflow.kernels.Exponential(), k=6), "gaussian", "number"),
    "ordinal cauchit": (gg.s("x", k=5), gg.families.Ordinal(("u", "v", "w"), "cauchit"), "class"),
    "ordinal cloglog": (gg.s("x", k=5), gg.families.Ordinal(("u", "v", "w"), "cloglog"), "class"),
    "beta probit": (gg.s("x", k=5), gg.families.Beta("probit"), "share"),
    "beta cauchit": (gg.s("x", k=5), gg.families.Beta("cauchit"), "share"),
}
CASES = QUICK | SLOW


def fitted(case: str) -> gg.GAM:
    terms, family, kind = CASES[case]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return gg.GAM(terms, family=family).fit(rows(), responses()[kind], max_iterations=8)


def wanted(gam: gg.GAM, data: pd.DataFrame, about: dict[str, Any]) -> dict[str, np.ndarray]:
    """What ``gam.predict`` says, by a file's outputs."""
    known: dict[str, Any] = {"interval": 0.9, "unconditional": False}
    response, link = (gam.predict(data, kind, **known) for kind in ("response", "link"))
    parts = gam.predict(data, "terms", **known)
    names, predictors = about["components"], about["predictors"]

    def column(frame: pd.DataFrame, what: str) -> np.ndarray:
        several = isinstance(frame.columns, pd.MultiIndex)
        return np.asarray(frame.xs(what, axis=1, level=-1) if several else frame[what])

    result = {k: column(response, c) for k, c in zip(("response", "lower", "upper"), WHAT)}
    result |= {"mean": column(link, "estimate"), "variance": np.square(column(link, "se"))}
    if len(predictors) > 1:
        result |= {"mean_lower": column(link, "lower"), "mean_upper": column(link, "upper")}
        shape = len(data), len(names), len(predictors)
        mean, variance = np.zeros(shape), np.zeros(shape)  # where a component does not enter
        for name, predictor in {c[:-1] for c in parts.columns}:
            at = names.index(name), predictors.index(predictor)
            mean[:, *at] = parts[name, predictor, "estimate"]
            variance[:, *at] = np.square(parts[name, predictor, "se"])
    else:
        mean = np.stack([parts[name, "estimate"] for name in names], axis=1)
        variance = np.square(np.stack([parts[name, "se"] for name in names], axis=1))
    return result | {"component_mean": mean, "component_variance": variance}


WHAT = ("estimate", "lower", "upper")


def tolerance(path: Path, name: str) -> float:
    """Of a file's output, as the page of serving has it."""
    if path.name.startswith("m.onnx"):
        return 1e-10
    if "variance" in name:
        return 1e-5
    return 1.5e-3 if name.endswith(("lower", "upper")) else 2e-4


@pytest.mark.slow
@pytest.mark.parametrize(
    "case", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]
)
def test_numbers(runtime: None, tmp_path: Path, case: str) -> None:
    gam, data = fitted(case), rows(300, 7)
    data.loc[0, "x"] = 1.3
    jobs = []
    for name in ("m.onnx", "m.tflite"):
        gg.serving.export(gam, tmp_path / name, level=0.9)
        given = arguments(tmp_path / name, data, Path(name).suffix)
        jobs.append((tmp_path / name, given, tmp_path / f"{name}.npz"))
    run(jobs)
    about = description(tmp_path / "m.onnx")
    for _, _, path in jobs:
        result, values = dict(np.load(path)), wanted(gam, data, about)
        assert set(result) == set(values)
        for name, want in values.items():
            assert result[name].shape == want.shape, name
            assert np.all(np.isfinite(want)), name
            # each predictor, and each component of it, beside its own largest
            size = np.max(np.abs(want), axis=0)
            size = np.maximum(size, 1e-3 * size.max())  # but nothing beside what is nothing
            if "component_" in name:  # nor one that vanished beside the predictor
                whole = values[name.removeprefix("component_")]
                size = np.maximum(size, 1e-3 * np.max(np.abs(whole)))
            if "variance" in name:  # differences of the prior's
                size = np.maximum(size, prior_variance(gam))
            away = np.max(np.abs(result[name] - want) / size)
            assert away < tolerance(path, name), f"{case} {path.name} {name}: {away:.1e}"


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["increasing", "convex"])
def test_heads_with_shapes(runtime: None, tmp_path: Path, shape: str) -> None:
    import keras

    rng = np.random.default_rng(3)
    X = rng.uniform(size=(60, 2))
    head = AdditiveGP(gg.s(0, shape=shape) + gg.s(1), num_data=60, num_inducing=6, name="h")
    head.adapt(X)
    q_mu = head.parameters["variational.site_shift"]
    q_mu.assign(rng.normal(size=q_mu.shape))
    inputs = keras.Input((2,), name="inputs", dtype="float64")
    model = keras.Model(inputs, head(inputs))
    moments, parts = (head(X, output=o).numpy() for o in ("moments", "components"))
    values = {
        **{"mean": moments[:, 0, 0], "variance": moments[:, 0, 1]},
        **{"component_mean": parts[:, :, 0, 0], "component_variance": parts[:, :, 0, 1]},
    }
    for result, rtol in zip(exported(model, tmp_path, X), (1e-11, 1e-3), strict=True):
        for name, want in values.items():
            size = np.max(np.abs(want))
            np.testing.assert_allclose(result[name], want, rtol=0.0, atol=rtol * size, err_msg=name)


def test_saved_models_say_the_same_of_each_parameter(tmp_path: Path) -> None:
    """And draw it: of the scale, too, in the response's unit."""
    gam, data = fitted("scale"), rows(9, 7)
    gg.serving.export(gam, tmp_path / "m", level=0.9)
    served = gg.serving.load(tmp_path / "m")
    parts = served.predict_components(data)
    result = served.predict(data) | {f"component_{k}": parts[k] for k in ("mean", "variance")}
    values = wanted(gam, data, served.description)
    assert set(result) == set(values)
    for name, want in values.items():
        size = np.max(np.abs(want))
        np.testing.assert_allclose(result[name], want, rtol=1e-10, atol=1e-11 * size, err_msg=name)
    assert served.description["predictors"] == ["mean", "log scale"]
    assert parts["names"].tolist() == ["intercept", *gam.names]
    draws = served.sample(data, 4000, seed=2)["predictor"]
    sd = np.sqrt(result["variance"])
    z = (draws.mean(axis=0) - result["mean"]) / sd
    assert np.max(np.abs(z)) < 4.5 / np.sqrt(4000)
    np.testing.assert_allclose(draws.std(axis=0), sd, rtol=0.06)
