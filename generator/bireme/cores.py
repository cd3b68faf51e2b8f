"""How many processor cores this process may use: its affinity, and the CPU quota of its control group."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

__all__ = ["usable_cores"]

_ROOT = Path("/")


def usable_cores(root: Path = _ROOT) -> int:
    """Cores that this process may use at the same time, at least 1.

    A quota that is no whole number is rounded down: processes for 2.5 cores' worth of work that keep three of
    them busy are stopped until the next period begins.

    Args:
        root: where /proc and /sys lie.
    """
    try:
        allowed = len(os.sched_getaffinity(0))
    except (AttributeError, OSError):  # not Linux: builds work there, servers do not
        allowed = os.cpu_count() or 1
    return max(1, int(min([float(allowed), *_quotas(root)])))


def _quotas(root: Path) -> Iterator[float]:
    """Quotas, in cores, of this process's control group and of those around it, where there are any."""
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        names = controllers.split(",")
        if controllers and "cpu" not in names:
            continue
        mounts = (controllers, "cpu") if controllers else ("", "unified")
        for mount in mounts:
            # In a container the path may be the host's, which is not there: then the mount itself is ours.
            group = Path(path.lstrip("/"))
            for part in [group, *group.parents]:
                quota = _quota(root / "sys/fs/cgroup" / mount / part)
                if quota is not None:
                    yield quota


def _quota(folder: Path) -> float | None:
    """Quota in cores of one control group, version 2 (cpu.max) or 1; None: it has none."""
    for names in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
        try:
            texts = [(folder / name).read_text(encoding="ascii") for name in names]
            quota, period, *_ = " ".join(texts).split()
        except (OSError, ValueError):
            continue
        if quota in ("max", "-1") or int(period) <= 0:
            return None
        return int(quota) / int(period)
    return None
