"""Weights count rows: fits with weights beside fits to rows that are there as often."""

import numpy as np
import pandas as pd
import pytest
import shared_rows
from gpflow.utilities import parameter_dict
from response_cases import ROWS, responses

import gpflow_gam as gg
from gpflow_gam import linear, s
from gpflow_gam.optimizers.binned import bins


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    "family",
    [
        "gaussian", "student_t", "quantile", "gamma", "weibull", "tweedie", "quasipoisson",
        "negative_binomial", "hurdle_poisson", "beta", "ordinal", "categorical",
    ],
)  # fmt: skip
def test_a_weight_of_two_is_the_row_twice(family: str) -> None:
    """In what is learnt and predicted, in what is left out, and in what a summary says."""
    weights = np.random.default_rng(1).integers(0, 4, ROWS).astype(float)
    table = pd.DataFrame({"x": np.linspace(0.0, 1.0, ROWS), "y": responses()[family], "w": weights})
    repeated = table.loc[table.index.repeat(weights.astype(int))].reset_index(drop=True)
    fine = {"y": "y", "tolerance": 1e-6}
    weighted = gg.GAM(s("x", k=8), family, weights="w").fit(table, **fine)
    plain = gg.GAM(s("x", k=8), family).fit(repeated, **fine)
    asked = table.iloc[::20]
    known = {"se": True, "unconditional": False}
    # constants and the units of predictors, before the fit
    before = ([np.array(g.fitted.spec.constant), *g.fitted.units] for g in (weighted, plain))
    for one, other in zip(*before):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)
    (mean, se), (expected, error) = (g.predict(asked, "link", **known) for g in (weighted, plain))
    np.testing.assert_allclose(mean, expected, atol=1e-2 * np.min(error))
    np.testing.assert_allclose(se, error, rtol=1e-2)
    one, two = weighted.summary(), plain.summary()
    assert one.edf == pytest.approx(two.edf, rel=1e-2)
    assert one.deviance_explained == pytest.approx(two.deviance_explained, abs=1e-3)


FAMILIES = [gg.families.family(name) for name in responses()] + [
    gg.families.Gaussian("log"),
    gg.families.StudentT(link="log"),
    gg.families.Gamma("inverse"),
    gg.families.Tweedie("sqrt"),
]


@pytest.mark.parametrize("varying", [False, True])
@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_likelihoods_start_at_weighted_moments(family: gg.families.Family, varying: bool) -> None:
    """Units, too: a weight of two is the row twice."""
    family = family.of_all() if varying else family
    y = responses()[family.name if family.name in responses() else "gamma"]
    if family.name in ("gaussian", "student_t", "heteroskedastic") and family.link == "log":
        y = responses()["gamma"]
    weights = np.random.default_rng(1).integers(1, 4, ROWS)
    Y, levels = family.encode(y)[:2]
    one = family.likelihood(Y, levels, weights.astype(float))
    other = family.likelihood(np.repeat(Y, weights, axis=0), levels)
    expected = parameter_dict(other)
    for path, parameter in parameter_dict(one).items():
        np.testing.assert_allclose(parameter.numpy(), expected[path].numpy(), rtol=1e-9)


def test_the_number_of_terms_is_checked_against_the_sum_of_weights() -> None:
    table = pd.DataFrame({"x": [0.0, 1.0, 2.0], "z": [1.0, 0.0, 3.0], "y": [0.0, 1.0, 3.0]})
    terms = s("x") + s("z") + linear("z")
    with pytest.raises(ValueError, match="3 terms cannot be learnt from 3 rows"):
        gg.GAM(terms).fit(table, "y")
    table["w"] = [1.0, 2.0, 1.0]
    gg.GAM(terms, weights="w").fit(table, "y")
    twice = table.iloc[[0, 1, 1, 2]]
    gg.GAM(terms).fit(twice, "y")


# --- rows of weight zero ----------------------------------------------------------------------


