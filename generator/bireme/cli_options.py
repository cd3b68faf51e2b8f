"""Options and values that verbs of the command line share."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

__all__ = [
    "AdminKeyFile",
    "Arch",
    "ArchName",
    "AsJson",
    "GrpcCert",
    "GrpcClientCa",
    "GrpcKey",
    "LayoutName",
    "Mps",
    "ProtocolName",
    "Repository",
    "TargetName",
    "UserAhead",
]

Repository = Annotated[Path, typer.Option("--repository", "-r", help="the Triton model repository")]
UserAhead = Annotated[
    bool,
    typer.Option("--user-ahead", help="the user side as a model of its own, reused by slices of candidates"),
]
Mps = Annotated[
    bool,
    typer.Option("--mps", help="run NVIDIA's MPS daemon meanwhile, so that GPU processes share the GPU"),
]
AdminKeyFile = Annotated[
    Path | None,
    typer.Option(
        help="file with the key for Triton's administration; default: BIREME_ADMIN_KEY, else it is closed"
    ),
]
GrpcCert = Annotated[Path | None, typer.Option(help="server certificate (PEM): TLS for gRPC")]
GrpcKey = Annotated[Path | None, typer.Option(help="its private key (PEM)")]
GrpcClientCa = Annotated[
    Path | None, typer.Option(help="authority (PEM) that must have signed the clients' certificates")
]
AsJson = Annotated[bool, typer.Option("--json", help="print JSON instead of text")]


class TargetName(str, Enum):
    """Where the ensemble will run."""

    cpu = "cpu"
    gpu = "gpu"
    gpu_python = "gpu-python"


class LayoutName(str, Enum):
    """How the steps are divided into Triton models."""

    ensemble = "ensemble"
    fused = "fused"


class ProtocolName(str, Enum):
    """How requests travel."""

    both = "both"
    grpc = "grpc"
    http = "http"


class ArchName(str, Enum):
    """Architectures that the kernel is compiled for."""

    x86_64 = "x86_64"
    aarch64 = "aarch64"


Arch = Annotated[
    ArchName | None, typer.Option(help="architecture of the serving machine; default: this one's")
]
