"""Every family of q(U) against dense, loop-written numpy."""

import gpflow
import numpy as np
import problems
import pytest
import tensorflow as tf
from test_package import script

import gpflow_gam as gg
from gpflow_gam.covariances import InducingBlocks
from gpflow_gam.variational import factor_analysis

vi = gg.variational

FAMILIES = {
    "mean field": lambda: vi.MeanField(),
    "coupled covariance": lambda: vi.CoupledCovariance(),
    "coupled precision": lambda: vi.CoupledPrecision(rank=5),
    "optimal precision": lambda: vi.OptimalPrecision(),
    "block precision": lambda: vi.BlockPrecision(rank=3),
}


def blocks_in_component_order(family, parameters, index):
    """Group parameters [L, G, M, M] -> the [M_c, M_c] of each component, for output ``index``."""
    result = {}
    for indices, W in zip(family.layout.groups, parameters):
        for row, component in enumerate(indices):
            result[component] = W.numpy()[index, row]
    return [result[c] for c in range(family.layout.num_components)]


def block_diag(blocks):
    P = sum(len(b) for b in blocks)
    out, start = np.zeros((P, P)), 0
    for b in blocks:
        out[start : start + len(b), start : start + len(b)] = b
        start += len(b)
    return out


def reference_q(family, root, index):
    """Mean and covariance of U in component order, by the family's definition."""
    K = root @ root.T
    P = len(K)
    if isinstance(family, vi.OptimalPrecision):
        own = {}
        for indices, blocks in zip(family.layout.groups, family.reference):
            own |= dict(zip(indices, blocks.numpy()))
        L0 = block_diag([own[c] for c in range(len(own))])
        site = np.linalg.solve(L0.T, family.site_precision.numpy()[index])
        site = np.linalg.solve(L0.T, site.T)  # L_0^-T Lambda L_0^-1, the precision of t(U)
        S = np.linalg.inv(np.linalg.inv(K) + site)
        return S @ np.linalg.solve(L0.T, family.site_shift.numpy()[:, index]), S
    mean = family.q_mu.numpy()[:, index]
    if isinstance(family, vi.MeanField):
        W = block_diag(blocks_in_component_order(family, family.q_sqrt, index))
        S = W @ W.T
    elif isinstance(family, vi.CoupledCovariance):
        W = family.q_sqrt.numpy()[index]
        S = W @ W.T
    elif isinstance(family, vi.CoupledPrecision):
        B = family.B.numpy()[index]
        S = np.linalg.inv(np.eye(P) + B @ B.T)
    else:
        W = block_diag(blocks_in_component_order(family, family.q_sqrt, index))
        C = family.coupling.numpy()[index]
        D = np.linalg.inv(W @ W.T)
        B = np.linalg.solve(W.T, C)
        S = np.linalg.inv(D + B @ B.T)
    return root @ mean, root @ S @ root.T


@pytest.fixture(params=FAMILIES.values(), ids=FAMILIES)
def family(request):
    return request.param()


@pytest.mark.slow_but_first
def test_kl_and_marginals_against_dense_numpy(family, problem, rng):
    num_latent = 2
    kernel = problem.kernel()
    model = gg.models.AdditiveSVGP(
        kernel,
        gpflow.likelihoods.Gaussian(),
        problem.inducing(),
        variational=family,
        num_latent_gps=num_latent,
    )
    problems.randomise(family, rng)
    X = problem.X[:9]
    reference = problems.dense(list(kernel.kernels), list(problem.Z.values()), X, 1e-6)
    posterior = model.posterior()
    mean, var = (a.numpy() for a in posterior.predict_f(X))
    _, cov = posterior.predict_f(X, full_cov=True)
    c_mean, c_var = (a.numpy().reshape(9, -1, num_latent) for a in posterior.predict_components(X))
    c_cov = posterior.predict_components(X, full_cov=True)[1].numpy()
    c_cov = c_cov.reshape(-1, num_latent, 9, 9)
    cross = posterior.predict_component_covariance(X).numpy().reshape(9, 8, 8, num_latent)
    kl = 0.0
    for index in range(num_latent):
        m_U, S_U = reference_q(family, reference.root, index)
        # through U itself, not V: another route than the code's
        m = np.linalg.solve(reference.root, m_U)
        S = np.linalg.solve(reference.root, np.linalg.solve(reference.root, S_U).T).T
        kl += problems.gauss_kl(m, S)
        start, total, total_var = 0, np.zeros(9), np.zeros((9, 9))
        for c, phi in enumerate(reference.phi):
            at = slice(start, start + len(phi))
            own = phi.T @ m[at]
            own_cov = reference.prior_full[c] - phi.T @ phi + phi.T @ S[at, at] @ phi
            np.testing.assert_allclose(c_mean[:, c, index], own, atol=2e-7)
            np.testing.assert_allclose(c_var[:, c, index], np.diag(own_cov), atol=2e-7)
            np.testing.assert_allclose(c_cov[c, index], own_cov, atol=2e-7)
            total += own
            total_var += own_cov
            other = 0
            for d, phi_d in enumerate(reference.phi):
                if d != c:
                    between = phi.T @ S[at, other : other + len(phi_d)] @ phi_d
                    total_var += between
                    np.testing.assert_allclose(cross[:, c, d, index], np.diag(between), atol=2e-7)
                other += len(phi_d)
            np.testing.assert_allclose(cross[:, c, c, index], np.diag(own_cov), atol=2e-7)
            start += len(phi)
        np.testing.assert_allclose(mean[:, index], total, atol=2e-7)
        np.testing.assert_allclose(var[:, index], np.diag(total_var), atol=5e-7)
        np.testing.assert_allclose(cov[index], total_var, atol=5e-7)
    np.testing.assert_allclose(model.prior_kl(), kl, rtol=1e-6)


