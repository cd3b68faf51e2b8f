"""`bireme serve` and strangers: where it listens, what needs the key, TLS; all of it on the real server."""

from __future__ import annotations

import http.client
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import tritonclient.grpc as grpc
from server_repositories import shop
from tritonclient.utils import InferenceServerException

from bireme.client import RankingClient
from bireme.errors import ServerError
from bireme.server.security import RESTRICTED, Tls, admin_flags, read_admin_key, tls_flags

KEY = "correct-horse-battery=staple"
ROOT = Path(__file__).parents[2]
BIREME = Path(sys.executable).with_name("bireme")
CLOSED = [
    ("POST", "/v2/repository/index"),
    ("POST", "/v2/repository/models/shop/load"),
    ("POST", "/v2/repository/models/shop/unload"),
    ("GET", "/v2/systemsharedmemory/status"),
    ("POST", "/v2/systemsharedmemory/region/x/register"),
    ("GET", "/v2/cudasharedmemory/status"),
    ("GET", "/v2/logging"),
    ("POST", "/v2/logging"),
    ("GET", "/v2/trace/setting"),
    ("POST", "/v2/trace/setting"),
    ("POST", "/v2/models/shop/trace/setting"),
]
OPEN = ["/v2", "/v2/health/ready", "/v2/models/shop", "/v2/models/shop/config", "/v2/models/stats"]


@contextmanager
def serving(repository: Path, *flags: object, **variables: str) -> Iterator[dict[str, int]]:
    """`bireme serve` on free ports: "http", "grpc" and "metrics" → port."""
    command = [BIREME, "serve", "-r", repository, "--http=0", "--grpc=0", "--metrics=0", *map(str, flags)]
    environment = {**os.environ, "TMPDIR": str(repository.parent), **variables}
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    text = ""
    try:
        for line in process.stdout:
            text += line
            if "Ctrl-C ends it" in line:
                break
        ports = re.search(r"HTTP on \S+:(\d+), gRPC on \S+:(\d+).*\n.*http://\S+:(\d+)/metrics", text)
        assert ports is not None, text
        assert KEY not in text
        yield dict(zip(("http", "grpc", "metrics"), map(int, ports.groups()), strict=True))
    finally:
        process.terminate()
        process.communicate(timeout=30)


def status(port: int, method: str, path: str, key: str | None = None) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    connection.request(method, path, "{}", {} if key is None else {"admin-key": key})
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def listens_on(port: int) -> str:
    """The address of the socket that listens on a port, as IPv4 (gRPC's is an IPv4 one mapped into IPv6)."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            _, local, _, state, *_ = line.split()
            address, _, number = local.partition(":")
            if state == "0A" and int(number, 16) == port:
                return ".".join(str(byte) for byte in bytes.fromhex(address[-8:])[::-1])
    raise AssertionError(f"nothing listens on {port}")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Tls:
    """A self-signed certificate for localhost, which is its own authority."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make a certificate with")
    folder = tmp_path_factory.mktemp("tls")
    made = Tls(folder / "cert.pem", folder / "key.pem", folder / "cert.pem")
    request = (
        "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost"
    )
    files = ["-keyout", str(made.key), "-out", str(made.certificate)]
    subprocess.run(["openssl", *request.split(), *files], check=True, capture_output=True)
    return made


@pytest.mark.triton
def test_administration_needs_the_key_and_inference_does_not(tmp_path: Path) -> None:
    secret = tmp_path / "key"
    secret.write_text(KEY + "\n")
    with serving(shop(tmp_path / "repository"), "--admin-key-file", secret) as ports:
        assert {listens_on(port) for port in ports.values()} == {"127.0.0.1"}
        for method, path in CLOSED:
            for wrong in (None, "wrong", KEY + "x"):
                code, text = status(ports["http"], method, path, wrong)
                assert (code, "restricted" in text) == (403, True), (method, path, wrong)
            assert status(ports["http"], method, path, KEY)[0] != 403, (method, path)
        assert status(ports["http"], "POST", "/v2/repository/index", KEY)[0] == 200
        for path in OPEN:
            assert status(ports["http"], "GET", path)[0] == 200, path
        client = grpc.InferenceServerClient(f"127.0.0.1:{ports['grpc']}")
        for call in ("get_model_repository_index", "get_log_settings", "get_trace_settings"):
            for headers in (None, {"admin-key": KEY}, {"triton-grpc-protocol-admin-key": "wrong"}):
                with pytest.raises(InferenceServerException, match="restricted") as caught:
                    getattr(client, call)(headers=headers)
                assert caught.value.status() == "StatusCode.UNAVAILABLE"
            getattr(client, call)(headers={"triton-grpc-protocol-admin-key": KEY})
        for protocol in ("grpc", "http"):  # finds the ensemble by itself, although the index is closed
            with RankingClient(f"127.0.0.1:{ports[protocol]}", protocol=protocol) as ranking:
                assert ranking.rank({"age": 30.0}, {"item_id": ["a"], "price": [2.0]})["score"] == [4.0]


