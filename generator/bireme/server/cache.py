"""Triton's response cache: silently, a config's `response_cache` does nothing unless the server has one."""

from __future__ import annotations

from pathlib import Path

from google.protobuf import text_format  # type: ignore[import-untyped]
from tritonclient.grpc.model_config_pb2 import ModelConfig

__all__ = ["CACHE_FLAG", "cache_flags"]

# A user state is a few kilobytes, so this holds tens of thousands; the least recently used one goes first.
CACHE_FLAG = f"--cache-config=local,size={64 << 20}"


def cache_flags(repository: Path) -> list[str]:
    """The flag that gives tritonserver a cache, if a model of the repository asks for one.

    Args:
        repository: a model repository whose configs parse.
    """
    for path in sorted(repository.glob("*/config.pbtxt")):
        text = path.read_text(encoding="utf-8")
        if "response_cache" in text and text_format.Parse(text, ModelConfig()).response_cache.enable:
            return [CACHE_FLAG]
    return []
