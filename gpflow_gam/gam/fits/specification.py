"""Specification of a GAM, apart from its parameters' values."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray

from ...errors import NotPositiveDefinite, check_choice
from ...kernels.additive import OffsetMean
from ...models import AdditiveSGPR, AdditiveSVGP, IterNCGP
from ...optimizers import TimeBudget
from ...optimizers.binned.rounds import StartError
from ...storage import RowArray
from ...variational import (
    BlockPrecision,
    CoupledCovariance,
    CoupledPrecision,
    MeanField,
    OptimalPrecision,
    VariationalFamily,
)
from ..components.kernels import PRIORS, VariancePriors
from ..components.plan import Component, shaped_term
from ..families import CensoredGaussian, Family, Gaussian, Heteroskedastic, Levels, StudentT
from ..families.base import Response
from ..families.encoding import Sample, check_events
from ..frames.encoding import Design, Encoder, Fill, NumericColumn
from ..frames.table import Table
from ..terms import Surv, Terms, parse_formula
from ..terms.base import Column, Expression, ResponseSpec, Term, column_of, columns_of, variables_of
from ..terms.parametric import Levels as LevelsTerm
from ..terms.parametric import Linear, Variable

Model = AdditiveSGPR | AdditiveSVGP | IterNCGP

ENGINES = ("variational", "iterncgp")  # methods by which the posterior is found
POSITION = "(position in its series)"
"""Column of X that differs by one between rows whose noise is autoregressive."""
FADING = "(weight by update)"
"""Column of weights of a fit that forgets, where its GAM has none."""

MAX_SITES = 5000
"""Inducing values up to which q is kept dense, as sites: six minutes and five gigabytes at 4200."""
VARIATIONAL: dict[str, type[VariationalFamily]] = {
    "sites": OptimalPrecision,
    "block": BlockPrecision,
    "mean_field": MeanField,
    "covariance": CoupledCovariance,
    "precision": CoupledPrecision,
}
"""Variational families, by their names in ``variational``."""

_TYPED = re.compile(
    r"(?:(?P<parameter>\w+):)?(?P<call>\w*\(.*\)|[^:()=]+)(?::(?P<by>[^=]+)(?:=(?P<level>.+))?)?"
)  # A term as it is typed, or its label: perhaps of a parameter, and perhaps with a column by it


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """A model that is asked for: its terms, family and columns, and how its data are read."""

    terms: Terms  # the terms
    family: Family  # the response's distribution
    response: Column  # the response, or the first column of a censored one
    offset: tuple[Column, ...] = ()  # columns added to the first predictor
    weights: Column | None = None  # how often each row counts
    trials: Column | None = None  # of a binomial response
    ar1: Column | None = None  # time, and series, along which noise is autoregressive
    censoring: Surv | None = None  # the columns of a censored response
    missing: str = "error"  # what becomes of rows that lack a value
    variational: str | None = None  # the family of q(U); None for the one that suits
    engine: str = "variational"  # one of `ENGINES`
    seed: int = 0  # of everything random
    progress: bool | None = None  # whether bars are drawn
    budget: TimeBudget | None = None  # time that reading may take

    @classmethod
    def of(cls, response: ResponseSpec, family: Family, **others: Any) -> Request:
        """With a response as users name it, a column or those of a censored one, and its family."""
        if isinstance(response, Surv):
            others |= {"censoring": response}
            return cls(response=response.columns[0], family=family.censored(), **others)
        return cls(response=response, family=family, **others)

    @property
    def response_spec(self) -> ResponseSpec:
        """The response as users name it."""
        return self.response if self.censoring is None else self.censoring

    @property
    def numeric(self) -> list[tuple[Column, str]]:
        """The columns that become columns of X, and what they are for."""
        weights = [] if self.weights is None else [(self.weights, "the weights")]
        position = [] if self.ar1 is None else [(POSITION, "ar1")]
        return [*((column, "the offset") for column in self.offset), *weights, *position]

    @property
    def counting(self) -> list[Column]:
        """Columns of which zero says that a row does not count: weights and trials."""
        return [column for column in (self.weights, self.trials) if column is not None]

    @property
    def response_columns(self) -> list[Column]:
        """All columns that hold the response, trials last."""
        columns = [self.response] if self.censoring is None else [*self.censoring.columns]
        return columns if self.trials is None else [*columns, self.trials]

    @property
    def complete_columns(self) -> list[Column]:
        """Those of them that no row may lack."""
        columns = [self.response] if self.censoring is None else [*self.censoring.complete]
        return columns if self.trials is None else [*columns, self.trials]

    @property
    def columns_read(self) -> list[Column]:
        """The columns that a fit reads, each once."""
        others = [name for name, _ in self.numeric]
        return variables_of([*columns_of(self.terms), *self.response_columns, *others])

    @property
    def columns_needed(self) -> list[Column]:
        """Those of them that no row may lack."""
        others = [name for name, _ in self.numeric]
        return variables_of([*columns_of(self.terms), *self.complete_columns, *others], lags=True)

    def labels(self, table: Table) -> Levels | None:
        """The labels that a table states for the response, in order; None for those it holds."""
        return self.family.labels_of(table.levels(self.response), table.ordered(self.response))

    def encoded(self, table: Table, levels: Levels | None) -> Response:
        values = table.values(self.response)
        if self.censoring is not None:
            if self.trials is not None:
                raise ValueError("trials: a censored response (Surv) has none; leave trials out.")
            columns = [table.values(name) for name in self.censoring.columns]
            return self.family.encode_censored(columns, self.censoring)
        trials = None
        if self.trials is not None:
            trials = NumericColumn(self.trials, "trials").encode(table)
        return self.family.encode(values, levels, trials=trials, name=str(self.response))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Specification(Request):
    """All that a model is built from, but for the data and the values of its parameters."""

    levels: Levels | None  # the response's labels, where it has any
    encoder: Encoder  # how columns become X
    components: tuple[Component, ...]  # the components, the intercept first where there is one
    scale: float  # the predictor's natural size
    # the null model's predictor, [L]; zero where nothing has a constant
    constant: tuple[float, ...] = ()
    # how far the null model's predictor is from zero where nothing has a constant
    null_offset: float = 0.0
    # the family of q(U), "exact" for the collapsed one; or "iterncgp", the other engine
    variational: str = "exact"
    priors: VariancePriors = PRIORS  # of variances
    # of all rows on each predictor in the null model, [L]; where terms have priors of their own
    information: tuple[float, ...] = ()
    # names of components whose sums over rows are at nodes for rougher functions than usual ones
    refined: tuple[str, ...] = ()
    fills: tuple[Fill, ...] = ()  # what stands in for missing values, with missing="impute"
    design: Design | None = None  # the columns that a formula makes of others

    @property
    def names(self) -> tuple[str, ...]:
        """The components' names, the intercept first where there is one."""
        return tuple(c.name for c in self.components)

    @property
    def effects(self) -> tuple[Component, ...]:
        """The components but for the intercept."""
        return tuple(c for c in self.components if c.form != "constant")

    @property
    def effect_names(self) -> tuple[str, ...]:
        return tuple(c.name for c in self.effects)

    @property
    def intercept(self) -> str | None:
        """The intercept's name; None where there is none."""
        return next((c.name for c in self.components if c.form == "constant"), None)

    def has_constant(self, names: Collection[str]) -> AnyNDArray:
        """True, [L], for predictors whose constant one of some components carries."""
        result = np.zeros(len(self.constant), dtype=bool)
        for c in self.components:
            if c.carries_constant and c.name in names:
                result[c.predictors_of(len(result))] = True
        return result

    @property
    def predictor_names(self) -> tuple[str, ...]:
        """Names of the predictors; one empty name where there is one."""
        return self.family.predictor_names(self.levels)

    @property
    def inputs(self) -> list[Column]:
        """The columns that a prediction reads, by name."""
        return self.inputs_of(self.names)

    def inputs_of(self, names: Collection[str]) -> list[Column]:
        """The columns that some of the components read, and those of offsets."""
        keys = list(self.encoder.columns)
        own = self.encoder.sources(
            keys[i] for c in self.components if c.name in names for i in c.columns
        )
        design = self.design
        if design is not None and set(own) & set(design.made):
            own = [*(name for name in own if name not in design.made), *design.variables]
        return variables_of([*own, *self.offset], lags=True)

    @property
    def dependent(self) -> list[str]:
        """Formula columns that are computed from columns that are read otherwise as well."""
        names = dict.fromkeys(name for name, _ in self.encoder.columns)
        result = [] if self.design is None else [self.design.text]
        for name in names:
            others = variables_of(other for other in names if other != name)
            if isinstance(name, Expression) and set(name.variables) & set(others):
                result.append(str(name))
        return result

    def place(self, column: Column) -> int:
        return self.encoder.index(column, "number")

    def weights_of(self, X: AnyNDArray) -> AnyNDArray | None:
        """The weights of rows of X; None where each counts once."""
        return None if self.weights is None else X[:, self.place(self.weights)]

    def mean_function(self) -> OffsetMean:
        return OffsetMean(np.array(self.constant), [self.place(c) for c in self.offset])

    def component(self, name: str) -> Component:
        """The one component that is asked for by ``name``."""
        if not isinstance(name, str):
            raise TypeError(
                f"an effect is asked for by its name, a string; got {name!r}; there are "
                f"{', '.join(self.effect_names)}."
            )
        result = self.called(name)
        if len(result) > 1:
            names = ", ".join(c.name for c in result)
            raise ValueError(f"{name!r} is several effects, one a level; ask for one of {names}.")
        return result[0]

    def called(self, name: str | Term) -> tuple[Component, ...]:
        """The components that are asked for by a name: one, or those of all levels of a term."""
        # A name that none has exactly is read as a formula has it: s(g, bs="re") and s(g)
        # are random_effect(g), where no other term is of the same columns.
        label = name.label if isinstance(name, Term) else name
        result = [c for c in self.components if c.name == label]
        result = result or [c for c in self.effects if c.term == label]
        result = result or self._typed(name)
        if not result:
            every, meant = ", ".join(self.effect_names), self._meant(label)
            raise ValueError(f"there is no effect {label!r}; there are {every}.{meant}")
        return tuple(result)

    def _typed(self, name: str | Term) -> list[Component]:
        """The components of the only term of the same columns as ``name``; none otherwise."""
        asked, parameter, by, level = name, None, None, None
        if isinstance(name, str):
            parts = _TYPED.fullmatch(_plain(name))
            if parts is None:
                return []
            try:
                (asked,) = parse_formula(parts["call"]).terms
            except (TypeError, ValueError):  # no term
                return []
            parameter, by, level = parts["parameter"], parts["by"], parts["level"]
        assert isinstance(asked, Term)
        key, parameter = _columns(asked, by), parameter or asked.parameter
        alike = [t for t in self.terms if _columns(t) == key]
        alike = [t for t in alike if parameter in ("", t.parameter)]
        if isinstance(asked, Variable):  # a column that stands alone is a line or a factor
            alike = [t for t in alike if isinstance(t, (Linear, LevelsTerm))]
        own = [t for t in alike if t.function == asked.function] or alike
        if len(own) != 1:
            return []
        result = [c for c in self.effects if c.term == own[0].label]
        if level:  # without its spaces, as here
            result = [c for c in result if c.by is not None and _plain(c.by.level) == level]
        return result

    def _meant(self, name: str) -> str:
        """A question after an effect of that column or, in short, of that name; or nothing."""
        names = self.effect_names
        keys = list(self.encoder.columns)
        reads = {c.name: {str(keys[i][0]) for i in c.columns} for c in self.effects}
        result = [n for n in names if reads[n] == {name}] or [n for n in names if name in reads[n]]
        result = result or [n for n in names if n.startswith(f"{name}:")]
        result = result or [n for n in names if len(name) > 1 and name in n]
        result = result or difflib.get_close_matches(name, names, n=1)
        return f" Did you mean {result[0]!r}?" if result else ""

    def term(self, label: str) -> Term:
        return next(t for t in self.terms if t.label == label)


