"""The kernel under the address and undefined-behaviour sanitizers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from native_helpers import NATIVE

from bireme.native.flags import host_architecture, library_name, sealed, units
from bireme.native.library import read_sources

_SANITIZE = ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-g", "-O1")
_FLAGS = ("-fPIC", "-std=c11", "-ffp-contract=off", "-fvisibility=hidden")


def _preload() -> str:
    """The sanitizers' own libraries, which have to come before everything else; "" without gcc or them."""
    if shutil.which("gcc") is None:
        return ""
    found = [
        subprocess.run(
            ["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for name in ("libasan.so", "libubsan.so")
    ]
    return " ".join(found) if all(Path(path).is_file() for path in found) else ""


@pytest.mark.slow
@pytest.mark.skipif(not _preload(), reason="needs gcc with its sanitizers")
@pytest.mark.parametrize("variant", ["baseline", "avx2", "avx512"])
def test_no_access_outside_and_nothing_undefined(variant: str, tmp_path: Path) -> None:
    arch = host_architecture()
    objects = []
    for source, result, flags in units([name for name in read_sources(NATIVE) if name.endswith(".c")], arch):
        command = [
            "gcc",
            *_FLAGS,
            *_SANITIZE,
            *flags,
            "-c",
            str(NATIVE / source),
            "-o",
            str(tmp_path / result),
        ]
        subprocess.run(command, check=True)
        objects.append(str(tmp_path / result))
    library = tmp_path / library_name(arch)
    subprocess.run(["gcc", "-shared", *_SANITIZE, *objects, "-lm", "-o", str(library)], check=True)
    library.write_bytes(sealed(library.read_bytes()))
    script = Path(__file__).parent / "sanitized_run.py"
    environment = os.environ | {
        "LD_PRELOAD": _preload(),
        "ASAN_OPTIONS": "detect_leaks=0",  # Python itself leaves memory behind
        "BIREME_KERNEL": variant,
    }
    command = [sys.executable, str(script), str(tmp_path), "150"]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    if f"variant {variant}" not in ran.stdout:
        pytest.skip(f"this processor has no {variant}")
    done, refused = map(int, ran.stdout.split()[-2:])
    assert done > 300
    assert refused > 10
