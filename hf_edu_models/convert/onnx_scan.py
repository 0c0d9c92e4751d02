"""Rewrites the loops of an ONNX graph for OpenVINO, whose `Scan` knows only its own inputs.

ONNX lets the body of a loop use any value of the graph around it, e.g. the source states that every decoding step
attends to. Here each such value becomes a state of the loop that no step changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto


def carry_captured_values(model: ModelProto) -> None:
    """Give every `Scan` the values that its body uses; weights stay outside, as constants."""
    graph = model.graph
    infos = {info.name: info for info in [*graph.input, *graph.output, *graph.value_info]}
    weights = {tensor.name for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type != "Scan":
            continue
        body = next(attribute.g for attribute in node.attribute if attribute.name == "body")
        for name in _captured(body, weights):
            _carry(infos[name], node, body)


def _captured(body: GraphProto, weights: set[str]) -> list[str]:
    known = weights | {value.name for value in [*body.input, *body.initializer]}
    known |= {name for node in body.node for name in node.output}
    used = [name for node in body.node for name in node.input if name and name not in known]
    return list(dict.fromkeys(used))


def _carry(info: Any, scan: NodeProto, body: GraphProto) -> None:
    """Make a value of the outer graph the first state of a loop."""
    from onnx import helper

    before, after = (_renamed(info, f"{info.name}_{place}_{scan.name}") for place in ("before", "after"))
    for node in body.node:
        node.input[:] = [before.name if name == info.name else name for name in node.input]
    body.node.append(helper.make_node("Identity", [before.name], [after.name]))
    for values, value in ((body.input, before), (body.output, after)):
        values.extend([value, *_take_all(values)])
    scan.input[:] = [info.name, *scan.input]
    scan.output[:] = [f"{after.name}_last", *scan.output]


def _renamed(info: Any, name: str) -> Any:
    copy = type(info)()
    copy.CopyFrom(info)
    copy.name = name
    return copy


def _take_all(values: Any) -> list[Any]:
    taken = [_renamed(value, value.name) for value in values]
    del values[:]
    return taken