@pytest.mark.triton
def test_tls_is_for_grpc_and_http_stays_on_loopback(tmp_path: Path, certificate: Tls) -> None:
    flags = ["--host", "0.0.0.0", "--grpc-cert", certificate.certificate, "--grpc-key", certificate.key]
    repository = shop(tmp_path / "repository")
    with serving(repository, *flags, "--grpc-client-ca", certificate.client_ca) as ports:
        assert listens_on(ports["grpc"]) == listens_on(ports["metrics"]) == "0.0.0.0"
        assert listens_on(ports["http"]) == "127.0.0.1"
        # Without a key nobody has one.
        assert status(ports["http"], "POST", "/v2/repository/index", "")[0] == 403
        url, root = f"localhost:{ports['grpc']}", str(certificate.certificate)
        with pytest.raises(InferenceServerException):
            grpc.InferenceServerClient(url).is_server_live(client_timeout=2)
        with pytest.raises(InferenceServerException):
            grpc.InferenceServerClient(url, ssl=True, root_certificates=root).is_server_live(client_timeout=2)
        mutual = grpc.InferenceServerClient(
            url, ssl=True, root_certificates=root, private_key=str(certificate.key), certificate_chain=root
        )
        assert mutual.is_server_live(client_timeout=5)


def test_where_the_key_comes_from(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(f"{KEY}\n")
    variables = {"BIREME_ADMIN_KEY": "another-key-of-the-environment"}
    assert read_admin_key(file, variables) == KEY
    assert read_admin_key(None, variables) == "another-key-of-the-environment"
    assert read_admin_key(None, {}) is None


@pytest.mark.parametrize("content", ["", "short", "two words of some length", "x" * 300, "a,b:c" * 5])
def test_what_is_no_key(tmp_path: Path, content: str) -> None:
    file = tmp_path / "key"
    file.write_text(content)
    with pytest.raises(ServerError, match=r"key: is no key.*openssl rand"):
        read_admin_key(file, {})
    with pytest.raises(ServerError, match="BIREME_ADMIN_KEY: is no key"):
        read_admin_key(None, {"BIREME_ADMIN_KEY": content})


def test_flags() -> None:
    rule = f"{','.join(RESTRICTED)}:admin-key={KEY}"
    assert admin_flags(KEY) == [f"--http-restricted-api={rule}", f"--grpc-restricted-protocol={rule}"]
    closed, again = admin_flags(None), admin_flags(None)
    assert closed != again  # a key that nobody knows, a new one each time
    assert all(re.search(r"admin-key=[0-9a-f]{64}$", flag) for flag in closed)
    assert tls_flags(None) == []


def test_the_document_says_what_the_code_does() -> None:
    text = " ".join((ROOT / "docs/security.md").read_text().replace("\\", " ").split())
    for flag in admin_flags(KEY):
        assert flag.replace(KEY, "KEY") in text
    for flag in tls_flags(Tls(*(Path(__file__),) * 3)):
        assert flag.partition("=")[0] in text


def test_nothing_is_unpickled_and_no_yaml_runs_code() -> None:
    risky = re.compile(r"^\s*(?:import|from) (?:c?[pP]ickle|joblib|dill|marshal|shelve)\b", re.M)
    risky_calls = re.compile(
        r"allow_pickle=True|yaml\.(?:load|unsafe_load|full_load)\(|shell=True|[^.\w]eval\("
    )
    files = [p for f in ("generator/bireme", "backends/python") for p in (ROOT / f).rglob("*.py")]
    assert len(files) > 100
    for file in files:
        source = file.read_text()
        assert not risky.search(source), file
        assert not risky_calls.search(source), file


def test_files_of_tls_that_are_missing(tmp_path: Path) -> None:
    (tmp_path / "cert.pem").write_text("")
    with pytest.raises(ServerError, match=r"key\.pem: cannot be read"):
        tls_flags(Tls(tmp_path / "cert.pem", tmp_path / "key.pem"))
    with pytest.raises(ServerError, match="nowhere: cannot be read"):
        read_admin_key(tmp_path / "nowhere", {})
