"""Regular expressions that RE2, which TensorFlow uses, and Python's `re` on bytes match alike.

`translate` reads a pattern of RE2 and writes it anew for Python, or gives None. What it takes is small on
purpose: literals, classes, groups, alternatives, quantifiers, anchors. Both engines prefer the leftmost match
and then the first alternative. Left out is where they differ (loops over what may be empty, empty matches,
back references), and what takes Python more than linear time: nearly every pattern with two unbounded loops.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["translate"]

_SPECIAL = set("\\.+*?()|[]{}^$")
_DIGIT = set(range(0x30, 0x3A))
_WORD = _DIGIT | set(range(0x41, 0x5B)) | set(range(0x61, 0x7B)) | {0x5F}
_SPACE = {0x09, 0x0A, 0x0C, 0x0D, 0x20}  # without the vertical tab, unlike Python's
_CLASSES = {"d": _DIGIT, "w": _WORD, "s": _SPACE}
_CONTROLS = {"n": 0x0A, "t": 0x09, "r": 0x0D, "f": 0x0C, "v": 0x0B}
_ASCII = set(range(0x80))
# Characters beyond ASCII, with the slack that RE2 gives itself for them.
_BEYOND = r"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}"
_MOST = 1000  # repetitions that RE2 allows


class _Strange(Exception):  # noqa: N818 - never leaves this file
    """The pattern is not one of those that are known to match alike."""


@dataclass(frozen=True)
class _Part:
    """A piece of the translation; `loops` is the number of unbounded loops, `last` whether one ends it."""

    text: str
    empty: bool
    loops: int = 0
    last: bool = True


def translate(pattern: bytes, whole: bool) -> str | None:
    """The pattern for Python's `re` on bytes.

    Args:
        pattern: as TensorFlow has it.
        whole: it must match a whole string (so it may match an empty one); else it is searched for.
    """
    try:
        reader = _Reader(pattern.decode())
        part = reader.alternatives()
        if reader.place < len(reader.text):
            raise _Strange
    except (_Strange, UnicodeDecodeError):
        return None
    if part.loops > 1 or (not whole and (part.empty or (part.loops and not part.last))):
        return None
    return part.text


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.place = 0

    def peek(self) -> str:
        return self.text[self.place : self.place + 1]

    def take(self) -> str:
        found = self.peek()
        if not found:
            raise _Strange
        self.place += 1
        return found

    def alternatives(self) -> _Part:
        branches = [self.sequence()]
        while self.peek() == "|":
            self.take()
            branches.append(self.sequence())
        if len(branches) == 1:
            return branches[0]
        return _Part(
            "(?:" + "|".join(branch.text for branch in branches) + ")",
            any(branch.empty for branch in branches),
            sum(branch.loops for branch in branches),
            all(branch.last or not branch.loops for branch in branches),
        )

    def sequence(self) -> _Part:
        parts: list[_Part] = []
        while self.peek() not in ("", "|", ")"):
            parts.append(self.repeated())
        loops = sum(part.loops for part in parts)
        last = not any(part.loops for part in parts[:-1]) and (not parts or parts[-1].last)
        return _Part("".join(p.text for p in parts), all(p.empty for p in parts), loops, last)

    def repeated(self) -> _Part:
        if self.peek() in ("^", "$"):
            return _Part({"^": r"\A", "$": r"\Z"}[self.take()], True)
        atom = self.atom()
        found = self.quantifier()
        if found is None:
            return atom
        low, high = found
        lazy = "?" if self.peek() == "?" else ""
        self.place += len(lazy)
        if self.peek() in tuple("*+?{") or atom.empty or atom.loops:
            raise _Strange
        bounds = f"{{{low},{'' if high is None else high}}}"
        return _Part(f"(?:{atom.text}){bounds}{lazy}", low == 0, int(high is None), high is None)

    def quantifier(self) -> tuple[int, int | None] | None:
        sign = self.peek()
        if sign in ("*", "+", "?") and sign:
            self.take()
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[sign]
        if sign != "{":
            return None
        inside, _, _ = self.text[self.place + 1 :].partition("}")
        low, comma, high = inside.partition(",")
        digits = low.isascii() and low.isdigit() and (not high or (high.isascii() and high.isdigit()))
        self.place += len(inside) + 2
        if not digits or self.place > len(self.text) or max(int(low), int(high or 0)) > _MOST:
            raise _Strange
        if comma and not high:
            return int(low), None
        bounds = int(low), int(high) if comma else int(low)
        if bounds[1] < max(bounds[0], 1):
            raise _Strange
        return bounds

    def atom(self) -> _Part:
        sign = self.take()
        if sign == "(":
            if self.text.startswith("?:", self.place):
                self.place += 2
            elif self.peek() == "?":
                raise _Strange
            inner = self.alternatives()
            if self.take() != ")":
                raise _Strange
            return _Part(f"(?:{inner.text})", inner.empty, inner.loops, inner.last)
        if sign == "[":
            return _one_of(*self.members())
        if sign == ".":
            return _one_of({0x0A}, negated=True)
        if sign == "\\":
            members, negated = self.escaped()
            return _one_of(members, negated)
        if sign in _SPECIAL:
            raise _Strange
        return _Part("(?:" + "".join(f"\\x{byte:02x}" for byte in sign.encode()) + ")", False)

    def escaped(self) -> tuple[set[int], bool]:
        """What follows a backslash: the ASCII characters that it stands for, and whether for all others."""
        sign = self.take()
        if sign.lower() in _CLASSES:
            return _CLASSES[sign.lower()], sign.isupper()
        if sign in _CONTROLS:
            return {_CONTROLS[sign]}, False
        if sign.isascii() and sign.isprintable() and not sign.isalnum():
            return {ord(sign)}, False
        raise _Strange

    def members(self) -> tuple[set[int], bool]:
        """A class in brackets."""
        negated = self.peek() == "^"
        self.place += negated
        members: set[int] = set()
        first = True
        while self.peek() != "]" or first:
            low = self.member()
            if len(low) == 1 and self.peek() == "-" and self.text[self.place + 1 : self.place + 2] != "]":
                self.take()
                high = self.member()
                if len(high) != 1 or min(high) < min(low):
                    raise _Strange
                low = set(range(min(low), min(high) + 1))
            members |= low
            first = False
        self.take()
        return members, negated

    def member(self) -> set[int]:
        sign = self.take()
        if sign == "\\":
            members, negated = self.escaped()
            if negated:
                raise _Strange
            return members
        if not sign.isascii() or (sign == "[" and self.peek() == ":"):
            raise _Strange
        return {ord(sign)}


def _one_of(members: set[int], negated: bool = False) -> _Part:
    inside = "".join(f"\\x{byte:02x}" for byte in sorted(_ASCII - members if negated else members))
    if not inside:
        raise _Strange
    return _Part(f"(?:[{inside}]|{_BEYOND})" if negated else f"[{inside}]", False)