def _columns(term: Term, by: str | None = None) -> tuple[frozenset[str], str]:
    """Columns and ``by`` of a term as text without spaces, ``by`` empty for none."""
    other = column_of(term.by) if by is None and term.by is not None else by or ""
    return frozenset(_plain(c) for c in term.columns), _plain(other)


def _plain(name: Column) -> str:
    """Without spaces."""
    return re.sub(r"\s", "", str(name))


def choose_variational(request: Request, components: Sequence[Component]) -> str:
    """The family of q(U): collapsed for Gaussian data, sites up to 5000 values, block precision."""
    size = sum(len(c.inducing) for c in components)
    asked, engine, shaped = request.variational, request.engine, shaped_term(components)
    if engine == "iterncgp":
        if asked is not None:
            raise ValueError(
                f"variational={asked!r} is of engine='variational'; leave one of the two out."
            )
        return engine
    if asked == "exact" and not request.family.conjugate:
        raise ValueError("variational='exact' is for family='gaussian'; use 'sites'.")
    if asked is not None:
        return asked
    if request.family.conjugate:
        return "exact"
    if shaped and size > MAX_SITES:
        raise ValueError(
            f"{shaped} has a shape, for which q is kept dense: {size} inducing values are more "
            f"than {MAX_SITES}; give terms a smaller k, or leave shape out."
        )
    return "sites" if size <= MAX_SITES else "block"


