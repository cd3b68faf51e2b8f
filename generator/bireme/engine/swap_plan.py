"""Puts a new plan, its passport and its report in place; no moment shows a plan with a wrong passport.

All three are first written completely under other names. Then the passport is renamed: from now on the old
plan does not match it and is refused. Then the plan, which the passport describes, and the report. Whatever
ends the process in between leaves a pair that is refused with the remedy to build again, never a plan with
another plan's passport.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bireme.errors import EngineError
from bireme_runtime.passport import PASSPORT, PLAN, Passport

__all__ = ["REPORT", "swap_plan"]

REPORT = "engine_report.json"


def swap_plan(folder: Path, plan: bytes, passport: Passport, report: Mapping[str, Any]) -> None:
    """Replace the plan of a version folder.

    Raises:
        EngineError: something cannot be written; the old files are still there, or refused together.
    """
    contents = {
        PASSPORT: passport.to_json().encode(),
        PLAN: plan,
        REPORT: (json.dumps(report, indent=1) + "\n").encode(),
    }
    unfinished = {name: folder / f".{name}.{os.getpid()}" for name in contents}
    try:
        for name, content in contents.items():
            with unfinished[name].open("wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())  # a rename must not come to the disk before the content
            unfinished[name].chmod(0o644)
        for name in contents:
            unfinished[name].replace(folder / name)
    except OSError as error:
        hint = "see the free space and the mode of the folder"
        raise EngineError(str(folder), f"cannot be written: {error.strerror or error}", hint) from None
    finally:
        for path in unfinished.values():
            path.unlink(missing_ok=True)
