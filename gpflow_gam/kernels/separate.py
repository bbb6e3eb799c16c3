"""Additive kernels of several latent outputs, each with components of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from gpflow.base import AnyNDArray, TensorType
from gpflow.kernels import Kernel, SeparateIndependent

from .additive import AdditiveKernel


class SeparateAdditive(AdditiveKernel):
    """
    Components of which each enters some of L latent outputs: ``rho_l(x) = sum_{c in l} f_cl(x)``.

    The additive counterpart of :class:`gpflow.kernels.SeparateIndependent`: outputs are independent
    a priori, and a component that enters several of them is a function of its own in each, with
    one kernel, and so the same hyperparameters.

    :param components: as :class:`AdditiveKernel` takes them.
    :param members: which components enter which outputs, [L, C] of bool.
    :raises TypeError: a component is no single-output GPflow kernel.
    :raises ValueError: an output without components, a component in no output, or another shape.
    """

    def __init__(
        self, components: Mapping[str, Kernel] | Sequence[Kernel], members: AnyNDArray
    ) -> None:
        super().__init__(components)
        found = np.asarray(members, dtype=bool)
        if found.ndim != 2 or found.shape[1] != self.num_components or not found.size:
            raise ValueError(
                f"members must be [L, {self.num_components}], a row an output and a column a "
                f"component; got shape {found.shape}."
            )
        if not np.all(found.any(axis=1)):
            raise ValueError(
                f"members: output {int(np.argmin(found.any(axis=1)))} has no component; give it "
                "one, such as gpflow.kernels.Constant()."
            )
        if not np.all(found.any(axis=0)):
            idle = self.names[int(np.argmin(found.any(axis=0)))]
            raise ValueError(f"members: component {idle!r} enters no output; leave it out.")
        found.setflags(write=False)
        self._members = found

    @classmethod
    def of(
        cls, kernels: SeparateIndependent | Mapping[str, Kernel] | Sequence[Kernel]
    ) -> SeparateAdditive:
        """
        From one kernel an output.

        A component of all outputs (the same object) keeps its name; others are called after their
        output and themselves, ``"scale:f0"`` or, where outputs have no names, ``"1:f0"``.

        :param kernels: by the outputs' names or in their order; a kernel that is not additive is
            an output's one component.
        :raises TypeError: no kernels of single outputs.
        """
        if isinstance(kernels, SeparateIndependent):
            kernels = list(kernels.kernels)
        if not isinstance(kernels, Mapping):
            kernels = {str(i): k for i, k in enumerate(kernels)}
        own: dict[int, tuple[Kernel, list[tuple[int, str]]]] = {}
        for i, kernel in enumerate(kernels.values()):
            if not isinstance(kernel, AdditiveKernel):
                kernel = AdditiveKernel({"f": kernel})
            for name, part in kernel.components.items():
                enters = own.setdefault(id(part), (part, []))[1]
                enters.append((i, name if not enters else enters[0][1]))
        outputs = list(kernels)
        components: dict[str, Kernel] = {}
        members = np.zeros((len(outputs), len(own)), dtype=bool)
        for c, (part, enters) in enumerate(own.values()):
            which = [i for i, _ in enters]
            name = enters[0][1]
            if len(which) < len(outputs) or len(outputs) == 1:
                name = f"{','.join(outputs[i] for i in which)}:{name}"
            while name in components:
                name += "'"
            components[name] = part
            members[which, c] = True
        return cls(components, members)

    @property
    def members(self) -> AnyNDArray:
        return self._members

    @property
    def latent_kernels(self) -> tuple[AdditiveKernel, ...]:
        """An additive kernel for each output, of the same components."""
        named = list(self.components.items())
        return tuple(
            AdditiveKernel(dict(named[c] for c in np.flatnonzero(own))) for own in self._members
        )

    def K(self, X: TensorType, X2: TensorType | None = None) -> TensorType:
        raise TypeError(_NO_SUM)

    def K_diag(self, X: TensorType) -> TensorType:
        raise TypeError(_NO_SUM)


_NO_SUM = (
    "this kernel has a covariance for each of its outputs and no single one; evaluate one of its "
    "latent_kernels."
)
