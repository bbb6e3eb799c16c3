"""Effects of areas that are like those of their neighbours."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
from problems import exact

import gpflow_gam as gg
from gpflow_gam import factor, random_effect, s
from gpflow_gam.gam.terms import Terms, parse_formula
from gpflow_gam.kernels import MarkovField, structured_covariance

SIDE, NOISE = 6, 0.4
AREAS = [f"{i}{j}" for i, j in itertools.product(range(SIDE), range(SIDE))]
BARE = ("23", "00")
"""Areas without data."""
SQUARE = np.array([[0, 0], [1, 0], [1, 1], [0, 1], [0, 0]], dtype=float)
POLYGONS = {a: SQUARE + np.array([int(a[0]), int(a[1])]) for a in AREAS}
TRUTH = {a: np.sin(int(a[0]) / 2.0) + np.cos(int(a[1]) / 2.0) for a in AREAS}


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(3)
    area = rng.choice([a for a in AREAS if a not in BARE], 120)
    truth = np.array([TRUTH[a] for a in area])
    return pd.DataFrame({"area": area, "f": truth, "y": truth + NOISE * rng.normal(size=120)})


@pytest.fixture(scope="module")
def gam(data):
    return gg.GAM(s("area", bs="mrf", polygons=POLYGONS)).fit(data, "y")


# --- the kernel ----------------------------------------------------------------------------------


def laplacian(number, edges):
    L = np.zeros((number, number))
    for i, j in edges:
        L[[i, j], [i, j]] += 1.0
        L[[i, j], [j, i]] -= 1.0
    return L


def test_structured_part_is_the_scaled_inverse_of_the_laplacian():
    edges = [(0, 1), (1, 2), (2, 3), (3, 0), (1, 3)]
    expected = np.linalg.pinv(laplacian(4, edges))
    expected /= np.exp(np.mean(np.log(np.diag(expected))))
    np.testing.assert_allclose(structured_covariance(4, edges), expected, atol=1e-12)


def test_parts_that_are_not_connected():
    B = structured_covariance(6, [(0, 1), (1, 2), (3, 4)])
    np.testing.assert_array_equal(B[:3, 3:], 0.0)
    np.testing.assert_array_equal(B[5], np.eye(6)[5])
    np.testing.assert_allclose(np.exp(np.mean(np.log(2.0 * np.diag(B[:3, :3]) - 1.0))), 1.0)
    np.testing.assert_allclose(B[3:5, 3:5], [[1.0, 0.0], [0.0, 1.0]], atol=1e-12)
    np.testing.assert_allclose(np.ones(3) @ B[:3, :3] @ np.ones(3), 0.5 * 9.0)
    np.testing.assert_array_equal(structured_covariance(3, []), np.eye(3))


def test_covariances_by_loops():
    kernel = MarkovField(4, [(0, 1), (1, 2), (2, 3)], 2.0, 0.5, active_dims=[1])
    codes, others = np.array([3, 0, 0, 2]), np.array([1, 3])
    B = structured_covariance(4, [(0, 1), (1, 2), (2, 3)])
    expected = [[2.0 * (B[i, j] + 0.5 * (i == j)) / 1.5 for j in others] for i in codes]
    X, X2 = (np.column_stack([np.full(len(c), 9.0), c.astype(float)]) for c in (codes, others))
    np.testing.assert_allclose(kernel(X, X2), expected)


# --- the term ------------------------------------------------------------------------------------


def test_posterior_is_that_of_an_exact_gaussian_process(gam, data):
    mean, sd, _ = exact(gam, data["y"], np.arange(len(AREAS))[:, None].astype(float))
    result, se = gam.predict({"area": AREAS}, "link", se=True, unconditional=False)
    np.testing.assert_allclose(result, mean, atol=1e-4)
    np.testing.assert_allclose(se**2, sd**2, atol=1e-4)


def test_neighbours_help_and_speak_for_areas_without_data(gam, data):
    rows = data.drop_duplicates("area")
    alone = gg.GAM(random_effect("area")).fit(data, "y")
    error = [np.sqrt(np.mean((m.predict(rows) - rows["f"]) ** 2)) for m in (gam, alone)]
    assert error[0] < 0.75 * error[1]
    mean, se = gam.predict({"area": list(BARE)}, "link", se=True)
    assert np.all(np.abs(mean - [TRUTH[a] for a in BARE]) < 2.0 * se)
    assert np.all(se > gam.predict({"area": ["22"]}, "link", se=True)[1])
    assert list(gam.effects("s(area)")["area"]) == AREAS


def test_independent_areas_are_told_from_smooth_ones(data):
    rng = np.random.default_rng(1)
    effect = rng.normal(size=len(AREAS))
    codes = np.repeat(np.arange(len(AREAS)), 5)
    rough = pd.DataFrame({"area": np.array(AREAS)[codes], "y": effect[codes]})
    rough["y"] += 0.3 * rng.normal(size=len(codes))
    ratios = []
    for rows in (data, rough):
        fit = gg.GAM(s("area", bs="mrf", polygons=POLYGONS)).fit(rows, "y").fitted
        ratios.append(float(fit.model.kernel["s(area)"].base.independent.numpy()))
    assert ratios[1] > 2.0 * ratios[0]


def test_ways_to_say_who_are_neighbours(gam):
    near = {
        a: [b for b in AREAS if b != a and max(abs(int(a[k]) - int(b[k])) for k in (0, 1)) == 1]
        for a in AREAS
    }
    by_mapping = s("area", bs="mrf", neighbours=near)
    assert dict(by_mapping.neighbours) == dict(gam.terms[0].neighbours)
    matrix = pd.DataFrame(0, index=AREAS, columns=AREAS)
    for a, own in near.items():
        matrix.loc[a, own] = 1
    assert s("area", bs="mrf", neighbours=matrix.loc[:, AREAS[::-1]]) == by_mapping
    holes = {a: np.concatenate([SQUARE + 9.0 * i, [[np.nan, np.nan]], SQUARE + 30.0])
             for i, a in enumerate("ab")}  # fmt: skip
    assert s("area", bs="mrf", polygons=holes).edges == ((0, 1),)
    text = f"y ~ s(area, bs='mrf', neighbours={near})"
    assert parse_formula(text).terms == Terms([by_mapping])
    assert repr(by_mapping) == "s('area', bs='mrf', neighbours=<of 36 areas>)"


@pytest.mark.slow
def test_drawn_saved_served_and_in_blocks(gam, data, tmp_path):
    figure = gam.draw()
    result = [c for ax in figure.axes for c in ax.collections if c.get_gid() == "areas"]
    assert [len(c.get_paths()) for c in result] == [len(AREAS)] * 2
    np.testing.assert_allclose(result[0].get_array(), gam.effects("s(area)")["estimate"])
    assert any(c.get_gid() == "without data" for ax in figure.axes for c in ax.collections)
    rows = {"area": [*AREAS, *BARE]}
    gam.save(tmp_path / "gam")
    again = gg.GAM.load(tmp_path / "gam")
    assert again.terms == gam.terms
    np.testing.assert_array_equal(again.predict(rows), gam.predict(rows))
    gg.serving.export(gam, tmp_path / "served")
    served = gg.serving.load(tmp_path / "served").predict(rows)
    np.testing.assert_allclose(np.ravel(served["mean"]), gam.predict(rows), atol=1e-9)
    blocks = gg.GAM(gam.terms).fit([data[:60], data[60:]], "y")
    np.testing.assert_allclose(blocks.predict(rows), gam.predict(rows), atol=1e-6)


def test_updates_take_areas_that_had_no_data(data):
    gam = gg.GAM(s("area", bs="mrf", polygons=POLYGONS)).fit(data, "y")
    before = gam.predict({"area": [BARE[0]]}, "link", se=True)[1]
    gam.update(pd.DataFrame({"area": [BARE[0]] * 30, "y": [3.0] * 30}))
    mean, se = gam.predict({"area": [BARE[0]]}, "link", se=True)
    assert abs(mean - 3.0) < 0.3
    assert se < 0.5 * before


def test_coefficients_that_vary_over_areas(data):
    """A level of their own included, and those of areas without data too."""
    rng = np.random.default_rng(1)
    z = rng.normal(1.0, 1.0, len(data))
    y = 2.0 + z * (3.0 + data["f"]) + NOISE * rng.normal(size=len(data))
    term = s("area", bs="mrf", polygons=POLYGONS, by="z")
    gam = gg.GAM(term).fit(data.assign(z=z, y=y), "y")
    np.testing.assert_allclose(gam.predict(data.assign(z=z)), exact(gam, y)[0], atol=1e-3)
    assert "by='z'" in repr(term)
    gam.draw()


PAIR = {"a": ["b"], "b": ["a"]}
EDGES = pd.DataFrame({"a": [0, 1], "b": [1, 0]}, index=["a", "b"])


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: s("x", bs="mrf"), ValueError, "needs neighbours="),
        (lambda: s("x", neighbours=PAIR), ValueError, "bs='se' takes no neighbours"),
        (lambda: s("x", bs="mrf", neighbours={"a": ["b"], "b": []}), ValueError, "be mutual; 'a'"),
        (
            lambda: s("x", bs="mrf", polygons={"a": SQUARE, "b": SQUARE + 7.0}),
            ValueError,
            "no two polygons share a corner",
        ),
        (lambda: s("x", bs="mrf", polygons={"a": SQUARE, "b": [1, 2]}), ValueError, "\\[n, 2\\]"),
        (lambda: s("x", bs="mrf", polygons={"a": SQUARE, "b": "no"}), ValueError, "corners of 'b'"),
        (lambda: s("x", bs="mrf", polygons={"a": SQUARE, "b": SQUARE[:2]}), ValueError, "2 corner"),
        (lambda: s("x", bs="mrf", polygons={"a": SQUARE}), ValueError, "at least two areas; got 1"),
        (lambda: s("x", bs="mrf", neighbours=EDGES.assign(c=0)), ValueError, "got .*'b', 'c'"),
        (lambda: s("x", bs="mrf", neighbours=EDGES.set_axis(["a", "a"])), ValueError, "each once"),
        (lambda: s("x", bs="mrf", neighbours=2 * EDGES), ValueError, "must be zeros and ones"),
    ],
)  # fmt: skip
def test_errors(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_areas_that_are_not_known(gam, data):
    with pytest.raises(ValueError, match="the level '99' in row 0, never seen"):
        gam.predict({"area": ["99"]})
    other = gg.GAM(s("area", bs="mrf", neighbours=PAIR))
    with pytest.raises(ValueError, match="'01', which is none of the areas .* they are 'a', 'b'"):
        other.fit(data, "y")
    codes = data.assign(area=data["area"].astype(int))
    with pytest.raises(ValueError, match="areas are {'str'}, the column has {'int'}"):
        gg.GAM(gam.terms).fit(codes, "y")
    both = gg.GAM(gam.terms + factor("area"))
    with pytest.raises(ValueError, match="such as '00', of which factor\\(area\\) knows nothing"):
        both.fit(data, "y")


def lattice(seed: int, side: int = 7) -> tuple[pd.DataFrame, dict[str, list[str]]]:
    """One row an area, whose effects are smooth, and noise as large as they are."""
    i, j = np.divmod(np.arange(side**2), side)
    near = np.abs(i[:, None] - i) + np.abs(j[:, None] - j) == 1
    names = [f"a{n}" for n in range(side**2)]
    rng = np.random.default_rng(seed)
    effect = 2.0 * np.sin(6.0 * i / side + 0.3) * np.cos(5.0 * j / side)
    data = pd.DataFrame({"area": names, "effect": effect})
    data["y"] = effect + rng.normal(size=side**2)
    return data, {names[a]: [names[b] for b in np.flatnonzero(near[a])] for a in range(side**2)}


@pytest.mark.parametrize("seed", range(2))
def test_areas_of_one_row_each_are_smoothed_and_not_interpolated(seed):
    """Independent effects of areas are noise there, and had taken all of it."""
    data, neighbours = lattice(seed, side=12)
    gam = gg.GAM(s("area", bs="mrf", neighbours=neighbours)).fit(data, "y")
    assert 0.3 < float(gam.model.likelihood.variance.numpy()) < 2.5
    (edf,) = gam.summary().table["edf"]
    assert 10.0 < edf < 100.0  # of 143
    error = np.square(gam.predict(data) - data["effect"]).mean()
    assert error < 0.6 * np.square(data["y"] - data["effect"]).mean()
    twice = pd.concat([data, data.assign(y=data["effect"])], ignore_index=True)
    again = gg.GAM(s("area", bs="mrf", neighbours=neighbours)).fit(twice, "y")
    assert [c.independent for c in again.fitted.spec.effects] == [True]
    assert [c.independent for c in gam.fitted.spec.effects] == [False]


def test_areas_that_are_interpolated_all_the_same_are_warned_of():
    """As where effects of neighbours have next to nothing in common."""
    data, neighbours = lattice(0, side=5)
    checks = data.assign(y=np.where(np.arange(25) % 2, 1.0, -1.0) + 0.01 * data["y"])
    pairs = {a: [f"a{(int(a[1:]) + 2) % 25}", f"a{(int(a[1:]) - 2) % 25}"] for a in neighbours}
    with pytest.warns(gg.IdentifiabilityWarning, match="one row an area and goes through nearly"):
        gg.GAM(s("area", bs="mrf", neighbours=pairs)).fit(checks, "y")
