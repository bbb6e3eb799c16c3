"""What a fitted GAM says of new rows."""

from __future__ import annotations

from typing import Any, Literal

import pandas as pd
from gpflow.base import AnyNDArray

from ..errors import check_process
from ..posteriors import SparseAdditivePosterior
from . import effects as _effects
from .effects import averaged_log_density
from .fits import FittedGAM, prediction
from .fits.model import Model
from .fits.prediction import Selection, part_of


class NotFittedError(ValueError, AttributeError):
    """The GAM has not seen data yet."""


class Predictor:
    """
    Predictions of a GAM that is fitted.

    :param missing: what becomes of rows that lack a value.
    :param seed: of what is random.
    """

    _fit: FittedGAM | None = None
    missing: str
    seed: int

    @property
    def is_fitted(self) -> bool:
        """Whether :meth:`fit` has been called."""
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
        :param interval: a probability; adds equal-tailed credible limits. With ``type="terms"``
            the frame has ``estimate``, ``se``, ``lower`` and ``upper`` under each term.
        :param se: adds posterior standard deviations. One that the far tail alone would make is
            NaN, with a :class:`HeavyTailWarning`: that of an expected response that has no other
            bound than a log link or the like gives it, where the predictor's own is above 1 or so.
        :param unconditional: whether standard errors and limits allow for uncertain
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
        return prediction.predict(
            fit,
            data,
            type,
            interval=interval,
            se=se,
            seed=self.seed,
            drop=self.missing == "drop",
            uncertain=uncertain,
            part=part,
        )

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
        seed = self.seed if seed is None else seed
        drop = self.missing == "drop"
        part = part_of(self.fitted.spec, terms, exclude, intercept)
        return prediction.sample(self.fitted, data, num_samples, type, seed, drop, part)

    def survival(
        self, data: Any, times: Any = None, *, level: float = 0.95, unconditional: bool = True
    ) -> pd.DataFrame:
        """
        Probabilities that responses exceed given times: survival curves of new rows.

        :param data: as in :meth:`predict`.
        :param times: [T], in the response's unit, or one time; by default 101 even ones from 0 to
            the largest response of the fit (of responses that may be negative, from the least).
        :param level: probability of the limits, which are of the curve at each time.
        :param unconditional: whether limits allow for uncertain hyperparameters, as those of
            :meth:`predict`, and for the family's own: scale, or baseline hazard.
        :return: ``row``, ``time``, ``estimate`` (the posterior mean), ``lower`` and ``upper``,
            T lines for each row.
        :raises ValueError: naming the argument, also where a GAM that was saved without its data
            is given no times; or a family without survival curves.
        """
        fit = self.fitted
        draws = _effects.hyperparameter_draws(fit) if unconditional else []
        return prediction.survival(fit, data, times, level, draws)

    def log_density(self, data: Any, *, unconditional: bool = False) -> AnyNDArray:
        """
        Log predictive density of each row's response, [N]: the score of held-out data.

        :param data: rows with the response's column.
        :param unconditional: whether to average the density over uncertain hyperparameters, as
            :meth:`effects` does, rather than to take the fitted ones as known. Only with
            ``variational`` ``"exact"`` or ``"sites"`` (the defaults up to 5000 inducing values):
            the other families of q(U) say nothing of other hyperparameters.
        :return: [N].
        :raises ValueError: as :meth:`predict`; a response outside the family's support.
        """
        averaged = averaged_log_density if unconditional else None
        return prediction.log_density(self.fitted, data, averaged, drop=self.missing == "drop")
