"""Writing ONNX files."""

from __future__ import annotations

import json
from typing import Any

import onnx
from onnx import helper

from ..version import __version__
from .onnx_builder import OPSET, TYPES, Builder
from .onnx_operations import translated
from .portable import PortableGraph

IR_VERSION = 9
"""What came with the opset: newer ones are refused by older runtimes."""
METADATA = "gpflow_gam"
"""The key of the description among the file's metadata."""


def onnx_bytes(graph: PortableGraph, description: dict[str, Any]) -> bytes:
    """
    A graph as an ONNX file.

    :param graph: the model.
    :param description: for the metadata.
    :raises ValueError: an operation that ONNX does not have.
    """
    b = Builder(graph.constants)
    names = {t.name: name for name, t in graph.inputs.items()}

    def named(tensor: str) -> str:
        if tensor not in names:
            found = b.known(tensor)
            assert found is not None  # operations come after those that they read
            names[tensor] = found
        return names[tensor]

    for op in graph.operations:
        outputs = translated(b, op, [named(t.name) for t in op.inputs])
        names.update((t.name, name) for t, name in zip(op.outputs, outputs))
    for name, t in graph.outputs.items():
        b.nodes.append(helper.make_node("Identity", [named(t.name)], [name]))
    read = {name for node in b.nodes for name in node.input}
    model = helper.make_model(
        helper.make_graph(
            b.nodes,
            "gpflow_gam",
            [_value(name, t) for name, t in graph.inputs.items()],
            [_value(name, t) for name, t in graph.outputs.items()],
            [t for t in b.initializers if t.name in read],
        ),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="gpflow_gam",
        producer_version=__version__,
    )
    helper.set_model_props(model, {METADATA: json.dumps(description)})
    onnx.checker.check_model(model, full_check=True)
    content: bytes = model.SerializeToString()
    return content


def _value(name: str, tensor: Any) -> onnx.ValueInfoProto:
    shape = ["N" if i == 0 else size for i, size in enumerate(tensor.shape.as_list())]
    return helper.make_tensor_value_info(name, TYPES[tensor.dtype], shape)
