"""The command line: one verb a function. Errors become one line and a hint; each family has its exit code."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from bireme import __version__
from bireme.cli_options import (
    AdminKeyFile,
    Arch,
    AsJson,
    GrpcCert,
    GrpcClientCa,
    GrpcKey,
    LayoutName,
    Mps,
    ProtocolName,
    Repository,
    TargetName,
    UserAhead,
)
from bireme.doctor.command import doctor
from bireme.engine.command import engine
from bireme.errors import BiremeError, SpecError
from bireme.lint.command import lint
from bireme.probe.command import probe

__all__ = ["app", "main"]

app = typer.Typer(
    name="bireme",
    help="Turns a TensorFlow ranking model into a Triton ensemble, serves it and proves its scores.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
# Where there is no terminal, 80 columns would fold the tables.
_out = Console(width=None if sys.stdout.isatty() else 120)
_err = Console(stderr=True, soft_wrap=True)


@app.command()
def inspect(
    saved_model: Annotated[Path, typer.Argument(help="a SavedModel folder, or a build spec (YAML)")],
    user: Annotated[str, typer.Option(help="user side inputs, comma separated")] = "",
    signature: Annotated[str, typer.Option(help="which signature")] = "serving_default",
    samples: Annotated[
        Path | None, typer.Option(help="sample requests (JSON lines): the user side is found in them")
    ] = None,
    user_ahead: UserAhead = False,
    as_json: AsJson = False,
    html: Annotated[Path | None, typer.Option(help="also write the report as one HTML page")] = None,
) -> None:
    """Show features, vocabularies, tables, the embedding frontier, and what a request costs."""
    from bireme.inspect import inspect_model

    with _err.status("loading TensorFlow"):
        names = [name.strip() for name in user.split(",") if name.strip()]
        report, advice = inspect_model(saved_model, names, signature, user_ahead, samples)
    if html is not None:
        _write_page(report, html)
    _print_report(report, as_json)
    if advice and not as_json:
        print(f"\n{advice}")


@app.command()
def build(
    spec: Annotated[Path, typer.Argument(help="the build spec (YAML)")],
    repository: Repository = Path("model_repository"),
    target: Annotated[
        TargetName,
        typer.Option(
            help="cpu: embedded server; gpu: tensorrt_plan on NVIDIA's C++ backend;"
            " gpu-python: the same plan in a Python model"
        ),
    ] = TargetName.cpu,
    user_ahead: UserAhead = False,
    arch: Arch = None,
    layout: Annotated[
        LayoutName | None,
        typer.Option(help="ensemble: a model a step; fused: one model (cpu only); default: the spec's"),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="print one line only")] = False,
    as_json: AsJson = False,
) -> None:
    """Compile the model a spec names and write it into a Triton model repository."""
    from bireme.build import build as run
    from bireme.howto import howto

    with _err.status("loading TensorFlow") as status:
        built = run(
            spec,
            repository,
            target.value,
            lambda name: status.update(f"pass: {name}"),
            user_ahead,
            arch.value if arch is not None else None,
            layout.value if layout is not None else None,
        )
    for note in (*built.notes, built.instances):
        _err.print(f"bireme: {escape(note)}", highlight=False)
    names = ", ".join(folder.name for folder in built.folders)
    if quiet:
        print(f"built {names} in {repository}")
        return
    _print_report(built.report, as_json)
    if not as_json:
        print(f"\nWritten to {repository}: {names}\n")
        print(howto(built.model, repository, target.value, Path(sys.argv[0]).parent))


@app.command()
def kernel(
    arch: Arch = None,
    force: Annotated[bool, typer.Option("--force", help="compile even if it is up to date")] = False,
) -> None:
    """Compile the feature kernel's library if it is missing or stale; `build` does so by itself."""
    from bireme.native.flags import host_architecture
    from bireme.native.library import library_for, native_folder

    name = arch.value if arch is not None else host_architecture()
    with _err.status("kernel") as status:
        library = library_for(name, native_folder(), progress=status.update, force=force)
    print(library.summary())


