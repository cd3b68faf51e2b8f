"""What a rule is, what it looks at, and what it finds."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from bireme.lint.release import ALWAYS, Releases
from bireme.lint.settings import Settings

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
        file: the config, relative to the repository.
        line: of the field in it, from 1; None: the field is not written, and that is what is wrong.
    """

    code: str
    severity: Severity
    where: str
    message: str
    fix: str
    file: str = ""
    line: int | None = None

    def as_data(self) -> dict[str, Any]:
        """As JSON values."""
        return dataclasses.asdict(self)


@dataclass(frozen=True)
class Model:
    """One model of a repository, as far as its files tell without a server.

    Args:
        name: its folder.
        config: its `ModelConfig`.
        text: config.pbtxt without comments: what is left out there, the message cannot tell from a zero.
        shapes: input → sizes with the batch, of the network in model.onnx beside; None in it: any size;
            empty: not known.
        types: input → data type as Triton names it, of the same network.
        profile_max: input → largest shape, batch first, that the plan's passport allows; empty: no passport.
        folder: where its files are; None: there are none to look at.
        others: name → model, of the whole repository; empty: this model is looked at on its own.
        folders: names of all folders of the repository, also of those that cannot be read.
        settings: what is known of the server.
    """

    name: str
    config: Any
    text: str = ""
    shapes: Mapping[str, Sequence[int | None]] = field(default_factory=dict)
    types: Mapping[str, str] = field(default_factory=dict)
    profile_max: Mapping[str, Sequence[int]] = field(default_factory=dict)
    folder: Path | None = None
    others: Mapping[str, Model] = field(default_factory=dict)
    folders: frozenset[str] = frozenset()
    settings: Settings = field(default_factory=Settings)

    @property
    def ranks(self) -> Mapping[str, int]:
        """Input → rank with the batch, of the network in model.onnx beside; empty: not known."""
        return {name: len(shape) for name, shape in self.shapes.items()}

    @property
    def ensemble(self) -> bool:
        """Whether it is an ensemble."""
        return bool(self.config.platform == "ensemble" or self.config.HasField("ensemble_scheduling"))

    @property
    def python(self) -> bool:
        """Whether the Python backend runs it."""
        return bool(self.config.backend == "python")

    @property
    def onnxruntime(self) -> bool:
        """Whether the ONNX Runtime backend runs it."""
        return "onnxruntime" in self.backend

    @property
    def versions(self) -> Sequence[Path]:
        """The folders of its versions, as Triton numbers them: oldest first."""
        if self.folder is None:
            return []
        names = [path for path in self.folder.iterdir() if path.is_dir() and path.name.isdecimal()]
        return sorted((path for path in names if path.name[0] != "0"), key=lambda path: int(path.name))

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
        about: what it finds.
        check: looks at one model.
        why: what Triton does with it, and how that is known.
        fix: what to write instead, in general.
        releases: of Triton, for which that holds.
    """

    code: str
    severity: Severity
    about: str
    check: Callable[[Model], Iterator[Issue]]
    why: str = ""
    fix: str = ""
    releases: Releases = ALWAYS

    def findings(self, model: Model) -> Iterator[Finding]:
        """What this rule finds in a model; nothing for a release for which it does not hold."""
        if model.settings.triton is not None and model.settings.triton not in self.releases:
            return
        for issue in self.check(model):
            yield Finding(self.code, self.severity, f"{model.name}: {issue.place}", issue.message, issue.fix)