def with_garbage() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rows, and the same among others of weight zero that are as odd as can be."""
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"x": np.linspace(0.0, 1.0, ROWS), "g": rng.choice(list("ab"), ROWS)})
    data["y"] = np.sin(6.0 * data["x"]) + (data["g"] == "a") + 0.3 * rng.normal(size=ROWS)
    data["w"] = rng.integers(1, 4, ROWS)
    odd = pd.DataFrame(
        {
            "x": [1e9, -1e9, np.nan, 0.5, 0.5, np.inf],
            "g": ["a", "b", "a", "new", None, "b"],
            "y": [1e80, 0.0, 3.0, np.nan, -1e80, np.inf],
            "w": 0,
        }
    )
    mixed = pd.concat([odd[:3], data[:90], odd[3:5], data[90:], odd[5:]], ignore_index=True)
    return data, mixed


def same_fits(ours: gg.GAM, theirs: gg.GAM, data: pd.DataFrame) -> None:
    assert ours.fitted.result.elbo == pytest.approx(theirs.fitted.result.elbo, abs=1e-8)
    assert ours.fitted.number == theirs.fitted.number == len(data)
    assert ours.fitted.dropped == theirs.fitted.dropped == 0
    assert ours.fitted.spec.encoder.to_json() == theirs.fitted.spec.encoder.to_json()
    np.testing.assert_allclose(ours.predict(data), theirs.predict(data), rtol=1e-9)
    pd.testing.assert_frame_equal(ours.effects("s(x)"), theirs.effects("s(x)"))
    for one, other in zip(ours.fitted.deviance(), theirs.fitted.deviance()):
        assert one == pytest.approx(other, rel=1e-9)
    pd.testing.assert_frame_equal(ours.summary().table, theirs.summary().table)


@pytest.mark.parametrize(
    ("kept", "missing"), [(10_000, "error"), (100, "drop"), (10_000, "impute")]
)
def test_a_row_of_weight_zero_is_not_there(kept, missing, monkeypatch):
    """Neither in ranges nor in levels nor in missing values, however extreme its values are."""
    monkeypatch.setattr(bins, "KEPT_ROWS", kept)
    data, mixed = with_garbage()

    def fitted(source: object) -> gg.GAM:
        return gg.GAM("y ~ s(x, k=8) + factor(g)", weights="w", missing=missing).fit(source)

    theirs = fitted(data)
    same_fits(fitted(mixed), theirs, data)
    if missing != "impute" or kept > len(mixed):
        blocks = [mixed[:3], mixed[3:60], mixed[60:]]
        same_fits(fitted(blocks), fitted([data[:57], data[57:]]), data)


def test_shares_leave_rows_of_weight_zero_out(monkeypatch):
    monkeypatch.setattr(bins, "KEPT_ROWS", 100)
    data, mixed = with_garbage()

    gam = lambda: gg.GAM(s("x", k=8) + gg.factor("g"), weights="w")
    parts = [mixed[:93], mixed[93:]], [data[:90], data[90:]]
    ours, theirs = (shared_rows.fits(gam, part, "y")[0] for part in parts)
    same_fits(ours, theirs, data)


def test_further_rows_and_proposals_leave_rows_of_weight_zero_out():
    data, mixed = with_garbage()
    ours, theirs = (gg.GAM("y ~ s(x, k=8) + factor(g)", weights="w") for _ in range(2))
    ours.fit(mixed[:80]).update(mixed[80:])
    theirs.fit(data[:77]).update(data[77:])
    np.testing.assert_allclose(ours.predict(data), theirs.predict(data), rtol=1e-9)
    pd.testing.assert_frame_equal(ours.avg_predictions(mixed), ours.avg_predictions(data))
    constant = mixed.assign(c=np.where(mixed["w"] == 0, 1.0, 2.0))
    given = {"data": constant, "y": "y", "weights": "w", "depth": 1}
    assert gg.anova(**given) == gg.anova(**{**given, "data": constant[constant["w"] > 0]})


@pytest.mark.slow
@pytest.mark.parametrize("missing", ["error", "impute"])
def test_groups_are_given_for_rows_of_weight_zero_too(missing):
    """Groups are given for all rows, those of weight zero among them."""
    data, mixed = with_garbage()
    labels = np.concatenate(
        [np.repeat(-1, 3), np.arange(90) // 5, [-1, -1], np.arange(90, ROWS) // 5, [-1]]
    )
    gam = gg.GAM("y ~ s(x, k=5) + factor(g)", weights="w", missing=missing)
    options = {"criterion": "ncv", "max_iterations": 2}  # the same way, wherever it ends
    ours = gam.fit(mixed, groups=labels, **options).predict(data)
    theirs = gam.fit(data, groups=np.arange(ROWS) // 5, **options)
    np.testing.assert_allclose(ours, theirs.predict(data), rtol=1e-7)


def test_weights_that_are_all_zero_are_an_error():
    data, _ = with_garbage()
    for source in (data.assign(w=0), [data.assign(w=0)]):
        with pytest.raises(ValueError, match="data has 0 row.s. in which 'w' is not zero"):
            gg.GAM("y ~ s(x)", weights="w").fit(source)
    with pytest.raises(ValueError, match="weights 'w' must not be negative; got -1 in row 0"):
        gg.GAM("y ~ s(x)", weights="w").fit(data.assign(w=-1))
