"""Rows left out where terms have a shape: cavities of functions of any shape, projected."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from gpflow.base import AnyNDArray

from ...optimizers.binned.cavities import Cavity, Neighbourhoods, RowPosterior, Sites
from ...posteriors.shaped import Projection

_DRAWS = 1000
"""Of functions, behind variances."""
_DRAWS_EACH = 400
"""The same, where each neighbourhood has draws of its own."""
_TOGETHER = 1024
"""Rows at a time."""
_LEVER = 0.1
"""
Share of what is known of a row that it has said itself, from which on it is projected anew without
itself. These shares add up to the degrees of freedom: such rows are few, however many there are.
"""


class ShapedCavities:
    r"""
    The predictor of rows without sites, under inequalities.

    What a fit says under a shape is the Gaussian of functions of any shape, projected on the cone
    of those that have it (:class:`~gpflow_gam.posteriors.shaped.Projection`): the estimate is
    the projected mean, variances are those of projected draws around it. Without a row it is the
    same of the Gaussian without the row's site.

    :param posterior: of functions of any shape, at rows.
    :param sites: of the rows.
    :param inequalities: what is not negative of V, [n, P], one matrix an output.
    """

    def __init__(
        self, posterior: RowPosterior, sites: Sites, inequalities: Sequence[AnyNDArray]
    ) -> None:
        self._posterior, self._sites, self._inequalities = posterior, sites, inequalities

    def _projection(self, output: int, mean: AnyNDArray, covariance: AnyNDArray) -> Projection:
        return Projection(mean, covariance, self._inequalities[output])

    def one_by_one(self) -> Iterator[tuple[AnyNDArray, Cavity]]:
        r"""
        Every row without its own site.

        A draw u of the Gaussian is the optimum of data with noise added, and so is its projection,
        which is linear in them as long as the inequalities that hold it stay the same ones. With
        :math:`h, h_A` the variance at the row without and with those held to equality, w and s
        the site's precision and shift, and :math:`a_A` the projected draw there, it is

        .. math:: (a_A - h_A b) / (1 - w h_A), \quad b = s + w (a - \mu) / (1 + \sqrt{1 - w h})

        without the row: by Sherman & Morrison (1950), a - mu being the draw's deviation from the
        mean. A row that says much of its predictor may decide which inequalities hold it: these few
        are projected anew.

        :return: blocks of rows by number, and what is left of each.
        """
        own, number = self._posterior, len(self._sites.weight)
        outputs = range(self._sites.weight.shape[1])
        found = [self._projection(i, *own.moments(i)).draws(_DRAWS) for i in outputs]
        for start in range(0, number, _TOGETHER):
            which = np.arange(start, min(start + _TOGETHER, number))
            phi, left = own.features(which)
            mean, var, posterior = (np.zeros((len(which), len(outputs))) for _ in range(3))
            heavy = np.zeros(len(which), bool)
            for i, draws in enumerate(found):
                w, s = self._sites.weight[which, i], self._sites.shift[which, i]
                of_mean, spread = np.zeros(len(which)), np.zeros(len(which))
                z = draws.root @ own.of(i, phi)  # [P, n]
                centre = own.moments(i)[0] @ own.of(i, phi)
                h = np.sum(np.square(z), axis=0)
                with np.errstate(divide="ignore", invalid="ignore"):
                    turned = w / (1.0 + np.sqrt(1.0 - w * h))
                    for some, held in draws.touching:  # the mean's first
                        h_A = np.maximum(h - np.sum(np.square(held.T @ z), axis=0), 0.0)
                        b = s + turned * (draws.free[some] @ z)
                        f = (centre + draws.projected[some] @ z - h_A * b) / (1.0 - w * h_A)
                        if some[0] == 0:
                            of_mean, f = f[0], f[1:]
                        spread += np.sum(np.square(f - of_mean), axis=0)
                mean[:, i], var[:, i] = of_mean, spread / (len(draws.free) - 1)
                posterior[:, i] = centre + draws.projected[0] @ z
                heavy |= np.abs(w * h) > _LEVER
            for n in np.flatnonzero(heavy):
                mean[n], var[n] = self._anew(which[n : n + 1], phi[:, n : n + 1])
            yield which, own.trusted(mean, var, posterior, phi, left)

    def by_neighbourhood(
        self, neighbourhoods: Neighbourhoods
    ) -> Iterator[tuple[AnyNDArray, Cavity]]:
        """
        Every row without the sites of its neighbourhood, projected for each anew.

        :return: blocks of rows by number, and what is left of each.
        """
        own, outputs = self._posterior, range(self._sites.weight.shape[1])
        estimates = [self._projection(i, *own.moments(i)).mean for i in outputs]
        for out, which in zip(neighbourhoods.out, neighbourhoods.predicted):
            phi, left = own.features(which)
            known = [estimate @ own.of(i, phi) for i, estimate in enumerate(estimates)]
            mean, var = self._anew(out, phi)
            yield which, own.trusted(mean, var, np.stack(known, axis=1), phi, left)

    def _anew(self, out: AnyNDArray, phi: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray]:
        """
        Mean and variance [n, L] without some rows' sites, projected anew; NaN where there are none.

        :param out: these rows, by number.
        :param phi: features of the rows predicted, [P, n].
        """
        own, gone = self._posterior, self._posterior.features(out)[0]
        mean, var = np.full((2, phi.shape[1], self._sites.weight.shape[1]), np.nan)
        for i in range(mean.shape[1]):
            free = own.without(i, gone, self._sites.weight[out, i], self._sites.shift[out, i])
            if free is not None:
                projection, at = self._projection(i, *free), own.of(i, phi)
                mean[:, i] = projection.mean @ at
                var[:, i] = np.sum(at * (projection.covariance(_DRAWS_EACH) @ at), axis=0)
        return mean, var
