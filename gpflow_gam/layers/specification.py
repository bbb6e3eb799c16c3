"""What a head is, apart from its weights: all of it JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from gpflow.base import AnyNDArray
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood

from ..gam import families
from ..gam.components import build_inducing, build_kernel
from ..gam.families import Family
from ..gam.families import family as as_family
from ..gam.fits.mean import OffsetMean
from ..gam.terms import Smooth, Term, Terms, as_terms, terms_from_json
from ..inducing_variables import AdditiveInducingVariables
from ..kernels import AdditiveKernel, ZeroMean
from ..kernels.on_columns import OnColumns
from ..measures import Discrete, Nodes
from .structure import Structure, build_structure

_CLASSES = ("categorical", "ordinal")


@dataclasses.dataclass(frozen=True)
class HeadSpecification:
    """
    Terms and response of an additive head.

    :param terms: on features by index.
    :param family: the response's distribution.
    :param num_classes: of a response of classes.
    :param num_levels: levels of features that are codes.
    :param num_inducing: inducing inputs a smooth.
    :param scale: the predictor's natural size.
    """

    terms: Terms
    family: Family
    num_classes: int | None
    num_levels: tuple[tuple[int, int], ...]
    num_inducing: int | None
    scale: float

    @classmethod
    def of(
        cls,
        terms: Terms | Term | Iterable[Term | Terms],
        likelihood: str | Family | Likelihood,
        num_classes: int | None,
        num_levels: Mapping[int, int] | None,
        num_inducing: int | None,
        scale: float,
    ) -> HeadSpecification:
        """
        The specification that a layer's arguments ask for.

        :raises TypeError, ValueError: naming the argument.
        """
        if isinstance(terms, (list, tuple)) and terms and isinstance(terms[0], dict):
            terms = terms_from_json(list(terms))
        if isinstance(terms, str) or (isinstance(terms, Terms) and len(terms) == 0):
            raise TypeError(f"terms must be terms such as s(0) + te(1, 2); got {terms!r}.")
        terms = as_terms(terms)
        if terms.without:
            raise ValueError(
                f"terms: a layer has an intercept always; got {terms!r}. Leave - 1 out."
            )
        if isinstance(likelihood, Mapping):
            likelihood = families.from_json(likelihood)
        family = as_family(likelihood)
        if family.reads_response:
            raise ValueError(
                f"likelihood={family!r} is settled by all responses before a fit, and a layer sees "
                "batches of them; fit a GAM, or take a family with its own link."
            )
        if family.name in _CLASSES:
            if isinstance(num_classes, bool) or not isinstance(num_classes, int) or num_classes < 2:
                raise ValueError(
                    f"num_classes must be at least 2 for likelihood={family.name!r}; got "
                    f"{num_classes!r}."
                )
        elif num_classes is not None and not (family.name == "bernoulli" and num_classes == 2):
            raise ValueError(
                f"num_classes={num_classes!r} is for a softmax or ordinal likelihood; got "
                f"{family.name!r}."
            )
        if num_inducing is not None and (isinstance(num_inducing, bool) or num_inducing < 1):
            raise ValueError(f"num_inducing must be at least 1; got {num_inducing!r}.")
        if not (np.isfinite(scale) and scale > 0.0):
            raise ValueError(f"scale must be a positive number; got {scale!r}.")
        levels = tuple((int(f), int(k)) for f, k in (num_levels or {}).items())
        return cls(terms, family, num_classes, levels, num_inducing, float(scale))

    def to_json(self) -> dict[str, Any]:
        """
        As JSON can hold it.

        :raises ValueError: a likelihood or kernel object, which no file can hold.
        """
        if self.own_kernels:
            raise ValueError(
                f"{next(iter(self.own_kernels))} has a kernel of your own, which no configuration "
                "can hold: use bs=... to save or clone this layer."
            )
        return {
            "terms": self.terms.to_json(),
            "likelihood": self.family.to_json(),
            "num_classes": self.num_classes,
            "num_levels": {str(f): k for f, k in self.num_levels},
            "num_inducing": self.num_inducing,
            "scale": self.scale,
        }

    @property
    def levels(self) -> tuple[Any, ...] | None:
        """The response's labels, where it has any: codes."""
        if self.family.name in _CLASSES:
            assert self.num_classes is not None
            return tuple(range(self.num_classes))
        return (0, 1) if self.family.name == "bernoulli" else None

    @property
    def num_predictors(self) -> int:
        """L."""
        return self.family.num_predictors(self.levels)

    @property
    def names(self) -> tuple[str, ...]:
        """The L predictors' names, one empty where there is one."""
        return self.family.predictor_names(self.levels)

    def structure(self) -> Structure:
        """The components."""
        return build_structure(self.terms, self.num_inducing, dict(self.num_levels))

    @property
    def own_kernels(self) -> dict[str, Kernel]:
        """The user's, by the labels of their terms."""
        smooths = [term for term in self.terms if isinstance(term, Smooth)]
        return {t.label: t.kernel for t in smooths if t.kernel is not None}

    def build_kernel(self, structure: Structure) -> AdditiveKernel:
        """The prior, its centring measures held in variables."""
        kernel = build_kernel(structure.components, self.scale, self.own_kernels)
        for part in centred(kernel):
            assert isinstance(part.measure, Discrete)
            part.measure = Nodes(part.measure)
        return kernel

    def build_inducing(
        self, structure: Structure, kernel: AdditiveKernel
    ) -> AdditiveInducingVariables:
        """Inducing inputs at standard normal features."""
        return build_inducing(structure.components, kernel, structure.width)

    def build_mean(self) -> OffsetMean:
        """The constant part of the predictor, zero until it is told."""
        return OffsetMean(np.zeros(self.num_predictors), [])

    def build_likelihood(self, y: AnyNDArray | None = None) -> Likelihood:
        """
        The likelihood, its parameters where ``y`` suggests.

        :param y: [N] or [N, K]; without it, responses of the size ``scale``.
        """
        if y is not None:
            return self.family.likelihood(y, self.levels)
        if self.levels is not None:
            return self.family.likelihood(np.array(self.levels, float)[:, None], self.levels)
        if self.family.name == "binomial":
            return self.family.likelihood(np.array([[1.0, 2.0], [1.0, 2.0]]))
        refused = ""
        for neutral in ([-self.scale, self.scale], [0.0, 1.0, 2.0], [0.25, 0.75], [1.0, 2.0]):
            try:
                Y = self.family.encode(np.array(neutral)).Y
            except ValueError as error:
                refused = str(error)
                continue
            return self.family.likelihood(Y)
        raise ValueError(
            f"no response is known that likelihood {self.family.name!r} can produce: {refused}"
        )


def centred(kernel: AdditiveKernel) -> list[ZeroMean]:
    """
    Every zero-mean part of a kernel, in an order that the structure settles.

    A user's own kernels keep the measures they have.
    """
    own = [part.base for part in kernel.submodules if isinstance(part, OnColumns)]
    theirs = {id(part) for base in own for part in (base, *base.submodules)}
    return [
        part for part in kernel.submodules if isinstance(part, ZeroMean) and id(part) not in theirs
    ]
