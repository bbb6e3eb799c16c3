"""Non-conjugate GPs by iterated, computation-aware Newton steps."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import AnyNDArray, InputData, MeanAndVariance, Parameter, RegressionData
from gpflow.kernels import Kernel
from gpflow.likelihoods import Bernoulli as GPflowBernoulli
from gpflow.likelihoods import Gaussian, Likelihood
from gpflow.likelihoods.utils import inv_probit
from gpflow.mean_functions import MeanFunction
from gpflow.posteriors import PrecomputeCacheType

from ..bijectors import as_written
from ..kernels import AdditiveKernel
from ..likelihoods import Bernoulli
from ..likelihoods.base import unwrapped
from ..likelihoods.predictive import is_joint
from ..newton.operators import KernelOperator, KernelProduct, LatentKernels
from ..newton.problem import ActionPosteriorState, LaplaceProblem, Run, Solver, mean_at_data
from ..newton.solvers import Variational, named_solver
from ..newton.weights import (
    FixedActions,
    LeftOutRows,
    action_bound,
    equal_values,
    has_classes,
    left_out_rows,
    values_of,
)
from ..posteriors import ActionPosterior
from .additive import DataModel, columns_of

T = TypeVar("T")

_FEW = 10_000
"""Rows up to which the nearest Gaussian is the default."""


class IterNCGP(DataModel):
    """
    A GP with any log-concave likelihood, by matrix-free Newton steps (Tatzel et al. 2025).

    The posterior is Laplace's (Rasmussen & Williams 2006, ch. 3), or the nearest Gaussian, as far
    as it was computed: whatever was not shows as variance. Kernel matrices are never held; time
    goes into *sweeps*, each one pass over the N^2 kernel entries that serves as many right-hand
    sides as there are.
    :func:`~gpflow_gam.optimizers.fit` finds the mode, and learns hyperparameters.

    What a fit has computed are actions and pseudo-observations. Predictions, :meth:`elbo` and their
    gradients are of these under the present values of the parameters, in compiled functions too.
    A kernel, likelihood, mean function, parameter or data that take the place of those of the fit
    need a new fit, and predictions raise before it; functions that were compiled before have to be
    compiled anew. Settings within a part, such as a kernel's active dimensions, must not change.

    Any GPflow kernel will do. Under an :class:`~gpflow_gam.kernels.AdditiveKernel` the posterior
    has its components. A ``gpflow.likelihoods.Bernoulli`` is used without the squeeze of its probit
    into [0.001, 0.999], under which it is not log-concave.

    Class probabilities are MacKay's approximation (1992) under the joint posterior of all latent
    functions, whose variance counts by :meth:`predictive_share`; in compiled functions by that of
    the last fit, or of the last call that was not compiled.

    :param data: X [N, D] and Y [N, K].
    :param kernel: of one output, used for every output of the likelihood; or a
        ``gpflow.kernels.SeparateIndependent`` of one for each.
    :param likelihood: log-concave in its latent functions.
    :param mean_function: m(x); zero by default.
    :param solver: "newton" (:class:`~gpflow_gam.newton.solvers.ReducedNewton`, monotone),
        "variational" (:class:`~gpflow_gam.newton.solvers.Variational`, which goes on from there to
        the nearest Gaussian: surer and better class probabilities, about twice the steps), "itergp"
        (:class:`~gpflow_gam.newton.solvers.IterGP`, the published algorithm), or such an object
        with options of its own. By default "variational" for up to 10 000 rows, and "newton" for
        more, and for normal noise, where both are one.
    :raises TypeError: an argument of the wrong kind.
    :raises ValueError: bad data or options, with what to change.
    """

    def __init__(
        self,
        data: RegressionData,
        kernel: Kernel,
        likelihood: Likelihood,
        *,
        mean_function: MeanFunction | None = None,
        solver: str | Solver | None = None,
    ) -> None:
        likelihood = _smooth(likelihood)
        outputs = likelihood.latent_dim or columns_of(data)
        LatentKernels.of(kernel, outputs)
        super().__init__(kernel, likelihood, mean_function, outputs)
        self.data = data
        if solver is None:  # averages take little time of few rows, and of normal ones are none
            few = self.data[0].shape[0] <= _FEW
            normal = isinstance(unwrapped(self.likelihood), Gaussian)
            solver = "variational" if few and not normal else "newton"
        self.last_fit: Fit | None = None
        self.unfinished: Any = None
        """State that a fit that was ended early has left for the next one."""
        self._cache = _Cache()
        self.solver = solver

    @property
    def solver(self) -> Solver:
        """How a fit finds the posterior; with another one, be it by name, a fit begins anew."""
        return self._solver

    @solver.setter
    def solver(self, solver: str | Solver) -> None:
        self._solver = named_solver(solver)
        self.forget_run()
        if self.last_fit is not None:
            self.last_fit = replace(self.last_fit, complete=False)

    def __getstate__(self) -> dict[str, Any]:
        """State without the cache, for copies, shallow ones too, and files."""
        return {**self.__dict__, "_cache": _Cache(), "unfinished": None}

    def _trackable_children(self, save_type: str = "checkpoint", **options: Any) -> dict[str, Any]:
        """Parts to save; in a SavedModel also the variables that compiled functions read."""
        result: dict[str, Any] = super()._trackable_children(save_type, **options)  # compiles them
        fixed, share = self._cache.actions, self._cache.share
        if save_type == "savedmodel" and fixed is not None:
            result |= fixed.captured() | ({} if share is None else {"share": share})
        return result

    @property
    def latents(self) -> LatentKernels:
        """The independent latent functions."""
        return LatentKernels.of(self.kernel, self.num_latent_gps)

    @property
    def _reader(self) -> AdditiveKernel:
        return self.latents.kernels[0]

    def operator(self) -> KernelOperator:
        """The prior covariance at the data; what is compiled of it is so once a kernel."""
        latents, parts = self.latents, [self.kernel, *self.kernel.variables]
        kept = self._cache.programs
        if kept is None or not _same(kept[0], parts):
            kept = self._cache.programs = parts, [KernelProduct(k) for k in latents.kernels]
        return KernelOperator(latents, self.data[0], kept[1])

    def _kept(self, name: str, fit: Fit | None, compute: Callable[[], T]) -> T:
        """A result, computed anew where fit, parts or parameters are others than the last time."""
        kept = self._cache.results.get(name)
        if kept is None or kept[0] is not fit or not kept[1].is_present(self):
            kept = self._cache.results[name] = fit, Snapshot(self), compute()
        result: T = kept[2]
        return result

    def _checked_inputs(self, Xnew: InputData) -> tf.Tensor:
        Xnew, X = self._numbers(Xnew), self.data[0]
        if Xnew.shape.rank == 2 and Xnew.shape[1] not in (None, X.shape[1]):
            raise ValueError(
                f"Xnew has {Xnew.shape[1]} columns, but the data of the fit have {X.shape[1]}."
            )
        return super()._checked_inputs(Xnew)

    # --- the mode ------------------------------------------------------------------------------

    def problem(self) -> LaplaceProblem:
        """The problem that a solver works on, at the present parameters."""
        self.check_precision(self.data[0])
        return LaplaceProblem(self.operator(), self.likelihood, self.data[1], self.mean_function)

    def run(self, before: ActionPosteriorState | None = None) -> Run:
        """The solver's run at the present parameters: the cached one, or one from ``before``."""
        return self._kept("run", None, lambda: self.solver.start(self.problem(), before))

    def accept(self, state: ActionPosteriorState, complete: bool = False) -> None:
        """Make ``state`` at the present parameters the posterior; ``complete``: no step is left."""
        self.restore(Fit(state.raised(self._mean()), Snapshot(self), complete))

    def restore(self, fit: Fit | None) -> None:
        """Make ``fit``, a :attr:`last_fit` at the parameters of then, the model's again."""
        before, self.last_fit = self.last_fit, fit
        actions = self._cache.actions
        if actions is None:
            return
        if fit is None or before is None or fit.at.replaced(before.at.parts) is not None:
            self._cache.actions = None
            return
        actions.hold(fit.state, fit.at.of_prior()[1])  # compiled functions read it
        if self._cache.share is not None:
            self.predictive_share()

    def forget_run(self) -> None:
        """Have the next fit begin anew."""
        self._cache.results.pop("run", None)
        self.unfinished = None

    @property
    def goes_on(self) -> bool:
        """True if there is a posterior of the present parts, be it at other parameters."""
        return self.last_fit is not None and self.last_fit.at.replaced(parts_of(self)) is None

    @property
    def is_complete(self) -> bool:
        """True if the last fit's solver has nothing more to do at the present parameters."""
        fit = self.last_fit
        return fit is not None and fit.complete and fit.at.is_present(self)

    def objective(self) -> float:
        """
        :meth:`elbo` in double precision, plus log-densities of priors; -inf if not finite.

        :raises ValueError: as :attr:`state` does.
        """

        def compute() -> float:
            try:
                bound, _ = action_bound(self.problem(), *self._actions().noisy())
                result = float(bound) + float(self.log_prior_density())
            except tf.errors.InvalidArgumentError:  # beyond rounding: see action_bound
                result = -np.inf
            return result if np.isfinite(result) else -np.inf

        return self._kept("objective", self._checked_fit(), compute)

    @property
    def state(self) -> ActionPosteriorState:
        """
        The actions, pseudo-observations and weights that the last fit computed.

        :raises ValueError: the model is not fitted, or a part of it was replaced since.
        """
        return self._checked_fit().state.raised(-self._mean())

    def _mean(self) -> tf.Tensor:
        return mean_at_data(self.mean_function, self.operator())

    def _checked_fit(self) -> Fit:
        fit = self.last_fit
        if fit is None:
            raise ValueError(
                "the model is not fitted; call fit(model), of gpflow_gam.optimizers, first."
            )
        replaced = fit.at.replaced(parts_of(self))
        if replaced is not None:
            raise ValueError(
                f"{replaced}: not that of the last fit; it, or a parameter in it, was replaced. "
                "Call fit(model), of gpflow_gam.optimizers, again. (Values may be assigned.)"
            )
        return fit

    # --- hyperparameters -----------------------------------------------------------------------

    @check_shapes("return: []")
    @as_written
    def elbo(self) -> tf.Tensor:
        """
        A lower bound of the evidence, differentiable in all parameters (Wenger et al. 2024).

        q is that of the actions and pseudo-observations of the last fit, which are held, under the
        present kernel: any such q gives a bound. One sweep, and one more for its gradient. Compiled
        functions follow parameters and fits, as predictions do.

        :return: a scalar, [].
        :raises ValueError: the model is not fitted.
        """
        bound, _ = action_bound(self.problem(), *self._actions().noisy())
        return tf.cast(bound, self.data[0].dtype)

    # --- prediction ----------------------------------------------------------------------------

    def _actions(self) -> FixedActions:
        fit = self._checked_fit()
        if self._cache.actions is None:
            parameters, values = fit.at.of_prior()
            prior = self.operator(), self.mean_function
            self._cache.actions = FixedActions(*prior, parameters, fit.state, values)
        return self._cache.actions

    def posterior(
        self, precompute_cache: PrecomputeCacheType | str | None = PrecomputeCacheType.TENSOR
    ) -> ActionPosterior:
        """
        The posterior of the last fit's actions and pseudo-observations at the present parameters.

        :param precompute_cache: ``TENSOR`` (default): a snapshot, of kernel and mean function too:
            it stays what it is whatever becomes of the model, and is differentiable in the inputs;
            ``VARIABLE``: a snapshot that ``update_cache()`` brings up to date, also inside compiled
            functions; ``NOCACHE``: follows the model, and is differentiable in all parameters.
            Both raise ValueError once a part was replaced: make another posterior then.
        :raises ValueError: as :attr:`state` does.
        """
        self._checked_fit()
        # a method, which copies of the posterior have of a copy of the model
        weights = functools.partial(self._weights, parts_of(self))
        return ActionPosterior(
            self.latents,
            self.data[0],
            weights,
            self.mean_function,
            precompute_cache=precompute_cache,
        )

    def _weights(self, parts: dict[str, list[Any]]) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """v, E and E0 at the present parameters, for a posterior of these parts."""
        replaced = self._checked_fit().at.replaced(parts)
        if replaced is not None:
            raise ValueError(
                f"{replaced}: not that of this posterior; it, or a parameter in it, was replaced. "
                "Make another one, model.posterior()."
            )
        return self._actions()()

    def left_out_log_probabilities(self) -> dict[float, float]:
        """
        Mean log-probability of the classes observed, each row predicted from the others.

        By the share of the latent variance that counts: see :meth:`predictive_share`. Rows are
        predicted by the cavities of the posterior at the present parameters: the others'
        pseudo-observations stay what they are. At most a thousand rows, chosen at random, are left
        out; they take their share of a sweep.

        :return: by share of the variance; higher is better.
        :raises ValueError: a likelihood without classes; or as :attr:`state` does.
        """
        return self._left_out().means()

    def _left_out(self) -> LeftOutRows:
        if not has_classes(self.likelihood):
            raise ValueError(
                "class probabilities need a Bernoulli or softmax likelihood; got "
                f"{type(unwrapped(self.likelihood)).__name__}. Use predict_y."
            )

        def compute() -> LeftOutRows:
            averaged = isinstance(self.solver, Variational)
            return left_out_rows(self.problem(), self._actions().state(), averaged)

        return self._kept("left out", self._checked_fit(), compute)

    def predictive_share(self) -> float:
        """
        The share of the latent variance that predictions of classes count.

        All of it, 1, or that share which :meth:`left_out_log_probabilities` prefers by more than
        the standard error of the difference. Of responses that are no classes it is 1.

        :raises ValueError: as :attr:`state` does.
        """
        if not has_classes(self.likelihood):
            return 1.0
        share = self._left_out().share()
        if self._cache.share is not None:  # compiled functions read it
            self._cache.share.assign(share)
        return share

    def _predictive_moments(self, X: tf.Tensor) -> MeanAndVariance:
        joint = is_joint(self.likelihood, self.num_latent_gps)
        mean, var = self.predict_f(X, full_output_cov=joint)
        if not has_classes(self.likelihood):
            return mean, var
        eager = tf.executing_eagerly()
        with tf.init_scope():  # no tape follows
            if not eager and self._cache.share is None:
                self._cache.share = tf.Variable(1.0, trainable=False, dtype=X.dtype)
            now = self.predictive_share()
        return mean, tf.cast(now if eager else self._cache.share, X.dtype) * var

    @as_written
    def predict_f_samples(
        self,
        Xnew: InputData,
        num_samples: int | None = None,
        full_cov: bool = True,
        full_output_cov: bool = True,
    ) -> tf.Tensor:
        """Draws of the latent functions, joint over inputs and outputs by default."""
        X = self._numbers(Xnew)
        if not (full_cov and full_output_cov):
            return super().predict_f_samples(X, num_samples, full_cov, full_output_cov)
        # of sums of components, not of each: outputs may have different ones
        latents, number = self.latents, num_samples or 1
        whole = tuple(AdditiveKernel({"f": k}) for k in latents.kernels)
        posterior = ActionPosterior(
            LatentKernels(whole, latents.num_latents),
            self.data[0],
            lambda: self._actions()(),
            self.mean_function,
        )
        if X.shape.rank == 2:
            draws = posterior.sample_f(self._checked_inputs(X), number)
        else:  # each batch by itself
            flat = tf.reshape(X, tf.concat([[-1], tf.shape(X)[-2:]], axis=0))
            draws = tf.map_fn(lambda x: posterior.sample_f(x, number), flat)
            shape = tf.concat([tf.shape(X)[:-2], tf.shape(draws)[1:]], axis=0)
            draws = tf.reshape(draws, shape)
        return draws if num_samples is not None else draws[..., 0, :, :]


