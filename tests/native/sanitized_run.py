"""Run as a program under the address sanitizer: random plans and requests, some of them spoiled.

python sanitized_run.py FOLDER_WITH_LIBRARY SEEDS
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import numpy as np

from bireme_runtime.library import load
from bireme_runtime.preprocessor import Features, Preprocessor


def main() -> None:
    """Print the kernel's variant, how many requests were done and how many refused."""
    # The plans' module compares with TensorFlow elsewhere; TensorFlow itself does not start here.
    sys.modules["tensorflow"] = ModuleType("tensorflow")
    sys.path.append(str(Path(__file__).parents[1] / "runtime"))
    from kernel_plans import random_plan, random_request

    library, about = load(Path(sys.argv[1]))
    assert library is not None, about
    done = refused = 0
    for seed in range(int(sys.argv[2])):
        plan, arenas, vocabularies = random_plan(seed)
        preprocessor = Preprocessor(plan, arenas, vocabularies, library=library, reuse=True)
        rng = np.random.default_rng(seed)
        requests = [random_request(plan, rng) for _ in range(3)]
        for request in requests:
            name = list(request)[int(rng.integers(len(request)))]
            spoiled = request[name].copy()
            if rng.random() < 0.2 and spoiled.size and spoiled.dtype.kind in "if":
                spoiled.flat[-1] = -(2**31) if spoiled.dtype.kind == "i" else np.nan
                request[name] = spoiled
        for result in preprocessor.run(requests):
            done += isinstance(result, Features)
            refused += not isinstance(result, Features)
    print(about, done, refused)


main()
