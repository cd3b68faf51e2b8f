"""The build spec, and the contract that follows from it.

`BuildSpec` is what a user writes (a few lines of YAML). `Contract` is what the rest of the kit reads: the
one place where the names, shapes and dtypes of the served ensemble are decided.
"""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, StrictInt, ValidationError, field_validator

from bireme.errors import SpecError
from bireme.losses import Loss
from bireme.requests import read_requests
from bireme.spec_graphs import GraphSpec
from bireme.spec_instances import Instances
from bireme.spec_precision import PrecisionSpec
from bireme.user_side import find_user_side
from bireme_runtime.plan import Feature

__all__ = ["FEATURES_PARAMETER", "BuildSpec", "Contract", "Layout", "Target", "read_spec"]

Target = Literal["cpu", "gpu", "gpu-python"]
"""Where the dense network runs. cpu: ONNX Runtime; gpu: a TensorRT plan on NVIDIA's C++ backend; gpu-python:
the same plan in a Python-backend model, where that backend is not to be had."""
Layout = Literal["ensemble", "fused"]

#: Parameter of the ensemble's config that holds its features as JSON: dims alone do not tell a user's
#: sequence [-1] from an item's value [-1], and a client has to know.
FEATURES_PARAMETER = "bireme_features"


Storage = Literal["float32", "float16", "int8"]


