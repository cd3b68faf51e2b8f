"""Make one subject and export it, in a process of its own: `python export.py NAME FOLDER`."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

import requests
from catalogue import load_module


def _offline(*_: Any, **__: Any) -> None:
    """DeepCTR asks the network for its newest version when it is imported; an export has no use for that."""
    raise OSError("an export asks the network for nothing")


def main(name: str, folder: Path) -> None:
    """Write `saved_model/` and `subject.json` (user side, how to make up requests, spec) into `folder`."""
    requests.get = _offline
    made = load_module(name).MODELS[name]()
    folder.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(folder / "saved_model", ignore_errors=True)
    made.save(str(folder / "saved_model"))
    about = {"user": list(made.user), "draws": made.draws, "spec": made.spec, "tells": made.tells}
    (folder / "subject.json").write_text(json.dumps(about, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
