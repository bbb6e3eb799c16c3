"""Measures: their nodes, their samples, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest

from gpflow_gam.measures import (
    Discrete,
    Empirical,
    Gaussian,
    Measure,
    Nodes,
    Uniform,
)

MEASURES: dict[str, tuple[Measure, list[float]]] = {
    # first to third moments, from tables
    "uniform": (Uniform(-1.0, 2.0), [0.5, 1.0, 1.25]),
    "gaussian": (Gaussian(0.5, 2.0), [0.5, 4.25, 6.125]),
    "discrete": (Discrete([0.0, 1.0, 4.0], [0.5, 0.3, 0.2]), [1.1, 3.5, 13.1]),
    "empirical": (Empirical([1.0, 0.0, 1.0], [1.0, 2.0, 1.0]), [0.5, 0.5, 0.5]),
}


@pytest.mark.parametrize("name", MEASURES)
def test_nodes_and_transport_have_the_measures_moments(name):
    measure, moments = MEASURES[name]
    x, w = measure.nodes()
    assert x.shape == (len(w), 1)
    for power, moment in enumerate(moments, start=1):
        assert w @ x[:, 0] ** power == pytest.approx(moment, rel=1e-12)
    u = (np.arange(200_000) + 0.5)[:, None] / 200_000
    drawn = measure.transport(u)
    for power, moment in enumerate(moments, start=1):
        assert np.mean(drawn**power) == pytest.approx(moment, rel=1e-3)


def test_samples_of_one_column_are_thinned_to_means(rng):
    x, w = rng.gamma(2.0, size=3000), rng.integers(0, 3, size=3000)
    repeated = np.repeat(x, w)
    thin = Empirical.from_data(x, w, num_nodes=30)
    nodes, weights = thin.nodes()
    assert len(nodes) == 30
    assert weights @ nodes[:, 0] == pytest.approx(repeated.mean(), rel=1e-12)
    # to second order in the bins' width: the far tail's bin is the widest
    assert weights @ np.sin(nodes[:, 0]) == pytest.approx(np.sin(repeated).mean(), abs=5e-3)
    again = Empirical.from_data(repeated, num_nodes=30)  # a row of weight two is the row twice
    np.testing.assert_allclose(again.nodes()[0], nodes)


def test_levels_from_data_are_never_thinned():
    levels = Discrete.from_data(np.repeat(np.arange(100), 2), [1.0, 0.5] * 100)
    assert type(levels) is Discrete
    assert len(levels.nodes()[0]) == 100
    np.testing.assert_array_equal(levels.nodes()[1], np.full(100, 0.01))
    few = Discrete.from_data([3, 1, 3, 7], [1.0, 2.0, 1.0, 0.0])
    np.testing.assert_array_equal(few.nodes()[0], [[1.0], [3.0]])
    np.testing.assert_array_equal(few.nodes()[1], [0.5, 0.5])


def test_samples_of_several_columns_are_thinned_to_clusters(rng):
    x = rng.standard_normal((2000, 2)) * [1.0, 1000.0]
    x[:, 1] += 900.0 * x[:, 0]
    thin = Empirical.from_data(x, seed=1)
    nodes, weights = thin.nodes()
    assert nodes.shape == (100, 2)
    mean = weights @ nodes
    np.testing.assert_allclose(mean, x.mean(axis=0), atol=0.02 * x.std(axis=0).max())
    correlation = (weights * (nodes - mean)[:, 0]) @ (nodes - mean)[:, 1]
    assert correlation == pytest.approx(np.cov(x.T)[0, 1], rel=0.05)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Uniform(1.0, 1.0), "lower < upper"),
        (lambda: Uniform(0.0, 1.0, num_nodes=0), "num_nodes must be a whole number of at least 1"),
        (lambda: Gaussian(0.0, 0.0), "sd must be positive"),
        (lambda: Discrete([0, 1], [0.5, 0.6]), "sum of 1.1"),
        (lambda: Discrete([0, 1], [1.0]), r"one a point, \[2\]"),
        (lambda: Discrete([]), "N >= 1"),
        (lambda: Discrete([np.nan]), "must be finite"),
        (lambda: Empirical([1.0, 2.0], [0.0, 0.0]), "not all zero"),
    ],
)
def test_bad_measures_are_refused(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make()


def test_nodes_take_another_measures_points():
    held = Nodes(Discrete([0.0, 1.0, 2.0]))
    held.assign(Discrete([3.0, 4.0], [0.2, 0.8]))
    x, w = (a.numpy() for a in held.nodes())
    assert w @ x[:, 0] == pytest.approx(3.8)
    with pytest.raises(ValueError, match="room for"):
        held.assign(Discrete([0.0, 1.0, 2.0, 3.0]))


def test_transport_takes_the_ends_of_the_unit_interval():
    u = np.array([[0.0], [np.nextafter(1.0, 0.0)]])
    for measure, _ in MEASURES.values():
        (first,), (last,) = measure.transport(u)
        least, most = (-np.inf, np.inf) if measure.bounds is None else np.ravel(measure.bounds)
        assert np.isfinite(first)
        assert np.isfinite(last)
        assert least <= first < last <= most
