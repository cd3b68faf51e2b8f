"""A broken repository is refused in words before the server sees it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from server_repositories import ensemble, python_model, shop

from bireme.errors import ServerError
from bireme.server.repository import check_repository


def test_names_of_all_models(tmp_path: Path) -> None:
    shop(tmp_path)
    (tmp_path / "README.md").write_text("plain files are no models")
    (tmp_path / "shop" / "notes.json").write_text("{}")
    assert check_repository(tmp_path) == ("shop", "shop_dnn")


def _rename_model(repository: Path) -> None:
    (repository / "shop_dnn").rename(repository / "other")


def _edit_config(repository: Path) -> None:
    config = repository / "shop_dnn" / "config.pbtxt"
    config.write_text(config.read_text().replace("dims", "dimz"))


BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "version folder gone": (lambda r: shutil.rmtree(r / "shop_dnn" / "1"), "shop_dnn: has no version folder"),
    "ensemble's version folder gone": (lambda r: (r / "shop" / "1").rmdir(), "shop: has no version folder"),
    "model.py gone": (lambda r: (r / "shop_dnn" / "1" / "model.py").unlink(), "shop_dnn/1: has no model.py"),
    "config gone": (lambda r: (r / "shop_dnn" / "config.pbtxt").unlink(), "shop_dnn: has no config.pbtxt"),
    "config wrong": (_edit_config, r"config\.pbtxt: does not parse: .*dimz"),
    "step gone": (lambda r: shutil.rmtree(r / "shop_dnn"), "shop: .*'shop_dnn', which is not in"),
    "folder renamed": (_rename_model, "other: .*names the model 'shop_dnn'"),
    "foreign folder": (lambda r: (r / ".cache").mkdir(), r"\.cache: has no config\.pbtxt"),
    "empty": (lambda r: [shutil.rmtree(p) for p in r.iterdir()], "holds no model"),
    "gone": (shutil.rmtree, "does not exist"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken(case: str, tmp_path: Path) -> None:
    repository = shop(tmp_path / "repository")
    damage, message = BROKEN[case]
    damage(repository)
    with pytest.raises(ServerError, match=message) as caught:
        check_repository(repository)
    assert "bireme build" in caught.value.hint


def test_an_engine_not_yet_built_says_who_builds_it(tmp_path: Path) -> None:
    folder = tmp_path / "net"
    (folder / "1").mkdir(parents=True)
    (folder / "config.pbtxt").write_text('name: "net"\nplatform: "tensorrt_plan"\n')
    with pytest.raises(
        ServerError, match=r"has no model\.plan .*bireme engine -r .* --model net.*--target cpu"
    ):
        check_repository(tmp_path)


def test_the_newest_version_counts_by_number(tmp_path: Path) -> None:
    folder = python_model(tmp_path)
    (folder / "9").mkdir()
    (folder / "10").mkdir()
    (folder / "10" / "model.py").write_text("")
    assert check_repository(tmp_path) == ("shop_dnn",)
    (folder / "11").mkdir()
    with pytest.raises(ServerError, match="shop_dnn/11"):
        check_repository(tmp_path)


def test_a_file_is_not_a_repository(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(ServerError, match="is not a folder"):
        check_repository(file)


def test_ensemble_alone_needs_its_steps(tmp_path: Path) -> None:
    ensemble(tmp_path, step="elsewhere")
    with pytest.raises(ServerError, match="'elsewhere'"):
        check_repository(tmp_path)


@pytest.mark.parametrize("name", ["sp ace", "ünï", "we'ird$(x);&"])
def test_a_path_that_triton_cannot_take_is_refused(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    python_model(folder)
    with pytest.raises(ServerError, match="in its path"):
        check_repository(folder)
