"""Thousands of strings in one request, decoded, hashed and looked up: `preprocess` against a loop in Python.

    python perf/strings.py --out perf/results/strings.json

Both are models of the Python backend on one tritonserver, take the same request (one user with a history of
10,000 strings of 14 bytes, one candidate) and give the same tensors: the mean of the strings' rows of a
table. In one case a row is a string's FarmHash, in the other its place in a vocabulary of 100,000. The loop
gets its strings as any model does, decoded by the backend; it hashes with the package pyfarmhash, or with
zlib.crc32 where that is missing (faster, and another hash), and looks up in a dict. `decoded` does not touch
the strings: what remains is what the backend spends before it calls a model. Prints ratios, writes JSON and a
picture of the same name.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape

from baseline.repository import config_of
from bireme.emitter.render import render
from bireme.errors import BiremeError, VerifyError
from bireme.requests import Request
from bireme.server.process import TritonServer
from bireme_runtime.plan import Plan
from comparison import Case, as_data, order
from driver import LoadProcess, Window
from files import write_figure, write_json
from machine import describe
from plot import draw
from processes import roles
from tables import context_table, ratio_table
from wire import decode, encode

__all__ = ["main"]

Array = np.ndarray[Any, Any]

ROWS, WIDTH = 100_000, 16
_MODEL, _OURS, _LOOP, _DECODED = "words", "words_preprocess", "words_loop", "words_decoded"
_REQUESTS = 16  # different ones
_TOLERANCE = 1e-5
_WIDTH = 150  # columns that the tables need, also where there is no terminal
_TITLE = "Strings: preprocess against a Python model with a loop"
_SPEC = "model: words\nsaved_model: saved_model\nuser: [hashed, known]\nbuckets: [1]\n"
_CASES = ("hashed", "known")
_console = Console(stderr=True)

_SOURCE = '''\
"""As people write it: strings from as_numpy(), a number for each, rows of a table."""

import json
import sys
from pathlib import Path

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        folder = Path(__file__).parent
        settings = json.loads((folder / "settings.json").read_text())
        sys.path[:0] = settings["path"]
        self._hash = getattr(__import__(settings["module"]), settings["function"])
        self._loops = settings["loops"]
        self._tables = [np.load(folder / name) for name in ("hashed.npy", "known.npy")]
        self._places = {text.encode(): place for place, text in enumerate(settings["vocabulary"], 1)}

    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        price = pb_utils.get_input_tensor_by_name(request, "price").as_numpy()
        hashes, places = [0], [0]
        if self._loops:
            hashed = pb_utils.get_input_tensor_by_name(request, "hashed").as_numpy()
            known = pb_utils.get_input_tensor_by_name(request, "known").as_numpy()
            number, count, place = self._hash, len(self._tables[0]), self._places.get
            hashes = [number(text) % count for text in hashed[0]]
            places = [place(text, 0) for text in known[0]]
        means = [t[rows].mean(axis=0) for t, rows in zip(self._tables, (hashes, places))]
        user = np.concatenate(means)[None]
        tensors = {"user": user, "items": price[:, :, None]}
        return pb_utils.InferenceResponse([pb_utils.Tensor(name, array) for name, array in tensors.items()])
'''


@dataclass(frozen=True)
class Words:
    """The model's parts.

    Args:
        hashed: table whose rows are hashes.
        known: table whose row 0 is of unknown strings, row i of the i-th of the vocabulary.
        vocabulary: the known strings.
    """

    hashed: Array
    known: Array
    vocabulary: Sequence[str]


def measure(folder: Path, strings: int, rounds: int, seconds: float) -> list[Case]:
    """Build, serve and check the models, and drive them in turn.

    Args:
        folder: for the models.
        strings: of each request.
        rounds: how often each model is driven.
        seconds: how long each time.

    Raises:
        VerifyError: `preprocess` does not give what the loop gives, or, without pyfarmhash, TensorFlow.
        BiremeError: whatever else is missing.
    """
    from bireme.build import build  # TensorFlow; the load generator's process does without

    words = _write_model(folder)
    repository = folder / "repository"
    build(folder / "bireme.yaml", repository)
    for name in (_LOOP, _DECODED):
        _write_loop(repository, name, words)
    plan = Plan.read(repository / _OURS / "1" / "plan.json")
    models = (_OURS, _DECODED, _LOOP)
    windows: dict[tuple[str, str], list[Window]] = {(m, case): [] for case in _CASES for m in models}
    with TritonServer(repository) as server:
        assert server.pid is not None
        with LoadProcess(server.grpc_url, roles(server.pid)) as load:
            for case in _CASES:
                requests = _requests(words, case, strings)
                for name in models:
                    load.prepare((name, case), [encode(name, plan.features, r) for r in requests])
                _require_right(load.ask((_OURS, case)), load.ask((_LOOP, case)), requests, words)
            for round_ in range(rounds):
                _console.print(f"round {round_ + 1} of {rounds}", style="dim")
                for key in order(list(windows), round_):
                    windows[key].append(load.drive(key, 1, seconds))
            server.check()
    return [
        Case(strings, 1, _OURS, {m: windows[m, case] for m in models}, beside=(_DECODED,), note=case)
        for case in _CASES
    ]


def _write_model(folder: Path) -> Words:
    """SavedModel and spec."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import tensorflow as tf

    rng = np.random.default_rng(1)
    tables = [rng.normal(0, 1, (rows, WIDTH)).astype(np.float32) for rows in (ROWS, ROWS + 1)]
    words = Words(tables[0], tables[1], [f"item-{i * 7919:09d}" for i in range(ROWS)])
    model: Any = tf.Module()
    model.tables = [tf.Variable(table) for table in tables]
    places = list(range(1, ROWS + 1))
    pairs = tf.lookup.KeyValueTensorInitializer(words.vocabulary, places, tf.string, tf.int64)
    model.places = tf.lookup.StaticHashTable(pairs, 0)

    def click(hashed: Any, known: Any, price: Any) -> dict[str, Any]:
        rows = tf.strings.to_hash_bucket_fast(hashed, ROWS), model.places.lookup(known)
        pooled = [tf.reduce_mean(tf.gather(t, r), axis=1) for t, r in zip(model.tables, rows, strict=True)]
        return {"click": tf.sigmoid(tf.reduce_sum(tf.concat(pooled, axis=1), axis=1) * price)}

    inputs = {name: tf.TensorSpec([None, None], tf.string, name) for name in _CASES}
    inputs["price"] = tf.TensorSpec([None], tf.float32, "price")
    signature = tf.function(click, autograph=False).get_concrete_function(**inputs)
    tf.saved_model.save(model, str(folder / "saved_model"), signatures=signature)
    (folder / "bireme.yaml").write_text(_SPEC, encoding="utf-8")
    return words


