import os
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "examples" / "obd" / "train.py"


def start_training(out: Path, *arguments: str) -> subprocess.Popen:
    """Start `train.py` in its own process: TensorFlow's settings are per process."""
    command = [sys.executable, str(SCRIPT), "--out", str(out), *arguments]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TF_")}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
