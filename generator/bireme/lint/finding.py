"""What a rule is, what it looks at, and what it finds."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["Finding", "Issue", "Model", "Rule", "Severity"]

Severity = Literal["error", "warning"]


@dataclass(frozen=True)
class Finding:
    """One fault of one config.

    Args:
        code: the rule's, such as "G01".
        severity: error: Triton ignores it, fails or answers wrongly. warning: it may cost something.
        where: model, and the field in its config.pbtxt.
        message: what is wrong, in one sentence.
        fix: what to write instead.
    """

    code: str
    severity: Severity
    where: str
    message: str
    fix: str

    def as_data(self) -> dict[str, str]:
        """As JSON values."""
        return dataclasses.asdict(self)


@dataclass(frozen=True)
class Model:
    """One model of a repository, as far as its files tell without a server.

    Args:
        name: its folder.
        config: its `ModelConfig`.
        text: config.pbtxt without comments: what is left out there, the message cannot tell from a zero.
        ranks: input → rank with the batch, of the network in model.onnx beside; empty: not known.
        profile_max: input → largest shape, batch first, that the plan's passport allows; empty: no passport.
    """

    name: str
    config: Any
    text: str = ""
    ranks: Mapping[str, int] = field(default_factory=dict)
    profile_max: Mapping[str, Sequence[int]] = field(default_factory=dict)

    @property
    def tensorrt(self) -> bool:
        """Whether the C++ TensorRT backend runs it."""
        return bool(self.config.platform == "tensorrt_plan" or self.config.backend == "tensorrt")

    @property
    def graphs(self) -> bool:
        """Whether the C++ TensorRT backend would capture CUDA Graphs for it."""
        return self.tensorrt and self.config.optimization.cuda.graphs

    @property
    def backend(self) -> str:
        """What runs it, as config.pbtxt says."""
        return str(self.config.backend or self.config.platform or "(none)")

    def parameter(self, name: str) -> str | None:
        """A string parameter; None: it has none of that name."""
        # Reading a missing key of a protobuf map would add it.
        return self.config.parameters[name].string_value if name in self.config.parameters else None


@dataclass(frozen=True)
class Issue:
    """What a rule's check yields: place inside the config, message, fix."""

    place: str
    message: str
    fix: str


@dataclass(frozen=True)
class Rule:
    """One rule.

    Args:
        code: its short name; never used again for something else.
        severity: of what it finds.
        about: what it is about, as a heading.
        check: looks at one model.
    """

    code: str
    severity: Severity
    about: str
    check: Callable[[Model], Iterator[Issue]]

    def findings(self, model: Model) -> Iterator[Finding]:
        """What this rule finds in a model."""
        for issue in self.check(model):
            yield Finding(self.code, self.severity, f"{model.name}: {issue.place}", issue.message, issue.fix)
