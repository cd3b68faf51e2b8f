from __future__ import annotations

import json
from pathlib import Path

import pytest
from emitter_helpers import make_artifacts, make_contract

from bireme.emitter import check_repository, emit, manifest
from bireme.errors import EmitError


@pytest.fixture
def emitted(repository: Path) -> Path:
    contract = make_contract()
    emit(make_artifacts(contract), contract, repository)
    return repository


@pytest.mark.parametrize("deep", [False, True])
def test_what_was_just_built_is_sound(emitted: Path, deep: bool) -> None:
    check_repository(emitted, "shop", deep=deep)


def test_what_a_server_adds_does_no_harm(emitted: Path) -> None:
    (emitted / "shop_dnn/1/__pycache__").mkdir()
    (emitted / "shop_dnn/1/__pycache__/model.pyc").write_bytes(b"cache")
    (emitted / "shop_dnn/1/model.plan").write_bytes(b"plan")
    check_repository(emitted, "shop", deep=True)


@pytest.mark.parametrize(
    "name",
    [
        "shop/config.pbtxt",
        "shop_dnn/1/model.onnx",
        "shop_preprocess/1/arena_float32_8.bin",
        "shop_preprocess/1/bireme_runtime/__init__.py",
    ],
)
@pytest.mark.parametrize("harm", ["missing", "truncated", "edited", "folder"])
def test_a_harmed_file_is_named_with_the_remedy(emitted: Path, name: str, harm: str) -> None:
    path = emitted / name
    content = path.read_bytes()
    path.unlink()
    if harm == "truncated":
        path.write_bytes(content[: len(content) // 2] or b"longer")
    elif harm == "edited":
        path.write_bytes(bytes([content[0] ^ 1]) + content[1:] if content else b"x")
    elif harm == "folder":
        path.mkdir()
    with pytest.raises(EmitError, match=name) as caught:
        check_repository(emitted, "shop")
    assert "bireme build" in caught.value.hint


def test_a_large_file_is_hashed_only_on_demand(emitted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arena = emitted / "shop_preprocess/1/arena_float32_8.bin"
    monkeypatch.setattr(manifest, "_HASHED_BY_DEFAULT", arena.stat().st_size - 1)
    arena.write_bytes(b"\1" * arena.stat().st_size)
    check_repository(emitted, "shop")
    with pytest.raises(EmitError, match=r"arena.*was changed"):
        check_repository(emitted, "shop", deep=True)
    arena.write_bytes(arena.read_bytes()[:-1])
    with pytest.raises(EmitError, match=r"arena.*511 bytes where 512"):
        check_repository(emitted, "shop")


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "3", "{}", '{"files": 1, "bytes": 1, "models": []}', "\ud800"]
)
def test_a_damaged_manifest_is_said_to_be_so(emitted: Path, text: str) -> None:
    (emitted / "shop/bireme.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(EmitError, match=r"bireme.json: is damaged"):
        check_repository(emitted, "shop")


@pytest.mark.parametrize("change", [{"format": 2}, {"model": "other"}, {"bytes": {}}, {"models": "shop"}])
def test_a_manifest_of_another_kind_is_refused(emitted: Path, change: dict[str, object]) -> None:
    path = emitted / "shop/bireme.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(EmitError, match="is no manifest of format 1"):
        check_repository(emitted, "shop")


@pytest.mark.parametrize("outside", ["../secret", "/etc/hostname", "shop/../../secret"])
def test_a_manifest_cannot_point_outside(emitted: Path, outside: str) -> None:
    (emitted.parent / "secret").write_text("x")
    path = emitted / "shop/bireme.json"
    content = json.loads(path.read_text())
    content["files"][outside], content["bytes"][outside] = "00", 1
    path.write_text(json.dumps(content))
    with pytest.raises(EmitError, match="outside"):
        check_repository(emitted, "shop")


@pytest.mark.parametrize("model", ["shop_dnn", "nothing", "../models/nothing"])
def test_a_model_that_bireme_did_not_emit(emitted: Path, model: str) -> None:
    with pytest.raises(EmitError, match=r"bireme.json: cannot be read"):
        check_repository(emitted, model)
