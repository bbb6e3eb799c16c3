"""The front door: formula and data in, a fitted, readable model out."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pandas as pd
from gpflow.base import AnyNDArray
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood

from ..errors import check_choice, check_count
from ..posteriors.base import SparseAdditivePosterior
from ..threads import check_process
from . import saving
from .editing import Editable, EditedGAM
from .effects.averages import Averager
from .effects.effect import Effects
from .effects.posterior import averaged, averaged_log_density, draws_at
from .effects.sobol import SobolIndices
from .families import Family
from .families import family as as_family
from .fits import FittedGAM, prediction
from .fits.fit import check_same_criterion, fit_gam, refit, update, with_chains
from .fits.prediction import Selection, part_of
from .fits.reading import as_written, with_response, with_response_as
from .fits.specification import ENGINES, FADING, VARIATIONAL, Model, Request, check_names
from .leave_one_out import LeaveOneOut, leave_one_out
from .summaries.checks import Checks, calibrated, check_fit, smoothed_as_stated
from .summaries.summary import Summaries
from .survival import SurvivalCurves
from .tables import ERROR, Tables
from .terms import Surv, Terms, parse_formula
from .terms.base import Column, ResponseSpec, Term, as_columns, as_terms, one_column
from .terms.formula import Formula, parse_parameters

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class GAM(Editable, Averager, Effects, SobolIndices, Summaries, Checks, SurvivalCurves):
    """
    A generalized additive model whose functions have Gaussian-process priors.

    The predictor ``rho(x) = constant + sum_c f_c(x)`` (and offsets) sets the mean of the response
    through the family's link. Smoothness, variances and the family's own parameters are learnt by
    the evidence lower bound; components average to zero over the data, so that each is identified.
    What asks for the fit raises :class:`~gpflow_gam.gam.NotFittedError` while there is none. Fits
    are in double precision, whatever GPflow's default is.

    :param terms: terms added up (``s("x") + factor("g")``), one term, a list of terms, or a
        formula (``"y ~ s(x) + factor(g)"``); or for several parameters of the response's
        distribution a mapping of such: ``{"mean": s("x") + s("z"), "scale": s("x")}`` (``"mean"``
        and ``"scale"`` of gaussian, gamma, negative binomial and beta; ``"location"`` and
        ``"scale"`` of student_t, lognormal and weibull; ``"quantile"`` and ``"scale"``; ``"mean"``
        and ``"zero"`` of zero-inflated and hurdle counts), or a label each of categorical. A
        parameter without terms is a constant.
    :param family: a name (``"gaussian"``, ``"poisson"``, ...: see :mod:`gpflow_gam.gam.families`),
        a family, or any GPflow likelihood.
    :param intercept: whether there is one; ``- 1`` in a formula, or after terms
        (``s("x") + factor("g") - 1``), says the same. Without it the first factor has each level's
        own mean; without a factor, too, lines are zero at zero, and all else averages to zero.
    :param select: whether smooths (``s``, ``te``) that are not there shall vanish, as of
        ``select=TRUE`` in R's mgcv: the priors of how large their straight parts and the
        deviations from these are peak far below what the data could tell from zero, and are as
        good as flat. Weak effects that are there then vanish more often, too.
    :param offset: column(s) added to the predictor; under a log link the logarithm of exposure.
    :param weights: column of weights: how often a row counts. A row of weight zero is left out, as
        if it were not in the data.
    :param trials: column of trials, for ``family="binomial"`` of numbers of successes. Without it
        zeros and ones, truth values or two labels are ``"bernoulli"``, and the weights are the
        trials of proportions, as in R's ``glm``.
    :param ar1: the column of time along which the noise of a Gaussian response is autoregressive of
        order one, as of ``rho=`` of mgcv's ``bam``, but learnt; ``"time | group"`` for a series a
        group. Rows are neighbours where times are a step apart, the median difference, to within a
        tenth; others are independent. Predictions and their intervals are of rows by themselves.
    :param missing: what to do with rows that lack a value: ``"error"``, ``"drop"``, or
        ``"impute"``: the median of a column of numbers or times and the most frequent level of
        others stand in for what terms lack, also in new data. The response, offsets and weights
        are never imputed.
    :param engine: the inference engine: ``"variational"``, or ``"iterncgp"``, Laplace's posterior
        by :class:`~gpflow_gam.models.IterNCGP`, for likelihoods that are log-concave.
    :param variational: the family of q(U): ``"exact"`` (Gaussian data), ``"sites"``, ``"block"``,
        ``"mean_field"``, ``"covariance"``, ``"precision"``; None takes ``"exact"`` or ``"sites"``,
        and ``"block"`` beyond 5000 inducing values.
    :param seed: of everything random, a whole number; 0 for None.
    :raises TypeError, ValueError: naming the argument.
    """

    def __init__(
        self,
        terms: Terms | Term | Iterable[Term | Terms] | str | Mapping[str, Any],
        family: str | Family | Likelihood = "gaussian",
        *,
        intercept: bool = True,
        select: bool = False,
        offset: Column | Iterable[Column] | None = None,
        weights: Column | None = None,
        trials: Column | None = None,
        ar1: Column | None = None,
        missing: str = "error",
        engine: str = "variational",
        variational: str | None = None,
        seed: int | None = 0,
    ) -> None:
        self._response: ResponseSpec | None = None
        offsets = () if offset is None else tuple(as_columns("offset", offset))
        response_family = as_family(family)
        if isinstance(terms, Mapping):
            response_family, names = response_family.for_parameters(list(terms))
            alone = names == response_family.modelled[:1] and response_family.num_predictors() == 1
            formula: Formula | None = parse_parameters(terms, ("",) if alone else names)
        else:
            formula = parse_formula(terms) if isinstance(terms, str) else None
        if formula is not None:
            terms, self._response = formula.terms, formula.response
            offsets += formula.offset
            if formula.trials is not None and trials is not None:
                raise ValueError(
                    f"trials={trials!r} and the formula's cbind() both say how many there were; "
                    "leave one of the two out."
                )
            trials = formula.trials if trials is None else trials
        terms = as_terms(terms)
        for argument, value in (("intercept", intercept), ("select", select)):
            if not isinstance(value, bool):
                raise TypeError(f"{argument} must be True or False; got {value!r}.")
        if not intercept:
            terms = terms - 1
        if select:
            terms = terms.selected()
        if terms.without and response_family.intercept_name:
            raise ValueError(
                f"intercept: family {response_family.name!r} has a constant in its "
                f"{response_family.intercept_name}, which the intercept is part of; leave it in."
            )
        check_choice("missing", missing, ("error", "drop", "impute"))
        check_choice("engine", engine, ENGINES)
        check_choice("variational", variational, ("exact", *VARIATIONAL, None))
        self.terms = terms
        self.family = response_family
        self.offset = tuple(dict.fromkeys(offsets))
        if self.offset and not self.family.takes_offset:
            change = "divide the response by its exponential, which is the same model"
            if not self.family.default_link:  # another response has another scale
                change = "leave one of the two out"
            elif not self.family.log_link:
                change = "subtract it from the response, which is the same model"
            raise ValueError(
                f"offset: family {self.family.name!r} takes none beside terms for the "
                f"{self.family.modelled[1]}; {change}."
            )
        self.weights = None if weights is None else one_column("weights", weights)
        self.trials = None if trials is None else one_column("trials", trials)
        self.ar1 = None if ar1 is None else one_column("ar1", ar1)
        self.missing = missing
        self.engine = engine
        self.variational = variational
        check_count("seed", seed, 0)
        self.seed = int(seed or 0)
        self._fit: FittedGAM | None = None

    def __repr__(self) -> str:
        state = "fitted" if self.is_fitted else "not fitted"
        return f"GAM({self.terms!r}, family={self.family.name!r}) [{state}]"

    # --- fitting -----------------------------------------------------------------------------

    def fit(
        self,
        data: Any,
        y: Any = None,
        *,
        criterion: Literal["elbo", "ncv"] = "elbo",
        groups: Any = None,
        posterior: Literal["laplace", "mcmc"] = "laplace",
        **options: Any,
    ) -> GAM:
        """
        Fit to data.

        Up to 65 536 rows are held in memory as numbers. Of more rows, in memory or in files, two
        passes are made over blocks of them, and what stays in memory is: of each row a code of one
        or two bytes for every column (or pair, or triple, of columns) that a term is a function
        of; the response, offset, weights and numbers of ``by=``, in the narrowest of 1 to 8 bytes
        that holds them exactly; and an even sample of at most 65 536 rows, which plots of data
        show and ``gam.fitted.X`` holds. Then the fit, deviances and indices are of all rows.
        ``batch_size``, ``engine="iterncgp"`` and a ``variational`` beside ``"exact"`` and
        ``"sites"`` need all rows as numbers, and so a table in memory.

        :param data: a DataFrame (pandas or polars), an Arrow table, a dict of columns, or a matrix
            [N, D] (columns 0, 1, ...). Data larger than memory: the path of a Parquet file or of a
            folder of them, or a list of files; a ``pyarrow.dataset.Dataset``; a list of tables, or
            any object whose ``__iter__`` gives tables one after the other, anew each time.
        :param y: the response: the name of a column, N values of a table in memory, or, where it
            may be censored, :class:`gpflow_gam.Surv` of two columns. A formula may name it instead.
        :param criterion: what chooses hyperparameters, and so smoothness: ``"elbo"``, or
            ``"ncv"``, the log predictive density of rows left out with their neighbourhoods (Wood
            2024), for responses that depend on each other beyond what terms explain, as in time or
            space: the ELBO would explain that by rougher effects. It begins at the ELBO's optimum,
            keeps priors, and needs all rows in memory. Standard errors allow for dependence within
            neighbourhoods.
        :param groups: with ``"ncv"``, rows that are left out together: a column, labels of all rows
            [N] (tuples, too), or arrays of the indices of each row's neighbours (it is among them);
            None leaves every row out by itself.
        :param posterior: of hyperparameters, over which standard errors and predictions average:
            ``"laplace"`` around their optimum, or ``"mcmc"``, four chains of 250 draws of the
            no-U-turn sampler at the evidence, which needs no rows (:meth:`inference_data`): to look
            at the posterior of variances and lengthscales. It takes some ten thousand evaluations
            of the evidence. Estimates stay those of the optimum. ``refit`` and
            ``update`` go back to ``"laplace"``.
        :param options: of :func:`gpflow_gam.optimizers.fit`: ``max_iterations``, ``batch_size``,
            ``tolerance``, ``max_seconds``, ``callback``, ``progress``, ``on_interrupt``, ...; with
            ``engine="iterncgp"`` ``max_sweeps``, ``max_seconds``, ``hyperparameters`` and
            ``progress``. The time of ``max_seconds`` is that of this call, reading included.
            ``checkpoint=folder`` (or a :class:`~gpflow_gam.optimizers.Checkpoint`) keeps the
            fit's state in a file, from which the same call goes on in a new process.
        :return: itself.
        :raises ValueError: data that the model cannot be fitted to: one sentence that says why. A
            GAM that was fitted before stays as it was, as it does after any error.
        :raises TypeError: data that are none of these, or can be read only once; an option that
            there is not, or that is an argument of the GAM.
        :raises TimeoutError: ``max_seconds`` were used up while data were read, before there was
            anything to keep.
        :raises KeyboardInterrupt: Ctrl-C, unless ``on_interrupt="keep"`` and there is something to
            keep.
        :raises ForkedProcessError: this process was forked after TensorFlow had begun to compute.
        """
        check_process()
        check_names(options)
        given = with_response(data, y, self._response)
        asked = {"criterion": criterion, "groups": groups, "posterior": posterior}
        result = self._fitted(*given, **(options | asked))
        return self._accept(result, options, posterior)

    def _accept(self, fit: FittedGAM, options: dict[str, Any], posterior: str = "laplace") -> GAM:
        """Keep a fit, once its dispersion is settled and what is amiss with it is said."""
        fit = calibrated(fit, self.seed, options)
        fit = smoothed_as_stated(fit, self.seed, options)
        self._fit = with_chains(fit, self.seed) if posterior == "mcmc" else fit
        check_fit(self._fit)
        return self

    def _fitted(self, source: Any, response: Any, **options: Any) -> FittedGAM:
        """A fit of these terms to rows; the one that there is stays."""
        return fit_gam(self._request(response), source, **options)

    def _request(self, response: Any) -> Request:
        own = {
            name: getattr(self, name) for name in ("terms", "offset", "weights", "trials", "ar1")
        }
        return Request.of(response, self.family, **own, **self._options())

    def refit(self, data: Any = None, y: Any = None, **options: Any) -> GAM:
        """
        Fit again, from the hyperparameters and the posterior that there are.

        Without data to the rows of the last fit, with its inducing inputs: a fit that was ended by
        ``max_iterations`` or ``max_seconds`` goes on. With data to those and no others, as
        :meth:`fit`; levels and ranges may be new, and inducing inputs are, unless inputs are those
        of the last fit. What it comes to is what :meth:`fit` comes to, up to the fit's
        ``tolerance``, in fewer passes where little has changed. Where the ELBO has several optima,
        a response that has little to do with the last one may lead to another than :meth:`fit`
        does: for such data take a new GAM. Parameters of :attr:`model` that
        ``gpflow.set_trainable`` holds are held, at the values that they have there.

        :param data: as for :meth:`fit`; None for the rows of the last fit, also of a GAM that was
            loaded with its data.
        :param y: the response, as for :meth:`fit`; the same column as before by default.
        :param options: as for :meth:`fit`.
        :return: itself.
        :raises NotFittedError: there is no fit to go on from.
        :raises ValueError: as :meth:`fit`; or the rows of the last fit are not there.
        :raises TypeError: as :meth:`fit`.
        """
        start = self.fitted
        check_names(options)
        if data is None:
            if y is not None:
                raise ValueError("y is the response of data; pass data= as well.")
            return self._accept(refit(start, self.seed, options), options)
        check_same_criterion(start, options)
        given = with_response(data, y, start.spec.response_spec)
        return self._accept(self._fitted(*given, start=start, **options), options)

    def update(self, data: Any, y: Any = None, *, forget: float = 1.0, **options: Any) -> GAM:
        """
        Add rows to those of the last fit, and fit on from where it ended.

        The result is that of a fit to all rows, up to the fit's ``tolerance``: inducing inputs and
        what effects are centred by are those of all rows, and new levels and values beyond the old
        range are learnt like any. With ``missing="impute"`` what stood in for missing values
        before stands in for those of the new rows.

        :param data: further rows, as for :meth:`fit`, however many; they are read into memory.
        :param y: their response: values, or the name of a column; the same as before by default.
        :param forget: the factor by which the weights of the last fit's rows, all of them, are
            multiplied before the new rows join with their own weights (1, or those of the GAM's
            column). A row that was there k updates ago counts ``forget ** k`` times: exponential
            forgetting, one step a call, however many rows it brings. The result is that of a fit
            with these weights, as which they are kept. Rows stay in memory.
        :param options: as for :meth:`fit`.
        :return: itself.
        :raises NotFittedError: there is no fit to go on from.
        :raises ValueError: as :meth:`fit`; or the rows of the last fit are not there as numbers:
            they were more than 65 536, other processes have them, or a file left them out; or a
            term or an offset is computed, as ``offset(log(e))``, of columns that no fit keeps.
        :raises TypeError: as :meth:`fit`.
        """
        start = self.fitted
        check_names(options)
        if start.spec.censoring is not None or isinstance(y, Surv):
            raise ValueError(
                "update: rows of a censored response (Surv) cannot be added; call refit(data) with "
                "all rows, which starts from what is known."
            )
        table = with_response_as(data, y, start.spec.response)
        request = self._request(start.spec.response)
        return self._accept(update(start, request, table, forget, **options), options)

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
    def load(
        cls,
        path: str | Path,
        *,
        kernels: Mapping[str, Kernel] | None = None,
        likelihood: Likelihood | None = None,
    ) -> GAM:
        """
        Read what :meth:`save` wrote; it predicts the same to the last bit.

        That takes this package, and TensorFlow with it. Elsewhere a JSON file of
        :func:`gpflow_gam.serving.export` predicts, by its scorer.

        :param path: where.
        :param kernels: users' own kernels by the label of their term, which no file holds.
        :param likelihood: a likelihood of the user's, made as for the fit; its parameters are read.
        :return: the GAM, fitted.
        :raises ValueError: a damaged file, a newer one, or one that holds no GAM.
        """
        fit, options = saving.load(Path(path), kernels or {}, likelihood)
        spec = fit.spec
        gam = cls(
            as_written(spec.terms, spec.design),
            spec.family,
            offset=spec.offset,
            weights=None if spec.weights == FADING else spec.weights,
            trials=spec.trials,
            ar1=spec.ar1,
            **options,
        )
        gam._response = spec.response_spec
        gam._fit = fit
        return gam

    # --- pickles and copies ------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        """State to save, without caches, which cannot be pickled."""
        state, fit = dict(self.__dict__), self._fit
        if fit is not None:
            # workers' shares of the rows are not here
            data = fit.data.available and not fit.data.shared
            state["_fit"] = *saving.parts(fit, data), fit.spec.terms, fit.spec.family
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if state["_fit"] is not None:
            header, arrays, terms, family = state["_fit"]
            self._fit = saving.from_parts(header, arrays, terms, family, "the pickle")

    def _options(self) -> dict[str, Any]:
        """Options of every fit, which a file holds."""
        return {name: getattr(self, name) for name in ("missing", "engine", "variational", "seed")}

    # --- the model inside --------------------------------------------------------------------

    @property
    def model(self) -> Model:
        """A copy of the GPflow model inside: changes count in later fits, and in no answer."""
        return self.fitted.users_model

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
        - ``"observation"``: a new response, with the family's noise; not of labels in text or
          without an order, which have no mean;
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
            being uncertain as well, and those of a single one for the family's own parameters. What
            is computed of several does not, nor do probabilities of ordered classes, whose
            cutpoints are held here (:meth:`avg_predictions` draws them);
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
        :param type: the expected response, the predictor, or new responses, which of classes are
            labels.
        :param seed: makes draws reproducible; the GAM's own by default.
        :param unconditional: whether hyperparameters are drawn as well, as standard errors of
            :meth:`predict` have it, or are the fitted ones, as of ``engine="iterncgp"`` always.
            In small data (a hundred rows, several terms) means of draws may then lie up to .8 of
            their standard deviations beside estimates, which are at the fitted ones, and deviations
            be .8 of :meth:`predict`'s standard errors, which contain that shift. Of several
            predictors each is as uncertain as in :meth:`predict`, where ``type="link"``; how their
            errors go together is not in the draws.
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
            apart = type == "link"
            drawn = functools.partial(draws_at, unconditional=unconditional, apart=apart)
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
            rows [N] (in their order: a Series' own labels do not count), or an array of the indices
            of each row's neighbours; by default every row is left out by itself.
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
        bins: Mapping[Column, Sequence[float]] | None = None,
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
        :param bins: of columns of numbers the ends of intervals, ``{"age": [18, 25, 40, np.inf]}``,
            each of which has its lower end and not its upper one. A table has one value in each:
            the average of the effect over the rows of the data in it, by their prior weights and
            the square of a number in ``by=`` (evenly over it, where there are none). Beside knots
            of another column rows count at the nearest one. ``error`` of the table is by how much
            the effect in these rows is off that value, at most (on the response's scale, by what
            factor). Rows in no bin count in none. ``edit(bins=...)`` predicts and exports so.
        :param error: of straight lines between chosen knots, at most, as a share of the range of
            the effect over the data.
        :param level: probability of the interval.
        :return: by effect a table: the effect's columns, ``predictor`` where there are several,
            ``estimate``, ``se`` (on the link's scale alone), ``lower``, ``upper``, and ``rows``,
            how many rows of the data are nearest or in the bin.
        :raises ValueError: an effect that no table holds, as of three columns of numbers; a bad
            argument.
        """
        return Tables(self.fitted, error, knots, bins).frames(scale, dict(base or {}), level)

    def _edited(self) -> EditedGAM:
        fit = self.fitted
        document = {**Tables(fit).document(errors=False), "edits": []}
        return EditedGAM(fit, fit.spec.encoder, fit.spec.fills, document)

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

        Actual and expected responses by groups of about equal exposure, from the lowest prediction
        to the highest, equal ones together; the Lorenz curve of this order, with its Gini
        coefficient; and, beside another model, both in groups of the ratio of their predictions
        (double lift). Exposure is ``exp(offset)`` under a log link, times prior weights and trials.

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
