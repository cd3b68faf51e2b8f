"""What `pip` asks setuptools for: a wheel, and an editable installation; with and without a compiler."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from native_helpers import tiny_files

from bireme.native.compilers import compilers_for
from bireme.native.flags import build_id, host_architecture, library_name

ROOT = Path(__file__).parent.parent.parent
ARCH = host_architecture()
OTHER = {"x86_64": "aarch64", "aarch64": "x86_64"}[ARCH]
NATIVE = "bireme_runtime/native"
MARK = build_id(tiny_files(), ARCH).encode()

needs_compiler = pytest.mark.skipif(
    next(compilers_for(ARCH), None) is None, reason="no C compiler for this machine"
)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The sources of the package, with the small kernel."""
    root = tmp_path / "tree"
    root.mkdir()
    for name in ("pyproject.toml", "setup.py", "README.md"):
        shutil.copy(ROOT / name, root)
    for name in ("generator", "backends"):
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "*.so", ".*_cache")
        shutil.copytree(ROOT / name, root / name, ignore=ignored)
    native = root / "backends/python" / NATIVE
    shutil.rmtree(native)
    native.mkdir()
    for name, content in tiny_files().items():
        (native / name).write_bytes(content)
    return root


def ask(tree: Path, what: str, **environment: str) -> tuple[Path, str]:
    """The wheel that setuptools makes, and what it printed."""
    code = f"import sys, setuptools.build_meta as meta; print(meta.{what}(sys.argv[1]))"
    out = tree.parent / "dist"
    done = subprocess.run(
        [sys.executable, "-c", code, str(out)],
        cwd=tree,
        capture_output=True,
        text=True,
        timeout=240,
        env=os.environ | environment,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return out / done.stdout.split()[-1], done.stderr


@needs_compiler
def test_a_wheel_holds_the_library_and_its_sources_and_is_for_this_platform(tree):
    wheel, said = ask(tree, "build_wheel")
    assert wheel.name.endswith(f"-py3-none-linux_{ARCH}.whl")
    assert f"bireme: {library_name(ARCH)}: compiled by" in said
    with zipfile.ZipFile(wheel) as content:
        names = content.namelist()
        assert MARK in content.read(f"{NATIVE}/{library_name(ARCH)}")
        assert {f"{NATIVE}/{name}" for name in tiny_files()} <= set(names)
        assert (
            f"Tag: py3-none-linux_{ARCH}"
            in content.read(next(name for name in names if name.endswith("/WHEEL"))).decode()
        )
    # What an earlier build left in the build folder does not get into a later wheel.
    (tree / "build/lib" / NATIVE / library_name(OTHER)).write_bytes(b"")
    (tree / "build/lib" / NATIVE / library_name(ARCH)).write_bytes(b"old")
    wheel, said = ask(tree, "build_wheel")
    assert "up to date" in said
    with zipfile.ZipFile(wheel) as content:
        assert MARK in content.read(f"{NATIVE}/{library_name(ARCH)}")
        assert [name for name in content.namelist() if name.endswith(".so")] == [
            f"{NATIVE}/{library_name(ARCH)}"
        ]


@needs_compiler
def test_an_editable_installation_has_it_beside_the_sources(tree):
    wheel, said = ask(tree, "build_editable")
    assert f"bireme: {library_name(ARCH)}: compiled by" in said
    assert MARK in (tree / "backends/python" / NATIVE / library_name(ARCH)).read_bytes()
    with zipfile.ZipFile(wheel) as content:
        assert not any(name.endswith(".so") for name in content.namelist())


@pytest.mark.parametrize("what", ["build_wheel", "build_editable"])
def test_without_a_compiler_it_installs_and_says_what_that_means(tree, tmp_path, what):
    code = "import importlib.util; importlib.util.find_spec = lambda name, find=importlib.util.find_spec: "
    code += "None if name == 'ziglang' else find(name)\n"
    (tmp_path / "hide").mkdir()
    (tmp_path / "hide" / "sitecustomize.py").write_text(code)
    (tmp_path / "nothing").mkdir()
    hidden = {"PATH": str(tmp_path / "nothing"), "CC": "", "PYTHONPATH": str(tmp_path / "hide")}
    wheel, said = ask(tree, what, **hidden)
    (line,) = [line for line in said.splitlines() if "no kernel" in line]
    assert line.startswith(f"bireme: no kernel: kernel for {ARCH}: there is no C compiler for it.")
    assert "numpy" in line
    assert "bireme[cross]" in line
    assert wheel.name.endswith("-py3-none-any.whl") or what == "build_editable"
    with zipfile.ZipFile(wheel) as content:
        assert not any(name.endswith(".so") for name in content.namelist())


def test_a_broken_compiler_does_not_stop_an_installation(tree, tmp_path):
    broken = tmp_path / "cc"
    broken.write_text("#!/bin/sh\necho 'error: out of order' >&2\nexit 1\n")
    broken.chmod(0o755)
    _, said = ask(tree, "build_wheel", CC=str(broken))
    (line,) = [line for line in said.splitlines() if "no kernel" in line]
    assert "out of order" in line
    assert "unset CC" in line
