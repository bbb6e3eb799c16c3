"""What a GAM asks of the distribution of its response."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.config import default_float
from gpflow.likelihoods import Likelihood
from gpflow.utilities import parameter_dict

from ...likelihoods import MeanLink, Quasi, unwrapped
from ...storage import RowArray
from ..terms import Surv
from ..terms.base import Level
from .encoding import Observed

Levels = tuple[Level, ...]
"""The labels of a response, in the order of their codes."""
L = TypeVar("L")


_SYNONYMS = ("mean", "location", "mu"), ("scale", "dispersion", "sd", "sigma")
"""Of the first and the second parameter of a family."""


class Response(NamedTuple):
    """A response column as a likelihood takes it."""

    Y: AnyNDArray
    """Float64 [N, K]."""

    levels: Levels | None
    """The labels that Y's codes stand for, where it holds codes."""


@dataclasses.dataclass(frozen=True)
class Family(abc.ABC):
    """
    A response distribution: how to encode a column, fit it, and judge a fit.

    Families are values: equal options make equal families, and all state that is learned is in
    the likelihood. Arrays are numpy's. A predictor F is [..., L] with L = ``num_predictors``;
    ``likelihood`` is what :meth:`likelihood` built, with or without weights around it.
    """

    name: ClassVar[str]
    labelled: ClassVar[bool] = False
    """Whether Y holds codes of labels."""
    discrete: ClassVar[bool] = False
    """Whether responses have probabilities, and not densities."""
    log_link: ClassVar[bool] = False
    """Whether the mean of the response is the exponential of the first predictor, or a share."""
    own_constant: ClassVar[str] = ""
    """What takes the intercept's place, where the family itself has it and needs one beside it."""
    modelled: ClassVar[tuple[str, ...]] = ("mean",)
    """What may have terms: a predictor each, but for those that may be constants."""
    of_first: ClassVar[bool] = False
    """Whether terms that are given for no parameter are of the first predictor alone."""
    calibrated: ClassVar[bool] = False
    """Whether its dispersion is no parameter of a likelihood, and is found by several fits."""
    needs_trials: ClassVar[bool] = False
    """Whether there must be trials, or what stands for them."""
    takes_offset: ClassVar[bool] = True
    """Whether offsets are in the unit in which the model has its first predictor."""

    @property
    def heavy_tailed(self) -> bool:
        """Whether expected responses have a heavy tail where the predictor is uncertain."""
        return self.log_link

    def to_json(self) -> dict[str, Any]:
        """The name and the options, as JSON takes them; ``from_json`` reads them."""
        options = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        lists = {k: list(v) if isinstance(v, tuple) else v for k, v in options.items()}
        return {"name": self.name, **lists}

    def encode(
        self,
        y: AnyNDArray,
        levels: Levels | None = None,
        *,
        trials: AnyNDArray | None = None,
        name: str = "y",
    ) -> Response:
        """
        The response as the likelihood takes it.

        :param y: [N], numbers, booleans or strings.
        :param levels: the labels learned when the model was fitted; None learns them.
        :param trials: [N], for binomial responses only.
        :param name: what to call the column in messages.
        :raises ValueError: values that the family cannot produce, naming column, value and row.
        """
        if trials is not None:
            raise ValueError(f"trials: family {self.name!r} takes none; leave the argument out.")
        return self._encode(y, levels, name)

    def labels_of(self, categories: Levels | None, ordered: bool) -> Levels | None:
        """
        The labels that a column states, in the order of their codes; None for those that it holds.

        :param categories: of the column; None where it is not categorical.
        :param ordered: whether these are ordered.
        """
        return categories

    @abc.abstractmethod
    def _encode(self, y: AnyNDArray, levels: Levels | None, name: str) -> Response:
        """As :meth:`encode`, for responses without trials."""

    def censored(self) -> Family:
        """
        The family of a response that is a :class:`~gpflow_gam.gam.terms.Surv`.

        :raises ValueError: there is none.
        """
        raise ValueError(
            f"y: family {self.name!r} takes no censored responses (Surv); take 'weibull', "
            "'lognormal' or 'gaussian'."
        )

    def encode_censored(self, first: AnyNDArray, second: AnyNDArray, stated: Surv) -> Response:
        """
        A censored response as the likelihood takes it, [N, 3].

        :param first: the first column of a ``Surv``, [N].
        :param second: the second one, [N].
        :param stated: what they are.
        :raises ValueError: values that the family cannot produce, naming column, value and row.
        """
        self.censored()
        raise AssertionError(f"family {self.name!r} is not that of censored responses")

    @abc.abstractmethod
    def likelihood(
        self, Y: Observed, levels: Levels | None = None, weights: RowArray | None = None
    ) -> Likelihood:
        """
        A fresh likelihood whose parameters begin where Y suggests.

        :param Y: [N, K], as :meth:`encode` gives it, or stored so that slices of rows can be read;
            or what families ask of it.
        :param levels: of the response; None where it has none.
        :param weights: how often each row counts, [N]. Lower ends of parameters, which no file
            holds, are those of rows that count once.
        """

    def num_predictors(self, levels: Levels | None = None) -> int:
        """
        L, the number of latent outputs.

        :param levels: of the response; None where it has none.
        """
        return 1

    def for_parameters(self, names: Sequence[str]) -> tuple[Family, tuple[str, ...]]:
        """
        The family in which these parameters have terms of their own, and what it calls them.

        :param names: as users call them; of the first alone it is the family itself.
        :raises ValueError: a parameter that it does not have.
        """
        if not names:
            raise ValueError("terms: the mapping is empty; give terms of at least one parameter.")
        own = tuple(self._parameter(name) for name in names)
        if len(set(own)) < len(own):
            raise ValueError(f"terms: {', '.join(map(repr, names))} name one parameter twice.")
        return (self.of_all() if own != (self.modelled[0],) else self), own

    def _parameter(self, name: str) -> str:
        """
        What the family calls a parameter.

        :raises ValueError: it has no such parameter.
        """
        for own, others in zip(self.modelled, _SYNONYMS):
            if name == own or name in others:
                return own
        raise ValueError(
            f"terms: family {self.name!r} has no parameter {name!r} that could have terms; it has "
            f"{', '.join(map(repr, self.modelled))}."
        )

    def of_all(self) -> Family:
        """The family in which every one of :attr:`modelled` has a predictor."""
        return self

    def parameter_names(self, levels: Levels | None = None) -> tuple[str, ...]:
        """
        What terms of each predictor are called after, L names.

        :param levels: of the response; None where it has none.
        """
        return self.modelled[: self.num_predictors(levels)]

    def predictor_names(self, levels: Levels | None = None) -> tuple[str, ...]:
        """
        L names; the empty one where there is a single predictor.

        :param levels: of the response; None where it has none.
        """
        return ("",) * self.num_predictors(levels)

    def parameters(self, likelihood: Likelihood, levels: Levels | None) -> dict[str, float]:
        """
        What the likelihood has learnt, by name; numbers that summaries show.

        :param likelihood: of the fit.
        :param levels: of the response; None where it has none.
        """
        found = {}
        for path, parameter in parameter_dict(unwrapped(likelihood)).items():
            value = np.asarray(parameter)
            name = path.removeprefix(".base").removeprefix(".base").lstrip(".")
            if value.ndim == 0 and name != "unit":  # which is the data's
                found[name] = float(value)
        return found

    def axes(self, response: str) -> tuple[str, ...]:
        """
        What predictors that are no two of a kind measure, [L] labels; empty for others.

        :param response: what the response is called.
        """
        return ()

    def units(self, likelihood: Likelihood) -> tuple[AnyNDArray, AnyNDArray]:
        """
        Factors and shifts that take the model's predictors to the response's unit.

        Predictions, effects and draws of them are in the response's unit; ``gam.model`` is not.
        [L] each, or [1] where all predictors have the same.

        :param likelihood: of the fit.
        """
        return np.ones(1), np.zeros(1)

    def scale(self, Y: RowArray, weights: RowArray | None = None) -> float:
        """
        The natural size of a predictor: 1 behind a link.

        :param Y: [N, K], as for :meth:`likelihood`.
        :param weights: how often each row counts, [N].
        """
        return 1.0

    def null(
        self, Y: AnyNDArray, offset: AnyNDArray, weights: AnyNDArray | None
    ) -> AnyNDArray | None:
        """
        The constant predictor [L] that explains the response best; None without a closed form.

        :param Y: [N, K].
        :param offset: added to the first predictor, [N].
        :param weights: how often each row counts, [N].
        """
        return None

    @abc.abstractmethod
    def mean(self, likelihood: Likelihood, F: AnyNDArray) -> AnyNDArray:
        """
        E[y | F], [...]; class probabilities [..., C]; of a binomial the probability [...].

        :param likelihood: of the fit.
        :param F: predictors, [..., L].
        """

    def observed(self, Y: AnyNDArray) -> AnyNDArray:
        """
        The response [N] in the unit of :meth:`mean`; NaN in rows of which it is not known.

        :param Y: [N, K].
        """
        return first(Y)

    @abc.abstractmethod
    def deviance(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> AnyNDArray | None:
        """
        ``2 (log p(y | saturated) - log p(y | F))``, [N], or None where there is no saturated model.

        Dispersion parameters are those of ``likelihood`` in both terms: these are scaled deviances
        (McCullagh & Nelder 1989, section 2.3). Weights are left out.

        :param likelihood: of the fit.
        :param Y: [N, K].
        :param F: [N, L].
        """

    def null_predictor(self, null: AnyNDArray, F: AnyNDArray) -> AnyNDArray:
        """
        The predictor [N, L] of the null model that a fit's deviance is compared with.

        :param null: of the constant that explains the response best, [N, L].
        :param F: of the fit, from which predictors of dispersion are taken, [N, L].
        """
        return null

    @property
    def reads_response(self) -> bool:
        """Whether all responses settle what is not learnt of the likelihood later on."""
        return self.calibrated

    @property
    def own_link(self) -> bool:
        """Whether the likelihood is the family's own, with no other link around it."""
        return True

    @property
    def begins(self) -> Family | None:
        """The family of a first fit, from which this one's goes on; None for none."""
        return None

    @property
    def conjugate(self) -> bool:
        """Whether q is known in closed form: the response is normal around its predictor."""
        return False

    @property
    def overdispersed(self) -> str:
        """
        What to do where responses scatter more than the family allows.

        Empty where it learns how much they do, or where one response a row does not show it.
        """
        return ""

    def pearson(
        self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray
    ) -> tuple[AnyNDArray, AnyNDArray] | None:
        """
        Squared Pearson residuals ``(y - mu)^2 / V(mu)`` and their variances under the family.

        The variance is ``2 + kurtosis``, of the family's excess kurtosis; the mean is one
        (McCullagh & Nelder 1989, section 4.5.2). [N] each, NaN in rows that say nothing of
        dispersion; None for families whose variance is no function of the mean. Of a family that
        is :attr:`calibrated` the second is what the first comes to on average.

        :param likelihood: of the fit.
        :param Y: [N, K].
        :param F: [N, L].
        """
        return None

    def log_density(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> AnyNDArray:
        """
        Log p(y | F), [...], without weights.

        :param likelihood: of the fit.
        :param Y: [N, K].
        :param F: [..., N, L].
        """
        X, F = tensors(F)
        Y = tf.constant(Y, dtype=default_float())
        return np.asarray(unwrapped(likelihood).log_prob(X, F, Y), dtype=np.float64)

    @abc.abstractmethod
    def cdf(
        self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray
    ) -> tuple[AnyNDArray, AnyNDArray] | None:
        """
        P(y' < y | F) and P(y' <= y | F), each [N]; None for classes without an order.

        A uniform draw between the two is a randomised quantile residual on the uniform scale (Dunn
        & Smyth 1996).

        :param likelihood: of the fit.
        :param Y: [N, K].
        :param F: [N, L].
        """

    @abc.abstractmethod
    def sample(
        self,
        likelihood: Likelihood,
        F: AnyNDArray,
        rng: np.random.Generator,
        trials: AnyNDArray | None = None,
    ) -> AnyNDArray:
        """
        One response a row of F, [...]: codes where there are levels, counts of successes.

        :param likelihood: of the fit.
        :param F: predictors, [..., L].
        :param rng: where draws come from.
        :param trials: how many each row has, [N]: binomial responses need them, others do not.
        """


def own(likelihood: Likelihood, kind: type[L]) -> L:
    """
    The family's own likelihood, taken out of its weights and its link.

    :raises TypeError: it is another family's.
    """
    base = unwrapped(likelihood)
    for around in (Quasi, MeanLink):
        if isinstance(base, around) and kind is not around:
            base = base.base
    if not isinstance(base, kind):
        raise TypeError(
            f"likelihood must be the {kind.__name__} that the family builds; got "
            f"{type(base).__name__}."
        )
    return base


def tensors(F: AnyNDArray) -> tuple[tf.Tensor, tf.Tensor]:
    """Inputs X [..., 1], which no unweighted likelihood reads, and F [..., L], for GPflow."""
    F = np.asarray(F)
    X = tf.zeros((*F.shape[:-1], 1), dtype=default_float())
    return X, tf.constant(F, dtype=default_float())


def number(parameter: Any) -> float:
    """The value of a scalar parameter."""
    return float(tf.convert_to_tensor(parameter))


def single(Y: AnyNDArray, F: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray]:
    """The one column of Y, and the one predictor: [N] and [..., N]."""
    return first(Y), first(F)


def first(F: AnyNDArray) -> AnyNDArray:
    """The first column, [...], in double precision."""
    return np.asarray(F, dtype=np.float64)[..., 0]
