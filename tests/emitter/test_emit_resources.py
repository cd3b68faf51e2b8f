from __future__ import annotations

from pathlib import Path

import pytest

from bireme.emitter import resources
from bireme.errors import EmitError


@pytest.mark.parametrize("index", [0, 1])
def test_a_model_source_is_found_in_a_checkout_and_in_a_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, index: int
) -> None:
    places = (tmp_path / "checkout", tmp_path / "installed")
    (places[index] / "dnn").mkdir(parents=True)
    (places[index] / "dnn" / "model.py").write_bytes(b"x = 1\n")
    monkeypatch.setattr(resources, "_PLACES", places)
    assert resources.model_source("dnn") == b"x = 1\n"


def test_a_missing_model_source_is_an_error_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resources, "_PLACES", (tmp_path / "a", tmp_path / "b"))
    with pytest.raises(EmitError, match=r"backends/python/dnn/model.py: is missing.*reinstall"):
        resources.model_source("dnn")


def test_the_runtime_is_taken_without_caches_hidden_files_and_the_kernel_in_c(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (
        "__init__.py",
        "plan.py",
        "ops/take.py",
        "native/libbireme-x86_64.so",
        "native/libbireme-aarch64.so",
        "native/rows.c",
        "native/rows.h",
        "__pycache__/plan.pyc",
        ".ruff_cache/x",
        "old.pyc",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    monkeypatch.setattr(resources, "_RUNTIME", tmp_path)
    found = resources.runtime_files()
    assert list(found) == sorted(found)
    assert {name: text.decode() for name, text in found.items()} == {
        name: name for name in ("__init__.py", "ops/take.py", "plan.py")
    }


def test_a_runtime_that_is_not_there_as_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "_RUNTIME", tmp_path / "archive.zip" / "bireme_runtime")
    with pytest.raises(EmitError, match="plain files"):
        resources.runtime_files()


def test_this_installation_has_everything() -> None:
    assert resources.model_source("preprocess")
    assert resources.model_source("dnn")
    assert "plan.py" in resources.runtime_files()
