"""Reads out of a server's log why it failed: the decisive line and what to do about it."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["Reason", "find_reason"]


@dataclass(frozen=True)
class Reason:
    """What went wrong: the thing, the sentence, the remedy (may be empty).

    `recognised` tells a decisive line from mere last words.
    """

    where: str
    message: str
    hint: str
    recognised: bool


# Most telling first: a pattern with the log's own words as "why", and what to call the thing at fault.
_DECISIVE = (
    (
        r"Error parsing text-format inference\.ModelConfig: (?P<why>[^\n]+)"
        r"\n[^\n]*for model directory '(?P<name>[^']+)'",
        "model {name}",
    ),
    (r"failed to load '(?P<name>[^']+)' version \d+: (?:Internal: )?(?P<why>[^\n\"]+)", "model {name}"),
    (r"Failed to (?:pre)?initialize Python stub[^:\n]*: (?P<why>[^\n\"]+)", "Python model"),
    (r"(?P<why>error while loading shared libraries: [^\n]+)", "tritonserver"),
    (r"failed to load model '(?P<name>[^']+)': (?P<why>[^\n\"]+)", "model {name}"),
    (r"Poll failed for model directory '(?P<name>[^']+)': (?P<why>[^\n\"]+)", "model {name}"),
    (r"ensemble '?(?P<name>[\w.-]+)'? (?P<why>(?:contains|depends)[^\n\"]+)", "model {name}"),
    (r"failed to start \w+ service: [^\n]*'(?P<name>[^']+)' (?P<why>already in use)", "address {name}"),
    (r"tritonserver: (?P<why>(?:unrecognized|invalid|ambiguous|option)[^\n]+)", "tritonserver"),
    (r"error: creating server: (?P<why>[^\n]+)", "tritonserver"),
)

_REMEDIES = (
    (r"shared libraries", "install it again: pip install --force-reinstall 'bireme[embedded]'"),
    (r"No module named", "install it into the Python that runs tritonserver's models"),
    (
        r"backend library for backend 'tensorrt'",
        "use NVIDIA's container, or build with --target gpu-python, or cpu",
    ),
    (r"backend library for backend", "use a tritonserver that has this backend, such as NVIDIA's container"),
    (
        r"FileNotFoundError|No such file|not found in|was found|must be available",
        "build the repository again",
    ),
    (r"already in use", "end the process that holds the port, or choose another"),
    (r"not healthy", "its Python process died while loading: look for an out-of-memory kill (dmesg)"),
    (r"shared memory", "give /dev/shm more space (docker: --shm-size=1g)"),
    (
        r"[Mm]emoryError|bad_alloc|Cannot allocate",
        "give the machine more memory, or the model fewer instances",
    ),
)


def find_reason(log: str) -> Reason:
    """The most telling failure in a server's log; its last lines where nothing is recognised."""
    for pattern, where in _DECISIVE:
        match = re.search(pattern, log)
        if match:
            # Triton writes a Python traceback on one line, with \\n spelled out; the first line is the error.
            why = match["why"].split("\\n")[0].strip()
            return Reason(where.format(**match.groupdict()), why, _remedy(why), recognised=True)
    lines = [line.strip() for line in log.splitlines() if line.strip() and line[0] not in "+|"]
    last = " / ".join(lines[-3:])
    message = f"last words: {last}" if last else "said nothing"
    return Reason("tritonserver", message, _remedy(last), recognised=False)


def _remedy(why: str) -> str:
    return next((remedy for pattern, remedy in _REMEDIES if re.search(pattern, why)), "")
