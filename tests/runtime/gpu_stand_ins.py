"""A GPU's stand-in for tests without one: a CUDA runtime on host memory and a `tensorrt` on top of it.

They imitate what this project depends on (order within streams, asynchrony, capture and replay, limits of the
profile), not what a GPU computes or how fast; `tests/gpu` asks the real ones.
"""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from bireme.native.compilers import compilers_for
from bireme.native.flags import host_architecture
from bireme_runtime.passport import Gpu, Passport, Shapes

#: Goes onto sys.path: holds the package `tensorrt`.
FOLDER = Path(__file__).parent / "fake_gpu"
GPU = Gpu("Stand-in GPU", "9.0", 1 << 20)


def compile_cudart(folder: Path) -> Path:
    """The stand-in for libcudart; the test is skipped where there is no C compiler."""
    library = folder / "libcudart_stand_in.so"
    source = str(FOLDER / "fake_cudart.c")
    for compiler in compilers_for(host_architecture()):
        flags = ["-O1", "-shared", "-fPIC", "-pthread", "-o", str(library), source]
        subprocess.run([*compiler.command, *flags], check=True, timeout=60)
        return library
    pytest.skip("no C compiler: gcc or ziglang")


def make_plan(
    users: int,
    buckets: Sequence[int],
    inputs: Mapping[str, int],
    outputs: Sequence[str] = ("click", "buy"),
    dtype: str = "float16",
    state: int = 0,
    **more: Any,
) -> dict[str, Any]:
    """A plan for the stand-in.

    Args:
        users: most users.
        buckets: candidate counts; empty without candidates.
        inputs: input → width.
        outputs: names; [users, candidates], or [users, state] without candidates.
        dtype: of the inputs.
        state: see above.
        more: `seed`, `onnx`, `shares_profile`, `scratch`.
    """
    tensors, profile = [], {}
    for name, width in inputs.items():
        middle = [-1] if name == "items" else []
        tensors.append([name, dtype, [-1, *middle, width]])
        profile[name] = [
            [n, *([b] if middle else []), width]
            for n, b in (
                (1, min(buckets, default=0)),
                (users, max(buckets, default=0)),
                (users, max(buckets, default=0)),
            )
        ]
    last = -1 if buckets else state
    made = {"seed": 0, "inputs": tensors, "profile": profile}
    return made | {"outputs": [[name, "float32", [-1, last]] for name in outputs]} | more


def write_plan(
    folder: Path, plan: Mapping[str, Any], users: int, buckets: Sequence[int], model: str = "shop_dnn"
) -> None:
    """model.plan and passport.json in a version folder, as `bireme engine` would on the stand-in GPU."""
    content = json.dumps(plan).encode()
    onnx = folder / "model.onnx"
    if not onnx.exists():
        onnx.write_bytes(b"the network")
    (folder / "model.plan").write_bytes(content)
    Passport(
        model=model,
        plan={"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)},
        onnx={"sha256": hashlib.sha256(onnx.read_bytes()).hexdigest()},
        tensorrt="8.6.0",
        gpu=GPU,
        driver="",
        profile={name: Shapes(*map(tuple, shapes)) for name, shapes in plan["profile"].items()},
        users=users,
        buckets=tuple(buckets),
        precision="obey",
        built_by="tensorrt python",
    ).write(folder / "passport.json")


def onnx_text(path: Path) -> str:
    """An ONNX file as `make_plan` takes it."""
    return base64.b64encode(path.read_bytes()).decode()


def model_config(
    plan: Mapping[str, Any], users: int, buckets: Sequence[int], **parameters: str
) -> dict[str, Any]:
    """What Triton would hand over for a plan."""
    types = {"float16": "TYPE_FP16", "float32": "TYPE_FP32", "int32": "TYPE_INT32"}
    entries = {
        kind: [
            {"name": name, "data_type": types[dtype], "dims": dims[1:]}
            for name, dtype, dims in plan[f"{kind}s"]
        ]
        for kind in ("input", "output")
    }
    values = {"buckets": ",".join(map(str, buckets))} if buckets else {}
    strings = {name: {"string_value": value} for name, value in (values | parameters).items()}
    return {"max_batch_size": users, "parameters": strings, **entries}