def test_starts_at_the_prior(family, problem):
    """Every family starts at (or, with a low rank to learn, within half a nat of) the prior."""
    model = problem.svgp(variational=family)
    start = float(model.prior_kl())
    low_rank = isinstance(family, vi.CoupledPrecision | vi.BlockPrecision)
    assert start == pytest.approx(0.0, abs=0.5 if low_rank else 1e-7)


def test_match_reaches_a_target_within_the_family(problem, rng):
    """match() is exact where the family holds the target."""
    kernel, inducing = problem.kernel(), problem.inducing()
    blocks = InducingBlocks(inducing, kernel)
    layout, cholesky = blocks.layout, blocks.cholesky()
    P = layout.total
    mean = tf.constant(rng.standard_normal((P, 1)))
    low = rng.standard_normal((P, 3))
    dense_target = np.eye(P) + low @ low.T
    block_target = np.zeros((P, P))
    start = 0
    for G, M in layout.group_shapes:
        for _ in range(G):
            A = rng.standard_normal((M, M))
            block_target[start : start + M, start : start + M] = np.eye(M) + A @ A.T
            start += M
    for family, target in [
        (vi.MeanField(), block_target),
        (vi.CoupledCovariance(), dense_target),
        (vi.CoupledPrecision(rank=3), dense_target),
        (vi.BlockPrecision(rank=3), dense_target),
        (vi.BlockPrecision(rank=3), block_target),
        (vi.OptimalPrecision(), dense_target),
    ]:
        family.build(layout, 1)
        family.match(cholesky, mean, tf.constant(target[None]))
        q = family.whitened(cholesky)
        np.testing.assert_allclose(q.mean, mean, atol=1e-8)
        if isinstance(family, vi.BlockPrecision):  # found by iteration
            A_S = target @ q.covariance()[0].numpy()
            kl = 0.5 * (np.trace(A_S) - P - np.linalg.slogdet(A_S)[1])
            assert kl < 2e-3
        else:
            np.testing.assert_allclose(q.covariance()[0], np.linalg.inv(target), atol=1e-7)


def test_a_family_belongs_to_one_model_and_has_a_rank_below_its_size(problem):
    with pytest.raises(ValueError, match="rank must be a whole number of at least 1"):
        vi.BlockPrecision(rank=0)
    with pytest.raises(ValueError, match=f"rank=1000 exceeds .* P={problem.total}"):
        problem.svgp(variational=vi.BlockPrecision(rank=1000))
    family = vi.MeanField()
    with pytest.raises(ValueError, match="has no sizes yet"):
        _ = family.layout
    options = {"variational": family}
    likelihood = gpflow.likelihoods.Gaussian()
    problem.svgp(likelihood, **options)
    with pytest.raises(ValueError, match="belongs to a model already"):
        problem.svgp(likelihood, **options)


def test_factor_analysis_finds_all_its_columns_where_eigenvalues_are_equal():
    """LAPACK finds six of the eight largest of this matrix, if it is asked for no more."""
    rng = np.random.default_rng(55)
    coupling = np.zeros((30, 30))
    coupling[:3, 15:18] = rng.normal(size=(3, 3)) * 0.2
    turns = [np.linalg.qr(rng.normal(size=(15, 15)))[0] for _ in range(2)]
    Q = block_diag(turns)
    A = Q @ (np.eye(30) + coupling + coupling.T) @ Q.T
    A = 0.5 * (A + A.T)
    D, B = factor_analysis(A, [15, 15], 8)
    assert B.shape == (30, 8)
    A_S = A @ np.linalg.inv(block_diag(D) + B @ B.T)
    assert 0.5 * (np.trace(A_S) - 30 - np.linalg.slogdet(A_S)[1]) < 1e-3


families = script("benchmarks/families.py")


@pytest.mark.slow_but_first
@pytest.mark.parametrize("correlation", families.CORRELATIONS)
def test_how_far_each_family_is_from_the_exact_posterior(correlation):
    model = families.make_model(5000, correlation)

    def kl(name: str) -> float:
        return families.best_of_family(families.FAMILIES[name](), model, 300)[1]

    assert kl("mean field") > 20.0
    assert kl("precision, R = 16 (= M)") > 300.0
    assert kl("precision, R = 32") < 3.0
    assert kl("block precision, R = 8") < 0.1
