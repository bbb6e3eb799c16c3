"""A dataset that is read over and over, and found again where reading stopped."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf

from .arrays import Share

_FILES = ".index", ".data-00000-of-00001"


class Reader:
    """
    A dataset's elements by their number, the first again after the last.

    :param dataset: in the same order each time it is read.
    """

    def __init__(self, dataset: tf.data.Dataset) -> None:
        self._dataset = dataset.repeat().prefetch(1)
        self._iterator: Iterator[Share] | None = None
        self._next = 0

    def __call__(self, number: int) -> Share:
        """
        :param number: counted from 0; one more than at the last call is the fast way. Elsewhere
            everything before it is read.
        :raises ValueError: there is nothing to read.
        """
        if self._iterator is None or number != self._next:
            self._iterator = iter(self._dataset)
            for _ in range(number):
                following(self._iterator)
        self._next = number + 1
        return following(self._iterator)

    def place(self) -> bytes:
        """
        Where reading goes on: the positions in files and the rows in buffers, as TensorFlow keeps
        them. Nothing where it does not, as of datasets that Python makes (``from_generator``).
        """
        if self._iterator is None:
            return b""
        with tempfile.TemporaryDirectory() as folder:
            prefix = Path(folder) / "place"
            try:
                tf.train.Checkpoint(iterator=self._iterator).write(str(prefix))
            except tf.errors.OpError:
                return b""
            parts = [prefix.with_name(prefix.name + end).read_bytes() for end in _FILES]
        return len(parts[0]).to_bytes(8, "little") + b"".join(parts)

    def go_to(self, number: int, place: bytes) -> bool:
        """
        Go on at a place.

        :param number: of the element that comes next there.
        :param place: from :meth:`place`.
        :return: whether it was found; else the next call reads up to it.
        """
        if not place:
            return False
        size = 8 + int.from_bytes(place[:8], "little")
        iterator: Any = iter(self._dataset)
        with tempfile.TemporaryDirectory() as folder:
            prefix = Path(folder) / "place"
            for end, content in zip(_FILES, (place[8:size], place[size:])):
                prefix.with_name(prefix.name + end).write_bytes(content)
            try:
                tf.train.Checkpoint(iterator=iterator).read(str(prefix)).assert_consumed()
            except Exception:  # TensorFlow says in many ways that it is another one, or damaged
                return False
        self._iterator, self._next = iterator, number
        return True


def following(iterator: Iterator[Share]) -> Share:
    """
    :raises ValueError: there is no element.
    """
    try:
        return next(iterator)
    except StopIteration:
        raise ValueError(
            "data ran out before the first whole batch; lower batch_size or give more rows."
        ) from None


def first_numbers(dataset: tf.data.Dataset) -> Share:
    """The first element in numpy."""
    return following(dataset.as_numpy_iterator())
