"""Outputs with components of their own."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.inducing_variables import SeparateIndependentInducingVariables
from gpflow.kernels import SeparateIndependent

from gpflow_gam import optimizers
from gpflow_gam.inducing_variables import AdditiveInducingVariables
from gpflow_gam.kernels import AdditiveKernel, SeparateAdditive
from gpflow_gam.likelihoods import Heteroskedastic
from gpflow_gam.models import AdditiveSGPR, AdditiveSVGP, AdditiveVGP, IterNCGP
from gpflow_gam.variational import (
    BlockPrecision,
    CoupledCovariance,
    CoupledPrecision,
    MeanField,
    OptimalPrecision,
)

FAMILIES = {
    "mean_field": MeanField,
    "covariance": CoupledCovariance,
    "covariance of U": lambda: CoupledCovariance(whiten=False),
    "precision": lambda: CoupledPrecision(6),
    "block": BlockPrecision,
    "block of U": lambda: BlockPrecision(whiten=False),
    "sites": OptimalPrecision,
}


def _data(n: int = 60) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(n, 2))
    Y = np.sin(6.0 * X[:, :1]) + np.exp(-1.0 + X[:, 1:]) * rng.normal(size=(n, 1))
    return X, Y


def _se(column: int, lengthscale: float, variance: float = 1.0) -> gpflow.kernels.Kernel:
    return gpflow.kernels.SquaredExponential(
        variance=variance, lengthscales=lengthscale, active_dims=[column]
    )


def _kernels() -> list[AdditiveKernel]:
    return [
        AdditiveKernel([_se(0, 0.3), _se(1, 0.6, 0.5)]),
        AdditiveKernel([_se(1, 0.4, 0.3)]),
    ]


def _inducing() -> list[AdditiveInducingVariables]:
    Z = np.linspace(0.0, 1.0, 7)[:, None]
    return [AdditiveInducingVariables([Z, Z[:5]]), AdditiveInducingVariables([Z])]


def _svgp(family: str, likelihood: gpflow.likelihoods.Likelihood | None = None) -> AdditiveSVGP:
    return AdditiveSVGP(
        SeparateIndependent(_kernels()),
        likelihood or Heteroskedastic(),
        SeparateIndependentInducingVariables(_inducing()),
        variational=FAMILIES[family](),
    )


def test_sgpr_is_one_model_an_output() -> None:
    X, y = _data()
    Y = np.concatenate([y, y[::-1] ** 2], axis=1)
    joint = AdditiveSGPR(
        (X, Y),
        SeparateIndependent(_kernels()),
        SeparateIndependentInducingVariables(_inducing()),
        0.1,
    )
    alone = [
        AdditiveSGPR((X, Y[:, [i]]), kernel, inducing, 0.1)
        for i, (kernel, inducing) in enumerate(zip(_kernels(), _inducing()))
    ]
    np.testing.assert_allclose(joint.elbo(), sum(m.elbo() for m in alone), rtol=1e-10)
    new = np.random.default_rng(1).uniform(size=(9, 2))
    for full_cov in (False, True):
        mean, cov = joint.predict_f(new, full_cov=full_cov)
        for i, model in enumerate(alone):
            m, v = model.predict_f(new, full_cov=full_cov)
            np.testing.assert_allclose(mean[:, i], m[:, 0], atol=1e-8)
            own = v[0] if full_cov else v[:, 0]
            np.testing.assert_allclose(cov[i] if full_cov else cov[:, i], own, atol=1e-8)


@pytest.mark.slow_but_first
@pytest.mark.parametrize("family", FAMILIES)
def test_components_stay_with_their_outputs(family: str) -> None:
    """Sums of components are the predictor, and components are zero in other outputs."""
    model = _svgp(family)
    rng = np.random.default_rng(2)
    for variable in model.trainable_variables:  # any q at all
        variable.assign_add(0.1 * rng.normal(size=variable.shape))
    if family == "sites":
        X, Y = _data()
        optimizers.NaturalGradient().step(model, (X, Y))
    new = rng.uniform(size=(6, 2))
    assert model.kernel.names == ("0:f0", "0:f1", "1:f1")
    members = np.array([[1, 1, 0], [0, 0, 1]], dtype=bool)
    for full_cov in (False, True):
        mean, cov = model.posterior().predict_components(new, full_cov=full_cov)
        cov = np.moveaxis(cov, 1, -1) if full_cov else np.moveaxis(cov, 0, -2)[None]
        cov = cov if full_cov else np.moveaxis(cov[0], -2, 0)
        total, _ = model.predict_f(new)
        np.testing.assert_allclose(np.sum(mean, axis=1), total, atol=1e-10)
        assert not np.any(np.asarray(mean)[:, ~members.T])
        which = np.moveaxis(np.asarray(cov), -1, 0)
        for i in range(2):
            for c in range(3):
                own = which[i][c] if full_cov else which[i][:, c]
                assert np.any(own) == members[i, c]
    cross = model.posterior().predict_component_covariance(new)
    np.testing.assert_allclose(np.sum(cross, axis=(1, 2)), model.predict_f(new)[1], atol=1e-10)
    draws = np.asarray(model.posterior().sample_components(new, 3, seed=0))
    assert not np.any(draws[..., ~members.T])
    f = model.posterior().sample_f(new, 3, seed=0)
    np.testing.assert_allclose(draws.sum(axis=2), f, atol=1e-12)
    together = model.predict_f(new, full_cov=True)[1]
    np.testing.assert_allclose(
        np.diagonal(together, axis1=1, axis2=2).T, model.predict_f(new)[1], atol=1e-8
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_q_is_the_prior_where_a_component_does_not_enter(family: str) -> None:
    joint = _svgp(family)
    rng = np.random.default_rng(3)
    for variable in joint.trainable_variables:
        variable.assign_add(0.05 * rng.normal(size=variable.shape))
    if family == "sites":
        optimizers.NaturalGradient().step(joint, _data())
    q = joint.variational.whitened(joint.blocks.cholesky())
    S = q.layout.to_components(q.covariance())
    S = np.asarray(q.layout.to_components(S, axis=-1))
    mean = np.asarray(q.layout.to_components(q.mean))
    np.testing.assert_allclose(S[0][12:, 12:], np.eye(7), atol=1e-12)
    np.testing.assert_allclose(S[1][:12, :12], np.eye(12), atol=1e-12)
    assert not np.any(S[:, :12, 12:])
    assert not np.any([*mean[12:, 0], *mean[:12, 1]])
    kl = 0.0
    for at, i in ((slice(0, 12), 0), (slice(12, 19), 1)):
        own, m = S[i][at, at], mean[at, i]
        kl += 0.5 * (np.trace(own) + m @ m - len(m) - np.linalg.slogdet(own)[1])
    np.testing.assert_allclose(joint.prior_kl(), kl, rtol=1e-8)


def test_shared_component_has_one_name_and_one_kernel() -> None:
    shared = gpflow.kernels.Constant()
    kernel = SeparateAdditive.of(
        {
            "mean": AdditiveKernel({"intercept": shared, "f": _se(0, 0.3)}),
            "scale": AdditiveKernel({"intercept": shared, "f": _se(0, 0.5)}),
        }
    )
    assert kernel.names == ("intercept", "mean:f", "scale:f")
    assert kernel.members.tolist() == [[True, True, False], [True, False, True]]
    assert len(kernel.trainable_parameters) == 5
    assert [k.names for k in kernel.latent_kernels] == [
        ("intercept", "mean:f"),
        ("intercept", "scale:f"),
    ]


def test_other_engines() -> None:
    X, Y = _data(20)
    kernel = SeparateAdditive.of(_kernels())
    with pytest.raises(TypeError, match="AdditiveVGP has one kernel"):
        AdditiveVGP((X, Y), kernel, Heteroskedastic())
    K = gpflow.likelihoods.Softmax(2)
    labels = (Y > 0.0).astype(float)
    ours = IterNCGP((X, labels), kernel, K, solver="newton")
    theirs = IterNCGP(
        (X, labels), SeparateIndependent(list(kernel.latent_kernels)), K, solver="newton"
    )
    for model in (ours, theirs):
        optimizers.fit(model, hyperparameters=False)
    np.testing.assert_allclose(ours.predict_f(X)[0], theirs.predict_f(X)[0], atol=1e-6)


def test_errors() -> None:
    kernel = SeparateAdditive.of(_kernels())
    with pytest.raises(TypeError, match="latent_kernels"):
        kernel(tf.zeros([3, 2], tf.float64))
    Z = np.zeros((1, 1))
    with pytest.raises(ValueError, match="kernel has 2 output"):
        AdditiveSVGP(kernel, gpflow.likelihoods.Softmax(3), AdditiveInducingVariables([Z] * 3))
    with pytest.raises(ValueError, match=r"\[2, 1, 1\]|components an output"):
        AdditiveSVGP(
            kernel,
            Heteroskedastic(),
            SeparateIndependentInducingVariables([AdditiveInducingVariables([Z])] * 2),
        )
    with pytest.raises(TypeError, match="SeparateIndependent of them"):
        AdditiveSVGP(
            SeparateIndependent([_se(0, 1.0)]), Heteroskedastic(), AdditiveInducingVariables([Z])
        )
