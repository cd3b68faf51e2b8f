"""The C kernel for tests: one variant of it, or the reason why it cannot be had here."""

from __future__ import annotations

import platform

import pytest

from bireme_runtime.library import CHOICE, Library, load

VARIANTS = ("baseline", "avx2", "avx512") if platform.machine() == "x86_64" else ("baseline",)


def kernel(variant: str, monkeypatch: pytest.MonkeyPatch) -> Library:
    """The kernel in one variant; skips the test where the processor or the library is missing."""
    monkeypatch.setenv(CHOICE, variant)
    library, about = load()
    if library is None:
        pytest.skip(about)
    if library.variant != variant:
        pytest.skip(f"this processor has no {variant}")
    return library
