"""Keras heads: state that no file loses, and networks served without the package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import keras
import numpy as np
import pytest
import tensorflow as tf
from gpflow.utilities import parameter_dict
from head_cases import X, Y, additive, compiled, moved_model, network, scramble, small

import gpflow_gam as gg
from gpflow_gam.layers import AdditiveGP


@pytest.fixture(scope="module")
def trained() -> tuple[keras.Model, AdditiveGP]:
    return moved_model()


# --- state ---------------------------------------------------------------------------------------


def test_state_is_all_there_is(trained: tuple[keras.Model, AdditiveGP]) -> None:
    _, head = trained
    inside = {path.lstrip(".") for path in parameter_dict(head.model)}
    assert inside == set(head._adopted.variables)
    for path, leaf in parameter_dict(head.model).items():
        own = head._adopted.variables[path.lstrip(".")]
        tensor = leaf.unconstrained_variable if hasattr(leaf, "unconstrained_variable") else leaf
        assert own.value is tensor


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    ("way", "flags"), [("keras", "changed"), ("weights", "changed"), ("checkpoint", "same")]
)
def test_round_trips_are_exact(tmp_path: Path, way: str, flags: str) -> None:
    terms = gg.s(0) + gg.s(1, by=2) + gg.ti(0, 1) + gg.s(0, 1, 2)
    head = additive(terms, name="saved", distance_aware=True)
    model = network(head)
    scramble(head)
    if flags == "changed":
        head.frozen = ("kernel", "variational.site_shift")
    want = model(X)
    if way == "keras":
        model.save(tmp_path / "net.keras")
        again = keras.models.load_model(tmp_path / "net.keras")
        other = again.get_layer("saved")
        assert other.frozen == head.frozen
    else:
        other = additive(terms, name="saved", distance_aware=True)
        again = network(other)
        if way == "weights":
            model.save_weights(tmp_path / "net.weights.h5")
            again.load_weights(tmp_path / "net.weights.h5")
        else:
            saved = tf.train.Checkpoint(model).write(str(tmp_path / "checkpoint"))
            tf.train.Checkpoint(again).read(saved).assert_existing_objects_matched()
    for path, variable in head._state().items():
        np.testing.assert_array_equal(variable, other._state()[path], err_msg=path)
    np.testing.assert_array_equal(again(X), want)


def test_a_file_that_lacks_one_parameter_is_refused(tmp_path: Path) -> None:
    head = additive(name="part")
    model = network(head)
    where = tmp_path / "net.weights.h5"
    model.save_weights(where)
    before = {k: np.array(v) for k, v in head._state().items()}
    with h5py.File(where, "a") as file:
        group = next(g for name, g in _groups(file) if "variational.site_shift" in g)
        del group["variational.site_shift"]
    scramble(head)
    moved = {k: np.array(v) for k, v in head._state().items()}
    with pytest.raises(ValueError, match=r"lacks variational\.site_shift"):
        model.load_weights(where)
    for path, variable in head._state().items():
        np.testing.assert_array_equal(variable, moved[path])
        assert not np.array_equal(before[path], moved[path]) or before[path].size == 0


def _groups(file: h5py.File) -> list[tuple[str, h5py.Group]]:
    result: list[tuple[str, h5py.Group]] = []
    file.visititems(
        lambda name, item: result.append((name, item)) if isinstance(item, h5py.Group) else None
    )
    return result


@pytest.mark.parametrize(
    ("terms", "message"),
    [(gg.s(0) + gg.s(2), "lacks|holds"), (gg.s(0, k=9) + gg.s(1), "was it saved with other terms")],
)
def test_files_of_other_terms_are_refused(tmp_path: Path, terms: Any, message: str) -> None:
    where = tmp_path / "net.weights.h5"
    network(additive(name="terms")).save_weights(where)
    with pytest.raises(ValueError, match=message):
        network(additive(terms, name="terms")).load_weights(where)


def test_configuration_and_clones(trained: tuple[keras.Model, AdditiveGP]) -> None:
    model, head = trained
    again = AdditiveGP.from_config(head.get_config())
    assert again.get_config() == head.get_config()
    assert [v.shape for v in again._state().values()] == [v.shape for v in head._state().values()]
    clone = keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    np.testing.assert_array_equal(clone(X), model(X))
    own = clone.get_layer("trained")
    assert own is not head
    assert own.loss._head() is own
    for one in (own, head):  # both of one name
        by_name = keras.losses.deserialize(keras.losses.serialize(one.loss))
        by_name(Y, one(X))
        assert by_name._head() is one


def test_one_place_for_flags() -> None:
    head = additive()
    parameters = head.parameters
    lengthscale = "kernel.components['s(0)'].kernels[1].base.lengthscales"
    assert parameters[lengthscale].trainable
    assert not parameters["inducing_variable.components['s(0)']"].trainable
    head.frozen = ("kernel",)
    assert not parameters[lengthscale].trainable
    assert parameters["inducing_variable.components['s(0)']"].trainable
    head.trainable = False
    assert head.trainable_weights == []
    assert not parameters["likelihood.variance"].trainable
    head.trainable = True  # what is frozen stays frozen
    names = {p for p, v in head._adopted.variables.items() if v.trainable}
    assert not any(p.startswith("kernel") for p in names)
    assert parameters["likelihood.variance"].trainable
    with pytest.raises(ValueError, match="no parameter's path begins with 'kernels'"):
        head.frozen = ("kernels",)


# --- serving -------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.usefixtures("eagerly")
def test_inducing_inputs_move_when_free() -> None:
    head = small(frozen=(), normalization=None)
    before = np.array(head.model.inducing_variable["s(0)"])
    inputs = keras.Input((3,))
    compiled(keras.Model(inputs, head(inputs)), head).fit(X, Y, epochs=1, batch_size=45, verbose=0)
    assert np.max(np.abs(np.array(head.model.inducing_variable["s(0)"]) - before)) > 1e-3
