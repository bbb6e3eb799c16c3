"""Data, kernels and fits of IterNCGP that its tests share."""

import gpflow
import numpy as np
from gpflow.likelihoods import Gaussian, Poisson, Softmax

import gpflow_gam as gg
from gpflow_gam.likelihoods.predictive import softmax_mean
from gpflow_gam.models import IterNCGP
from gpflow_gam.newton.solvers import ReducedNewton

N = 50


def fit(
    model: IterNCGP, hyperparameters: bool = False, **options: object
) -> gg.optimizers.FitResult:
    return gg.optimizers.fit(model, hyperparameters=hyperparameters, **options)


def data(rng, n=N, C=3):
    X = rng.uniform(-1, 1, (n, 2))
    f = 2.0 * np.sin(3 * X[:, :1]) + X[:, 1:] ** 2
    return {
        "counts": (X, rng.poisson(np.exp(0.5 * f)).astype(float)),
        "binary": (X, (rng.uniform(size=(n, 1)) < 1 / (1 + np.exp(-f))).astype(float)),
        "real": (X, f + 0.3 * rng.normal(size=(n, 1))),
        "classes": (X, (np.floor(1.5 * (X[:, :1] + 1)) % C).astype(float)),
    }


def kernel():
    return gpflow.kernels.Matern32(1.5, 0.7)


def additive():
    se = gpflow.kernels.SquaredExponential
    return gg.kernels.AdditiveKernel(
        {"a": se(2.0, 0.4, active_dims=[0]), "b": se(1.0, 0.8, active_dims=[1])}
    )


def fitted(name, rng, k=None, likelihood=None, **options):
    likelihood = (
        likelihood
        or {
            "counts": Poisson,
            "binary": gg.likelihoods.Bernoulli,
            "real": lambda: Gaussian(0.1),
            "classes": lambda: Softmax(3),
        }[name]()
    )
    options.setdefault("solver", ReducedNewton(num_actions=200, tolerance=1e-11))
    return made(data(rng)[name], k or kernel(), likelihood, **options)


def made(rows, k, likelihood, **options):
    """Fitted to rows."""
    model = IterNCGP(rows, k, likelihood, **options)
    fit(model)
    return model


def noisy_classes(rng, n, noise=0.0):
    """Three classes in stripes, a share of whose labels are any."""
    X = rng.uniform(-1, 1, (n, 2))
    labels = np.floor(1.5 * (X[:, :1] + 1)) % 3
    wrong = rng.uniform(size=(n, 1)) < noise
    return X, np.where(wrong, rng.integers(0, 3, (n, 1)), labels)


class Joint(gpflow.likelihoods.Likelihood):
    """Of a log-density of all outputs together, and of nothing else."""

    def __init__(self, outputs=2, observed=2):
        super().__init__(input_dim=None, latent_dim=outputs, observation_dim=observed)

    def _unknown(self, *_):
        raise NotImplementedError

    _predict_mean_and_var = _predict_log_density = _variational_expectations = _unknown


def classes_by(model, X, share):
    """Class probabilities by MacKay's approximation, of a share of the posterior's variance."""
    mean, cov = model.predict_f(X, full_output_cov=True)
    return softmax_mean(mean, share * cov).numpy()
