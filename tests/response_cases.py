"""Response families at known parameters, each with the same distribution from scipy."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import gpflow
import numpy as np
import pytest
import scipy.stats as st
from scipy.special import expit, logsumexp, softmax

import gpflow_gam as gg
from gpflow_gam import families as fam
from gpflow_gam import likelihoods as lk
from gpflow_gam.likelihoods.times import Intervals

INCREMENTS = np.array([0.4, 1.3])
CUTPOINTS = np.array([0.0, 0.4, 1.7])
LATENT = {"logit": st.logistic, "probit": st.norm, "cloglog": st.gumbel_l, "cauchit": st.cauchy}
"""Of a threshold model (McCullagh & Nelder 1989, section 4.3)."""
MEAN = {
    "log": np.exp,
    "identity": lambda f: f,
    "inverse": lambda f: 1.0 / f,
    "sqrt": np.square,
    **{link: latent.cdf for link, latent in LATENT.items()},
}
POWER, SCALE, D = 1.6, 0.7, 0.4


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


class Amounts:
    """Poisson numbers of gamma amounts (Tweedie's), term by term."""

    def __init__(self, mu: np.ndarray, phi: float, power: float = POWER) -> None:
        self.mu, self.phi, self.power = mu, phi, power
        self.numbers = st.poisson(mu ** (2.0 - power) / (phi * (2.0 - power)))
        self.shape = (2.0 - power) / (power - 1.0)
        self.scale = phi * (power - 1.0) * mu ** (power - 1.0)
        self.j = np.arange(1.0, 200.0).reshape(-1, *[1] * np.ndim(mu))

    def logpdf(self, y: np.ndarray) -> np.ndarray:
        each = st.gamma.logpdf(y, self.j * self.shape, scale=self.scale)
        some = logsumexp(self.numbers.logpmf(self.j) + each, axis=0)
        return np.where(y > 0.0, some, self.numbers.logpmf(0))

    def cdf(self, y: np.ndarray) -> np.ndarray:
        each = st.gamma.cdf(y, self.j * self.shape, scale=self.scale)
        some = self.numbers.pmf(0) + np.sum(self.numbers.pmf(self.j) * each, axis=0)
        return np.where(y < 0.0, 0.0, some)

    def mean(self) -> np.ndarray:
        return self.mu

    def var(self) -> np.ndarray:
        return self.phi * self.mu**self.power

    def rvs(self, random_state: np.random.Generator) -> np.ndarray:
        number = self.numbers.rvs(random_state=random_state)
        amounts = random_state.gamma(np.maximum(number, 1) * self.shape, self.scale)
        return np.where(number > 0, amounts, 0.0)


class Zeros(NamedTuple):
    """Counts with zeros of a probability of their own, written out."""

    counts: Any
    zero: np.ndarray
    hurdle: bool

    @property
    def others(self) -> np.ndarray:
        """What counts are multiplied by."""
        return (1.0 - self.zero) / (self.counts.sf(0) if self.hurdle else 1.0)

    def logpmf(self, y: np.ndarray) -> np.ndarray:
        none = self.zero + (0.0 if self.hurdle else self.others * self.counts.pmf(0))
        return np.where(y == 0.0, np.log(none), np.log(self.others) + self.counts.logpmf(y))

    def cdf(self, y: np.ndarray) -> np.ndarray:
        below = self.counts.cdf(y) - (self.counts.pmf(0) if self.hurdle else 0.0)
        return np.where(y < 0.0, 0.0, self.zero + self.others * below)

    def mean(self) -> np.ndarray:
        return self.others * self.counts.mean()

    def var(self) -> np.ndarray:
        second = self.others * (self.counts.var() + self.counts.mean() ** 2)
        return second - self.mean() ** 2

    def rvs(self, random_state: np.random.Generator) -> np.ndarray:
        u, v = random_state.uniform(size=(2, *np.shape(self.zero)))
        counts = self.counts.isf(u * (self.counts.sf(0) if self.hurdle else 1.0))
        return np.where(v < self.zero, 0.0, counts)


def ordered(F: np.ndarray, latent: Any = st.norm) -> Labels:
    """Differences from the tail in which digits are."""
    edges = np.concatenate([[-np.inf], CUTPOINTS, [np.inf]]) - F[..., :1]
    below, above = np.diff(latent.cdf(edges)), -np.diff(latent.sf(edges))
    return Labels(np.where(edges[..., :-1] > 0.0, above, below))


@dataclass
class Case:
    """A family at known parameters, and the same distribution from scipy."""

    family: fam.Family
    likelihood: Callable[[], gpflow.likelihoods.Likelihood]
    reference: Callable[[np.ndarray], Any]  # F [..., L] -> frozen distribution
    observe: Callable[[np.random.Generator, np.ndarray], np.ndarray] | None = None  # F -> y [N]
    L: int = 1
    trials: int | None = None
    levels: tuple[Any, ...] | None = None
    between: tuple[float, float] | None = None  # predictors; else normal ones
    variance: tuple[float, float] = (0.05, 0.5)  # of predictors in expectations
    rtol: float = 3e-5  # of expectations
    spread: bool = True  # the response has a variance that quadrature finds

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

    def predictors(self, rng: np.random.Generator, *shape: int) -> np.ndarray:
        if self.between is None:
            return 0.8 * rng.standard_normal((*shape, self.L))
        return rng.uniform(*self.between, (*shape, self.L))

    def data(self, rng: np.random.Generator, n: int = 40) -> tuple[np.ndarray, np.ndarray]:
        F = self.predictors(rng, n)
        return self.Y(self.drawn(rng, F)), F

    def drawn(self, rng: np.random.Generator, F: np.ndarray) -> np.ndarray:
        if self.observe is not None:
            return self.observe(rng, F)
        return self.reference(F).rvs(random_state=rng).astype(float)


LOCATED = (
    (lk.CensoredGaussian, fam.CensoredGaussian, st.norm),
    (lk.LogNormal, fam.LogNormal, lambda f, g: st.lognorm(g, scale=np.exp(f))),
    (lk.Weibull, fam.Weibull, lambda f, g: st.weibull_min(1.0 / g, scale=np.exp(f))),
)
"""Likelihood, family and distribution of responses that may be censored, by location and scale."""


def _cases() -> dict[str, Case]:
    def gaussian() -> gpflow.likelihoods.Gaussian:
        likelihood = fam.Gaussian().likelihood(np.array([[1.0], [2.0]]))
        likelihood.variance.assign(0.7)
        return likelihood

    def student() -> gpflow.likelihoods.StudentT:
        likelihood = fam.StudentT(5.0).likelihood(np.array([[1.0], [2.0]]))
        likelihood.scale.assign(0.6)
        return likelihood

    cases = {
        "gaussian": Case(fam.Gaussian(), gaussian, lambda F: st.norm(F[..., 0], np.sqrt(0.7))),
        "poisson": Case(
            fam.Poisson(), gpflow.likelihoods.Poisson, lambda F: st.poisson(np.exp(F[..., 0]))
        ),
        "negative_binomial": Case(
            fam.NegativeBinomial(),
            lambda: lk.NegativeBinomial(0.6),
            lambda F: st.nbinom(1 / 0.6, 1 / (1 + 0.6 * np.exp(F[..., 0]))),
        ),
        "gamma": Case(
            fam.Gamma(),
            lambda: lk.MeanGamma(2.3),
            lambda F: st.gamma(2.3, scale=np.exp(F[..., 0]) / 2.3),
        ),
        "beta": Case(
            fam.Beta(),
            lambda: lk.LogitBeta(6.0),
            lambda F: st.beta(6 * expit(F[..., 0]), 6 * expit(-F[..., 0])),
        ),
        "tweedie": Case(
            fam.Tweedie(),
            lambda: lk.Tweedie(0.8, 1.4),
            lambda F: Amounts(np.exp(F[..., 0]), 0.8, 1.4),
        ),
        "student_t": Case(fam.StudentT(5.0), student, lambda F: st.t(5.0, F[..., 0], 0.6)),
        "heteroskedastic": Case(
            fam.Heteroskedastic(),
            lambda: lk.Heteroskedastic(2.0),
            lambda F: st.norm(2 * F[..., 0], 2 * np.exp(F[..., 1])),
            L=2,
        ),
        "categorical": Case(
            fam.Categorical(),
            lambda: lk.FixedSoftmax(3),
            lambda F: Labels(softmax(F, axis=-1)),
            lambda rng, F: np.argmax(F + rng.gumbel(size=F.shape), axis=1) * 1.0,
            L=3,
            levels=("a", "b", "c"),
        ),
    }
    for kind, family, located in LOCATED:
        cases[family.name] = Case(
            family(),
            lambda kind=kind: kind(SCALE),
            lambda F, located=located: located(F[..., 0], SCALE),
        )
        cases[f"{family.name}-scale"] = Case(
            family(varying=True),
            lambda kind=kind: kind(unit=SCALE, varying=True),
            lambda F, located=located: located(SCALE * F[..., 0], SCALE * np.exp(F[..., 1])),
            L=2,
            between=(-0.7, 0.7),
            variance=(0.01, 0.03),
            spread=kind is lk.CensoredGaussian,
        )
    for link, latent in LATENT.items():
        mark = "_" if link in ("logit", "probit") else "-"
        options = {"between": (-1.0, 0.8), "variance": (0.05, 0.1), "rtol": 1e-4}
        cases[f"bernoulli{mark}{link}"] = Case(
            fam.Bernoulli(link),
            lambda link=link: lk.Bernoulli(link),
            lambda F, p=latent.cdf: st.bernoulli(p(F[..., 0])),
            **options,
        )
        cases[f"binomial{mark}{link}"] = Case(
            fam.Binomial(link),
            lambda link=link: lk.Binomial(link),
            lambda F, p=latent.cdf: st.binom(7, p(F[..., 0])),
            trials=7,
            **options,
        )
        cases["ordinal" if link == "probit" else f"ordinal-{link}"] = Case(
            fam.Ordinal(link=link),
            lambda link=link: lk.Ordered(4, INCREMENTS, link),
            lambda F, latent=latent: ordered(F, latent),
            lambda rng, F, latent=latent: (
                1.0 * np.digitize(F[:, 0] + latent.rvs(size=len(F), random_state=rng), CUTPOINTS)
            ),
            levels=(0, 1, 2, 3),
            rtol=2e-4,
        )
    return cases


DENSITY = {
    "gaussian": st.norm,
    "heteroskedastic": st.norm,
    "student_t": lambda mu, d: st.t(4.0, mu, d),
    "gamma": lambda mu, d: st.gamma(1.0 / d, scale=mu * d),
    "poisson": lambda mu, d: st.poisson(mu),
    "negative_binomial": lambda mu, d: st.nbinom(1.0 / d, 1.0 / (1.0 + d * mu)),
    "tweedie": Amounts,
    "beta": lambda mu, d: st.beta(mu / d, (1.0 - mu) / d),
}
"""By family of a mean and of the number whose logarithm the second predictor is."""


def linked(family: fam.Family) -> Case:
    """A family of a mean behind a link, whose dispersion has a predictor or is ``D``."""
    share, L = family.name == "beta", family.num_predictors()
    responses = np.array([[0.2], [0.6]] if share else [[1.0], [3.0]])
    density, mean = DENSITY[family.name], MEAN[family.link]
    factor, shift = family.units(family.likelihood(responses))

    def likelihood() -> gpflow.likelihoods.Likelihood:
        result = family.likelihood(responses)
        base = result if share or L == 2 else result.base
        known = {
            "gaussian": {"variance": D**2},
            "student_t": {"scale": D},
            "gamma": {"shape": 1.0 / D},
            "negative_binomial": {"alpha": D},
            "beta": {"scale": 1.0 / D},
            "tweedie": {"power": POWER, "dispersion": D * 2.0 ** (POWER - 2.0)},
        }
        for name, value in known.get(family.name, {}).items() if L == 1 else ():
            getattr(base, name).assign(value)
        return result

    def reference(F: np.ndarray) -> Any:
        f = shift + factor * F
        return density(mean(f[..., 0]), np.exp(f[..., 1]) if L == 2 else D)

    return Case(
        family,
        likelihood,
        reference,
        L=L,
        between=(-0.9, 0.9) if share or family.link == "log" else (0.9, 1.5),
        variance=(0.005, 0.01),
        rtol=5e-5,
    )


def zeros(kind: type[fam.Family], link: str) -> Case:
    """Counts with zeros of their own."""
    family = kind(link)
    counts = DENSITY["negative_binomial" if "negative" in family.name else "poisson"]

    def likelihood() -> gpflow.likelihoods.Likelihood:
        result = family.likelihood(np.array([[0.0], [3.0]]))
        if "negative" in family.name:
            result.alpha.assign(D)
        return result

    def reference(F: np.ndarray) -> Zeros:
        return Zeros(counts(np.exp(F[..., 0]), D), MEAN[link](F[..., 1]), "hurdle" in family.name)

    return Case(
        family,
        likelihood,
        reference,
        L=2,
        between=(-2.0, -1.0) if link == "log" else (-1.0, 1.0),
        variance=(0.01, 0.02),
    )


def _of_links() -> dict[str, Case]:
    means = [
        *(fam.Poisson(link) for link in ("identity", "sqrt")),
        *(fam.NegativeBinomial(link=link) for link in ("identity", "sqrt")),
        *(fam.Gamma(link) for link in ("inverse", "identity")),
        *(fam.Gaussian(link) for link in ("log", "inverse")),
        *(fam.StudentT(link=link) for link in ("log", "inverse")),
    ]
    shares = [fam.Beta(link) for link in ("probit", "cloglog", "cauchit")]
    usual = [fam.NegativeBinomial(), fam.Gamma(), fam.StudentT(), fam.Beta()]
    varying = [f.of_all() for f in (*usual, *means[2:], *shares)]
    amounts = [fam.Tweedie(link) for link in ("identity", "sqrt", "inverse")]
    cases = {
        f"{f.name}-{f.link}-{f.num_predictors()}": linked(f)
        for f in (*means, *amounts, *shares, *varying)
    }
    cases |= {
        f"{kind.name}-{link}": zeros(kind, link)
        for kind in (
            fam.ZeroInflatedPoisson,
            fam.ZeroInflatedNegativeBinomial,
            fam.HurdlePoisson,
            fam.HurdleNegativeBinomial,
        )
        for link in (*LATENT, "log")
    }
    return cases


EVERY = _cases() | _of_links()
CASES = {name: case for name, case in EVERY.items() if "-" not in name}
each = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
every = pytest.mark.parametrize("case", EVERY.values(), ids=EVERY.keys())


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


def hazards() -> tuple[lk.Cox, np.ndarray]:
    """A baseline of three intervals, and rows in each, at an edge and beyond."""
    edges = np.array([0.0, 1.0, 2.5, 4.0])
    likelihood = lk.Cox(Intervals(edges, np.array([0.5, 0.3, 0.2]), 0.7, 0.5))
    likelihood.steps.assign([0.8, -2.2])
    time = np.array([0.3, 1.0, 1.7, 2.5, 3.9, 4.6])
    return likelihood, np.stack([time, time, [1.0, 0.0, 1.0, 1.0, 0.0, 1.0]], axis=1)


ROWS = 160


def responses(f: np.ndarray | None = None, seed: int = 0) -> dict[str, np.ndarray]:
    """A response for each family, by its name: of predictors, or of a wave along ROWS rows."""
    f = np.sin(6.0 * np.linspace(0.0, 1.0, ROWS)) if f is None else f
    rng, n = np.random.default_rng(seed), len(f)
    noise = rng.normal(size=n)
    mean, share = np.exp(0.5 + f), 1.0 / (1.0 + np.exp(-f))
    counts, scattered = rng.poisson(mean), rng.poisson(mean * rng.gamma(2.0, 0.5, n))
    positive, there = mean * rng.gamma(3.0, 1.0 / 3.0, n), rng.binomial(1, 0.7, n)
    classes = np.digitize(f + rng.logistic(size=n), [-1.0, 1.0])
    beta = np.clip(rng.beta(6.0 * share, 6.0 * (1.0 - share)), 1e-4, 1.0 - 1e-4)
    return {
        "gaussian": f + 0.3 * noise,
        "student_t": f + 0.3 * rng.standard_t(4.0, n),
        "heteroskedastic": f + np.exp(0.5 * f - 1.0) * noise,
        "quantile": f + 0.3 * noise,
        "censored_gaussian": f + 0.3 * noise,
        "gamma": positive,
        "weibull": mean * rng.weibull(1.5, n),
        "lognormal": np.exp(f + 0.3 * noise),
        "tweedie": positive * there,
        "poisson": counts,
        "quasipoisson": scattered,
        "negative_binomial": scattered,
        "zero_inflated_poisson": counts * there,
        "zero_inflated_negative_binomial": scattered * there,
        "hurdle_poisson": counts * there,
        "hurdle_negative_binomial": scattered * there,
        "bernoulli": rng.binomial(1, share),
        "beta": beta,
        "ordinal": classes,
        "categorical": np.array(["a", "b", "c"])[classes],
    }
