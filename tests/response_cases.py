"""Response families at known parameters, each with the same distribution from scipy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gpflow
import numpy as np
import pytest
import scipy.stats as st
from scipy.special import expit, ndtr, softmax

import gpflow_gam as gg
from gpflow_gam import families as fam
from gpflow_gam import likelihoods as lk

INCREMENTS = np.array([0.4, 1.3])
CUTPOINTS = np.array([0.0, 0.4, 1.7])


class Labels:
    """Class probabilities [..., C] with scipy's method names."""

    def __init__(self, p: np.ndarray) -> None:
        self.p = p

    def logpmf(self, y: np.ndarray) -> np.ndarray:
        y = np.broadcast_to(y, self.p.shape[:-1]).astype(int)
        return np.log(np.take_along_axis(self.p, y[..., None], -1)[..., 0])

    def cdf(self, y: np.ndarray) -> np.ndarray:
        below = np.concatenate([np.zeros_like(self.p[..., :1]), np.cumsum(self.p, -1)], -1)
        return np.take_along_axis(below, y.astype(int)[..., None] + 1, -1)[..., 0]

    def mean(self) -> np.ndarray:
        return self.p @ np.arange(self.p.shape[-1])

    def var(self) -> np.ndarray:
        return self.p @ np.arange(self.p.shape[-1]) ** 2.0 - self.mean() ** 2


def ordered(F: np.ndarray) -> Labels:
    edges = np.concatenate([[-np.inf], CUTPOINTS, [np.inf]])
    return Labels(np.diff(ndtr(edges - F[..., :1]), axis=-1))


@dataclass
class Case:
    """A family at known parameters, and the same distribution from scipy."""

    family: fam.Family
    likelihood: Callable[[], gpflow.likelihoods.Likelihood]
    reference: Callable[[np.ndarray], Any]  # F [..., L] -> frozen distribution
    observe: Callable[[np.random.Generator, np.ndarray], np.ndarray]  # F [N, L] -> y [N]
    grid: np.ndarray  # values of y that (nearly) exhaust the distribution at small F
    L: int = 1
    trials: int | None = None
    levels: tuple[Any, ...] | None = None

    @property
    def discrete(self) -> bool:
        return self.family.discrete

    def logp(self, y: np.ndarray, F: np.ndarray) -> np.ndarray:
        d = self.reference(F)
        return d.logpmf(y) if self.discrete else d.logpdf(y)

    def Y(self, y: np.ndarray) -> np.ndarray:
        if self.trials is None:
            return np.asarray(y, dtype=float)[:, None]
        return np.stack([y, np.full(len(y), float(self.trials))], axis=1)

    def data(self, rng: np.random.Generator, n: int = 40) -> tuple[np.ndarray, np.ndarray]:
        F = 0.8 * rng.standard_normal((n, self.L))
        return self.Y(self.observe(rng, F)), F


def drawn(reference: Callable[[np.ndarray], Any]) -> Callable[..., np.ndarray]:
    return lambda rng, F: reference(F).rvs(random_state=rng).astype(float)


