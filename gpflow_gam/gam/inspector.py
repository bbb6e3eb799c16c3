"""Predictions, averages, effects, summaries and pictures of a fitted GAM."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pandas as pd
from gpflow.base import AnyNDArray

from ..errors import check_choice
from ..measures import Measure
from ..posteriors import SparseAdditivePosterior
from ..threads import check_process
from . import effects as _effects
from .comparison import LeaveOneOut, leave_one_out
from .effects.effect import Transform
from .fits import FittedGAM, prediction
from .fits.prediction import Part, Selection, part_of
from .fits.specification import Model
from .summaries.checks import concurvity, pairwise_concurvity, residual_tests
from .summaries.summary import (
    Summary,
    anova,
    inference_data,
    summarise,
    term_probabilities,
    variance_components,
)
from .survival import survival
from .tables import ERROR, EditedGAM, Tables, edited
from .terms import Column
from .terms.base import Level

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_NUMBERS = ("estimate", "se", "lower", "upper", "lower_simultaneous", "upper_simultaneous")
"""Columns of a table of effects beside those of the data."""


Scale = Literal["response", "link"]


class NotFittedError(ValueError, AttributeError):
    """The GAM has not seen data yet."""


class Inspector:
    """All that a fitted GAM can be asked; ``missing`` says what becomes of incomplete rows."""

    _fit: FittedGAM | None = None
    missing: str
    seed: int

    @property
    def is_fitted(self) -> bool:
        """True if :meth:`fit` has been called."""
        return self._fit is not None

    @property
    def fitted(self) -> FittedGAM:
        """
        The outcome of the fit.

        :raises NotFittedError: there is none.
        :raises ForkedProcessError: nothing can be computed in this process.
        """
        check_process()
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
        return self.fitted.spec.effect_names

    def _seed(self, seed: int | None) -> int:
        return self.seed if seed is None else seed

    # --- predictions -------------------------------------------------------------------------

    def predict(
        self,
        data: Any,
        type: prediction.PredictionType = "response",
        *,
        interval: float | None = None,
        se: bool = False,
        unconditional: bool = True,
        terms: Selection | None = None,
        exclude: Selection | None = None,
        intercept: bool = True,
    ) -> Any:
        """
        Predict at new rows.

        - ``"response"``: the expected response (class probabilities [N, K] for classes), its
          posterior mean;
        - ``"link"``: the predictor, offsets included;
        - ``"terms"``: a DataFrame with what each component adds to the predictor, and a column
          ``offset`` where there are offsets; the sum of the columns is the predictor. The model's
          constant is in ``intercept``, which is that of :meth:`summary`, or in the factor whose
          levels have their own means in its place;
        - ``"observation"``: a new response, with the family's noise;
        - ``"class"``: the most probable class.

        :param data: as in :meth:`fit`; the response is not needed. Files, and tables one after
            the other, are read in blocks: memory holds the result, and a block.
        :param type: what to predict.
        :param interval: a probability; adds an equal-tailed credible interval. With
            ``type="terms"`` the frame has ``estimate``, ``se``, ``lower`` and ``upper`` under each
            term.
        :param se: adds posterior standard deviations. One that the far tail alone would make is
            NaN, with a :class:`HeavyTailWarning`: that of an expected response that has no other
            bound than a log link or the like gives it, where the predictor's own is above 1 or so.
        :param unconditional: whether standard errors and intervals allow for uncertain
            hyperparameters, as those of :meth:`effects`, which takes some seconds the first time;
            those of one predictor of several (``"link"``, ``"terms"``) then allow for the others
            being uncertain as well;
            of other families of q(U) than ``"exact"`` and ``"sites"`` nothing is known of them.
            Estimates are at the fitted ones either way.
        :param terms: the terms that count (their labels, names of effects as ``"s(x):g=north"``,
            or terms), where not all of them do: what others add to the predictor is taken as zero,
            their average over the data. With ``type="terms"`` the columns that are wanted.
            Standard errors are those of what is left, of which covariances between terms are part.
            Columns of the data that no term of these reads need not be there.
        :param exclude: terms that do not count, of those.
        :param intercept: whether the intercept does. Offsets always do.
        :return: an array; with ``se`` a pair (estimate, se); with ``interval`` a DataFrame with
            columns ``estimate``, ``se``, ``lower`` and ``upper``. A DataFrame has the index of
            data of pandas. With ``missing="drop"`` rows that
            lack a value are NaN (None among classes), as in :meth:`sample` and
            :meth:`log_density`.
        :raises ValueError: naming the argument or column.
        """
        fit, uncertain = self.fitted, None
        part = part_of(fit.spec, terms, exclude, intercept)
        if unconditional and (se or interval is not None):
            uncertain = _effects.averaged(fit)
        drop = self.missing == "drop"
        asked = prediction.Prediction(fit, type, interval, se, self.seed, drop, uncertain, part)
        return asked.predict(data)

    def sample(
        self,
        data: Any,
        num_samples: int = 100,
        type: Literal["response", "link", "observation"] = "response",
        *,
        seed: int | None = None,
        terms: Selection | None = None,
        exclude: Selection | None = None,
        intercept: bool = True,
    ) -> AnyNDArray:
        """
        Draws from the posterior: whole functions at all rows, not row by row.

        :param data: new rows.
        :param num_samples: S.
        :param type: the expected response, the predictor, or new responses.
        :param seed: makes draws reproducible; the GAM's own by default.
        :param terms: the terms that count, as in :meth:`predict`.
        :param exclude: terms that do not.
        :param intercept: whether the intercept does.
        :return: [S, N], [S, N, L] for L predictors, [S, N, K] for class probabilities.
        :raises ValueError: a column that is not there or cannot be read, or a bad argument, naming
            it.
        """
        drop = self.missing == "drop"
        part = part_of(self.fitted.spec, terms, exclude, intercept)
        chosen = self._seed(seed)
        asked = prediction.Prediction(self.fitted, type, seed=chosen, drop=drop, part=part)
        return asked.sample(data, num_samples)

    def survival(
        self, data: Any, times: Any = None, *, level: float = 0.95, unconditional: bool = True
    ) -> pd.DataFrame:
        """
        Probabilities that responses exceed given times: survival curves of new rows.

        :param data: as in :meth:`predict`.
        :param times: [T], in the response's unit, or one time; by default 101 even ones from 0 to
            the largest response of the fit (of responses that may be negative, from the least).
        :param level: probability of the credible interval at each time.
        :param unconditional: whether intervals allow for uncertain hyperparameters, as those of
            :meth:`predict`, and for the family's own: scale, or baseline hazard.
        :return: ``row``, ``time``, ``estimate`` (the posterior mean), ``lower`` and ``upper``,
            T lines for each row.
        :raises ValueError: naming the argument, also where a GAM that was saved without its data
            is given no times; or a family without survival curves.
        """
        fit = self.fitted
        draws = _effects.hyperparameter_draws(fit) if unconditional else []
        return survival(fit, data, times, level, draws)

    def restricted_mean(
        self, data: Any, times: Any = None, *, level: float = 0.95, unconditional: bool = True
    ) -> pd.DataFrame:
        """
        Mean times up to given ones: areas under the survival curves of new rows.

        What is lost on average before a time, in the response's unit; a measure of differences
        that needs no proportional hazards (Royston & Parmar 2013).

        :param data: as in :meth:`predict`.
        :param times: [T], the times to which the means are restricted, as in :meth:`survival`.
        :param level: probability of the credible interval of each mean.
        :param unconditional: as in :meth:`survival`.
        :return: as :meth:`survival`; ``time`` is the restriction.
        :raises ValueError: as :meth:`survival`; responses that may be negative.
        """
        fit = self.fitted
        draws = _effects.hyperparameter_draws(fit) if unconditional else []
        return survival(fit, data, times, level, draws, restricted=True)

    def log_density(self, data: Any, *, unconditional: bool = False) -> AnyNDArray:
        """
        Log predictive density of each row's response, [N]: the score of held-out data.

        :param data: rows with the response's column.
        :param unconditional: whether to average the density over uncertain hyperparameters, as
            :meth:`effects` does, rather than to take the fitted ones as known. Only with
            ``variational`` ``"exact"`` or ``"sites"`` (the defaults up to 5000 inducing values):
            the other families of q(U) do not cover other hyperparameters.
        :return: [N].
        :raises ValueError: as :meth:`predict`; a response outside the family's support.
        """
        of_rows = _effects.averaged_log_density if unconditional else prediction.density_of_rows
        return prediction.log_density(self.fitted, data, of_rows, drop=self.missing == "drop")

    # --- averages ----------------------------------------------------------------------------

    def partial_dependence(
        self,
        columns: Column | Sequence[Column],
        grid: Any = None,
        *,
        data: Any = None,
        scale: Scale = "response",
        level: float = 0.95,
        num_points: int | None = None,
        unconditional: bool = True,
        num_samples: int = 1000,
        seed: int | None = None,
    ) -> pd.DataFrame:
        """
        The mean over rows of the expected response, with columns set to each value of a grid.

        (Friedman 2001.) Past a link this is another curve than ``effects(scale="response")``, which
        has the other effects at their average; and it has what a column does in all of the terms
        that read it.

        :param columns: a column, or several.
        :param grid: values of the column, a dict of columns or a DataFrame; by default all levels,
            or an even grid over the data of the fit.
        :param data: rows to average over; the columns need not be in them. By default those of
            the fit that count, or 2000 of them, evenly spread.
        :param scale: ``"response"``, or ``"link"`` for the predictor.
        :param level: probability of the credible interval.
        :param num_points: of the default grid on each axis.
        :param unconditional: whether intervals allow for uncertain hyperparameters, as those of
            :meth:`effects`.
        :param num_samples: posterior draws.
        :param seed: the GAM's own by default.
        :return: the grid's columns, ``estimate``, ``se``, ``lower``, ``upper`` and, for the whole
            curve at once, ``lower_simultaneous`` and ``upper_simultaneous``; ``class`` (or
            ``predictor``) where there are several, with a curve each.
        :raises ValueError: naming the argument or column.
        """
        over = self._averaging(scale, level, unconditional, num_samples, seed)
        return over.partial_dependence(columns, grid, data, num_points)

    def _averaging(
        self,
        scale: Scale,
        level: float,
        unconditional: bool,
        num_samples: int,
        seed: int | None,
        part: Part | None = None,
    ) -> _effects.Averaging:
        given = self.fitted, self.missing == "drop", scale, level, unconditional, num_samples
        return _effects.Averaging(*given, self._seed(seed), part)

    def avg_predictions(
        self,
        data: Any = None,
        *,
        by: Column | Sequence[Column] | None = None,
        at: Mapping[Column, Any] | None = None,
        weights: Column | None = None,
        total: bool = False,
        scale: Scale = "response",
        level: float = 0.95,
        unconditional: bool = True,
        num_samples: int = 1000,
        seed: int | None = None,
    ) -> pd.DataFrame:
        """
        Expected responses, averaged over rows (``avg_predictions`` of R's marginaleffects).

        With ``total=True`` they are added up: over the cells of a grid, with ``weights=`` their
        areas and ``by="year"``, it is the index of abundance of a survey, as ``get_index`` of R's
        sdmTMB. Its uncertainty is that of the sum, of which errors that cells share are the most.

        :param data: rows to average over, as of :meth:`partial_dependence`.
        :param by: columns of the data: an average for each combination of their values.
        :param at: columns that are set for all rows, to each combination of the given values, as
            ``{"dose": [0, 1]}``; they need not be in the data.
        :param weights: a column of ``data`` by which rows count, in place of the GAM's weights.
        :param total: whether rows are added up, rather than averaged; ``data`` must then be given
            and complete, as a row that is left out would be missing from the sum.
        :param scale: ``"response"``, or ``"link"`` for the predictor.
        :param level: probability of the credible interval.
        :param unconditional: whether intervals allow for uncertain hyperparameters.
        :param num_samples: posterior draws.
        :param seed: the GAM's own by default.
        :return: a row an average: the columns of ``at`` and ``by``, ``estimate``, ``se``,
            ``lower``, ``upper``; ``class`` (or ``predictor``) where there are several.
        :raises ValueError: naming the argument or column.
        """
        over = self._averaging(scale, level, unconditional, num_samples, seed)
        return over.predictions(data, by, at, weights, total)

    def avg_comparisons(
        self,
        columns: Column | Sequence[Column] | Mapping[Column, Any],
        data: Any = None,
        *,
        by: Column | Sequence[Column] | None = None,
        comparison: Literal["difference", "ratio"] = "difference",
        scale: Scale = "response",
        level: float = 0.95,
        unconditional: bool = True,
        num_samples: int = 1000,
        seed: int | None = None,
    ) -> pd.DataFrame:
        """
        Average effects of changing a column (``avg_comparisons`` of marginaleffects).

        :param columns: one column, several, or a mapping of each to what is compared. A column of
            numbers is moved by one, or by the step that is given, as ``{"x": 0.1}``; of a pair
            ``{"x": (2, 5)}`` the second value is compared with the first. Levels are compared with
            the first of them, or of those that are given.
        :param data: rows to average over, as of :meth:`partial_dependence`.
        :param by: columns of the data: comparisons for each combination of their values.
        :param comparison: ``"difference"`` of averages, or their ``"ratio"``.
        :param scale: ``"response"``, or ``"link"`` for the predictor.
        :param level: probability of the credible interval.
        :param unconditional: whether intervals allow for uncertain hyperparameters.
        :param num_samples: posterior draws.
        :param seed: the GAM's own by default.
        :return: a row a comparison: ``column``, ``contrast``, the columns of ``by``, ``estimate``,
            ``se``, ``lower``, ``upper``; ``class`` (or ``predictor``) where there are several.
        :raises ValueError: naming the argument or column.
        """
        over = self._averaging(scale, level, unconditional, num_samples, seed)
        return over.comparisons(columns, data, by, comparison)

    def avg_slopes(
        self,
        columns: Column | Sequence[Column] | None = None,
        data: Any = None,
        *,
        by: Column | Sequence[Column] | None = None,
        scale: Scale = "response",
        level: float = 0.95,
        unconditional: bool = True,
        num_samples: int = 1000,
        seed: int | None = None,
    ) -> pd.DataFrame:
        """
        Average slopes of the expected response in columns (``avg_slopes`` of marginaleffects).

        The slope is that of the whole prediction: of all terms that read the column, and past the
        link. It is a central difference over a thousandth of the column's span.

        :param columns: columns of numbers; all that terms read by default.
        :param data: rows to average over, as of :meth:`partial_dependence`.
        :param by: columns of the data: averages for each combination of their values.
        :param scale: ``"response"``, or ``"link"`` for the predictor.
        :param level: probability of the credible interval.
        :param unconditional: whether intervals allow for uncertain hyperparameters.
        :param num_samples: posterior draws.
        :param seed: the GAM's own by default.
        :return: a row a slope, in units of the response (or predictor) per unit of the column:
            ``column``, the columns of ``by``, ``estimate``, ``se``, ``lower``, ``upper``; ``class``
            (or ``predictor``) where there are several.
        :raises ValueError: a column of levels, or of a smooth without slope; naming the argument.
        """
        over = self._averaging(scale, level, unconditional, num_samples, seed)
        return over.slopes(columns, data, by)

    def slopes(
        self,
        columns: Column | Sequence[Column] | None = None,
        data: Any = None,
        *,
        scale: Scale = "response",
        level: float = 0.95,
        unconditional: bool = True,
        num_samples: int = 1000,
        seed: int | None = None,
    ) -> pd.DataFrame:
        """
        Slopes of the expected response at each row (``slopes`` of marginaleffects).

        :param columns: columns of numbers; all that terms read by default.
        :param data: N rows; by default those of the fit, or 2000 of them.
        :param scale: ``"response"``, or ``"link"`` for the predictor.
        :param level: probability of the credible interval.
        :param unconditional: whether intervals allow for uncertain hyperparameters.
        :param num_samples: posterior draws.
        :param seed: the GAM's own by default.
        :return: as :meth:`avg_slopes`, with ``row``, from 0 to N - 1, for each column.
        :raises ValueError: as :meth:`avg_slopes`; or too many rows times draws.
        """
        over = self._averaging(scale, level, unconditional, num_samples, seed)
        return over.slopes(columns, data, average=False)

    def hypotheses(
        self,
        quantities: Any,
        data: Any,
        *,
        null: float = 0.0,
        terms: Selection | None = None,
        scale: Scale = "response",
        level: float = 0.95,
        unconditional: bool = True,
        num_samples: int = 1000,
        seed: int | None = None,
    ) -> pd.DataFrame:
        """
        Quantities made of predictions: contrasts, ratios, where a curve is highest or crosses.

        Each is computed of the estimates, and of every posterior draw of all N predictions
        together. ``gam.hypotheses([-1, 1], {"x": [0.2, 0.8]}, terms="s(x)", scale="link")`` asks
        whether ``s(x)`` is higher at .8 than at .2; ``lambda f: x[f.argmax()]``, at a grid ``x``,
        where its maximum is.

        :param quantities: N weights of predictions in a sum, or a function that makes a number of
            an array of N predictions ([N, K] where there are K classes or predictors), NaN where
            there is none; or a mapping of names to these.
        :param data: N rows.
        :param null: a value with which quantities are compared.
        :param terms: the terms that count, as in :meth:`predict`, beside intercept and offsets;
            columns that others read need not be there.
        :param scale: ``"response"``, or ``"link"`` for the predictor.
        :param level: probability of the credible interval.
        :param unconditional: whether intervals allow for uncertain hyperparameters.
        :param num_samples: posterior draws.
        :param seed: the GAM's own by default.
        :return: a row a quantity: ``quantity``, its name, where there are names; ``estimate``,
            ``se``, ``lower``, ``upper``; ``probability``, posterior, of a value above ``null``;
            ``defined``, the share of draws in which it is not NaN, of which the others are.
        :raises ValueError: naming the argument or column.
        """
        part = part_of(self.fitted.spec, terms)
        over = self._averaging(scale, level, unconditional, num_samples, seed, part)
        return over.hypotheses(quantities, data, null)

    # --- summaries and effects ---------------------------------------------------------------

    def summary(self) -> Summary:
        """A table of the terms and the fit as a whole; prints as text, and as HTML in notebooks."""
        return summarise(self.fitted)

    def anova(self) -> pd.DataFrame:
        """
        A test of each term, of the hypothesis that its effect is zero (``anova`` of R's mgcv).

        Lines and levels have Wald's test, of all levels together; a random effect, whose variance
        is then at its boundary, that of Wood 2013 (Biometrika 100:1005); a smooth one with the
        reference degrees of freedom of Wood 2013 (Biometrika 100:221). The statistic is
        ``m' S^-1 m`` of the effect's posterior mean and covariance, under the hypothesis a weighted
        sum of chi-squares, over the estimated variance of Gaussian noise, whose tail is computed to
        all digits.
        :func:`gpflow_gam.anova_test` compares two GAMs.

        :return: a row an effect (and predictor): ``edf``, the effective degrees of freedom;
            ``ref_df``, the statistic's expectation where the effect is zero; ``statistic``; ``p``.
        """
        return anova(self.fitted)

    def term_probabilities(self) -> pd.DataFrame:
        """
        Posterior probabilities that a smooth of one column is absent, a straight line, or curved.

        The three have a third each before the data are seen. Standard deviations of the straight
        part and of the deviation from it are half-Cauchy, of scale one in the predictor's natural
        unit (the response's standard deviation; one behind a link), if they are there: a spike and
        slab for each part, as Bach & Klein (2024, arXiv 2401.00840) have it. They are integrated
        out, and with them the lengthscale; all other hyperparameters are the fitted ones. Under
        other odds multiply the columns and divide by their sum.

        :return: columns ``absent``, ``straight`` and ``curved``, which add up to one; a row for
            each smooth of one column without ``shape`` and ``id``, and without a number for ``by``.
        :raises ValueError: the fit has no marginal likelihood.
        """
        return term_probabilities(self.fitted)

    def variance_components(self, level: float = 0.95) -> pd.DataFrame:
        """
        The learnt variances of effects, as lme4's ``VarCorr`` and mgcv's ``gam.vcomp`` give them.

        They maximise the marginal likelihood (REML). Each is a prior variance, in the squared unit
        of the predictor: of the effects of levels; of slopes, per unit of their column; of a
        smooth at a point, of its straight part over the data. A straight part is one coefficient,
        which says little of its own variance.

        Intervals are those of the profile of the marginal likelihood, with all other
        hyperparameters learnt anew at each value, as lme4's ``confint`` computes them. The lower
        limit is zero where the data do not tell an effect from none. For responses that are not
        Gaussian the marginal likelihood is that of the Gaussian approximation at the fit.

        :param level: probability of the intervals.
        :return: a row for each variance: ``term``, ``predictor`` where there are several, ``part``
            (``"straight"``, ``"deviation"`` or ``"level"`` of a term that has several),
            ``variance``, ``sd``, and ``lower`` and ``upper`` of the standard deviation. The last
            row is ``"residual"``, the noise, where the family has its variance. Intervals are NaN
            where the marginal likelihood did not choose the variance alone: with
            ``engine="iterncgp"`` and ``criterion="ncv"``, of terms with a shape, and of a residual
            behind a link.
        :raises ValueError: ``level`` is no probability.
        """
        return variance_components(self.fitted, level)

    def inference_data(self) -> Any:
        """
        Chains of the hyperparameters after ``fit(data, posterior="mcmc")``.

        :return: an ``arviz.InferenceData``, for ``arviz.summary`` and its plots: variances and
            lengthscales by the names of their effects, and of a gaussian response the residual
            variance.
        :raises ValueError: the fit has no chains.
        :raises ImportError: arviz is not there.
        """
        return inference_data(self.fitted)

    def residual_tests(
        self, *, time: Any = None, space: Any = None, seed: int | None = None
    ) -> pd.DataFrame:
        """
        Tests of randomised quantile residuals, as R's DHARMa has them.

        :param time: when rows are: a numeric column of the model, or values [N] of the fitted rows.
        :param space: where rows are: two numeric columns of the model, or values [N, 2].
        :param seed: of the residuals' random part; the GAM's own by default.
        :return: columns ``statistic`` and ``p`` (two-sided), and the rows ``uniformity``
            (Kolmogorov-Smirnov distance from the normal distribution, conservative, as parameters
            are those that fit best); ``dispersion`` (variance,
            given the degrees of freedom of the fit); of counts ``zeros``, those observed over those
            expected (a score test: van den Broek 1995); with ``time`` the correlation of successive
            rows; with ``space`` Moran's I of the eight nearest rows (Cliff & Ord 1981).
        :raises ValueError: a family without a distribution function; rows that are not in memory;
            ``time`` or ``space`` of another shape.
        """
        return residual_tests(self.fitted, time, space, self._seed(seed))

    def concurvity(self, full: bool = True) -> pd.DataFrame:
        """
        Concurvity: how well the other effects, all or each, reproduce each effect.

        See :func:`summaries.concurvity`.

        :param full: whether of all others together; ``False`` for pairs, as in mgcv.
        """
        return concurvity(self.fitted) if full else pairwise_concurvity(self.fitted)

    def loo(self, groups: Any = None) -> LeaveOneOut:
        """
        Leave-one-out predictive density of each row: see :func:`comparison.leave_one_out`.

        :param groups: rows that are left out together: a column that the model reads, labels of all
            rows [N], or an array of the indices of each row's neighbours; by default every row is
            left out by itself.
        :return: ``elpd``, ``se`` and ``pointwise`` [N]; prints as text, and as HTML in notebooks.
        :raises ValueError: naming the argument; or a fit of which rows or sites are not held.
        """
        return leave_one_out(self.fitted, groups)

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
        :param bootstrap: whether the intervals allow for the data being a sample of the columns'
            distribution (Bayesian bootstrap of the rows); without it they are those of the
            population that consists of the data.
        :param level: probability of the credible interval.
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
            seed=self._seed(seed),
        )

    def effects(
        self,
        term: str | None = None,
        grid: Any = None,
        *,
        reference: Mapping[Column, Any] | None = None,
        level: float = 0.95,
        num_points: int | None = None,
        unconditional: bool = True,
        fun: Transform | None = None,
        scale: Literal["link", "response"] = "link",
    ) -> pd.DataFrame:
        """
        An effect, or all of them, with standard errors, pointwise and simultaneous bands.

        With ``scale="response"`` it is the expected response along the effect, as gratia's
        ``add_constant`` and the inverse link make it of a smooth: intercept and this effect
        together, their covariance included, all other effects at zero, which is their average over
        the data, and offsets at their mean. It is what :meth:`predict` says of this term alone. A
        mean over rows of the data, past the link, is :meth:`partial_dependence`.

        :param term: its name, such as ``"s(x)"`` (see :attr:`names`), or the term as it was typed,
            such as ``"s(g, bs='re')"``; by default every effect, one after the other.
        :param grid: where: values of its column, a dict of columns or a DataFrame; by default an
            even grid over the data. Of all effects a dict or DataFrame. Of a term that is summed
            over lags or arrays, points of the function that is summed; or the sums, of arrays, or
            of values that are the same at all lags, where no ``lag`` is given.
        :param reference: of one effect, values with which others are compared: ``{"temp": 21}``
            gives the effect at each point less that where ``temp`` is 21.
        :param level: probability of the credible interval.
        :param num_points: of the default grid, per axis.
        :param unconditional: whether uncertainty allows for uncertain hyperparameters, which takes
            some seconds the first time, as those of :meth:`predict` do, and that of one predictor
            of several for the others, and that of a single one for the likelihood's parameters;
            :meth:`sample` and :attr:`posterior` take them as known.
        :param fun: a monotone function through which the estimate and the interval go, such as
            ``numpy.exp``: under a log link an effect is then the factor by which it multiplies
            the expected response, and one of the odds under a logit link. There is no ``se`` then,
            which is the predictor's.
        :param scale: ``"link"``, the predictor in the response's unit, or ``"response"``.
        :return: the grid's columns, ``estimate``, ``se``, ``lower``, ``upper``,
            ``lower_simultaneous``, ``upper_simultaneous``; ``predictor`` where there are several,
            or ``class`` of a response with classes. Of all effects ``term`` is first, and columns
            that an effect is not of are missing in its rows. On the response's scale ``se`` is NaN,
            with a :class:`HeavyTailWarning`, where it would say nothing: see :meth:`predict`.
        :raises ValueError: naming the argument.
        """
        if reference is not None and (term is None or scale == "response"):
            raise ValueError("reference is of one effect, on scale='link'; name the effect.")
        if term is None:
            return self._every_effect(
                grid,
                level=level,
                num_points=num_points,
                unconditional=unconditional,
                fun=fun,
                scale=scale,
            )
        asked = term, grid, level, num_points, self.seed, unconditional
        check_choice("scale", scale, ("link", "response"))
        if scale == "response":
            if fun is not None:
                raise ValueError(
                    "fun takes effects through a function on scale='link'; with scale='response' "
                    "they are through the inverse link already. Leave one of the two out."
                )
            return _effects.response_effect(self.fitted, *asked)
        table = _effects.effect(self.fitted, *asked, reference)
        return _effects.transformed(table.frame(), fun)

    def _every_effect(self, grid: Any, **options: Any) -> pd.DataFrame:
        """
        All effects, one after the other.

        :raises ValueError: a grid that does not say whose values it holds; or a column whose name
            the table has a use for.
        """
        if grid is not None and not isinstance(grid, Mapping) and not hasattr(grid, "columns"):
            raise ValueError(
                "grid must be a dict or DataFrame of columns where it is for all effects; got "
                f"{type(grid).__name__}. Name one effect to give values of its column."
            )
        frames = []
        for name in self.names:
            frame = self.effects(name, grid, **options)
            if "term" in frame:
                raise ValueError(
                    f"effects(): {name} is of a column 'term', which is what the table calls "
                    "effects; ask for one effect at a time."
                )
            frame.insert(0, "term", name)
            frames.append(frame)
        if not frames:
            raise ValueError("effects(): the GAM has no effects; see coefficients().")
        whole = pd.concat(frames, ignore_index=True)
        # what they are of is left of the numbers
        return whole[sorted(whole, key=lambda name: name in _NUMBERS)]

    def tables(
        self,
        *,
        scale: Literal["link", "response"] = "link",
        base: Mapping[Column, Any] | None = None,
        knots: Mapping[Column, Sequence[float]] | None = None,
        error: float = ERROR,
        level: float = 0.95,
    ) -> dict[str, pd.DataFrame]:
        """
        The GAM as tables, one for each effect: its estimate at knots or levels.

        A prediction is the sum of one value of each table, straight lines drawn between knots, the
        intercept and offsets. :func:`gpflow_gam.serving.export` writes them as JSON, SQL, Excel or
        PMML.

        :param scale: ``"link"``, the predictor, or ``"response"``: the factor by which the
            response is multiplied under a log link, the odds ratio under a logit.
        :param base: of columns the value whose effect is nought (on the response's scale, one):
            tables of that column alone are differences to it.
        :param knots: of columns of numbers where a table has its knots; else they are chosen.
        :param error: of straight lines between chosen knots, at most, as a share of the range of
            the effect over the data.
        :param level: probability of the interval.
        :return: by effect a table: the effect's columns, ``predictor`` where there are several,
            ``estimate``, ``se`` (on the link's scale alone), ``lower``, ``upper``, and ``rows``,
            how many rows of the data are nearest.
        :raises ValueError: an effect that no table holds, as of three columns of numbers; a bad
            argument.
        """
        return Tables(self.fitted, error, knots).frames(scale, dict(base or {}), level)

    def edit(
        self,
        term: str,
        *,
        reason: str,
        monotone: Literal["increasing", "decreasing"] | None = None,
        values: Mapping[Any, float] | None = None,
        cap: tuple[float, float] | None = None,
    ) -> EditedGAM:
        """
        Change one table by hand, with a record of what was changed and why.

        The GAM stays as it is. The result predicts, can be edited further, and
        :func:`gpflow_gam.serving.export` writes it, its edits included. It has no intervals: they
        would be of the tables that were fitted.

        :param term: the name of an effect of one column, of a GAM with one predictor.
        :param reason: why, in words.
        :param monotone: the closest table that never falls (``"increasing"``) or never rises, by
            least squares over the rows of the data.
        :param values: the effect at levels or at values of the column, on the link's scale.
        :param cap: the least and the greatest effect, on the link's scale.
        :return: a GAM that is its tables.
        :raises ValueError: an effect that is no such table; not one change; a bad argument.
        """
        changes: dict[str, Any] = {"monotone": monotone, "values": values, "cap": cap}
        return edited(self.fitted).edit(term, reason=reason, **changes)

    def coefficients(
        self,
        reference: Level | Mapping[Column, Level] | None = None,
        *,
        level: float = 0.95,
        unconditional: bool = True,
        fun: Transform | None = None,
    ) -> pd.DataFrame:
        """
        Coefficients: effects that are single numbers, on the predictor's scale.

        - The intercept: the predictor where every effect is zero, which each is on average over
          the data; offsets left out. With ``reference`` it is the predictor at the reference levels
          and at zero of each straight line's column, as ``glm`` prints it; smooths, and levels that
          are not named, stay at their average.
        - The slope of each ``linear`` term, in units of the response (behind its link) per unit of
          the column; shrunk only with ``linear(..., shrink=True)``.
        - The effect of each level of ``factor`` and ``random_effect``: those of a factor average
          to zero over the data, or, with ``reference``, are differences from one level.

        :param reference: a level of the only factor, or levels by column (or name of the term), as
            ``{"clinic": "north"}``: the table then is of treatment contrasts. ``{}`` names none, so
            that straight lines alone move.
        :param level: probability of the credible interval.
        :param unconditional: whether uncertainty allows for uncertain hyperparameters, as in
            :meth:`effects`.
        :param fun: as in :meth:`effects`: the exponential of a slope is a ratio, of means under a
            log link and of odds under a logit link.
        :return: a row a coefficient: ``term``, ``predictor`` where there are several, ``column``,
            ``level``, ``estimate``, ``se``, ``lower``, ``upper``.
        :raises ValueError: naming the argument.
        """
        result = _effects.coefficients(self.fitted, reference, level, unconditional)
        return _effects.transformed(result, fun)

    def derivatives(
        self,
        term: str,
        grid: Any = None,
        *,
        column: Column | None = None,
        level: float = 0.95,
        num_points: int | None = None,
    ) -> pd.DataFrame:
        """
        The slope of an effect in a column, with bands.

        Of what predictions do, past a link and in all terms together, see :meth:`avg_slopes`.

        :param term: its name.
        :param grid: where; by default an even grid over the data.
        :param column: of an effect of several numbers, in which of them.
        :param level: probability of the credible interval.
        :param num_points: of the default grid, per axis.
        :return: as :meth:`effects`, in units of the predictor per unit of the column.
        :raises ValueError: an effect without a slope, or a bad argument, naming it.
        :raises TypeError: ``term`` is no name.
        """
        asked = term, grid, level, num_points, self.seed, column
        return _effects.derivative(self.fitted, *asked).frame()

    def differences(
        self,
        term: str,
        *,
        level: float = 0.95,
        grid: Any = None,
        num_points: int | None = None,
        fun: Transform | None = None,
        group_means: bool = False,
    ) -> pd.DataFrame:
        """
        Differences between levels: of a factor's effects, or of the curves of a ``by=`` factor.

        Curves of a ``by=`` factor are centred, each over its own level's data: what levels differ
        by on average is the factor's own term. Their differences are ``estimate_centred``;
        ``group_means=True`` adds those of the means, and the column is ``estimate``.

        :param term: the factor's name, or the label of the smooth (``"s(x):g"``).
        :param level: probability of the credible interval.
        :param grid: for curves, where.
        :param num_points: of the default grid.
        :param fun: as in :meth:`effects`; the exponential of a difference is a ratio.
        :param group_means: adds the differences of the levels' means, which the terms
            ``factor("g")`` and ``random_effect("g")`` have, to those of curves.
        :return: ``level_1``, ``level_2`` and, for ``level_1 - level_2``, the columns of
            :meth:`effects`.
        :raises ValueError: an effect without levels, ``group_means`` where no term has them, or a
            bad argument, naming it.
        :raises TypeError: ``term`` is no name.
        """
        result = _effects.differences(
            self.fitted, term, level, grid, num_points, self.seed, group_means=group_means
        )
        return _effects.transformed(result, fun)

    def sample_effects(
        self,
        term: str,
        grid: Any = None,
        num_samples: int = 100,
        *,
        seed: int | None = None,
        reference: Mapping[Column, Any] | None = None,
        slope: Column | None = None,
    ) -> AnyNDArray:
        """
        Joint posterior draws of a component, [S, N] ([S, N, L] for several predictors).

        Each draw of a term that has a shape has it.

        :param term: its name.
        :param grid: where; by default an even grid over the data.
        :param num_samples: S.
        :param seed: the GAM's own by default.
        :param reference: values with which others are compared, as in :meth:`effects`.
        :param slope: a column, in which draws of the slope are wanted, as of :meth:`derivatives`.
        :raises ValueError: an unknown effect, or a bad argument, naming it.
        :raises TypeError: ``term`` is no name.
        """
        asked = term, grid, num_samples, self._seed(seed), reference, slope
        return _effects.sample_effect(self.fitted, *asked)

    def prior_effects(
        self, term: str, grid: Any = None, num_samples: int = 100, *, seed: int | None = None
    ) -> AnyNDArray:
        """
        Draws of a component from its prior, [S, N]: what is assumed before data are seen.

        Hyperparameters are drawn with it. The default priors of variances say next to nothing:
        draws under them are of all sizes. With ``prior=`` of a term they show what that means.

        :param term: its name.
        :param grid: where; by default an even grid over the data.
        :param num_samples: S.
        :param seed: the GAM's own by default.
        :raises ValueError: an unknown effect, one with a shape, or a bad argument, naming it.
        :raises TypeError: ``term`` is no name.
        """
        return _effects.sample_prior(self.fitted, term, grid, num_samples, self._seed(seed))

    def draw(
        self,
        terms: str | Iterable[str] | None = None,
        *,
        ax: Axes | None = None,
        level: float = 0.95,
        residuals: bool = False,
        style: str | None = None,
        **options: Any,
    ) -> Figure:
        """
        Draw the effects: curves with bands and a rug, maps with their uncertainty, levels.

        :param terms: names of effects, or labels of terms; all effects by default.
        :param ax: draw one effect into this.
        :param level: probability of the bands.
        :param residuals: adds partial residuals.
        :param style: ``"paper"`` for a journal: panels of which three fill a page, small print, and
            colours that colour-blind readers tell apart. ``savefig("a.pdf")`` has them as vectors.
        :param options: of :func:`gpflow_gam.gam.plotting.draw`.
        :return: a new figure, or the one that ``ax`` stands on.
        :raises TypeError: ``ax`` is no axes, ``terms`` are no names, or an option that there is
            not.
        :raises ValueError: an unknown effect, or an option that cannot be, naming it.
        """
        from .plotting import draw, styled

        options = {"seed": self.seed, **options}
        with styled(style):
            return draw(self.fitted, terms, ax=ax, level=level, residuals=residuals, **options)

    def draw_lift(
        self, data: Any, *, other: Any = None, groups: int = 10, by: Column | None = None
    ) -> Figure:
        """
        How well predictions order risks: the charts of a pricing review.

        Actual and expected responses by groups of equal exposure, from the lowest prediction to the
        highest; the Lorenz curve of this order, with its Gini coefficient; and, beside another
        model, both in groups of the ratio of their predictions (double lift). Exposure is
        ``exp(offset)`` under a log link, times prior weights.

        :param data: rows with the response's column, best ones that the fit has not seen.
        :param other: another fitted GAM, or its N expected responses.
        :param groups: their number.
        :param by: a column of the data, in the model or not, by whose levels actual and expected
            responses are shown, too; a number by groups of equal exposure.
        :return: a new figure.
        :raises ValueError: a response with more than two classes, or that may be negative; a bad
            argument.
        """
        from .plotting import lift

        return lift(self.fitted, data, other, groups, by)

    def report(
        self,
        path: str | Path,
        *,
        others: Mapping[str, Any] | None = None,
        title: str | None = None,
        overwrite: bool = False,
    ) -> None:
        """
        Write a report to an HTML file that needs nothing else.

        It has the summary, the data, the effects, checks and warnings, a comparison with other
        models, a paragraph for the methods section of an article with versions and citations, and
        tables to copy. Figures are vectors. The file appears whole or not at all.

        :param path: where.
        :param others: other fits to the same rows, by name, as :func:`gpflow_gam.compare` takes
            them.
        :param title: of the page; by default it names the response.
        :param overwrite: whether a file that is there may be replaced.
        :raises FileExistsError: there is a file, and ``overwrite`` is false.
        :raises ValueError: as :func:`gpflow_gam.compare`; or a file had no rows with the fit.
        """
        from .report import write_report

        write_report(self, path, others, title, overwrite)

    def appraise(self) -> Figure:
        """A page of diagnostics: residual QQ, residuals and observations against fitted values."""
        from .plotting import appraise

        return appraise(self.fitted, self.seed)
