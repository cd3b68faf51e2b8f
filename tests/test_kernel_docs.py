"""The commands of docs/kernel.md are executed here, as written."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from bireme.native.compilers import compilers_for
from bireme.native.flags import compile_commands

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "kernel.md").read_text(encoding="utf-8")
LINES = [
    line for block in re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL) for line in block.strip().splitlines()
]
#: Changes the environment that the tests run in.
INSTALLS = ".venv/bin/pip install -c constraints.txt '.[cross]'"


def run(line: str) -> str:
    done = subprocess.run(
        ["bash", "-c", line], cwd=ROOT, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


@pytest.mark.parametrize("line", [line for line in LINES if line != INSTALLS])
def test_command(line):
    arch = "aarch64" if "aarch64" in line else os.uname().machine
    if next(compilers_for(arch), None) is None:
        pytest.skip(f"no C compiler for {arch} here; pip install 'bireme[cross]'")
    out = run(line)
    if " build " in line:
        library = ROOT / "build/aarch64/obd_preprocess/1/bireme_runtime/native/libbireme-aarch64.so"
        assert int.from_bytes(library.read_bytes()[18:20], "little") == 183  # ELF's number of aarch64
        assert "without the kernel's library" not in out
    else:
        assert re.search(
            r"libbireme-\w+\.so: (up to date|compiled by .+ in [\d.]+ s), \d+ KB, needs glibc", out
        )


def test_the_extra_that_the_page_installs_exists():
    assert INSTALLS in LINES
    text = (ROOT / "pyproject.toml").read_text()
    assert re.search(r'^cross = \["ziglang', text, re.MULTILINE)
    assert re.search(r"^ziglang==", (ROOT / "constraints.txt").read_text(), re.MULTILINE)


def test_the_flags_on_the_page_are_the_ones_used():
    commands = compile_commands((), "x86_64", ["rows.c"]).compile
    page = " ".join(PAGE.split())
    for command, variant in zip(commands, ("baseline", "avx2", "avx512"), strict=True):
        common = command[: command.index(f"-DVARIANT={variant}")]
        assert f"`{' '.join(common)}`" in page
        for flag in command[len(common) + 1 : command.index("-c")]:
            word = flag.removeprefix("-m")
            assert flag in page or (word.startswith("avx512") and f"`{word.removeprefix('avx512')}`" in page)