def _cases() -> dict[str, Case]:
    def gaussian() -> gpflow.likelihoods.Gaussian:
        likelihood = fam.Gaussian().likelihood(np.array([[1.0], [2.0]]))
        likelihood.variance.assign(0.7)
        return likelihood

    def student() -> gpflow.likelihoods.StudentT:
        likelihood = fam.StudentT(5.0).likelihood(np.array([[1.0], [2.0]]))
        likelihood.scale.assign(0.6)
        return likelihood

    def scipy_case(family, likelihood, reference, grid, **options) -> Case:
        return Case(family, likelihood, reference, drawn(reference), grid, **options)

    ints, line = np.arange(400.0), np.linspace(-60.0, 60.0, 60_001)
    cases = {
        "gaussian": scipy_case(
            fam.Gaussian(), gaussian, lambda F: st.norm(F[..., 0], np.sqrt(0.7)), line
        ),
        "poisson": scipy_case(
            fam.Poisson(), gpflow.likelihoods.Poisson, lambda F: st.poisson(np.exp(F[..., 0])), ints
        ),
        "negative_binomial": scipy_case(
            fam.NegativeBinomial(),
            lambda: lk.NegativeBinomial(0.6),
            lambda F: st.nbinom(1 / 0.6, 1 / (1 + 0.6 * np.exp(F[..., 0]))),
            ints,
        ),
        "gamma": scipy_case(
            fam.Gamma(),
            lambda: lk.MeanGamma(2.3),
            lambda F: st.gamma(2.3, scale=np.exp(F[..., 0]) / 2.3),
            np.linspace(1e-9, 120.0, 200_001),
        ),
        "beta": scipy_case(
            fam.Beta(),
            lambda: lk.LogitBeta(6.0),
            lambda F: st.beta(6 * expit(F[..., 0]), 6 * expit(-F[..., 0])),
            expit(np.linspace(-60.0, 36.0, 20_001)),
        ),
        "student_t": scipy_case(
            fam.StudentT(5.0),
            student,
            lambda F: st.t(5.0, F[..., 0], 0.6),
            np.sinh(np.linspace(-9.0, 9.0, 20_001)),
        ),
        "heteroskedastic": scipy_case(
            fam.Heteroskedastic(),
            lambda: lk.Heteroskedastic(2.0),
            lambda F: st.norm(2 * F[..., 0], 2 * np.exp(F[..., 1])),
            line,
            L=2,
        ),
        "lognormal": scipy_case(
            fam.LogNormal(),
            lambda: lk.LogNormal(0.4),
            lambda F: st.lognorm(0.4, scale=np.exp(F[..., 0])),
            np.exp(np.linspace(-12.0, 12.0, 200_001)),
        ),
        "weibull": scipy_case(
            fam.Weibull(),
            lambda: lk.Weibull(0.6),
            lambda F: st.weibull_min(1.0 / 0.6, scale=np.exp(F[..., 0])),
            np.exp(np.linspace(-25.0, 8.0, 200_001)),
        ),
        "censored_gaussian": scipy_case(
            fam.CensoredGaussian(),
            lambda: lk.CensoredGaussian(0.8),
            lambda F: st.norm(F[..., 0], 0.8),
            line,
        ),
        "censored_gaussian_scale": scipy_case(
            fam.CensoredGaussian(varying=True),
            lambda: lk.CensoredGaussian(unit=0.8, varying=True),
            lambda F: st.norm(0.8 * F[..., 0], 0.8 * np.exp(F[..., 1])),
            line,
            L=2,
        ),
        "ordinal": Case(
            fam.Ordinal(),
            lambda: lk.Ordered(4, INCREMENTS),
            ordered,
            lambda rng, F: np.digitize(F[:, 0] + rng.standard_normal(len(F)), CUTPOINTS) * 1.0,
            np.arange(4.0),
            levels=(0, 1, 2, 3),
        ),
        "categorical": Case(
            fam.Categorical(),
            lambda: lk.FixedSoftmax(3),
            lambda F: Labels(softmax(F, axis=-1)),
            lambda rng, F: np.argmax(F + rng.gumbel(size=F.shape), axis=1) * 1.0,
            np.arange(3.0),
            L=3,
            levels=("a", "b", "c"),
        ),
    }
    for link, p in (("logit", expit), ("probit", ndtr)):
        cases[f"bernoulli_{link}"] = scipy_case(
            fam.Bernoulli(link),
            lambda link=link: lk.Bernoulli(link),
            lambda F, p=p: st.bernoulli(p(F[..., 0])),
            np.arange(2.0),
            levels=(0, 1),
        )
        cases[f"binomial_{link}"] = scipy_case(
            fam.Binomial(link),
            lambda link=link: lk.Binomial(link),
            lambda F, p=p: st.binom(7, p(F[..., 0])),
            np.arange(8.0),
            trials=7,
        )
    return cases


CASES = _cases()
each = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


def weighted(likelihood: gpflow.likelihoods.Likelihood) -> lk.Weighted:
    return lk.Weighted(likelihood, 0)


def svgp(
    likelihood: gpflow.likelihoods.Likelihood,
    family: gg.variational.VariationalFamily | None = None,
) -> gg.models.AdditiveSVGP:
    kernel = gg.kernels.AdditiveKernel(
        {"s": gpflow.kernels.SquaredExponential(1.0, 0.3, active_dims=[0])}
    )
    inducing = gg.inducing_variables.AdditiveInducingVariables(
        {"s": np.linspace(0.0, 1.0, 6)[:, None]}
    )
    return gg.models.AdditiveSVGP(kernel, likelihood, inducing, variational=family)
