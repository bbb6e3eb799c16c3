"""Draws from Gaussians on which linear inequalities are imposed."""

from __future__ import annotations

import dataclasses

import numpy as np
from gpflow.base import AnyNDArray
from scipy.optimize import nnls

_CHAINS = 250
"""Chains that run side by side."""
_BURN_IN = 15
_TIME = 0.5 * np.pi
"""Of one trajectory: without inequalities, after it a draw knows nothing of the one before."""
_INSIDE = 1e-2
"""How far inside chains begin, in standard deviations."""


@dataclasses.dataclass(frozen=True)
class Truncation:
    """
    A Gaussian over whitened inducing values, and what of them is not negative.

    :param mean: before truncation, [P, L].
    :param covariance: before truncation, [L, P, P].
    :param rows: A [n, P]: of draws V of an output, A V is not negative.
    :param outputs: in which outputs each row holds, [L, n] of bool.
    :param components: places of the components that have a shape.
    """

    mean: AnyNDArray
    covariance: AnyNDArray
    rows: AnyNDArray
    outputs: AnyNDArray
    components: tuple[int, ...]

    def sample(self, num_samples: int, seed: int) -> AnyNDArray:
        """
        Draws of V, [S, P, L].

        :param num_samples: S.
        :param seed: makes them reproducible.
        """
        rng = np.random.default_rng(seed)
        draws = [
            sample_truncated(m, S, self.rows[own], num_samples, rng)
            for m, S, own in zip(self.mean.T, self.covariance, self.outputs)
        ]
        return np.stack(draws, axis=-1)


def sample_truncated(
    mean: AnyNDArray,
    covariance: AnyNDArray,
    rows: AnyNDArray,
    num_samples: int,
    rng: np.random.Generator,
) -> AnyNDArray:
    """
    Draws x of N(mean, covariance) given ``rows x >= 0``, [S, P].

    Exact Hamiltonian Monte Carlo (Pakman & Paninski 2014): between walls a particle in a Gaussian's
    well goes round on an ellipse, and at a wall it is reflected, so that every step is accepted.
    Many chains run side by side from inside the walls; what the inequalities do not touch is drawn
    directly.

    :param mean: [P].
    :param covariance: [P, P].
    :param rows: [n, P], n <= P.
    :param num_samples: S.
    :param rng: of the draws.
    :raises ValueError: nothing satisfies all of the inequalities with some room.
    """
    root = _square_root(covariance)
    free = rng.standard_normal((num_samples, len(mean)))
    if not len(rows):
        found: AnyNDArray = mean + free @ root.T
        return found
    # x = mean + root z; of z only what rows see is bound, W' z for an orthonormal W [P, r]
    U, sizes, Wt = np.linalg.svd(rows @ root, full_matrices=False)
    walls, gap = U * sizes, rows @ mean
    scale = np.maximum(np.linalg.norm(walls, axis=1), 1e-300)
    bound = _bounce(walls / scale[:, None], gap / scale, num_samples, rng)
    z = free + (bound - free @ Wt.T) @ Wt
    draws: AnyNDArray = mean + z @ root.T
    return draws


def _square_root(covariance: AnyNDArray) -> AnyNDArray:
    values, vectors = np.linalg.eigh(covariance)
    found: AnyNDArray = vectors * np.sqrt(np.maximum(values, 0.0))
    return found


def _inside(walls: AnyNDArray, gap: AnyNDArray) -> AnyNDArray:
    """The shortest z [r] with ``walls z + gap`` at least :data:`_INSIDE` (Lawson & Hanson 1974)."""
    needed = _INSIDE - gap
    if np.all(needed <= 0.0):
        return np.zeros(walls.shape[1])
    # least distance programming, the problem scaled to about one
    size = float(np.max(np.abs(needed)))
    E = np.concatenate([walls.T, needed[None, :] / size])
    f = np.zeros(len(E))
    f[-1] = 1.0
    left = E @ nnls(E, f, maxiter=50 * len(gap))[0] - f
    if abs(left[-1]) < 1e-10:
        raise ValueError("no function has the shape that was asked for with some room.")
    found: AnyNDArray = -size * left[:-1] / left[-1]
    # rounding of a problem that is nearly singular
    found *= 1.0 + 1e-6
    return found


def _bounce(
    walls: AnyNDArray, gap: AnyNDArray, num_samples: int, rng: np.random.Generator
) -> AnyNDArray:
    """
    Draws of standard normal z [S, r] with ``walls z + gap >= 0``.

    :param walls: [n, r], of unit length.
    :param gap: [n].
    """
    n, r = walls.shape
    chains = min(num_samples, _CHAINS)
    kept = -(-num_samples // chains)
    gram = walls @ walls.T
    z = np.repeat(_inside(walls, gap)[None, :], chains, axis=0)
    found = np.empty((kept, chains, r))
    for step in range(_BURN_IN + kept):
        z = _trajectory(z, rng.standard_normal((chains, r)), walls, gap, gram)
        if step >= _BURN_IN:
            found[step - _BURN_IN] = z
    return found.reshape(-1, r)[:num_samples]


def _trajectory(
    z: AnyNDArray, p: AnyNDArray, walls: AnyNDArray, gap: AnyNDArray, gram: AnyNDArray
) -> AnyNDArray:
    """Where particles at z [c, r] with velocities p [c, r] are after :data:`_TIME`."""
    ends = np.empty_like(z)
    moving = np.arange(len(z))
    left = np.full(len(z), _TIME)
    a, b = z @ walls.T, p @ walls.T  # position and velocity across each wall
    while len(moving):
        reach = np.hypot(a, b)
        # a cos t + b sin t + gap = 0, on the way down
        cosine = np.divide(-gap, reach, out=np.full_like(reach, 2.0), where=reach > 0.0)
        hits = np.abs(cosine) < 1.0
        turn = np.arccos(np.where(hits, cosine, 1.0)) + np.arctan2(-b, a) * -1.0
        when = np.where(hits, np.mod(turn, 2.0 * np.pi), np.inf)
        first = np.argmin(when, axis=1)
        every = np.arange(len(moving))
        t = np.minimum(when[every, first], left)
        c, s = np.cos(t)[:, None], np.sin(t)[:, None]
        z, p = c * z + s * p, c * p - s * z
        done = when[every, first] >= left
        ends[moving[done]] = z[done]
        on = ~done
        moving, first, left = moving[on], first[on], (left - t)[on]
        z, p = z[on], p[on]
        a, b = (c * a + s * b)[on], (c * b - s * a)[on]
        across = 2.0 * b[np.arange(len(moving)), first][:, None]
        p = p - across * walls[first]
        b = b - across * gram[first]
        a[np.arange(len(moving)), first] = -gap[first]
    return ends