# --- checks of a fit's options --------------------------------------------------------------------


OPTIONS = (
    "max_iterations", "tolerance", "max_seconds", "callback", "progress", "on_interrupt",
    "criterion", "groups", "checkpoint", "batch_size", "learning_rate", "rho", "patience",
    "hyperparameters", "max_sweeps", "max_rounds",
)  # fmt: skip
"""Options of ``GAM.fit``; which of them a fit uses depends on its engine and q(U)."""
_OF_GAM = (
    "family", "intercept", "offset", "weights", "trials", "ar1", "missing", "engine",
    "variational", "seed",
)  # fmt: skip
_ELSEWHERE = {
    **dict.fromkeys(("sample_weight", "sample_weights", "weight"), "weights"),
    **dict.fromkeys(("exposure", "offsets"), "offset"),
    "random_state": "seed",
}  # names of GAM's arguments in other packages


def check_names(options: Iterable[str]) -> None:
    """Refuse options of ``GAM.fit`` that there are not, before any data are read."""
    for name in options:
        if name in OPTIONS:
            continue
        own = _ELSEWHERE.get(name, name)
        if own in _OF_GAM:
            raise TypeError(
                f"fit() has no option {name!r}: it belongs to the model; give GAM(...) {own}=, "
                "then fit."
            )
        near = difflib.get_close_matches(name, OPTIONS, 1)
        guess = f"is it {near[0]!r}? It" if near else "it"
        raise TypeError(f"fit() has no option {name!r}; {guess} takes {', '.join(OPTIONS)}.")


