"""Write the golden config.pbtxt files anew, after a change that is meant: read the diff before committing."""

from __future__ import annotations

from pathlib import Path

from emitter_helpers import make_contract

from bireme.emitter.configs import model_configs
from bireme.emitter.render import render

for target in ("cpu", "gpu", "gpu-python"):
    folder = Path(__file__).parent / "golden" / target
    folder.mkdir(parents=True, exist_ok=True)
    for config in model_configs(make_contract(target, max_users=2)):
        (folder / f"{config.name}.pbtxt").write_text(render(config, ["golden"]), encoding="utf-8")
