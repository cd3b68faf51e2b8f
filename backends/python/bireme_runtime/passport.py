"""What a TensorRT plan was built for, written beside it, and why it must not be served somewhere else.

A plan is bound to one version of TensorRT, one kind of GPU and one optimization profile. TensorRT finds out
late and in its own words, or not at all: a truncated plan can end the server, and shapes outside of the
profile fail request by request. So `bireme engine` writes `passport.json` beside each `model.plan`, and
whoever is about to load the plan asks `refusal` first::

    <repository>/<model>/<version>/  model.onnx  model.plan  passport.json

The file is written before the plan is put in its place, and holds the plan's hash: whatever a crash leaves
behind, a plan is only served with the passport that was made for it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from .hashes import file_sha256

__all__ = [
    "ONNX",
    "PASSPORT",
    "PLAN",
    "Gpu",
    "Here",
    "Needs",
    "Passport",
    "Refusal",
    "Shapes",
    "check",
    "described",
    "read",
    "refusal",
]

PLAN = "model.plan"
ONNX = "model.onnx"
PASSPORT = "passport.json"
FORMAT = 1

Precision = Literal["strongly_typed", "obey", "fp32"]
BuiltBy = Literal["tensorrt python", "trtexec"]


class Refusal(NamedTuple):
    """Why a plan is not served: what is wrong, naming the file, and what to do about it."""

    message: str
    remedy: str


@dataclass(frozen=True)
class Gpu:
    """One GPU.

    Args:
        name: as CUDA says it, such as "NVIDIA H200".
        compute_capability: such as "9.0".
        memory_mb: total memory in MiB.
    """

    name: str
    compute_capability: str
    memory_mb: int


@dataclass(frozen=True)
class Here:
    """What a plan would run on. None: not known here, and not checked.

    Args:
        tensorrt: version of TensorRT, such as "8.6.0".
        gpu: the GPU.
    """

    tensorrt: str | None = None
    gpu: Gpu | None = None


@dataclass(frozen=True)
class Shapes:
    """The range of one input in the optimization profile; every shape has the users first."""

    min: tuple[int, ...]
    opt: tuple[int, ...]
    max: tuple[int, ...]


@dataclass(frozen=True)
class Needs:
    """What a model's config wants of its plan.

    Args:
        dims: input → dims as in config.pbtxt: users left out, -1 for the candidates.
        users: the most users of one execution; any smaller number occurs, too.
        buckets: numbers of candidates; empty for a network without candidates.
    """

    dims: Mapping[str, Sequence[int]]
    users: int
    buckets: Sequence[int]


@dataclass(frozen=True)
class Passport:
    """What is known of a plan, as in passport.json.

    Args:
        model: the Triton model that it belongs to.
        plan: {"sha256": hex, "bytes": size} of model.plan.
        onnx: {"sha256": hex} of the model.onnx that it was built from.
        tensorrt: the version that built it.
        gpu: the GPU that it was built on.
        driver: version of NVIDIA's driver there, or "" where it could not be found out. Not checked: a plan
            survives another driver.
        profile: input → range of shapes.
        users: the most users that it was built for.
        buckets: numbers of candidates that it was built for.
        precision: how the types in the ONNX were imposed.
        flags: what else the builder was told.
        built_by: which tool built it.
    """

    model: str
    plan: Mapping[str, Any]
    onnx: Mapping[str, str]
    tensorrt: str
    gpu: Gpu
    driver: str
    profile: Mapping[str, Shapes]
    users: int
    buckets: tuple[int, ...]
    precision: Precision
    built_by: BuiltBy
    flags: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        """The text of passport.json; `from_json` reads it back."""
        return json.dumps({"format": FORMAT, **dataclasses.asdict(self)}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Passport:
        """Read the text of a passport.json.

        Raises:
            ValueError: it is none, or of a format that this version does not know.
        """
        try:
            raw = json.loads(text)
            version = raw.pop("format")
        except json.JSONDecodeError as error:
            raise ValueError(f"is not JSON: {error}") from None
        except (TypeError, KeyError, AttributeError, RecursionError) as error:
            raise ValueError(f"is no passport: {type(error).__name__}: {error}") from None
        if version != FORMAT:
            raise ValueError(f"has format {version!r}; this version of bireme reads {FORMAT}")
        try:
            profile = {
                name: Shapes(*(tuple(map(int, shapes[key])) for key in ("min", "opt", "max")))
                for name, shapes in raw["profile"].items()
            }
            plan = {"sha256": str(raw["plan"]["sha256"]), "bytes": int(raw["plan"]["bytes"])}
            onnx = {"sha256": str(raw["onnx"]["sha256"])}
            gpu, buckets = Gpu(**raw["gpu"]), tuple(map(int, raw["buckets"]))
            texts = {key: raw[key] for key in ("model", "tensorrt", "driver", "precision", "built_by")}
            texts |= {"GPU's name": gpu.name, "compute_capability": gpu.compute_capability}
            for key, value in texts.items():
                if not isinstance(value, str):
                    raise TypeError(f"its {key} is {value!r}, which is no text")
            made: dict[str, Any] = {
                "profile": profile,
                "plan": plan,
                "onnx": onnx,
                "gpu": gpu,
                "buckets": buckets,
            }
            made["users"] = int(raw["users"])
            return cls(**(raw | made))
        # An Infinity, which JSON does not have and Python reads, overflows.
        except (TypeError, KeyError, AttributeError, ValueError, OverflowError) as error:
            raise ValueError(f"is no passport: {type(error).__name__}: {error}") from None

    def write(self, path: Path) -> None:
        """Write it completely or not at all.

        Raises:
            OSError: it cannot be written; what was there before stays.
        """
        unfinished = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            unfinished.write_text(self.to_json(), encoding="utf-8")
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)


def read(folder: Path) -> Passport:
    """The passport in a version folder.

    Raises:
        OSError: it is missing or cannot be read.
        ValueError: it is none; the message continues "passport.json …".
    """
    return Passport.from_json((folder / PASSPORT).read_text(encoding="utf-8"))


def check(folder: Path, here: Here, needs: Needs | None = None) -> Refusal | None:
    """Why the plan in a version folder must not be loaded, or None; a missing passport is a reason, too.

    Args:
        folder: `<repository>/<model>/<version>`.
        here: what would run it.
        needs: what the model's config wants of it, or None: not checked.
    """
    if not (folder / PLAN).is_file():
        return Refusal(f"{folder / PLAN} is missing", _remedy(folder))
    try:
        passport = read(folder)
    except FileNotFoundError:
        return Refusal(
            f"{folder / PLAN} has no {PASSPORT} beside it, so nobody knows what it was built for",
            _remedy(folder),
        )
    except (OSError, UnicodeDecodeError) as error:
        return Refusal(f"{folder / PASSPORT} cannot be read: {error}", _remedy(folder))
    except ValueError as error:
        return Refusal(f"{folder / PASSPORT} {error}", _remedy(folder))
    return refusal(passport, folder, here, needs)


def refusal(passport: Passport, folder: Path, here: Here, needs: Needs | None = None) -> Refusal | None:
    """Why the plan in a version folder must not be loaded, or None.

    Args:
        passport: the one beside the plan.
        folder: `<repository>/<model>/<version>`.
        here: what would run it.
        needs: what the model's config wants of it, or None: not checked.
    """
    message = (
        _wrong_file(passport, folder)
        or _wrong_machine(passport, folder, here)
        or (_uncovered(passport, folder, needs) if needs is not None else None)
    )
    return Refusal(message, _remedy(folder)) if message is not None else None


def _remedy(folder: Path) -> str:
    repository, model = folder.parent.parent, folder.parent.name
    return f"build it on the GPU that will serve: bireme engine -r {repository} --model {model}"


def _wrong_file(passport: Passport, folder: Path) -> str | None:
    """Whether the plan and the ONNX are those that the passport was written for."""
    plan, onnx = folder / PLAN, folder / ONNX
    try:
        size = plan.stat().st_size
        if size != passport.plan["bytes"]:
            kind = "is truncated" if size < passport.plan["bytes"] else "is not the plan of its passport"
            return f"{plan} {kind}: it has {size:,} bytes, its passport says {passport.plan['bytes']:,}"
        if file_sha256(plan) != passport.plan["sha256"]:
            return f"{plan} is damaged or was replaced: its hash is not the one in its passport"
        # The plan alone is enough to serve; a deployment may leave the ONNX behind.
        if onnx.exists() and file_sha256(onnx) != passport.onnx["sha256"]:
            return f"{plan} was built from another network than the {ONNX} beside it"
    except FileNotFoundError:
        return f"{plan} is missing"
    except OSError as error:
        return f"{error.filename} cannot be read: {error.strerror}"
    return None


def _wrong_machine(passport: Passport, folder: Path, here: Here) -> str | None:
    plan = folder / PLAN
    if here.tensorrt is not None and _release(here.tensorrt) != _release(passport.tensorrt):
        return (
            f"{plan} was built by TensorRT {passport.tensorrt} and cannot be read by"
            f" TensorRT {here.tensorrt}, which is here"
        )
    if here.gpu is not None:
        built, found = passport.gpu, here.gpu
        if (built.name, built.compute_capability) != (found.name, found.compute_capability):
            return (
                f"{plan} was built for {built.name} (compute capability {built.compute_capability});"
                f" here is {found.name} (compute capability {found.compute_capability})"
            )
    return None


def _release(version: str) -> tuple[str, ...]:
    """The numbers that must agree: "8.6.1.post1" and "8.6.1" are one release."""
    return tuple(version.split(".")[:3])


def _uncovered(passport: Passport, folder: Path, needs: Needs) -> str | None:
    """Whether the profile holds every shape that the config can ask for: 1..users × buckets."""
    plan = folder / PLAN
    other = sorted(set(passport.profile) ^ set(needs.dims))
    if other:
        return f"{plan} and the config.pbtxt do not have the same inputs: {', '.join(other)}"
    for users in (1, needs.users):
        for bucket in needs.buckets or (0,):
            for name, dims in needs.dims.items():
                wanted = (users, *(bucket if size == -1 else size for size in dims))
                covered = passport.profile[name]
                if len(wanted) != len(covered.max) or not all(
                    low <= size <= high
                    for low, size, high in zip(covered.min, wanted, covered.max, strict=True)
                ):
                    return (
                        f"{plan} was not built for users {users}"
                        + (f", bucket {bucket}" if needs.buckets else "")
                        + f", which the config.pbtxt needs: its profile takes '{name}' from"
                        f" {_text(covered.min)} to {_text(covered.max)}, not {_text(wanted)}"
                    )
    return None


def _text(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))


def described(plan: bytes) -> dict[str, Any]:
    """What a passport says of a plan's file."""
    return {"sha256": hashlib.sha256(plan).hexdigest(), "bytes": len(plan)}
