"""Predictions, averages, effects, summaries and pictures of a fitted GAM."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pandas as pd
from gpflow.base import AnyNDArray

from ..errors import check_count
from ..posteriors.base import SparseAdditivePosterior
from .comparison import LeaveOneOut, leave_one_out
from .effects import (
    Averager,
    Effects,
    SobolIndices,
    averaged,
    averaged_log_density,
)
from .effects.averages import draws_at
from .fits import prediction
from .fits.prediction import Selection, part_of
from .fits.specification import Model
from .summaries.checks import Checks
from .summaries.summary import Summaries
from .survival import SurvivalCurves
from .tables import ERROR, Editable, EditedGAM, Tables
from .terms import Column

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Inspector(Editable, Averager, Effects, SobolIndices, Summaries, Checks, SurvivalCurves):
    """All that a fitted GAM can be asked."""

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
          levels have their own means in its place. From 16 000 rows on effects of one column are
          read off splines, right to 1e-6 of their range;
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
            uncertain = averaged(fit)
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
        unconditional: bool = True,
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
        :param unconditional: whether hyperparameters are drawn as well, as standard errors of
            :meth:`predict` have it, or are the fitted ones, as of ``engine="iterncgp"`` always.
            Means of draws may then lie a third of a standard error beside estimates, which are at
            the fitted ones.
        :param terms: the terms that count, as in :meth:`predict`.
        :param exclude: terms that do not.
        :param intercept: whether the intercept does.
        :return: [S, N], [S, N, L] for L predictors, [S, N, K] for class probabilities.
        :raises ValueError: a column that is not there or cannot be read, or a bad argument, naming
            it.
        """
        drop = self.missing == "drop"
        part = part_of(self.fitted.spec, terms, exclude, intercept)
        chosen = self._chosen_seed(seed)
        check_count("num_samples", num_samples)
        fit, drawn = self.fitted, None
        if fit.spec.variational != "iterncgp":
            drawn = functools.partial(draws_at, unconditional=unconditional)
        asked = prediction.Prediction(fit, type, seed=chosen, drop=drop, uncertain=drawn, part=part)
        return asked.sample(data, num_samples)

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
        of_rows = averaged_log_density if unconditional else prediction.density_of_rows
        return prediction.log_density(self.fitted, data, of_rows, drop=self.missing == "drop")

    # --- summaries and effects ---------------------------------------------------------------

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

    def _edited(self) -> EditedGAM:
        return EditedGAM(self.fitted, {**Tables(self.fitted).document(errors=False), "edits": []})

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