CRITERIA = ("elbo", "ncv")  # values of criterion
_LACKED = {
    "ar1": "has no evidence at sums over rows, from which it is learnt",
    "checkpoint": "writes none",
    "criterion='ncv'": "does not keep rows' sites, which it divides out",
    "posterior='mcmc'": "does not have the evidence at sums over rows, which it draws from",
}
"""Arguments that ask something of a fit, and what one by another method lacks for them."""


def check_together(request: Request, options: Mapping[str, Any], posterior: str) -> None:
    """Raise ValueError if an argument is unknown, or is there beside one that it does not suit."""
    criterion = options.get("criterion", "elbo")
    check_choice("criterion", criterion, CRITERIA)
    check_choice("posterior", posterior, ("laplace", "mcmc"))
    if criterion == "elbo" and options.get("groups") is not None:
        raise ValueError(
            "groups: the ELBO leaves no rows out; add criterion='ncv', or leave groups out."
        )
    stated = next((t.label for t in request.terms if t.edf is not None), None)
    if criterion == "ncv" and stated:
        raise ValueError(
            f"criterion='ncv' chooses the smoothness that edf= of {stated} states; leave one of "
            "the two out."
        )
    if request.ar1 is not None and not request.family.conjugate:
        raise ValueError(
            f"ar1 is of the noise of family='gaussian' with its identity link; got "
            f"{request.family!r}. Add s(time, bs='ou'), a function that forgets."
        )
    reason, rows = (needs_all_rows(request, options, c) for c in (True, False))
    shaped = next((t.label for t in request.terms if getattr(t, "shape", None)), "")
    if shaped and (method := needs_all_rows(request, {})):
        raise ValueError(
            f"{shaped} has a shape, which a fit with {method} does not hold to; leave "
            f"{method.partition('=')[0]} out."
        )
    sites = "variational='sites'" if request.variational == "sites" else ""
    check_has("ar1", request.ar1 is not None and (reason or sites))
    check_has("checkpoint", options.get("checkpoint") is not None and reason)
    check_has("criterion='ncv'", criterion == "ncv" and rows)
    shape = f"a shape of {shaped}" if shaped else ""
    check_has("posterior='mcmc'", posterior == "mcmc" and (reason or shape))


def check_has(argument: str, reason: str | bool) -> None:
    """Raise ValueError if there is a reason for which a fit lacks what an argument asks."""
    if reason:
        raise ValueError(
            f"{argument}: a fit with {reason} {_LACKED[argument]}; leave one of the two out."
        )


