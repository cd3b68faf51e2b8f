"""Translated patterns in Python against TensorFlow's RE2, on any bytes; others are left alone."""

from __future__ import annotations

import re
import time

import numpy as np
import pytest
import tensorflow as tf

from bireme.compiler.rules.regex_subset import translate

SEARCHED = [
    b"[0-9]+",
    b"[!\"#$%&()\\*\\+,-\\./:;<=>?@\\[\\\\\\]^_`{|}~']",
    b"\\s+",
    b"[^a-z]",
    b"[^a-zA-Z0-9_]+",
    b".",
    b"\\W",
    b"\\D+",
    b"ab|a|b{2}",
    b"(a|ab)(c|bcd)",
    b"a??b",
    b"^a",
    b"a$",
    b"^\\s",
    "ä".encode(),
    "(?:ä|b){2}".encode(),
    b"a{2,3}?",
    b"[]a-]",
    b"[a\\]\\-z]{1,2}",
    b"x[ab]*",
    b"a.c",
    b"\\|\\v|\\f",
]
WHOLE = [*SEARCHED, b"", b"a*", b"[a-c ]+", b"(?:ab)?c*", b"$", b"(a|b|)", b"..?.?"]
STRANGE = [
    b"a*",
    b"a|",
    b"\\s+$",
    b"a+b",
    b"(a*)*",
    b"(a+)+",
    b"(?i)a",
    b"(?P<n>a)",
    b"[[:alpha:]]",
    b"[^\\W]",
    b"\\pL",
    b"\\bword",
    b"\\Aa",
    b"\\101",
    b"\\x41",
    b"\\Qa\\E",
    b"a**",
    b"a{1001}",
    b"a{,3}",
    b"[b-a]",
    b"(a",
    b"a)",
    b"a++",
    "[ä]".encode(),
    b"\xff",
]


def texts(count: int = 5000) -> list[bytes]:
    rng = np.random.default_rng(3)
    pools = [b"ab", b"abcx 01-]|[\\\n\t\v\f\r", "aäbж€🙂\n".encode(), bytes(range(256))]
    pools.append(b"\xc3\xe2\xf0\x82\xac\xa4ab")
    made = [
        rng.choice(np.frombuffer(pools[i % len(pools)], np.uint8), int(rng.integers(0, 14))).tobytes()
        for i in range(count)
    ]
    return [
        *made,
        b"",
        "ä€🙂".encode(),
        b"\xed\xa0\x80",
        b"\xc0\x80",
        b"\xe0\x80\x80",
        b"\xf4\x90\x80\x80",
        b"a\n",
    ]


@pytest.mark.parametrize("everywhere", [True, False])
@pytest.mark.parametrize("pattern", SEARCHED)
def test_replace(pattern: bytes, everywhere: bool) -> None:
    translated = translate(pattern, whole=False)
    assert translated is not None
    compiled = re.compile(translated.encode())
    found = [compiled.sub(b"<>", text, 0 if everywhere else 1) for text in texts()]
    expected = tf.strings.regex_replace(texts(), pattern, b"<>", replace_global=everywhere).numpy().tolist()
    assert found == expected


@pytest.mark.parametrize("pattern", WHOLE)
def test_full_match(pattern: bytes) -> None:
    translated = translate(pattern, whole=True)
    assert translated is not None
    compiled = re.compile(translated.encode())
    found = [compiled.fullmatch(text) is not None for text in texts()]
    assert found == tf.strings.regex_full_match(texts(), pattern).numpy().tolist()


@pytest.mark.parametrize("pattern", STRANGE)
def test_other_patterns_are_left_alone(pattern: bytes) -> None:
    assert translate(pattern, whole=False) is None


@pytest.mark.parametrize("pattern", SEARCHED)
def test_no_pattern_takes_long(pattern: bytes) -> None:
    """A megabyte is the most that a request may hold; what is quadratic would take hours."""
    translated = translate(pattern, whole=False)
    assert translated is not None
    compiled = re.compile(translated.encode())
    start = time.perf_counter()
    for text in (b"a" * 10**5, b" " * 10**5, b"ab" * 10**5, "ä".encode() * 10**5):
        compiled.sub(b"", text)
    assert time.perf_counter() - start < 10
