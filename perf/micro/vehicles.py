"""How a batch's tensors reach a C library at least cost: ways to call it, without what it does.

    make bench-vehicles

The reference request is 58 tensors. cffi asks each for its buffer; ctypes with numpy asks each for its
address; the runtime lays tensors of one type end to end with one call of numpy, in memory whose address
it knows. Each way ends with a call of a C function that returns at once.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # run as a file, Python looks beside it only

import numpy as np
from rich.console import Console

from bireme.errors import VerifyError
from bireme_runtime.library import load
from bireme_runtime.preprocessor import Preprocessor
from files import write_figure, write_json
from machine import describe
from micro.bars import Bars, draw
from micro.gather import Method, make_arena, measure
from micro.reference_plan import reference_plan, requests
from ratios import paired, spread

STAGED, CFFI, ADDRESSES = "ctypes, tensors laid end to end", "cffi, a buffer each", "ctypes, an address each"


def methods_of(cffi: Any) -> dict[str, Method]:
    """The ways.

    Args:
        cffi: the module, or None.

    Raises:
        VerifyError: the kernel is missing.
    """
    library, about = load()
    if library is None:
        raise VerifyError("vehicles", about, "run `bireme kernel`")
    plan = reference_plan(16, 50_000, "float32", "float32", whole=True)
    arena = make_arena(16, 50_000, "float32")
    kernel = Preprocessor(plan, {plan.tables[0].arena: arena}, {}, library=library, reuse=True).kernel
    assert kernel is not None
    given = requests(plan, 64, 3)
    arrays = [list(request.values()) for request in given]
    prepared = [kernel.prepare(request) for request in given]
    call = library.functions.bireme_abi
    room = np.zeros(len(plan.features), np.int64)
    at = room.ctypes.data
    call.argtypes = None

    def staged(index: int) -> Callable[[], Any]:
        def run() -> None:
            kernel.stage([prepared[index]])
            call(at)

        return run

    def addresses(index: int) -> Callable[[], Any]:
        def run() -> None:
            room[:] = [array.ctypes.data for array in arrays[index]]
            call(at)

        return run

    methods: dict[str, Method] = {STAGED: staged, ADDRESSES: addresses}
    if cffi is not None:
        ffi = cffi.FFI()
        ffi.cdef("int64_t bireme_abi(void *pointers);")
        function = ffi.dlopen(library.functions._name).bireme_abi
        pointers = ffi.new(f"void *[{len(plan.features)}]")

        def buffers(index: int) -> Callable[[], Any]:
            def run() -> None:
                for place, array in enumerate(arrays[index]):
                    pointers[place] = ffi.from_buffer(array)
                function(pointers)

            return run

        methods[CFFI] = buffers
    return methods


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    options = _parser().parse_args(arguments)
    if options.packages is not None:
        sys.path.append(str(options.packages))
    try:
        cffi: Any = importlib.import_module("cffi")
    except ImportError:
        cffi = None
        Console(stderr=True).print("cffi is not there: measured without it (make bench-vehicles installs it)")
    machine = describe()
    costs = measure(methods_of(cffi), options.rounds, options.calls)
    found = {name: spread(paired(values, costs[STAGED])) for name, values in costs.items() if name != STAGED}
    for name, value in found.items():
        print(f"{name}: {value.median:.2f} ({value.lowest:.2f}–{value.highest:.2f}) × {STAGED}")
    ratios = {name: vars(value) for name, value in found.items()}
    write_json(options.out, {"machine": machine, "microseconds": costs, "ratios": ratios})
    write_figure(options.out.with_suffix(".png"), draw([Bars("58 tensors", found)], machine, f"{STAGED} = 1"))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9, help="how often everything is measured")
    parser.add_argument("--calls", type=int, default=100, help="calls of each method in a round")
    parser.add_argument("--packages", type=Path, default=None, help="folder that cffi is installed in")
    parser.add_argument(
        "--out", type=Path, default=Path("perf/results/vehicles.json"), help="JSON; PNG beside it"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
