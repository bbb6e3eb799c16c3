"""How many columns an observation has under a likelihood."""

from __future__ import annotations

from gpflow.likelihoods import Likelihood, MultiClass, Ordinal, ScalarLikelihood, Softmax

from .ordered import Ordered
from .weighted import unwrapped


def num_labels(likelihood: Likelihood) -> int | None:
    """
    K, where observations are labels 0 to K - 1; else None.

    :param likelihood: of the responses.
    """
    likelihood = unwrapped(likelihood)
    if isinstance(likelihood, Ordinal):
        return int(likelihood.num_bins)
    if isinstance(likelihood, (Softmax, MultiClass, Ordered)):
        assert likelihood.num_classes is not None
        return int(likelihood.num_classes)
    return None


def observation_width(likelihood: Likelihood, num_predictors: int) -> int | None:
    """
    The columns of Y [N, K] that ``num_predictors`` predictors are observed through.

    GPflow broadcasts Y against the predictors: one of another width passes for a response.

    :param likelihood: of the response.
    :param num_predictors: L.
    :return: K; None of a likelihood that does not say.
    """
    likelihood = unwrapped(likelihood)
    if isinstance(likelihood, (Softmax, MultiClass)):
        return 1
    if isinstance(likelihood, ScalarLikelihood):  # each predictor has its own column
        return num_predictors
    return None if likelihood.observation_dim is None else int(likelihood.observation_dim)


def check_width(
    width: int | None, likelihood: Likelihood, num_predictors: int, argument: str = "Y"
) -> None:
    """
    Look at the width of Y.

    :param width: of Y; None where it is not known yet.
    :param likelihood: of the response.
    :param num_predictors: L.
    :param argument: what to call Y in messages.
    :raises ValueError: a width that no observation has.
    """
    want = observation_width(likelihood, num_predictors)
    if width is None or want is None or width == want:
        return
    labels, name = num_labels(likelihood), type(unwrapped(likelihood)).__name__
    hint, what = "", ""
    if labels == width and want == 1:
        hint = f"; of one-hot labels pass tf.argmax({argument}, axis=1)[:, None]"
    elif name == "Bernoulli" and width == 2:
        hint = f"; of one-hot labels pass {argument}[:, 1:]"
    elif name == "Binomial":
        what = ", successes and trials,"
    raise ValueError(
        f"{argument} must be [N, {want}]{what} under {name} of {num_predictors} "
        f"predictor{'s' if num_predictors > 1 else ''}; got [N, {width}]{hint}."
    )