def parts_of(model: IterNCGP) -> dict[str, list[Any]]:
    """Each part of a model with its parameters and other variables; and its data."""
    parts: dict[str, list[Any]] = {}
    for name in ("kernel", "likelihood", "mean_function"):
        part = getattr(model, name)
        # one walk, which is asked for often and takes its time
        found = list(part._flatten(predicate=lambda x: isinstance(x, (Parameter, tf.Variable))))
        parameters = [p for p in found if isinstance(p, Parameter)]
        known = {id(p) for p in parameters} | {id(p.unconstrained_variable) for p in parameters}
        parts[name] = [part, *parameters, *(v for v in found if id(v) not in known)]
    return {**parts, "data": list(model.data)}


class Snapshot:
    """The parts and parameters that a model is made of, and their values, at one time."""

    def __init__(self, model: IterNCGP) -> None:
        self.parts = parts_of(model)
        self.values = {k: values_of(p[1:]) for k, p in self.parts.items() if k != "data"}

    def of_prior(self) -> tuple[list[Any], list[AnyNDArray]]:
        """Parameters of kernel and mean function, and their values."""
        names = "kernel", "mean_function"
        parameters = [p for name in names for p in self.parts[name][1:]]
        return parameters, [value for name in names for value in self.values[name]]

    def replaced(self, parts: dict[str, list[Any]]) -> str | None:
        """The first part, or part with a parameter, that is another object there."""
        for name, before in self.parts.items():
            # parameters of a model that gpflow.utilities.freeze has copied are constants
            kept = [p for p in before if name == "data" or isinstance(p, (tf.Module, tf.Variable))]
            if not _same(kept, parts[name]):
                return name
        return None

    def is_present(self, model: IterNCGP) -> bool:
        """True if the model has these parts and values now."""
        return self.replaced(parts_of(model)) is None and all(
            equal_values(values_of(self.parts[name][1:]), values)
            for name, values in self.values.items()
        )


@dataclass(frozen=True)
class Fit:
    """The result of a fit, and the parameters where it ended."""

    state: ActionPosteriorState  # its targets are S'yhat, with the mean function
    at: Snapshot
    complete: bool = False  # the solver has no steps left at these parameters


@dataclass
class _Cache:
    """Compiled functions and results of a model, which no copy of it shares."""

    programs: tuple[list[Any], list[KernelProduct]] | None = None
    actions: FixedActions | None = None
    share: tf.Variable | None = None
    results: dict[str, tuple[Fit | None, Snapshot, Any]] = field(default_factory=dict)


def _same(some: Sequence[Any], others: Sequence[Any]) -> bool:
    """True if these are the same objects."""
    return len(some) == len(others) and all(a is b for a, b in zip(some, others))


def _smooth(likelihood: Likelihood) -> Likelihood:
    """Ours in the place of GPflow's Bernoulli, whose squeezed probit is not log-concave."""
    if type(likelihood) is GPflowBernoulli:
        links: dict[Callable[..., tf.Tensor], str] = {inv_probit: "probit", tf.sigmoid: "logit"}
        link = links.get(likelihood.invlink)
        if link is not None:
            return Bernoulli(link)
    return likelihood