def _hash() -> tuple[list[str], str, str]:
    """Folders to look in, module and function of the loop's hash."""
    found = importlib.util.find_spec("farmhash")
    if found is None or found.origin is None:
        return [], "zlib", "crc32"
    return [str(Path(found.origin).parent.absolute())], "farmhash", "fingerprint64"


def _write_loop(repository: Path, name: str, words: Words) -> None:
    """The Python model, with the tensors of `preprocess`."""
    config = config_of(repository, _OURS)
    config.name = name
    version = repository / name / "1"
    version.mkdir(parents=True)
    (version / "model.py").write_text(_SOURCE, encoding="utf-8")
    np.save(version / "hashed.npy", words.hashed)
    np.save(version / "known.npy", words.known)
    path, module, function = _hash()
    settings = {"path": path, "module": module, "function": function, "loops": name == _LOOP}
    settings["vocabulary"] = list(words.vocabulary)
    (version / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
    text = render(config, ["A loop in Python, for comparison."])
    (version.parent / "config.pbtxt").write_text(text, encoding="utf-8")


def _requests(words: Words, case: str, strings: int) -> list[Request]:
    """All strings in one feature, one in the other; one of ten is in no vocabulary."""
    rng = np.random.default_rng(0)
    made: list[Request] = []
    for _ in range(_REQUESTS):
        texts = [words.vocabulary[i] for i in rng.integers(0, ROWS, strings)]
        texts[::10] = [f"some-{i:09d}" for i in rng.integers(0, 10**9, len(texts[::10]))]
        one: dict[str, Any] = dict.fromkeys(_CASES, texts[:1])
        made.append({"user": one | {case: texts}, "items": {"price": [1.0]}})
    return made


def _require_right(
    answers: Sequence[bytes], loops: Sequence[bytes], requests: Sequence[Request], words: Words
) -> None:
    """Refuse to time what is wrong; TensorFlow's hashes say which rows are meant."""
    import tensorflow as tf

    places = {text: place for place, text in enumerate(words.vocabulary, 1)}
    for number, (answer, loop, request) in enumerate(zip(answers, loops, requests, strict=True)):
        hashed, known = (request["user"][name] for name in _CASES)
        rows = tf.strings.to_hash_bucket_fast(hashed, ROWS).numpy()
        meant = [words.hashed[rows].mean(0), words.known[[places.get(text, 0) for text in known]].mean(0)]
        found = decode(answer)["user"][0]
        differences = [np.abs(found - np.concatenate(meant)).max()]
        if _hash()[1] == "farmhash":
            differences.append(np.abs(found - decode(loop)["user"][0]).max())
        if not max(differences) <= _TOLERANCE:
            raise VerifyError(f"request {number}", f"differs by {max(differences):.2g}", "this is a fault")


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--strings", type=int, default=10_000, help="of each request")
    parser.add_argument("--rounds", type=int, default=7, help="how often each is driven")
    parser.add_argument("--seconds", type=float, default=2.0, help="how long each time")
    parser.add_argument(
        "--out", type=Path, default=Path("perf/results/strings.json"), help="JSON; a PNG goes beside it"
    )
    options = parser.parse_args(arguments)
    machine = describe()
    try:
        with tempfile.TemporaryDirectory(prefix="bireme-strings-") as folder:
            cases = measure(Path(folder), options.strings, options.rounds, options.seconds)
    except BiremeError as error:
        _console.print(f"[bold red]strings:[/] {escape(error.where)}: {escape(error.message)}")
        return error.exit_code
    machine["load_after"] = describe()["load"]
    out = Console(width=max(_WIDTH, _console.width))
    out.print(ratio_table(cases, _TITLE), context_table(cases))
    settings = {"rounds": options.rounds, "seconds": options.seconds, "requests": _REQUESTS}
    settings["hash of the loop"] = _hash()[1]
    result = {"machine": machine, "settings": settings, "cases": [as_data(case) for case in cases]}
    write_json(options.out, result)
    picture = options.out.with_suffix(".png")
    write_figure(picture, draw(cases, machine, options.rounds, options.seconds, _TITLE, "strings"))
    out.print(f"written: {options.out}, {picture}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
