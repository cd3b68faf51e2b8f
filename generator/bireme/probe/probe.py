"""One inference through a served ensemble, and a verdict in one sentence."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from bireme.errors import BiremeError, ClientError, ServerError, VerifyError
from bireme.probe.fault import Counts, Step, last_reached, named_in, producer, standing_still, steps_of
from bireme.probe.processes import dead_processes, missing
from bireme.probe.scores import Golden, find_fault
from bireme.probe.tensors import count_scores, decode, encode
from bireme.probe.transport import (
    Deadline,
    LateError,
    Output,
    RefusedError,
    Transport,
    UnreachableError,
    connect,
)

__all__ = ["Answer", "Question", "probe", "read_question", "until_ready"]

EXAMPLE = "example_request.json"
GOLDEN = "example_scores.json"
# The parameter under which an ensemble of ours describes its features; bireme.spec has it, behind pydantic.
_FEATURES = "bireme_features"
_NO_REQUEST = 'is not a request ({"user": {…}, "items": {…}})'
# After the deadline, to find out which step hangs.
_AFTERTHOUGHT = 0.3
# Triton counts an answer shortly after it has sent it.
_COUNTED = 0.05

T = TypeVar("T")


@dataclass(frozen=True)
class Question:
    """What to ask a model.

    Args:
        model: name of the ensemble (or of the one model of the fused layout).
        request: {"user": {…}, "items": {…}}.
        golden: what it should answer, if that is known.
        parts: models that it needs, as far as known without the server.
    """

    model: str
    request: Mapping[str, Mapping[str, Any]]
    golden: Golden | None = None
    parts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Answer:
    """A good answer: task → scores [N], and the seconds that the inference took."""

    scores: Mapping[str, list[float]]
    seconds: float


def read_question(
    model: str, path: Path, golden: Path | None = None, parts: tuple[str, ...] = ()
) -> Question:
    """A question from its files.

    Args:
        model: name of the ensemble.
        path: the request, JSON.
        golden: the recorded scores; a file that does not exist is none.
        parts: models that it needs.

    Raises:
        ClientError: a file cannot be read or is none of these.
    """
    request = _json(path)
    if not isinstance(request, dict) or not all(isinstance(request.get(p), dict) for p in ("user", "items")):
        raise ClientError(str(path), _NO_REQUEST)
    recorded = None
    if golden is not None and golden.exists():
        data = _json(golden)
        try:
            recorded = Golden(
                data["scores"], {task: float(data["tolerance"][task]) for task in data["scores"]}
            )
        except (TypeError, KeyError, ValueError):
            raise ClientError(str(golden), "holds no recorded scores", "build the repository again") from None
    return Question(model, request, recorded, parts)


def probe(url: str, protocol: str, question: Question, timeout: float) -> Answer:
    """Ask once.

    Args:
        url: host:port.
        protocol: "http" or "grpc".
        question: what to ask.
        timeout: seconds for everything, but for a moment to find out which step hangs.

    Raises:
        ServerError: no server, a model that is not ready, fails or hangs, a dead Python process.
        VerifyError: scores that are incomplete, not finite or not the recorded ones.
        ClientError: the request does not fit the served model, or the URL is none.
    """
    transport = connect(url, protocol)
    try:
        return _Probe(transport, url, question, Deadline(timeout)).run()
    finally:
        transport.close()


class _Probe:
    def __init__(self, transport: Transport, url: str, question: Question, deadline: Deadline) -> None:
        self._transport, self._url, self._deadline = transport, url, deadline
        self._question, self._model = question, question.model

    def run(self) -> Answer:
        ready = self._server_ready()
        config = self._config(ready)
        steps = steps_of(config)
        self._models_are_ready(steps)
        if not ready:
            raise ServerError(self._url, "the server is there but not ready: another of its models is not")
        inputs = encode(self._features(config), self._question.request)
        before = self._counts(self._deadline.left)
        begin = time.monotonic()
        try:
            outputs = self._transport.infer(self._model, inputs, self._deadline.left())
        except LateError:
            raise self._hangs(config, before) from None
        except RefusedError as error:
            raise self._fails(config, str(error), before) from None
        except UnreachableError as error:
            raise ServerError(
                self._url, f"ended the connection in the middle of a request: {error}"
            ) from None
        seconds = time.monotonic() - begin
        scores = self._judge(steps, outputs)
        # Another process may have answered; the next request may meet the dead one.
        died = self._died(config, "some requests fail")
        if died is not None:
            raise died
        return Answer(scores, seconds)

    def _server_ready(self) -> bool:
        try:
            return self._transport.server_ready(self._deadline.left())
        except UnreachableError as error:
            raise ServerError(self._url, f"no server there: {error}") from None
        except LateError:
            raise self._silent() from None
        except RefusedError as error:
            raise ServerError(self._url, f"does not say whether it is ready: {error}") from None

    def _config(self, ready: bool) -> dict[str, Any]:
        try:
            return self._ask("its configuration", partial(self._transport.config, self._model))
        except ServerError as error:
            # An ensemble is not even known before all its steps are loaded.
            if self._ask("its state", partial(self._transport.model_ready, self._model)):
                raise
            for part in self._question.parts:
                if not self._ask("its state", partial(self._transport.model_ready, part)):
                    message = f"is not ready at {self._url}, and so '{self._model}' is not"
                    raise ServerError(f"model {part}", message) from None
            message = (
                "is not ready" if ready else "is not ready, nor is the server: models load, or could not be"
            )
            raise ServerError(f"model {self._model}", f"{message} ({self._url}: {error.message})") from None

    def _models_are_ready(self, steps: tuple[Step, ...]) -> None:
        # Steps first: an ensemble is not ready because one of them is not.
        for model in (*dict.fromkeys(step.model for step in steps), self._model):
            if not self._ask("its state", partial(self._transport.model_ready, model)):
                raise ServerError(f"model {model}", f"is not ready at {self._url}")

    def _ask(self, what: str, call: Callable[[float], T]) -> T:
        try:
            return call(self._deadline.left())
        except UnreachableError as error:
            raise ServerError(self._url, f"ended the connection: {error}") from None
        except LateError:
            raise self._silent() from None
        except RefusedError as error:
            raise ServerError(f"model {self._model}", f"does not tell {what}: {error}") from None

    def _silent(self) -> ServerError:
        message = f"a server is there but says nothing within {self._deadline.seconds:g} s"
        return ServerError(self._url, message)

    def _features(self, config: Mapping[str, Any]) -> list[dict[str, Any]]:
        try:
            features: list[dict[str, Any]] = json.loads(config["parameters"][_FEATURES]["string_value"])
        except KeyError:
            raise ServerError(
                f"model {self._model}", "does not describe its features", "name an ensemble of `bireme build`"
            ) from None
        return features

    def _counts(self, left: Callable[[], float]) -> dict[str, Counts]:
        try:
            return self._transport.counts(left())
        except (LateError, RefusedError, UnreachableError):
            return {}

    def _hangs(self, config: Mapping[str, Any], before: Mapping[str, Counts]) -> ServerError:
        # Triton takes seconds to notice a dead process, and meanwhile its requests hang.
        died = self._died(config, "requests fail")
        if died is not None:
            return died
        steps, limit = steps_of(config), f"within {self._deadline.seconds:g} s"
        after = self._counts(Deadline(_AFTERTHOUGHT).left)
        if not steps or not before or not after:
            return ServerError(f"model {self._model}", f"gives no answer {limit}")
        model = standing_still(steps, before, after)
        if model is None:
            message = (
                f"gives no answer {limit}, although every step answers others: overload, or one of several"
            )
            return ServerError(f"model {self._model}", f"{message} processes of a step hangs")
        return ServerError(f"model {model}", f"hangs: '{self._model}' gives no answer {limit} because of it")

    def _fails(self, config: Mapping[str, Any], said: str, before: Mapping[str, Counts]) -> ServerError:
        steps, model = steps_of(config), None
        text = said.replace("[request id: <id_unknown>] ", "")
        if steps:
            model = named_in(said, steps)
        if model is None and steps and before:
            time.sleep(_COUNTED)
            model = last_reached(steps, before, self._counts(Deadline(_AFTERTHOUGHT).left))
        if "is not healthy" in said:
            message = f"a Python process of it has died, and Triton does not restart it: {text}"
        else:
            message = f"answers with an error: {text}"
        return ServerError(f"model {model or self._model}", message)

    def _judge(self, steps: tuple[Step, ...], outputs: Mapping[str, Output]) -> dict[str, list[float]]:
        scores = {}
        for task, output in outputs.items():
            values = decode(output.dtype, output.data)
            if values is None:
                continue
            golden = self._question.golden
            fault = find_fault(task, values, count_scores(self._question.request), golden)
            if fault is not None:
                raise VerifyError(f"model {producer(steps, task) or self._model}", fault)
            scores[task] = values
        return scores

    def _died(self, config: Mapping[str, Any], effect: str) -> ServerError | None:
        """What to say about dead Python processes that can be seen from here; None: there are none."""
        dead, alive = dead_processes(self._url)
        if not dead:
            return None
        configs = {self._model: config}
        with suppress(LateError, RefusedError, UnreachableError):
            left = Deadline(_AFTERTHOUGHT).left
            for step in steps_of(config):
                configs[step.model] = self._transport.config(step.model, left())
        found = missing(configs, alive)
        message = f"a Python process of it has died, and Triton does not restart it: {effect}"
        if dead > 1:
            message = f"{dead} Python processes have died, and Triton does not restart them: {effect}"
        return ServerError(f"model {', '.join(found) or self._model}", message)


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ClientError(str(path), f"cannot be read: {error.strerror}") from None
    except ValueError:
        raise ClientError(str(path), _NO_REQUEST) from None


def until_ready(ask: Callable[[], T], wait: float, pause: float = 0.5) -> T:
    """Ask again until the answer is good or `wait` seconds have passed.

    Raises:
        BiremeError: the last refusal; at once where asking again cannot help.
    """
    end = time.monotonic() + wait
    while True:
        try:
            return ask()
        except ClientError:
            raise
        except BiremeError:
            if time.monotonic() + pause > end:
                raise
        time.sleep(pause)