@app.command()
def serve(
    repository: Repository = Path("model_repository"),
    http: Annotated[int, typer.Option(help="HTTP port; 0: any free one")] = 8000,
    grpc: Annotated[int, typer.Option(help="gRPC port; 0: any free one")] = 8001,
    metrics: Annotated[int, typer.Option(help="Prometheus port; 0: any free one")] = 8002,
    host: Annotated[str, typer.Option(help="address to listen on")] = "127.0.0.1",
    once: Annotated[bool, typer.Option("--once", help="stop after the example request")] = False,
    jemalloc: Annotated[
        bool | None,
        typer.Option("--jemalloc/--no-jemalloc", help="preload jemalloc; default: where it is installed"),
    ] = None,
    mps: Mps = False,
    admin_key_file: AdminKeyFile = None,
    grpc_cert: GrpcCert = None,
    grpc_key: GrpcKey = None,
    grpc_client_ca: GrpcClientCa = None,
) -> None:
    """Start tritonserver on a repository, rank the example request, keep serving until Ctrl-C."""
    from bireme.server.security import Tls, read_admin_key
    from bireme.server.serve import serve as run

    tls = None
    if grpc_cert is not None and grpc_key is not None:
        tls = Tls(grpc_cert, grpc_key, grpc_client_ca)
    elif grpc_cert is not None or grpc_key is not None or grpc_client_ca is not None:
        raise typer.BadParameter("TLS needs both --grpc-cert and --grpc-key")
    admin_key = read_admin_key(admin_key_file)
    raise typer.Exit(run(repository, http, grpc, metrics, host, once, jemalloc, mps, admin_key, tls))


@app.command()
def verify(
    spec: Annotated[Path | None, typer.Argument(help="the build spec (YAML); not with --golden")] = None,
    repository: Repository = Path("model_repository"),
    url: Annotated[str, typer.Option(help="host:port of a running server; default: start one")] = "",
    protocol: Annotated[ProtocolName, typer.Option(help="required with --url")] = ProtocolName.both,
    requests: Annotated[int, typer.Option(min=1, help="requests per protocol")] = 2000,
    clients: Annotated[int, typer.Option(min=1, max=256, help="parallel clients")] = 8,
    tolerance: Annotated[
        float | None,
        typer.Option(min=0.0, help="largest |served - original|; default: 1e-5, more where the build rounds"),
    ] = None,
    record: Annotated[
        Path | None, typer.Option(help="only write the requests and TensorFlow's scores to this file (.npz)")
    ] = None,
    golden: Annotated[
        Path | None, typer.Option(help="compare with such a file: no TensorFlow, no SavedModel, no spec")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Send sampled requests to the served ensemble and to TensorFlow; fail if the scores differ."""
    from bireme.verify import verify as run
    from bireme.verify.text import as_text

    if (spec is None) == (golden is None) or (record is not None and golden is not None):
        raise typer.BadParameter("give a build spec, or --golden FILE instead of one")
    urls: dict[run.Protocol, str] = {}
    if url:
        if protocol is ProtocolName.both:
            raise typer.BadParameter("--url needs --protocol grpc or --protocol http")
        urls["grpc" if protocol is ProtocolName.grpc else "http"] = url
    with _err.status("loading") as status:

        def progress(what: str, done: int, total: int) -> None:
            status.update(f"{what}: {done} of {total}")

        if spec is not None and record is not None:
            written = run.record(spec, repository, record, requests, progress)
            print(f"{record}: {len(written.requests):,} requests and the original model's scores")
            return
        if golden is not None:
            found = run.verify_golden(golden, repository, urls, clients, tolerance, progress)
        else:
            assert spec is not None
            found = run.verify(spec, repository, urls, requests, clients, tolerance, progress)
    if protocol is not ProtocolName.both:
        found.parity = [result for result in found.parity if result.protocol == protocol.value]
    if as_json:
        print(json.dumps(found.as_data(), indent=1))
    elif found.networks or not found.failures:
        print(as_text(found, clients))
    found.require()


app.command()(engine)
app.command()(lint)
app.command()(doctor)
app.command()(probe)


@app.command()
def version() -> None:
    """Print the version."""
    print(__version__)


def _write_page(report: dict[str, Any], path: Path) -> None:
    from bireme.compiler.reporting.report_html import as_html

    page = as_html(report).encode()
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        unfinished.write_bytes(page)
        unfinished.replace(path)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        raise SpecError("--html", f"cannot write '{path}': {error.strerror}", "name another file") from None


def _print_report(report: dict[str, object], as_json: bool) -> None:
    if as_json:
        print(json.dumps(report, indent=1, sort_keys=True, default=str))
        return
    from bireme.compiler.reporting.report import as_text

    _out.print(as_text(report))


def main() -> None:
    """Entry point of the `bireme` command."""
    try:
        app()
    except BiremeError as error:
        _err.print(f"[bold red]bireme:[/] {escape(error.where)}: {escape(error.message)}", highlight=False)
        if error.hint:
            _err.print(f"  → {escape(error.hint)}", highlight=False)
        if error.more:
            _err.print(f"\n{escape(error.more)}", highlight=False)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        _err.print("bireme: interrupted")
        sys.exit(130)