class StorageLimits(BaseModel):
    """What a lossy storage of the tables may change, on the sample requests, compared with FP32 tables."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    score: float = Field(default=0.01, ge=0)
    """Largest difference of a score, as a share of the largest score."""
    auc: float = Field(default=0.005, ge=0)
    """Change of AUC, of the samples' labels; without them the FP32 ranking's best tenth stands for clicks."""
    rank_share: float = Field(default=1.0, ge=0)
    """How far a candidate may move in its request, as a share of the candidates."""


class BuildSpec(BaseModel):
    """What the model does not say about itself. Everything else is read out of the SavedModel."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str = Field(pattern=r"^[A-Za-z][A-Za-z0-9_]*$", max_length=100)
    """Name of the ensemble; its parts are `<model>_preprocess`, `<model>_dnn`, `<model>_postprocess`."""
    saved_model: Path
    """The SavedModel folder, relative to the spec file."""
    user: tuple[str, ...]
    """Inputs that describe the user or the request; every other input describes a candidate. `[]`: there are
    none. In a spec file also `auto`: the features that are the same for all candidates of every request in
    `samples`."""
    signature: str = "serving_default"
    """Which signature of the SavedModel to serve."""
    outputs: dict[str, str] = {}
    """Task name → signature output. Empty: every output, under its own name."""
    defaults: dict[str, Any] = {}
    """Values for inputs that a request may leave out (a list for a sequence)."""
    text: dict[str, Literal["utf8", "bytes"]] = {}
    """String inputs that may hold arbitrary bytes ("bytes"); the others must be valid UTF-8."""
    lengths: dict[str, StrictInt] = {}
    """Fixed lengths of sequences that the model takes at any length and whose elements reach the DNN one by
    one (attention over a history). A longer one is refused, a shorter one filled up with `padding`."""
    padding: dict[str, Any] = {}
    """The value of elements that a row does not have. Sparse and ragged inputs: fills up a candidate that has
    fewer than another, and counts as absent; default: the empty string, or −1. Sequences of a fixed length:
    fills up a shorter one; default, for those in `lengths`: the empty string, or 0."""
    buckets: tuple[StrictInt, ...] = (64, 128, 256, 512)
    """Candidate counts that the DNN is prepared for. A request is padded to the next one."""
    listwise: bool = False
    """The model ranks a list as a whole: scores depend on the other candidates. N must then be a bucket."""
    max_users: StrictInt = Field(default=16, ge=1, le=1024)
    """Users that one DNN execution may hold (Triton's max_batch_size)."""
    cores: StrictInt | None = Field(default=None, ge=1, le=1024)
    """Processor cores of the machine, or pod, that will serve: how many processes and threads the models get
    (docs/instances.md). None: the cores that the build may use."""
    preprocess_instances: StrictInt | None = Field(default=None, ge=1, le=256)
    """Processes of the feature and embedding step. None: by the cores."""
    dnn_instances: StrictInt | None = Field(default=None, ge=1, le=256)
    """Processes of the dense network, or of the fused model; gpu target: contexts on each GPU; gpu-python
    target: processes on each GPU. None: by the cores (gpu: 2, gpu-python: 4)."""
    dnn_threads: StrictInt | None = Field(default=None, ge=1, le=256)
    """Threads of each DNN process of the cpu target. None: by the cores."""
    storage: Storage | dict[str, Storage] = "float32"
    """How embedding tables are stored: one type for all, or pattern of a table's name → type (the first that
    fits counts; tables that fit none stay float32). int8 has a scale for each row."""
    storage_limits: StorageLimits = StorageLimits()
    """What the storage may change; a build that changes more is refused."""
    samples: Path | None = None
    """Sample requests (JSON lines of {user, items}), relative to the spec file. Used to check every pass, and
    to judge precision and storage; {labels: {task: [0, 1, …]}} beside them makes AUC that of the clicks."""
    precision: PrecisionSpec = PrecisionSpec()
    """How the dense network is typed: FP16 by search where a GPU computes it, FP32 else."""
    graphs: GraphSpec = GraphSpec()
    """CUDA Graphs of a GPU target: their sizes, and what they may cost."""

    layout: Layout = "ensemble"
    """ensemble: a Triton model for every step. fused: all steps in one model, without the hops (cpu only)."""

    def served(self) -> dict[str, Any]:
        """What of the spec decides the scores, as JSON values: no paths, layout, numbers of processes."""
        numbers = {"cores", "preprocess_instances", "dnn_instances", "dnn_threads"}
        return self.model_dump(mode="json", exclude={"saved_model", "samples", "layout", "graphs", *numbers})

    @field_validator("user")
    @classmethod
    def _once(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        twice = next((name for name in value if value.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"lists '{twice}' twice")
        return value

    @field_validator("buckets")
    @classmethod
    def _ascending(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if not value or value[0] < 1 or list(value) != sorted(set(value)):
            raise ValueError("buckets must be positive and strictly ascending")
        if value[-1] > 1_000_000:
            raise ValueError("buckets must not be above 1,000,000")
        return value


class Contract(BaseModel):
    """Names, shapes and dtypes of the served ensemble (docs/requests.md describes it from outside)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str
    features: tuple[Feature, ...]
    tasks: tuple[str, ...]
    """Output names; each is FP32 [users, candidates]."""
    user_width: int
    item_width: int
    buckets: tuple[int, ...]
    max_users: int
    target: Target
    listwise: bool = False
    """Whether N must be one of `buckets`."""
    handover: Literal["float32", "float16"] = "float32"
    """Dtype of `user` and `items` between the steps: FP16 halves the hop. The compiler decides it: a feature
    that FP16 cannot hold keeps it FP32."""

    instances: Instances = Instances()
    """Processes and threads of the models."""
    graph_users: tuple[int, ...] = ()
    """Numbers of users that CUDA Graphs are captured for, `max_users` last. Empty: powers of two up to it."""
    losses: tuple[Loss, ...] = ()
    """What the build rounds on purpose. Empty: scores are FP32's."""
    layout: Layout = "ensemble"
    """fused: one model, called `model`, does what `preprocess` and `dnn` do."""

    @property
    def on_gpu(self) -> bool:
        """Whether the dense network is a TensorRT plan, whoever executes it."""
        return self.target != "cpu"

    @property
    def padded(self) -> bool:
        """Whether `preprocess` pads candidates to a bucket and `postprocess` trims the scores.

        A network in a Python-backend model pads and trims by itself, on a CPU and on a GPU.
        """
        return self.target == "gpu"

    @property
    def preprocess(self) -> str:
        """Model name of the feature and embedding step."""
        return f"{self.model}_preprocess"

    @property
    def dnn(self) -> str:
        """Model name of the dense network."""
        return f"{self.model}_dnn"

    @property
    def postprocess(self) -> str:
        """Model name of the step that trims bucket padding (only where `padded`)."""
        return f"{self.model}_postprocess"

    @property
    def features_in(self) -> str:
        """Name of the model that holds the feature plan and the tables."""
        return self.model if self.layout == "fused" else self.preprocess

    @property
    def max_candidates(self) -> int:
        """Largest N that a request may hold."""
        return self.buckets[-1]


def read_spec(path: Path) -> BuildSpec:
    """Read and validate a spec file; paths in it are resolved against its folder.

    Raises:
        SpecError: the file is missing, is not YAML, or has a wrong or unknown field.
    """
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SpecError(str(path), f"cannot be read: {error.strerror}", "name a spec file (YAML)") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # a date that is none is a ValueError
        detail = " ".join(str(error).split())
        raise SpecError(str(path), f"is not valid YAML: {detail}", "see examples/obd/bireme.yaml") from None
    if not isinstance(raw, dict):
        raise SpecError(str(path), "must hold a mapping", "see examples/obd/bireme.yaml")
    if raw.get("user") == "auto":
        raw = {**raw, "user": _find_user(path, raw.get("samples"))}
    try:
        spec = BuildSpec.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "spec"
        message, hint = _in_plain_words(place, first["type"], first["msg"].removeprefix("Value error, "))
        raise SpecError(f"{path}: {place}", message, hint) from None
    base = path.parent
    samples = base / spec.samples if spec.samples is not None else None
    return spec.model_copy(update={"saved_model": base / spec.saved_model, "samples": samples})


def _find_user(path: Path, samples: Any) -> tuple[str, ...]:
    """The user's inputs, from sample requests.

    Raises:
        SpecError: there are none, or they do not tell.
    """
    where = f"{path}: user"
    if not isinstance(samples, str):
        hint = "list the user's inputs, or name a file of sample requests there"
        raise SpecError(where, "can only be found with `samples`", hint)
    return find_user_side(read_requests(path.parent / samples), where)


#: Pydantic's kinds of error → what a value must be.
_KINDS = {
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a mapping (`name: value`), or left out",
    "string_type": "text (in quotes, if YAML takes it for something else)",
    "int_type": "a whole number",
    "path_type": "a path",
}


def _in_plain_words(place: str, kind: str, message: str) -> tuple[str, str]:
    """Pydantic's finding in the words of the spec, and a remedy."""
    if kind == "extra_forbidden":
        parent, _, last = place.rpartition(".")
        groups: dict[str, type[BaseModel]] = {"precision": PrecisionSpec, "graphs": GraphSpec}
        fields = list(groups.get(parent, BuildSpec).model_fields)
        near = difflib.get_close_matches(last, fields, n=1)
        known = f"its fields are: {', '.join(fields)}"
        return "is not a field of the spec", f"did you mean '{near[0]}'?" if near else known
    if place == "user" and kind in ("missing", "tuple_type", "list_type"):
        what = "is missing" if kind == "missing" else "must be a list"
        return what, "list the inputs that describe the user; `user: []` if there are none"
    if kind == "missing":
        return "is missing", "see examples/obd/bireme.yaml"
    if kind in _KINDS:
        return f"must be {_KINDS[kind]}", "see examples/obd/bireme.yaml"
    if kind == "string_pattern_mismatch":
        return "may hold letters, digits and _ only, and starts with a letter", "choose another name"
    return message, "see examples/obd/bireme.yaml"
