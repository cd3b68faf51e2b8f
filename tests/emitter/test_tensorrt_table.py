"""docs/tensorrt_config.md against what is emitted: every field that is set is listed as set, and no other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ahead_helpers import make_ahead
from emitter_helpers import make_contract
from google.protobuf import text_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from tritonclient.grpc.model_config_pb2 import ModelConfig

from bireme.emitter.ahead_configs import ahead_configs
from bireme.emitter.configs import model_configs
from bireme.emitter.render import render

#: The replacement, `is_repeated`, is not in every protobuf that bireme takes.
pytestmark = pytest.mark.filterwarnings("ignore:label")

DOC = (Path(__file__).parents[2] / "docs/tensorrt_config.md").read_text(encoding="utf-8")
HEADINGS = {
    "gpu": "gpu: `tensorrt_plan` on the C++ backend, set",
    "gpu-python": "gpu-python: the plan in the Python backend, set",
}


def rows(heading: str) -> list[list[str]]:
    """Cells of the table below a heading of the second level."""
    (section,) = re.findall(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", DOC, re.MULTILINE | re.DOTALL)
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines()]
    return [row for row in cells if row[0].startswith("`")]


def listed(heading: str) -> list[str]:
    return [row[0].strip("`") for row in rows(heading)]


def is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def set_fields(message: Any, prefix: str = "") -> Iterator[str]:
    """Paths of the fields that a message sets; a map, and a message without fields of its own, is one."""
    for field, value in message.ListFields():
        repeated = field.label == FieldDescriptor.LABEL_REPEATED
        if is_map(field) or field.message_type is None:
            # Scalars in lists (dims) are one value here, maps are marked as lists.
            yield f"{prefix}{field.name}{'[]' if is_map(field) else ''}"
            continue
        for part in value if repeated else [value]:
            name = f"{prefix}{field.name}{'[]' if repeated else ''}"
            inner = list(set_fields(part, f"{name}."))
            yield from inner or [name]


def all_fields(descriptor: Descriptor, prefix: str = "", depth: int = 0) -> Iterator[str]:
    """Paths of all leaf fields of a message type."""
    for field in descriptor.fields:
        repeated = field.label == FieldDescriptor.LABEL_REPEATED and field.message_type is not None
        name = f"{prefix}{field.name}{'[]' if repeated else ''}"
        if field.message_type is None or is_map(field) or depth > 4:
            yield name
        else:
            yield from all_fields(field.message_type, f"{name}.", depth + 1)


def plain(path: str) -> str:
    return path.replace("[]", "")


def networks(target: str) -> list[ModelConfig]:
    """Configs as they are written and read back: of the network, and of those of --user-ahead."""
    contract = make_contract(target, listwise=False)
    made = [*model_configs(contract), *ahead_configs(contract, make_ahead(contract))]
    named = [config for config in made if "_dnn" in config.name]
    return [text_format.Parse(render(config, []), ModelConfig()) for config in named]


@pytest.mark.parametrize("target", ["gpu", "gpu-python"])
def test_what_is_set_is_listed_and_what_is_listed_is_set(target: str) -> None:
    configs = networks(target)
    assert len(configs) == 3
    found = {path for config in configs for path in set_fields(config)}
    assert sorted(listed(HEADINGS[target])) == sorted(found)


def test_fields_left_at_their_default_exist_and_are_not_set() -> None:
    left = listed("gpu: left at Triton's default")
    known = set(all_fields(ModelConfig.DESCRIPTOR))
    done = {path for config in networks("gpu") for path in set_fields(config)}
    for path in left:
        inside = {plain(leaf) for leaf in known}
        assert any(leaf == plain(path) or leaf.startswith(f"{plain(path)}.") for leaf in inside), path
        assert not any(
            plain(name) == plain(path) or plain(name).startswith(f"{plain(path)}.") for name in done
        ), path


def test_every_field_of_the_message_has_a_row() -> None:
    covered = [plain(path) for path in (*listed(HEADINGS["gpu"]), *listed("gpu: left at Triton's default"))]
    assert len(covered) == len(set(covered))
    for leaf in map(plain, all_fields(ModelConfig.DESCRIPTOR)):
        assert any(leaf == path or leaf.startswith(f"{path}.") for path in covered), leaf


@pytest.mark.parametrize("heading", [*HEADINGS.values(), "gpu: left at Triton's default"])
def test_rows_are_complete(heading: str) -> None:
    for field, value, reason, *source in rows(heading):
        assert len(source) == 1, field
        assert value, field
        assert reason or value == "as above", field


def test_the_comparison_notices_a_field() -> None:
    """What the tests above rest on."""
    config = networks("gpu")[0]
    before = set(set_fields(config))
    config.optimization.eager_batching = True
    config.dynamic_batching.default_queue_policy.max_queue_size = 3
    assert set(set_fields(config)) - before == {
        "optimization.eager_batching",
        "dynamic_batching.default_queue_policy.max_queue_size",
    }
