"""Gaussian sites of observations: natural gradients, fits on all data and on minibatches."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, RegressionData

from ..covariances import Features
from ..likelihoods.base import checked_data
from ..likelihoods.expectations import expectation_gradients
from ..models import AdditiveSVGP
from ..models.additive import BLOCK, sum_over_rows
from ..variational import DenseGaussian, OptimalPrecision, WhitenedGaussian, double, from_precision
from .minimizers import (
    LBFGS,
    FitResult,
    Options,
    Settling,
    StopFit,
    Traced,
    Tracker,
    fit_lbfgs,
)

Rows = tuple[tf.Tensor, ...]


class DataSites(NamedTuple):
    """One Gaussian site per observation and latent output, on the predictor with m(x)."""

    weight: tf.Tensor  # w_n = -2 dE/dv_n, at least 0, [N, L]: the site's precision
    shift: tf.Tensor  # g_n + w_n rho_n, [N, L]: precision times location


class SiteSums(NamedTuple):
    """Sums of all sites, in group order and double precision, as I + Lambda needs."""

    precision: tf.Tensor  # Lambda = sum_n w_n phi_n phi_n', [L, P, P]
    shift: tf.Tensor  # eta = sum_n (shift_n - w_n m_n) phi_n, [P, L]


def sites_at(
    model: AdditiveSVGP,
    data: RegressionData,
    mean: tf.Tensor,
    var: tf.Tensor,
    signed: bool | tf.Tensor = False,
) -> tuple[tf.Tensor, DataSites, tf.Tensor]:
    """Sites of observations of predictors N(mean, var) [N, L], with m(x) (Khan & Lin 2017)."""
    X, Y = data
    expected, g, w = expectation_gradients(model.likelihood, X, mean, var, Y)
    negative = tf.reduce_sum(tf.cast(w < 0.0, w.dtype))
    w = tf.where(signed, w, tf.maximum(w, 0.0))
    return expected, DataSites(w, g + w * mean), negative


def sums_of(
    model: AdditiveSVGP, features: Features, sites: DataSites, known: tf.Tensor
) -> SiteSums:
    """The sums over rows of which the features and m(x), ``known`` [N, L], are given."""
    phi = model.blocks.layout.concat(features.phi)
    weight = double(tf.transpose(sites.weight))[:, None, :]
    shift = tf.matmul(phi, double(sites.shift - sites.weight * known))
    own = phi[None]
    members = model.blocks.layout.spread(model.kernel.members)
    if members is not None:
        own = own * members[:, :, None]
        shift *= members.T
    return SiteSums(tf.matmul(weight * own, own, transpose_b=True), shift)


def collected(
    model: AdditiveSVGP, cholesky: list[tf.Tensor], X: tf.Tensor, sites: DataSites
) -> SiteSums:
    """The sums over all rows of X [N, D], in memory that does not grow with N."""

    def part(inputs: Rows, X: tf.Tensor, weight: tf.Tensor, shift: tf.Tensor) -> Rows:
        features = model.blocks.features(X, list(inputs))
        return sums_of(model, features, DataSites(weight, shift), model.mean_function(X))

    return SiteSums(*sum_over_rows(part, (X, sites.weight, sites.shift), cholesky))


def q_from(model: AdditiveSVGP, sums: SiteSums) -> DenseGaussian:
    """q(V) with precision I + Lambda and shift eta, in double precision."""
    precision = tf.linalg.set_diag(sums.precision, tf.linalg.diag_part(sums.precision) + 1.0)
    return from_precision(model.blocks.layout, precision, sums.shift)[0]


def elbo_at_sites(model: AdditiveSVGP, data: RegressionData, sites: DataSites) -> tf.Tensor:
    """The bound in hyperparameters at fixed sites (Adam, Chang, Khan & Solin 2021)."""
    X, Y = data
    blocks = model.blocks
    cholesky = blocks.cholesky()
    if X.shape[0] is None or X.shape[0] > BLOCK:
        q = q_from(model, collected(model, cholesky, X, sites))
        return model.expected_log_density(data, cholesky, q) - q.kl()
    features = blocks.features(X, cholesky)  # once, for the sums and for the marginals
    q = q_from(model, sums_of(model, features, sites, model.mean_function(X)))
    mean, var = model.marginals(features, q, X)
    expected = model.likelihood.variational_expectations(X, mean, var, Y)
    return tf.reduce_sum(double(expected)) - q.kl()


class Sweep(NamedTuple):
    """One pass over some rows at a given q; sums in double precision."""

    expected: tf.Tensor  # sum_n E[log p(y_n | rho_n)], []
    sums: SiteSums  # what the rows' sites add up to
    num_negative: tf.Tensor  # how many weights were negative, []


def sweep(
    model: AdditiveSVGP,
    data: RegressionData,
    cholesky: list[tf.Tensor],
    q: WhitenedGaussian,
    signed: bool | tf.Tensor = False,
) -> Sweep:
    """The sites of all rows at q and their sums, in memory of one block of rows."""
    form, number = q.form(), len(cholesky)

    def part(inputs: Rows, X: tf.Tensor, Y: tf.Tensor) -> Rows:
        features = model.blocks.features(X, list(inputs[:number]))
        mean, var = model.marginals(features, form(inputs[number:]), X)
        expected, sites, negative = sites_at(model, (X, Y), mean, var, signed)
        sums = sums_of(model, features, sites, model.mean_function(X))
        return (tf.reduce_sum(double(expected)), *sums, double(negative))

    expected, precision, shift, negative = sum_over_rows(part, data, (*cholesky, *q.tensors()))
    return Sweep(expected, SiteSums(precision, shift), negative)


def data_sites(
    model: AdditiveSVGP,
    data: RegressionData,
    cholesky: list[tf.Tensor],
    q: WhitenedGaussian,
    signed: bool | tf.Tensor = False,
) -> DataSites:
    """The site of every row at q, [N, L] each; features are held for one block of rows only."""
    X, Y = data
    size = int(X.shape[0])
    parts = []
    for at in range(0, size, BLOCK):
        rows = X[at : at + BLOCK], Y[at : at + BLOCK]
        mean, var = model.marginals(model.blocks.features(rows[0], cholesky), q, rows[0])
        parts.append(sites_at(model, rows, mean, var, signed)[1])
    weights, shifts = zip(*parts)
    return DataSites(tf.concat(weights, axis=0), tf.concat(shifts, axis=0))


_LEAST = -0.5  # precision of sites in any direction, beside the prior's of one


@dataclass(frozen=True)
class SiteStep:
    """The ELBO and the negative weights before a natural-gradient step."""

    elbo: float  # of the (mini)batch before the step
    num_negative: int  # observations whose weight was negative: not log-concave there


class NaturalGradient:
    r"""
    Natural-gradient steps for :class:`~gpflow_gam.variational.OptimalPrecision`.

    .. math::
        \Lambda \leftarrow (1-\rho) \Lambda + \rho \sum_n w_n \phi_n \phi_n',\qquad
        \eta \leftarrow (1-\rho) \eta + \rho \sum_n (g_n + w_n m_n) \phi_n

    With rho = 1 on all data this is a variational form of penalised iteratively reweighted least
    squares, and for a Gaussian likelihood it is exact in one step. On minibatches take rho < 1;
    sums are scaled by ``num_data`` over the batch's rows. Weights w_n < 0, which only likelihoods
    that are not log-concave have, count as 0, so that the precision stays positive (Khan & Lin
    2017; Adam, Chang, Khan & Solin 2021), and q is too sure by some percent. With ``signed`` they
    count, but take no more than half of the prior's precision in any direction: right near the
    optimum, and astray far from it.

    :param rho: step size in (0, 1].
    :param signed: whether negative weights count.
    :raises ValueError: a step size outside (0, 1].
    """

    def __init__(self, rho: float = 1.0, signed: bool = False) -> None:
        if not 0.0 < rho <= 1.0:
            raise ValueError(f"rho must be in (0, 1]; got {rho}.")
        self.rho, self.signed = rho, signed
        # not on the model: a module that holds a tf.function cannot be copied
        self._compiled: dict[tuple[AdditiveSVGP, bool], tuple[Any, ...]] = {}

    def step(self, model: AdditiveSVGP, data: RegressionData) -> SiteStep:
        """
        Move q towards its optimum for this batch, at the model's hyperparameters.

        :param model: a :class:`~gpflow_gam.models.AdditiveSVGP` with
            ``variational=OptimalPrecision()``.
        :param data: X [N, D] and Y [N, K], all or a minibatch.
        :return: the ELBO before it, and how many sites had negative weights.
        :raises TypeError: another variational family.
        :raises ValueError: data that are not finite, do not fit together or are no possible
            observations.
        """
        check_sites(model)
        data = checked_data(data, model.kernel, model.likelihood)
        step_size = tf.constant(self.rho, dtype=data[0].dtype)
        # compiled functions keep to what they have read
        parts = model.kernel, model.likelihood, model.mean_function, *model.variables
        key = model, self.signed
        kept, number, compiled = self._compiled.get(key, ((), None, None))
        if list(map(id, kept)) != list(map(id, parts)) or number != model.num_data:
            step = functools.partial(_site_step, model, signed=self.signed)
            compiled = tf.function(step, reduce_retracing=True, autograph=False)
            self._compiled[key] = parts, model.num_data, compiled
        elbo, negative = compiled(data[0], data[1], step_size)
        return SiteStep(float(elbo), int(negative))


def check_sites(model: AdditiveSVGP) -> OptimalPrecision:
    """The model's sites; raises TypeError if it has none."""
    family = getattr(model, "variational", None)
    if not isinstance(family, OptimalPrecision):
        raise TypeError(
            "natural gradients need an AdditiveSVGP with variational=OptimalPrecision(); got "
            f"{type(model).__name__} with {type(family).__name__}. Train that with Adam or L-BFGS."
        )
    return family


