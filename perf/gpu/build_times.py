"""How long TensorRT takes to build a network, setting by setting: each in a process of its own.

    python perf/gpu/build_times.py build/gpu/prepared/network/gpu-python/din_mmoe_dnn/1 --limit 120

First as `bireme engine` builds it, in a form that TensorRT 8.6 compiles as a whole. Then as it is, with
nothing but the FP16 flag, and with each of the settings of `bireme engine`. Needs a GPU and the package
`tensorrt` 8.6.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bireme.engine.whole import as_one

__all__ = ["SETTINGS", "main"]

_BUCKETS, _USERS = (64, 256, 1024), (1, 1, 8)

Change = Callable[[Any, Any], None]


def _no_tf32(trt: Any, config: Any) -> None:
    config.clear_flag(trt.BuilderFlag.TF32)


def _sharing(trt: Any, config: Any) -> None:
    config.set_preview_feature(trt.PreviewFeature.PROFILE_SHARING_0806, True)


def _detailed(trt: Any, config: Any) -> None:
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED


def _cache(trt: Any, config: Any) -> None:  # noqa: ARG001 - all changes are called alike
    config.set_timing_cache(config.create_timing_cache(b""), False)


def _obey(trt: Any, config: Any) -> None:
    config.set_flag(trt.BuilderFlag.OBEY_PRECISION_CONSTRAINTS)


def _faster(trt: Any, config: Any) -> None:  # noqa: ARG001
    config.builder_optimization_level = 2


#: Name → whether the network is taken as a whole (see `bireme.engine.whole`), and what is changed in the
#: builder's configuration.
SETTINGS: Mapping[str, tuple[bool, tuple[Change, ...]]] = {
    "as a whole, all of bireme engine": (True, (_no_tf32, _sharing, _detailed, _cache, _obey)),
    "as a whole, FP16 flag only": (True, ()),
    "FP16 flag only": (False, ()),
    "without TF32": (False, (_no_tf32,)),
    "profile sharing": (False, (_sharing,)),
    "detailed verbosity": (False, (_detailed,)),
    "timing cache": (False, (_cache,)),
    "constraints obeyed": (False, (_obey,)),
    "level 2": (False, (_faster,)),
}


def build(onnx: Path, whole: bool, changes: Sequence[Change]) -> int:
    """Build one plan; its size in bytes."""
    import tensorrt as trt

    log = trt.Logger(trt.Logger.WARNING)
    builder = trt.Builder(log)
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.EXPLICIT_BATCH))
    parser = trt.OnnxParser(network, log)
    content = onnx.read_bytes()
    if not parser.parse(as_one(content) if whole else content):
        raise SystemExit(str(parser.get_error(0)))
    config = builder.create_builder_config()
    config.set_flag(trt.BuilderFlag.FP16)
    for change in changes:
        change(trt, config)
    profile = builder.create_optimization_profile()
    for index in range(network.num_inputs):
        tensor = network.get_input(index)
        width, ranks = tensor.shape[-1], len(tensor.shape) == 3
        shapes = [(u, b, width) if ranks else (u, width) for u, b in zip(_USERS, _BUCKETS, strict=True)]
        profile.set_shape(tensor.name, *shapes)
    config.add_optimization_profile(profile)
    return len(bytes(builder.build_serialized_network(network, config)))


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="version folder with model.onnx")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds for each setting")
    parser.add_argument("--only", help="one setting, in this process")
    given = parser.parse_args(arguments)
    onnx = given.folder / "model.onnx"
    if given.only is not None:
        print(build(onnx, *SETTINGS[given.only]))
        return 0
    for name in SETTINGS:
        began = time.monotonic()
        command = [sys.executable, __file__, str(given.folder), "--only", name]
        try:
            ended = subprocess.run(command, timeout=given.limit, capture_output=True, text=True, check=False)
            said = f"{ended.stdout.strip()} bytes" if not ended.returncode else ended.stderr.strip()[-200:]
        except subprocess.TimeoutExpired:
            said = "not done"
        print(f"{name}: {time.monotonic() - began:.0f} s, {said}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