def needs_all_rows(request: Request, options: Mapping[str, Any], criterion: bool = True) -> str:
    """The argument that sums over rows do not serve; empty where there is none."""
    variational = request.variational
    if request.engine != "variational":
        return f"engine={request.engine!r}"
    if criterion and options.get("criterion", "elbo") != "elbo":
        return f"criterion={options['criterion']!r}"
    if options.get("batch_size") is not None:
        return f"batch_size={options['batch_size']!r}"
    if variational in VARIATIONAL and variational != "sites":
        return f"variational={variational!r}"
    return ""


def with_positions(request: Request, source: Any) -> Any:
    """The table with the positions of rows in their series, which ``ar1`` needs."""
    if request.ar1 is None:
        return source
    if not isinstance(source, Table):
        raise ValueError("ar1: rows that are read in blocks have no neighbours; pass one table.")
    time, _, series = (part.strip() for part in str(request.ar1).partition("|"))
    whole = request.ar1 if not series else source.name(time)
    return source.beside({POSITION: source.positions(whole, series or None)})


def too_many(remedy: str) -> str:
    """The message of terms for which q(U) would need all rows as numbers."""
    return (
        f"the terms have more than {MAX_SITES} inducing values in all, for which "
        f"variational='block' {remedy} Or give the terms a smaller k."
    )


# --- numbers -------------------------------------------------------------------------------------


LEAST, GREATEST = 1e-70, 1e70
"""Sizes of a response whose variance has a square that is neither zero nor infinite."""
_RESOLVED = 1e-10  # against its size, what a response has to vary by to be more than rounding
_FAR = 1e3  # distances from the median, against half of the values' range, that are worth a word
_BROKEN = (
    StartError,
    NotPositiveDefinite,
    np.linalg.LinAlgError,
    tf.errors.InvalidArgumentError,
    OverflowError,
    FloatingPointError,
)  # exceptions that linear algebra raises on such numbers


def check_response(request: Request, Y: RowArray) -> None:
    """Check that there is something in a response that double precision can tell."""
    family, name = request.family, request.response
    if family.labelled:
        return
    if request.censoring is not None:
        check_events(Y, request.censoring)
    with np.errstate(over="ignore", invalid="ignore"):
        _, variance, largest = Sample(Y).moments
    if not largest < GREATEST:
        raise ValueError(
            f"the response {name!r} reaches {largest:g}, whose powers overflow; divide it by a "
            "power of ten."
        )
    if not isinstance(family, (Gaussian, StudentT, Heteroskedastic, CensoredGaussian)):
        return
    sd = float(np.sqrt(variance))
    if sd < LEAST:
        raise ValueError(
            f"the response {name!r} varies by less than {LEAST:g}, whose powers underflow; "
            "multiply it by a power of ten."
        )
    if sd < _RESOLVED * largest:
        raise ValueError(
            f"the response {name!r} varies by {sd:g} around {largest:g}, which is near to rounding "
            "errors; subtract its mean."
        )


@contextlib.contextmanager
def explained(spec: Specification, X: AnyNDArray, Y: AnyNDArray) -> Iterator[None]:
    """Says of numbers on which linear algebra breaks down which column they are in."""
    try:
        yield
    except _BROKEN as error:
        why = "double precision does not suffice for these numbers"
        raise ValueError(f"{why}: {_farthest(spec, X, Y)}") from error


def _farthest(spec: Specification, X: AnyNDArray, Y: AnyNDArray) -> str:
    """Description of the column with the value farthest from its others, and of what to do."""
    columns: list[tuple[str, AnyNDArray]] = [(f"the response {spec.response!r}", Y[:, 0])]
    for i, (name, kind) in enumerate(spec.encoder.columns):
        if kind == "number":
            columns.append((f"column {name!r}", X[:, i]))
    worst, text = _FAR, ""
    for what, values in columns:
        low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
        distance = np.abs(values - middle)
        row = int(np.argmax(distance))
        spread = high - low if high > low else float(np.std(np.delete(values, row)))
        if distance[row] > worst * spread:
            worst = float(distance[row] / spread) if spread > 0.0 else np.inf
            text = (
                f"{what} has {values[row]:g} in row {row}, while half of its values are between "
                f"{low:g} and {high:g}; leave such rows out, or transform the column (to ranks, "
                "for instance)."
            )
    if text:
        return text
    listed = ", ".join(f"{what} from {v.min():g} to {v.max():g}" for what, v in columns)
    return f"standardise them, and look for extreme values ({listed})."
