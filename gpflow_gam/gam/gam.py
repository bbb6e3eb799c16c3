"""The front door: formula and data in, a fitted, readable model out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pandas as pd
from gpflow.base import AnyNDArray
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood

from ..measures import Measure
from ..posteriors import SparseAdditivePosterior
from ..statistics import Exchange
from . import effects as _effects
from . import saving
from .checks import check_fit
from .effects import EffectTable, Transform, averaged_log_density
from .families import Family, Level
from .families import family as as_family
from .fits import (
    ENGINES,
    FAMILIES,
    FittedGAM,
    Roles,
    SharedFit,
    blockwise,
    fit_share,
    fit_source,
    prediction,
)
from .fits.build import Model
from .fits.response import with_response
from .summaries import Summary, concurvity, summarise
from .terms import Column, Term, Terms, parse_formula

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class NotFittedError(ValueError, AttributeError):
    """The GAM has not seen data yet."""


class GAM:
    """
    A generalized additive model whose functions have Gaussian-process priors.

    The predictor ``rho(x) = constant + sum_c f_c(x)`` (and offsets) sets the mean of the response
    through the family's link. Smoothness, variances and the family's own parameters are learnt by
    the evidence lower bound; components average to zero over the data, so that each is identified.

    :param terms: terms added up (``s("x") + factor("g")``), one term, or a formula
        (``"y ~ s(x) + factor(g)"``).
    :param family: a name (``"gaussian"``, ``"poisson"``, ...: see :mod:`gpflow_gam.gam.families`),
        a family, or any GPflow likelihood.
    :param offset: column(s) added to the predictor; under a log link the logarithm of exposure.
    :param weights: column of weights: how often a row counts.
    :param trials: column of trials, for ``family="binomial"``.
    :param missing: what to do with rows that lack a value: ``"error"``, ``"drop"``, or
        ``"impute"``: the median of a column of numbers and the most frequent level of others stand
        in for what terms lack, also in new data. The response, offsets and weights are never
        imputed.
    :param engine: the inference engine: ``"variational"``, or ``"iterncgp"``, Laplace's posterior
        by :class:`~gpflow_gam.models.IterNCGP`, for likelihoods that are log-concave.
    :param variational: the family of q(U): ``"exact"`` (Gaussian data), ``"sites"``, ``"block"``,
        ``"mean_field"``, ``"covariance"``, ``"precision"``; None takes ``"exact"`` or ``"sites"``,
        and ``"block"`` beyond 4000 inducing values.
    :param seed: of everything random.
    :raises TypeError, ValueError: naming the argument.
    """

    def __init__(
        self,
        terms: Terms | Term | str,
        family: str | Family | Likelihood = "gaussian",
        *,
        offset: Column | Iterable[Column] | None = None,
        weights: Column | None = None,
        trials: Column | None = None,
        missing: str = "error",
        engine: str = "variational",
        variational: str | None = None,
        seed: int = 0,
    ) -> None:
        self._response: Column | None = None
        offsets = _columns("offset", offset)
        if isinstance(terms, str):
            formula = parse_formula(terms)
            terms, self._response = formula.terms, formula.response
            offsets += formula.offset
        elif isinstance(terms, Term):
            terms = Terms((terms,))
        if not isinstance(terms, Terms):
            raise TypeError(
                "terms must be terms such as s('x') + factor('g'), or a formula such as "
                f"'y ~ s(x)'; got {type(terms).__name__}."
            )
        if missing not in ("error", "drop", "impute"):
            raise ValueError(f"missing must be 'error', 'drop' or 'impute'; got {missing!r}.")
        if engine not in ENGINES:
            raise ValueError(f"engine must be one of {', '.join(ENGINES)}; got {engine!r}.")
        if variational is not None and variational not in ("exact", *FAMILIES):
            raise ValueError(
                f"variational must be one of exact, {', '.join(FAMILIES)}; got {variational!r}."
            )
        self.terms = terms
        self.family = as_family(family)
        self.offset = tuple(dict.fromkeys(offsets))
        if self.offset and not self.family.takes_offset:
            raise ValueError(
                f"offset: family {self.family.name!r} takes none, as it measures its mean in "
                "standard deviations of the response; subtract the offset from the response, "
                "which is the same model."
            )
        self.weights = weights
        self.trials = trials
        self.missing = missing
        self.engine = engine
        self.variational = variational
        self.seed = seed
        self._fit: FittedGAM | None = None

    def __repr__(self) -> str:
        state = "fitted" if self.is_fitted else "not fitted"
        return f"GAM({self.terms!r}, family={self.family.name!r}) [{state}]"

    # --- fitting -----------------------------------------------------------------------------

    def fit(self, data: Any, y: Any = None, **options: Any) -> GAM:
        """
        Fit to data.

        Up to 65 536 rows are held in memory as numbers. Of more rows, in memory or in files, two
        passes are made over blocks of them, and what stays in memory is: of each row a code of one
        or two bytes for every column (or pair, or triple, of columns) that a term is a function
        of; the response, offset, weights and numbers of ``by=``, in the narrowest of 1 to 8 bytes
        that holds them exactly; and an even sample of at most 65 536 rows, which plots of data
        show and :attr:`FittedGAM.X <gpflow_gam.gam.fits.FittedGAM>` holds. Then the fit, deviances
        and indices are of all rows. ``batch_size``, ``engine="iterncgp"`` and a ``variational``
        beside ``"exact"`` and ``"sites"`` need all rows as numbers, and so a table in memory.

        :param data: a DataFrame (pandas or polars), an Arrow table, a dict of columns, or a matrix
            [N, D] (columns 0, 1, ...). Data larger than memory: the path of a Parquet file or of a
            folder of them, or a list of files; a ``pyarrow.dataset.Dataset``; a list of tables, or
            any object whose ``__iter__`` gives tables one after the other, anew each time.
        :param y: the response: the name of a column, or N values of a table in memory. A formula
            may name it instead.
        :param options: of :func:`gpflow_gam.optimizers.fit`: ``max_iterations``, ``batch_size``,
            ``tolerance``, ``max_seconds``, ``callback``, ``progress``, ``on_interrupt``, ...; with
            ``engine="iterncgp"`` ``max_sweeps``, ``max_seconds``, ``hyperparameters`` and
            ``progress``. The time of ``max_seconds`` is that of this call, reading included.
        :return: itself.
        :raises ValueError: data that the model cannot be fitted to: one sentence that says why. A
            GAM that was fitted before stays as it was, as it does after any error.
        :raises TypeError: data that are none of these, or can be read only once.
        :raises TimeoutError: ``max_seconds`` were used up while data were read, before there was
            anything to keep.
        :raises KeyboardInterrupt: Ctrl-C, unless ``on_interrupt="keep"`` and there is something to
            keep.
        """
        source, response = with_response(data, y, self._response)
        roles = Roles(response, self.offset, self.weights, self.trials)
        self._fit = fit_source(
            self.terms,
            self.family,
            roles,
            source,
            missing=self.missing,
            variational=self.variational,
            engine=self.engine,
            seed=self.seed,
            **options,
        )
        check_fit(self._fit)
        return self

    def fit_share(
        self, data: Callable[[], Any], y: Any = None, *, exchange: Exchange, **options: Any
    ) -> GAM:
        """
        Fit to rows of which several processes hold a share each, all of which call this.

        :func:`gpflow_gam.distribute.fit` makes ``exchange`` from a strategy.

        :param data: gives this process's share, as :meth:`fit` takes it.
        :param y: the response, as for :meth:`fit`.
        :param exchange: with the other processes.
        :param options: as for :meth:`fit`.
        :return: itself.
        :raises ValueError, TypeError: as :meth:`fit`, on all processes where it is of one.
        """
        self._fit = fit_share(
            self.terms,
            self.family,
            lambda: with_response(data(), y, self._response),
            exchange,
            offset=self.offset,
            weights=self.weights,
            trials=self.trials,
            missing=self.missing,
            variational=self.variational,
            engine=self.engine,
            seed=self.seed,
            **options,
        )
        check_fit(self._fit)
        return self

    @property
    def is_fitted(self) -> bool:
        """Whether :meth:`fit` has been called."""
        return self._fit is not None

    @property
    def fitted(self) -> FittedGAM:
        """
        The outcome of the fit.

        :raises NotFittedError: there is none.
        """
        if self._fit is None:
            raise NotFittedError("the GAM is not fitted yet; call fit(data, y) first.")
        return self._fit

    @property
    def model(self) -> Model:
        """The GPflow model inside."""
        return self.fitted.trained

    @property
    def posterior(self) -> SparseAdditivePosterior:
        """Its posterior: ``predict_f``, ``predict_components``, joint draws."""
        return self.fitted.posterior

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the effects."""
        return self.fitted.spec.names[1:]

    # --- predictions -------------------------------------------------------------------------

    def predict(
        self,
        data: Any,
        type: prediction.PredictionType = "response",
        *,
        interval: float | None = None,
        se: bool = False,
        unconditional: bool = True,
    ) -> Any:
        """
        Predict at new rows.

        - ``"response"``: the expected response (class probabilities [N, K] for classes), its
          posterior mean;
        - ``"link"``: the predictor, offsets included;
        - ``"terms"``: a DataFrame with the contribution of each component to the predictor, whose
          sum with the model's constant and the offsets is the predictor;
        - ``"observation"``: a new response, with the family's noise;
        - ``"class"``: the most probable class.

        :param data: as in :meth:`fit`; the response is not needed. Files, and tables one after
            the other, are read in blocks: memory holds the result, and a block.
        :param type: what to predict.
        :param interval: a probability; adds equal-tailed credible limits.
        :param se: adds posterior standard deviations.
        :param unconditional: whether standard errors and limits allow for uncertain
            hyperparameters, as those of :meth:`effects`, which takes some seconds the first time;
            of other families of q(U) than ``"exact"`` and ``"sites"`` nothing is known of them.
            Estimates are at the fitted ones either way.
        :return: an array; with ``se`` a pair (estimate, se); with ``interval`` a DataFrame with
            columns ``estimate``, ``se``, ``lower`` and ``upper``. With ``missing="drop"`` rows that
            lack a value are NaN (None among classes), as in :meth:`sample` and
            :meth:`log_density`.
        :raises ValueError: naming the argument or column.
        """
        fit, uncertain = self.fitted, None
        if unconditional and (se or interval is not None):
            uncertain = _effects.averaged(fit)
        return blockwise.predict_source(
            fit,
            data,
            type,
            interval=interval,
            se=se,
            seed=self.seed,
            drop=self.missing == "drop",
            uncertain=uncertain,
        )

    def sample(
        self,
        data: Any,
        num_samples: int = 100,
        type: Literal["response", "link", "observation"] = "response",
        *,
        seed: int | None = None,
    ) -> AnyNDArray:
        """
        Draws from the posterior: whole functions at all rows, not row by row.

        :param data: new rows.
        :param num_samples: S.
        :param type: the expected response, the predictor, or new responses.
        :param seed: makes draws reproducible; the GAM's own by default.
        :return: [S, N], [S, N, L] for L predictors, [S, N, K] for class probabilities.
        """
        seed = self.seed if seed is None else seed
        drop = self.missing == "drop"
        return blockwise.sample(self.fitted, data, num_samples, type, seed, drop)

    def log_density(self, data: Any, *, unconditional: bool = False) -> AnyNDArray:
        """
        Log predictive density of each row's response, [N]: the score of held-out data.

        :param data: rows with the response's column.
        :param unconditional: whether to average the density over uncertain hyperparameters, as
            :meth:`effects` does, rather than to take the fitted ones as known. Only with
            ``variational`` ``"exact"`` or ``"sites"`` (the defaults up to 4000 inducing values):
            the other families of q(U) say nothing of other hyperparameters.
        :return: [N].
        :raises ValueError: as :meth:`predict`; a response outside the family's support.
        """
        averaged = averaged_log_density if unconditional else None
        return blockwise.log_density(self.fitted, data, averaged, drop=self.missing == "drop")

    # --- reading the model -------------------------------------------------------------------

    def summary(self) -> Summary:
        """A table of the terms and the fit as a whole; prints as text, and as HTML in notebooks."""
        return summarise(self.fitted)

    def concurvity(self) -> pd.DataFrame:
        """How far each effect could be made of the others: see :func:`summaries.concurvity`."""
        return concurvity(self.fitted)

    def sobol(
        self,
        *,
        scale: Literal["link", "response"] = "link",
        inputs: Literal["independent", "data"] = "independent",
        measures: Mapping[str, Measure] | None = None,
        bootstrap: bool = True,
        level: float = 0.95,
        unconditional: bool = True,
        num_samples: int = 4000,
        num_points: int = 2048,
        seed: int | None = None,
    ) -> pd.DataFrame:
        """
        Sobol indices: which share of the prediction's variance is due to which columns.

        With ``inputs="independent"`` every column has its own distribution in the data, and the
        predictor is split into effects of sets of columns that are orthogonal to each other: see
        :meth:`gpflow_gam.sensitivity.FunctionalANOVA.sobol` for the kinds ``"first"``,
        ``"interaction"``, ``"total"`` and ``"shapley"``. Where columns depend on each other in the
        data this says what the fitted function does, not what happens in the data: combinations
        of values that never occur count as much as any.

        With ``inputs="data"`` rows stay together. Variances of components then overlap, and no
        split by columns is orthogonal; the table gives each component's ``"share"``, its
        covariance with the predictor over the predictor's variance (they add up to one), of which
        ``"structural"`` is the component's own variance and ``"correlative"`` its covariance with
        the other components (Li et al. 2010). Shapley effects under dependence need conditional
        expectations of the function given any set of columns, which a sample of moderate size
        cannot give without a further model; they are left out.

        With ``scale="response"`` the indices are of the expected response, by Monte Carlo: past a
        link inputs interact even where the predictor is a sum. Offsets are held at their mean.

        :param scale: the predictor, or the expected response (probabilities of each class).
        :param inputs: ``"independent"`` or ``"data"``.
        :param measures: distributions of numeric columns that are known, such as
            ``{"x": gg.measures.Uniform(0, 1)}``; of other columns that of the data is taken.
        :param bootstrap: whether the limits allow for the data being a sample of the columns'
            distribution (Bayesian bootstrap of the rows); without it they are those of the
            population that consists of the data.
        :param level: probability of the limits.
        :param unconditional: whether they allow for uncertain hyperparameters, as
            :meth:`effects` does.
        :param num_samples: posterior draws; at most 128 with ``scale="response"``, where each needs
            the functions themselves.
        :param num_points: Monte Carlo rows with ``scale="response"``, a power of two.
        :param seed: the GAM's own by default.
        :return: a row an index: ``kind``, ``effect``, ``estimate`` (the posterior mean), ``lower``,
            ``upper``, ``variance``; ``predictor`` or ``class`` first where there are several.
        :raises ValueError: a prediction without variance, of which no share is defined; or
            naming the argument.
        """
        return _effects.sobol(
            self.fitted,
            scale=scale,
            inputs=inputs,
            measures=measures,
            bootstrap=bootstrap,
            level=level,
            unconditional=unconditional,
            num_samples=num_samples,
            num_points=num_points,
            seed=self.seed if seed is None else seed,
        )

    def effects(
        self,
        term: str,
        grid: Any = None,
        *,
        level: float = 0.95,
        num_points: int | None = None,
        unconditional: bool = True,
        fun: Transform | None = None,
    ) -> pd.DataFrame:
        """
        A component with its standard error, pointwise and simultaneous limits.

        :param term: its name, such as ``"s(x)"``; see :attr:`names`.
        :param grid: where: values of its column, a dict of columns or a DataFrame; by default an
            even grid over the data.
        :param level: probability of the limits.
        :param num_points: of the default grid, per axis.
        :param unconditional: whether uncertainty allows for uncertain hyperparameters, which takes
            some seconds the first time, as those of :meth:`predict` do; :meth:`sample` and
            :attr:`posterior` take them as known.
        :param fun: a monotone function through which the estimate and the limits go, such as
            ``numpy.exp``: under a log link an effect is then the factor by which it multiplies
            the expected response, and one of the odds under a logit link. ``se`` stays that of the
            predictor.
        :return: the grid's columns, ``estimate``, ``se``, ``lower``, ``upper``,
            ``lower_simultaneous``, ``upper_simultaneous``; ``predictor`` where there are several.
        """
        table = self.effect_table(
            term, grid, level=level, num_points=num_points, unconditional=unconditional
        )
        return _effects.transformed(table.frame(), fun)

    def effect_table(
        self,
        term: str,
        grid: Any = None,
        *,
        level: float = 0.95,
        num_points: int | None = None,
        unconditional: bool = True,
    ) -> EffectTable:
        """The same as :meth:`effects`, as an object that can be drawn."""
        return _effects.effect(self.fitted, term, grid, level, num_points, self.seed, unconditional)

    def coefficients(
        self,
        reference: Level | Mapping[Column, Level] | None = None,
        *,
        level: float = 0.95,
        unconditional: bool = True,
        fun: Transform | None = None,
    ) -> pd.DataFrame:
        """
        What can be read as single numbers, on the predictor's scale.

        - The intercept: the predictor where every effect is zero, which each is on average over
          the data; offsets left out.
        - The slope of each ``linear`` term, in units of the response (behind its link) per unit of
          the column. It is shrunk: see :func:`gpflow_gam.linear`.
        - The effect of each level of ``factor`` and ``random_effect``: those of a factor average
          to zero over the data, or, with ``reference``, are differences from one level.

        :param reference: a level of the only factor, or levels by column (or name of the term), as
            ``{"clinic": "north"}``. The intercept stays what it is.
        :param level: probability of the limits.
        :param unconditional: whether uncertainty allows for uncertain hyperparameters, as in
            :meth:`effects`.
        :param fun: as in :meth:`effects`: the exponential of a slope is a ratio, of means under a
            log link and of odds under a logit link.
        :return: a row a coefficient: ``term``, ``predictor`` where there are several, ``column``,
            ``level``, ``estimate``, ``se``, ``lower``, ``upper``.
        :raises ValueError: naming the argument.
        """
        found = _effects.coefficients(self.fitted, reference, level, unconditional)
        return _effects.transformed(found, fun)

    def derivatives(
        self, term: str, grid: Any = None, *, level: float = 0.95, num_points: int | None = None
    ) -> pd.DataFrame:
        """
        The slope of a one-dimensional smooth, with bands.

        :param term: its name.
        :param grid: where; by default an even grid over the data.
        :param level: probability of the limits.
        :param num_points: of the default grid.
        :return: as :meth:`effects`.
        """
        return _effects.derivative(self.fitted, term, grid, level, num_points, self.seed).frame()

    def differences(
        self,
        term: str,
        *,
        level: float = 0.95,
        grid: Any = None,
        num_points: int | None = None,
        fun: Transform | None = None,
    ) -> pd.DataFrame:
        """
        Differences between levels: of a factor's effects, or of the curves of a ``by=`` factor.

        :param term: the factor's name, or the label of the smooth (``"s(x):g"``).
        :param level: probability of the limits.
        :param grid: for curves, where.
        :param num_points: of the default grid.
        :param fun: as in :meth:`effects`; the exponential of a difference is a ratio.
        :return: ``level_1``, ``level_2`` and, for ``level_1 - level_2``, the columns of
            :meth:`effects`.
        """
        found = _effects.differences(self.fitted, term, level, grid, num_points, self.seed)
        return _effects.transformed(found.frame(), fun)

    def sample_effects(
        self, term: str, grid: Any = None, num_samples: int = 100, *, seed: int | None = None
    ) -> AnyNDArray:
        """
        Joint posterior draws of a component, [S, N] ([S, N, L] for several predictors).

        :param term: its name.
        :param grid: where; by default an even grid over the data.
        :param num_samples: S.
        :param seed: the GAM's own by default.
        """
        seed = self.seed if seed is None else seed
        return _effects.sample_effect(self.fitted, term, grid, num_samples, seed)

    def draw(
        self,
        terms: str | Iterable[str] | None = None,
        *,
        ax: Axes | None = None,
        level: float = 0.95,
        residuals: bool = False,
        **options: Any,
    ) -> Figure:
        """
        Draw the effects: curves with bands and a rug, maps with their uncertainty, levels.

        :param terms: names; all effects by default.
        :param ax: draw one effect into this.
        :param level: probability of the bands.
        :param residuals: adds partial residuals.
        :param options: of :func:`gpflow_gam.gam.plotting.draw`.
        """
        from .plotting import draw

        options = {"seed": self.seed, **options}
        return draw(self.fitted, terms, ax=ax, level=level, residuals=residuals, **options)

    def appraise(self) -> Figure:
        """A page of diagnostics: residual QQ, residuals and observations against fitted values."""
        from .plotting import appraise

        return appraise(self.fitted, self.seed)

    # --- files -------------------------------------------------------------------------------

    def save(self, path: str | Path, *, overwrite: bool = False, data: bool = True) -> None:
        """
        Write the fitted GAM to one file: JSON and arrays, no pickle.

        The file appears whole or not at all. It has the mode of the one that it replaces, and
        links are followed.

        :param path: where.
        :param overwrite: whether a file that is there may be replaced.
        :param data: whether the training data are in it. Without them predictions, draws and
            effects of the loaded GAM are the same to the last bit; what reads rows of the data
            (:meth:`summary`, :meth:`appraise`, residuals, ...) is an error that says so. Values at
            which functions are kept stay: inducing inputs, nodes of columns, levels.
        :raises FileExistsError: there is one.
        :raises FileNotFoundError: there is no such folder.
        :raises ValueError: no such file can be written: a device, levels or a family that files
            cannot hold, an engine that needs the data.
        """
        saving.save(self.fitted, self._options(), Path(path), overwrite, data)

    @classmethod
    def load(cls, path: str | Path, *, kernels: Mapping[str, Kernel] | None = None) -> GAM:
        """
        Read what :meth:`save` wrote; it predicts the same to the last bit.

        :param path: where.
        :param kernels: users' own kernels by the label of their term, which no file holds.
        :raises ValueError: a damaged file, a newer one, or one that holds no GAM.
        """
        fit, options = saving.load(Path(path), kernels or {})
        spec = fit.spec
        gam = cls(
            spec.terms,
            spec.family,
            offset=spec.offset,
            weights=spec.weights,
            trials=spec.trials,
            **options,
        )
        gam._response = spec.response
        gam._fit = fit
        return gam

    # --- pickles and copies ------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        """What is saved, and no caches: those hold what no pickle can."""
        state = dict(self.__dict__)
        fit = state.pop("_fit")
        if fit is not None:
            # workers' shares of the rows are not here
            data = fit.has_data and not isinstance(fit, SharedFit)
            spec = fit.spec
            header, arrays = saving.parts(fit, data)
            state["_parts"] = header, arrays, spec.terms, spec.family
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        parts = state.pop("_parts", None)
        self.__dict__.update(state)
        self._fit = None
        if parts is not None:
            header, arrays, terms, family = parts
            self._fit = saving.from_parts(header, arrays, terms, family, "the pickle")

    def _options(self) -> dict[str, Any]:
        return {
            "missing": self.missing,
            "engine": self.engine,
            "variational": self.variational,
            "seed": self.seed,
        }


def _columns(argument: str, value: Any) -> tuple[Column, ...]:
    if value is None:
        return ()
    names = (value,) if isinstance(value, (str, int)) else tuple(value)
    for name in names:
        if isinstance(name, bool) or not isinstance(name, (str, int)):
            raise TypeError(f"{argument} must name a column; got {name!r}.")
    return names
