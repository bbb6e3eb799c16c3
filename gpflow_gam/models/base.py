"""What our sparse models share."""

from __future__ import annotations

import abc

import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.base import InputData, MeanAndVariance
from gpflow.models import GPModel
from gpflow.posteriors import PrecomputeCacheType

from ..autograph import as_written
from ..kernels import AdditiveKernel
from ..likelihoods import checked_inputs
from ..posteriors import AdditivePosterior


def check_kernel(kernel: object) -> AdditiveKernel:
    """
    :raises TypeError: ``kernel`` is not additive.
    """
    if not isinstance(kernel, AdditiveKernel):
        raise TypeError(
            f"kernel must be a gpflow_gam.kernels.AdditiveKernel; got {type(kernel).__name__}. "
            "Wrap a single kernel as AdditiveKernel([kernel])."
        )
    return kernel


class AdditiveModel(GPModel, abc.ABC):
    """A :class:`gpflow.models.GPModel` whose posterior has components."""

    kernel: AdditiveKernel

    @abc.abstractmethod
    def posterior(
        self, precompute_cache: PrecomputeCacheType | str | None = PrecomputeCacheType.TENSOR
    ) -> AdditivePosterior:
        """
        The posterior at the present parameters.

        :param precompute_cache: ``TENSOR`` (default): a snapshot, differentiable; ``VARIABLE``:
            brought up to date by ``update_cache()``, also inside compiled functions; ``NOCACHE``:
            everything anew at each call.
        """

    def fused_posterior(self) -> AdditivePosterior:
        """The posterior without a cache, which follows the parameters."""
        return self.posterior(PrecomputeCacheType.NOCACHE)

    def _checked_inputs(self, Xnew: InputData) -> tf.Tensor:
        return checked_inputs(Xnew, self.kernel, "Xnew")

    @inherit_check_shapes
    @as_written
    def predict_f(
        self, Xnew: InputData, full_cov: bool = False, full_output_cov: bool = False
    ) -> MeanAndVariance:
        Xnew = tf.convert_to_tensor(Xnew)
        if Xnew.shape.rank == 2:
            Xnew = self._checked_inputs(Xnew)
        return self.fused_posterior().fused_predict_f(
            Xnew, full_cov=full_cov, full_output_cov=full_output_cov
        )

    @as_written
    def predict_components(self, Xnew: InputData, full_cov: bool = False) -> MeanAndVariance:
        """
        Mean and variance of every component.

        See :meth:`~gpflow_gam.posteriors.AdditivePosterior.predict_components`.
        """
        Xnew = self._checked_inputs(Xnew)
        return self.fused_posterior().predict_components(Xnew, full_cov=full_cov)
