"""`bireme build`: the serving architecture's library goes into the repository, or a note says why not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import yaml
from native_helpers import put_library, tiny_files

from bireme import build as building
from bireme import cli
from bireme.native import library
from bireme.native.flags import host_architecture, library_name
from test_build import export, tree

INSIDE = "1/bireme_runtime/native"
ARCH = host_architecture()


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved") / "model"
    export(folder)
    return folder


@pytest.fixture
def spec(saved: Path, tmp_path: Path) -> Path:
    path = tmp_path / "bireme.yaml"
    known = {"model": "shop", "saved_model": str(saved), "user": ["seen", "word"], "buckets": [8]}
    path.write_text(yaml.safe_dump(known), encoding="utf-8")
    return path


@pytest.fixture
def native(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Sources of the small kernel, without a library, and no compiler."""
    folder = tmp_path / "native"
    folder.mkdir()
    for name, content in tiny_files().items():
        (folder / name).write_bytes(content)
    monkeypatch.setattr(building, "native_folder", lambda: folder)
    monkeypatch.setattr(library, "native_folder", lambda: folder)
    monkeypatch.setattr(library, "compilers_for", lambda arch: iter(()))
    return folder


@pytest.mark.parametrize("arch", [None, "aarch64"])
def test_the_repository_holds_the_library_of_one_architecture_and_no_sources(spec, native, tmp_path, arch):
    contents = {name: put_library(native, name) for name in ("x86_64", "aarch64")}
    built = building.build(spec, tmp_path / "models", arch=arch, user_ahead=True)
    assert built.notes == ()
    found = {
        path.relative_to(tmp_path / "models").as_posix(): path.read_bytes()
        for path in (tmp_path / "models").rglob("*")
        if path.suffix in {".so", ".c", ".h"}
    }
    name = library_name(arch or ARCH)
    models = ("shop_preprocess", "shop_preprocess_user", "shop_preprocess_slice")
    assert found == {f"{model}/{INSIDE}/{name}": contents[arch or ARCH] for model in models}
    again = tmp_path / "again"
    building.build(spec, again, arch=arch, user_ahead=True)
    assert tree(again) == tree(tmp_path / "models")


def test_without_a_compiler_the_repository_is_built_and_the_command_says_what_that_costs(
    spec, native, tmp_path, monkeypatch, capsys
):
    repository = tmp_path / "models"
    monkeypatch.setattr(
        sys, "argv", ["bireme", "build", str(spec), "-r", str(repository), "-q", "--arch", "aarch64"]
    )
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert not caught.value.code
    captured = capsys.readouterr()
    assert captured.out == f"built shop_preprocess, shop_dnn, shop in {repository}\n"
    line, instances = captured.err.strip().splitlines()
    assert instances.startswith("bireme: instances for ")
    assert "built without the kernel's library: kernel for aarch64: there is no C compiler for it" in line
    assert "more CPU time" in line
    assert "pip install 'bireme[cross]'" in line
    assert (repository / "shop_preprocess/1/model.py").is_file()
    assert not list(repository.rglob("*.so"))


def test_a_library_that_was_compiled_on_the_way_is_told_with_its_seconds(spec, native, tmp_path, monkeypatch):
    def compiled(*_: object, **__: object) -> library.Library:
        return library.Library(ARCH, b"GLIBC_2.14", "gcc", 1.25)

    monkeypatch.setattr(library, "_make", compiled)
    built = building.build(spec, tmp_path / "models")
    assert built.notes == (f"{library_name(ARCH)}: compiled by gcc in 1.2 s, 0 KB, needs glibc 2.14",)


def test_the_kernel_command_makes_it_or_fails_with_the_remedy(native, monkeypatch, capsys):
    put_library(native, "aarch64")
    monkeypatch.setattr(sys, "argv", ["bireme", "kernel", "--arch", "aarch64"])
    with pytest.raises(SystemExit):
        cli.main()
    assert capsys.readouterr().out.startswith("libbireme-aarch64.so: up to date")
    monkeypatch.setattr(sys, "argv", ["bireme", "kernel", "--arch", "aarch64", "--force"])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code == 4
    captured = capsys.readouterr()
    assert "bireme[cross]" in captured.err.replace("\n", " ")
    assert captured.out == ""
