"""How many CUDA Graphs there will be, about what they cost, and which to leave out over a budget.

Captures on one GPU = shapes × copies × instances. NVIDIA's C++ backend holds each graph three times in every
instance, once per set of events (and once per optimization profile, of which a plan of bireme has one); the
gpu-python target holds each once in every lane of every process.

What one capture costs was measured on an H200 for the gpu-python target (perf/results/gpu.json, `said`): an
instance of the MMoE/DIN network with 2 lanes of 20 graphs was ready 0.2 to 0.3 s later than one without,
which includes a plain run and a check of each, and took 12 MB more of the GPU: 7 ms and 0.3 MB a capture, for
a network that TensorRT compiled as a whole. Both figures below are rounded up. For NVIDIA's C++ backend there
is only a bound for the time: 28 models loaded with all their graphs, at least 168 captures, in 4 s.

The log of a loaded model says what it was (gpu-python: "captured in … s, … MB").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bireme.emitter.configs_gpu_python import LANES
from bireme.emitter.graphs import user_sizes
from bireme.errors import SpecError
from bireme.spec import BuildSpec, Target
from bireme.spec_instances import Instances

__all__ = ["MB_PER_CAPTURE", "SECONDS_PER_CAPTURE", "GraphChoice", "choose_graphs"]

SECONDS_PER_CAPTURE = 0.01
MB_PER_CAPTURE = 0.5
#: EVENT_SET_COUNT of Triton's TensorRT backend.
_EVENT_SETS = 3


@dataclass(frozen=True)
class GraphChoice:
    """Which graphs to capture.

    Args:
        users: numbers of users, ascending, `max_users` last; a graph runs every number above the one before.
        left_out: sizes that the budget has no room for.
        buckets: candidate counts; every one has a graph of each size.
        user_only: whether there is a network without candidates as well (and a second one with).
        copies: how often an instance holds each graph, and why: sets of events, or lanes.
        instances: contexts or processes on each GPU.
    """

    users: tuple[int, ...]
    left_out: tuple[int, ...]
    buckets: tuple[int, ...]
    user_only: bool
    copies: int
    instances: int

    @property
    def shapes(self) -> int:
        """Different graphs of all networks of the ensemble."""
        return len(self.users) * _shapes_per_size(self.buckets, self.user_only)

    @property
    def captures(self) -> int:
        """Graphs on one GPU."""
        return self.shapes * self.copies * self.instances

    def as_data(self) -> dict[str, Any]:
        """For the report: every shape and the estimate, as JSON values."""
        return {
            "shapes": [[users, bucket] for users in self.users for bucket in self.buckets],
            "users": list(self.users),
            "left_out": list(self.left_out),
            "networks": 3 if self.user_only else 1,
            "copies_per_instance": self.copies,
            "instances": self.instances,
            "captures": self.captures,
            "estimate": {
                "rough": True,
                "memory_mb": round(self.captures * MB_PER_CAPTURE),
                "load_seconds": round(self.captures * SECONDS_PER_CAPTURE, 1),
            },
        }


def choose_graphs(
    spec: BuildSpec, target: Target, instances: Instances, user_ahead: bool
) -> GraphChoice | None:
    """The graphs that a spec's budget has room for; None on the CPU.

    Over the budget, user sizes go, from the middle: 1 is what nearly every execution has, and the largest
    must be captured, as a plain execution larger than every graph corrupts later launches of Triton's
    backend. What would have run in a graph that was left out runs in the next larger one.

    Args:
        spec: `graphs`, `buckets`, `max_users`.
        target: where the dense network will run.
        instances: how many contexts or processes a GPU has.
        user_ahead: whether the models of --user-ahead are built too.

    Raises:
        SpecError: `graphs.users` does not end with `max_users`, or not even the fewest graphs fit.
    """
    if target == "cpu":
        return None
    copies = _EVENT_SETS if target == "gpu" else LANES
    each = _shapes_per_size(spec.buckets, user_ahead) * copies * instances.dnn
    room = _captures_allowed(spec) // each
    if spec.graphs.users is not None:
        wanted = list(spec.graphs.users)
        if wanted[-1] != spec.max_users:
            raise SpecError(
                f"{spec.model}: graphs.users",
                f"ends with {wanted[-1]} where `max_users` is {spec.max_users}: what is larger than every"
                " graph runs plainly, and in Triton's TensorRT backend spoils the scores of later graphs",
                f"end the list with {spec.max_users}, or set max_users: {wanted[-1]}",
            )
        fewest = len(wanted)
    else:
        wanted = user_sizes(spec.max_users)
        fewest = min(2, len(wanted))
    if room < fewest:
        raise _too_many(spec, fewest * each, user_ahead)
    kept = list(wanted)
    while len(kept) > room:
        del kept[len(kept) // 2]
    return GraphChoice(
        users=tuple(kept),
        left_out=tuple(size for size in wanted if size not in kept),
        buckets=spec.buckets,
        user_only=user_ahead,
        copies=copies,
        instances=instances.dnn,
    )


def _shapes_per_size(buckets: tuple[int, ...], user_ahead: bool) -> int:
    """Graphs of one number of users: --user-ahead has two networks with candidates, one without."""
    return 2 * len(buckets) + 1 if user_ahead else len(buckets)


def _captures_allowed(spec: BuildSpec) -> int:
    budget = spec.graphs
    limits = [budget.memory_mb / MB_PER_CAPTURE, budget.load_seconds / SECONDS_PER_CAPTURE]
    return int(min(limits if budget.max is None else [*limits, budget.max]))


def _too_many(spec: BuildSpec, needed: int, user_ahead: bool) -> SpecError:
    allowed = _captures_allowed(spec)
    fewer = "`dnn_instances`, fewer `buckets`" + (", --user-ahead left out" if user_ahead else "")
    if spec.graphs.users is not None:
        fewer += ", a shorter `graphs.users`"
    memory, seconds = needed * MB_PER_CAPTURE, needed * SECONDS_PER_CAPTURE
    return SpecError(
        f"{spec.model}: graphs",
        f"allows {allowed} captures on a GPU, and at least {needed} are needed"
        f" (roughly {memory:.0f} MB and {seconds:.1f} s at load)",
        f"raise {_narrowest(spec)}; or fewer {fewer}",
    )


def _narrowest(spec: BuildSpec) -> str:
    """The limit that binds."""
    budget, allowed = spec.graphs, _captures_allowed(spec)
    if budget.max == allowed:
        return "graphs.max"
    if int(budget.memory_mb / MB_PER_CAPTURE) == allowed:
        return "graphs.memory_mb"
    return "graphs.load_seconds"