def _site_step(
    model: AdditiveSVGP, X: tf.Tensor, Y: tf.Tensor, rho: tf.Tensor, signed: bool
) -> tuple[tf.Tensor, tf.Tensor]:
    """The ELBO before a step, and the number of negative weights."""
    family = check_sites(model)
    cholesky = model.blocks.cholesky()
    q = model.whitened(cholesky)
    seen = sweep(model, (X, Y), cholesky, q, signed)
    precision, shift = family.sites(cholesky)
    rho = tf.cast(rho, precision.dtype)
    scale = tf.cast(1.0, rho.dtype)
    if model.num_data is not None:
        scale = tf.cast(model.num_data, rho.dtype) / tf.cast(tf.shape(X)[0], rho.dtype)
    step = rho * scale

    precision = (1.0 - rho) * precision + step * seen.sums.precision
    shift = (1.0 - rho) * shift + step * seen.sums.shift
    if signed:
        precision, shift = _kept(precision, shift, q.mean)
    family.assign_sites(cholesky, precision, shift)
    return tf.cast(scale * seen.expected - q.kl(), X.dtype), seen.num_negative


def _kept(precision: tf.Tensor, shift: tf.Tensor, mean: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """A site of eigenvalues from :data:`_LEAST` on, and a shift with the same slopes at a mean."""

    def raised() -> tuple[tf.Tensor, tf.Tensor]:
        values, vectors = tf.linalg.eigh(precision)
        more = tf.maximum(_LEAST - values, tf.zeros([], values.dtype))
        added = tf.matmul(vectors * more[:, None, :], vectors, transpose_b=True)
        along = tf.transpose(tf.linalg.matvec(added, tf.transpose(mean)))
        return precision + added, shift + along

    margin = tf.linalg.set_diag(precision, tf.linalg.diag_part(precision) - _LEAST)
    good = tf.reduce_all(tf.math.is_finite(tf.linalg.cholesky(margin)))
    return tf.cond(good, lambda: (precision, shift), raised)


_MAX_ROUNDS = 100
_MAX_SITE_STEPS = 50
_MAX_HALVINGS = 30
_FIRST_STEPS, _MOST_STEPS = 10, 80
"""L-BFGS iterations a round: few while sites are stale, doubling as they settle."""


def fit_sites(
    model: AdditiveSVGP,
    data: RegressionData,
    tracker: Tracker,
    max_iterations: int,
    max_rounds: int = _MAX_ROUNDS,
) -> FitResult:
    """Fit q by its sites and hyperparameters by L-BFGS, on all data, in turn."""
    sites, tolerance, settling = _Sites(model, data), tracker.tolerance, Settling()
    converged, message = False, f"round limit of {max_rounds} reached"
    with tracker:
        try:
            bound = sites.converge(tracker, tolerance)
            if not model.trainable_variables:
                return tracker.result(True, "no hyperparameter is trainable", bound)
            for k in range(max_rounds):
                step = settling.step(tolerance)
                sites.improve(tracker, step, min(_FIRST_STEPS * 2**k, _MOST_STEPS))
                new = sites.converge(tracker, tolerance)
                gain, bound = new - bound, new
                if converged := settling.after(gain, tolerance):
                    message = f"the last round of site and hyperparameter steps gained {gain:.2g}"
                    break
                if len(tracker.history) >= max_iterations:
                    message = f"iteration limit of {max_iterations} reached"
                    break
        except (StopFit, KeyboardInterrupt) as error:
            converged, message, bound = False, tracker.why(error), sites.settle()
        return tracker.result(converged, message, bound)


class _Sites:
    """Natural-gradient steps at fixed hyperparameters, and L-BFGS on these at fixed sites."""

    # Negative weights count last: with zeros every step leads to a posterior, which is too sure.

    def __init__(self, model: AdditiveSVGP, data: RegressionData) -> None:
        family = check_sites(model)
        rows, outputs = int(data[0].shape[0]), model.num_latent_gps
        zeros = tf.zeros([rows, outputs], dtype=data[0].dtype)
        held = [tf.Variable(zeros, trainable=False) for _ in range(2)]  # the sites of rows
        self._signed = signed = tf.Variable(False, trainable=False)

        @Traced
        def visit(precision: tf.Tensor, shift: tf.Tensor) -> tuple[tf.Tensor, ...]:
            """Take the site; return the bound there, the sites' sums and negative ones at its q."""
            cholesky = model.blocks.cholesky()
            family.assign_sites(cholesky, precision, shift)
            q = model.whitened(cholesky)
            seen = sweep(model, data, cholesky, q, signed)
            bound = seen.expected - q.kl()
            bound += tf.cast(model.log_prior_density(), bound.dtype)
            return bound, seen.sums.precision, seen.sums.shift, seen.num_negative

        @Traced
        def remember() -> None:
            cholesky = model.blocks.cholesky()
            now = data_sites(model, data, cholesky, model.whitened(cholesky), signed)
            for variable, value in zip(held, now):
                variable.assign(value)

        def loss() -> tf.Tensor:
            bound = elbo_at_sites(model, data, DataSites(*map(tf.identity, held)))
            return -(bound + tf.cast(model.log_prior_density(), bound.dtype))

        @Traced
        def collect() -> SiteSums:
            sites = DataSites(*map(tf.identity, held))
            return collected(model, model.blocks.cholesky(), data[0], sites)

        self._visit, self._remember, self._collect = visit, remember, collect
        self._lbfgs = LBFGS(loss, model.trainable_variables, model, data[0])
        self.present = SiteSums(*family.sites(model.blocks.cholesky()))

    def improve(self, tracker: Tracker, step: float, max_iterations: int) -> None:
        """Some iterations of L-BFGS; sites are carried to where they end, come what may."""
        self._remember()
        try:
            self._lbfgs.run(tracker, max_iterations=max_iterations, tolerance=step)
        finally:
            self.present = self._collect()

    def settle(self) -> float:
        return float(self._visit(*self.present)[0])

    def converge(self, tracker: Tracker, tolerance: float) -> float:
        """Steps of rho = 1, halved where the bound would fall; returns the bound."""
        bound, *target, negative = self._visit(*self.present)
        tracker.record(float(bound))
        for _ in range(_MAX_SITE_STEPS):
            moved = self._step(float(bound), SiteSums(*target), tracker)
            ends = moved is None
            if moved is not None:
                new, *target, negative = moved
                ends = float(new) - float(bound) < 0.1 * tolerance
                bound = new
                tracker.record(float(bound))
            if ends and not bool(self._signed) and float(negative) > 0.0:
                self._signed.assign(True)
                bound, *target, negative = self._visit(*self.present)
            elif ends:
                if moved is None:
                    self.settle()
                break
        return float(bound)

    def _step(
        self, bound: float, target: SiteSums, tracker: Tracker
    ) -> tuple[tf.Tensor, ...] | None:
        old, rho = self.present, 1.0
        for _ in range(_MAX_HALVINGS):
            tracker.check()
            trial = SiteSums(*((1.0 - rho) * a + rho * b for a, b in zip(old, target)))
            try:
                seen: tuple[tf.Tensor, ...] = self._visit(*trial)
                if float(seen[0]) >= bound - 1e-10 * abs(bound):  # false for NaN
                    self.present = trial
                    return seen
            except tf.errors.InvalidArgumentError:
                pass  # the weights overflowed: too long a step
            rho *= 0.5
        return None


_FALLEN = 5.0  # standard errors by which negative weights may make the ELBO fall
POLISH_ROWS = 200_000  # rows up to which all data are used for some steps after the last epoch
_POLISH_ROUNDS, _POLISH_STEPS = 10, 200
"""Rounds of sites and hyperparameters, and iterations in all, on all data."""
_SEEN = 1.0  # nats: where the noise of epochs is more, an end without a trend shows no optimum


class Trend(NamedTuple):
    """The gain of some epochs on as many before, beside the noise of the two means."""

    gain: float  # difference of the means, in nats
    error: float  # its standard error, in nats


def trend(values: Sequence[float], epochs: int) -> Trend | None:
    """The last ``epochs`` values against those before, noise by differences (von Neumann 1941)."""
    if len(values) < 2 * epochs:
        return None
    last = np.asarray(values[-2 * epochs :])
    steps = np.diff(last)
    noise = np.std(steps) / np.sqrt(2.0)
    return Trend(float(last[epochs:].mean() - last[:epochs].mean()), noise * np.sqrt(2.0 / epochs))


def fit_minibatches(
    model: AdditiveSVGP, data: RegressionData, tracker: Tracker, options: Options
) -> FitResult:
    """Epochs of minibatch steps until their ELBO has no trend, then some steps on all rows."""
    # The last epochs are compared with those before, by the standard error of the difference.
    # Without a gain the learning rate is lowered tenfold; the second time the epochs end. Negative
    # weights of sites count from the first time on, unless the ELBO falls by that. Up to
    # POLISH_ROWS rows the rest is gained on all data; beyond, an end counts as converged if the
    # noise was below one nat. A budget or interruption leaves the parameters of the best epoch.
    rows = int(data[0].shape[0])
    num_data, model.num_data = model.num_data, rows
    with tracker:
        settled = False
        try:
            end = _epochs(model, data, tracker, options)
            converged, message, settled = end is not None and end.error <= _SEEN, "", True
            if end is None:
                settled, message = False, f"epoch limit of {options.max_iterations} reached"
            else:
                message = (
                    f"minibatches ended without a trend (the last {options.patience} epochs gained "
                    f"{end.gain:.2g} nats on those before, with a standard error of "
                    f"{end.error:.2g})"
                )
        except (StopFit, KeyboardInterrupt) as error:
            converged, message = False, tracker.why(error)
            tracker.restore_best()
        finally:
            model.num_data = num_data
        if settled and rows <= POLISH_ROWS:
            if isinstance(model.variational, OptimalPrecision):
                limit = len(tracker.history) + _POLISH_STEPS
                polished = fit_sites(model, data, tracker, limit, _POLISH_ROUNDS)
            else:
                polished = fit_lbfgs(model, data, tracker, _POLISH_STEPS)
            return dataclasses.replace(
                polished, message=f"{message}; then, on all rows: {polished.message}"
            )
        if settled:
            message += f"; no steps on all rows, of which there are {rows}, more than {POLISH_ROWS}"
            if not converged:
                message += ": improvements below that noise were not looked for"
        elbo = Traced(lambda *rows: model.elbo(rows))(*data)
        return tracker.result(converged, message, float(elbo + model.log_prior_density()))


def _epochs(
    model: AdditiveSVGP, data: RegressionData, tracker: Tracker, options: Options
) -> Trend | None:
    """The trend at the end, None at the limit of epochs."""
    steps = None
    if isinstance(model.variational, OptimalPrecision):
        # not NaturalGradient, which looks for replaced parts at each step: half of its time
        steps = [Traced(functools.partial(_site_step, model, signed=s)) for s in (False, True)]
    rho, signed = options.rho, False
    variables = list(model.trainable_variables)
    adam = keras.optimizers.Adam(options.learning_rate)
    adam.build(variables)

    @Traced
    def gradient_step(X: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = model.training_loss((X, Y))
        adam.apply(tape.gradient(loss, variables, unconnected_gradients="zero"), variables)
        return -loss

    (X, Y), batch_size = data, options.batch_size or int(data[0].shape[0])
    rng = np.random.default_rng(options.seed)
    means: list[float] = []
    lowered, unsigned, least = False, True, -np.inf
    for _ in range(options.max_iterations):
        values, sizes, negative = [], [], 0
        for rows in _batches(rng, int(X.shape[0]), batch_size):
            batch = tf.gather(X, rows), tf.gather(Y, rows)
            sizes.append(len(rows))
            if steps is not None:
                value, count = steps[signed](*batch, tf.constant(rho, X.dtype))
                values.append(float(value))
                negative += int(count)
                if variables:
                    gradient_step(*batch)
            else:
                values.append(float(gradient_step(*batch)))
            tracker.check()
        mean = float(np.average(values, weights=sizes))
        if not np.isfinite(mean):
            raise StopFit("the ELBO became NaN or infinite; lower learning_rate or rho")
        tracker.record(mean)
        if mean < least and signed:
            signed, means = False, []
        means.append(mean)
        now = trend(means, options.patience)
        if now is None or now.gain > max(options.tolerance, now.error):
            continue
        if negative and unsigned:
            signed, unsigned, means = True, False, []
            least = mean - max(1.0, _FALLEN * now.error)
            continue
        if lowered:
            return now
        lowered, means = True, []
        adam.learning_rate.assign(0.1 * options.learning_rate)
        rho = 0.1 * options.rho
    return None


def _batches(rng: np.random.Generator, rows: int, size: int) -> Iterator[AnyNDArray]:
    """Every row once, in batches that differ by one row at most: to leave some out adds noise."""
    yield from np.array_split(rng.permutation(rows), -(-rows // size))
