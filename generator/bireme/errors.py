"""Every error a user can cause, each with a place and a remedy.

The data flow, and who raises what::

    spec.yaml --SpecError--> SavedModel --CompileError--> plan + ONNX --EmitError--> repository
    repository --EngineError--> TensorRT plan (GPU only)
    repository --ServerError--> running tritonserver --VerifyError--> scores

The command line prints `where: message` and the hint, without a traceback, and exits with `exit_code`.
"""

from __future__ import annotations

__all__ = [
    "BiremeError",
    "ClientError",
    "CompileError",
    "DoctorError",
    "EmitError",
    "EngineError",
    "LintError",
    "ServerError",
    "SpecError",
    "VerifyError",
]


class BiremeError(Exception):
    """A fault that the reader can act on.

    Args:
        where: the thing at fault: a file, a feature, a node, a port.
        message: what is wrong with it, in one sentence.
        hint: what to do about it.

    Attributes:
        more: further text for the reader to go on with, printed behind the hint.
    """

    exit_code = 1

    def __init__(self, where: str, message: str, hint: str = "") -> None:
        self.where = where
        self.message = message
        self.hint = hint
        self.more = ""
        super().__init__(f"{where}: {message}" + (f" ({hint})" if hint else ""))


class SpecError(BiremeError):
    """The build spec (YAML) or its agreement with the model is wrong."""

    exit_code = 2


class CompileError(BiremeError):
    """The SavedModel cannot be read, or a compiler pass cannot carry it over exactly."""

    exit_code = 3


class EmitError(BiremeError):
    """The model repository cannot be written, or does not say what was meant."""

    exit_code = 4


class ServerError(BiremeError):
    """tritonserver cannot be found or started, or does not become ready."""

    exit_code = 5


class VerifyError(BiremeError):
    """Served scores differ from the original model's."""

    exit_code = 6


class ClientError(BiremeError):
    """A request was malformed or refused by the server."""

    exit_code = 7


class LintError(BiremeError):
    """A model repository cannot be linted; `bireme lint` exits with the same code where it finds errors."""

    exit_code = 9


class EngineError(BiremeError):
    """A TensorRT plan cannot be built, or is not one for this GPU, TensorRT or config."""

    exit_code = 8


class DoctorError(BiremeError):
    """A repository cannot be examined; `bireme doctor` exits with the same code where it finds errors."""

    exit_code = 10
