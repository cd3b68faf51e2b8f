"""The decisive line is found among the noise of a log. Lines are tritonserver 2.51's own, shortened."""

from __future__ import annotations

import pytest

from bireme.server.reasons import find_reason

NOISE = (
    'W1130 13:22:16.281815 7461 pinned_memory_manager.cc:273] "Unable to allocate pinned system memory"\n'
    'E1130 13:22:16.281996 7461 server.cc:241] "CudaDriverHelper has not been initialized."\n'
    "I1130 13:22:17.639255 7461 model_lifecycle.cc:839] \"successfully loaded 'good'\"\n"
    "+-------+---------+--------+\n| good  | 1       | READY  |\n+-------+---------+--------+\n"
)
END = "error: creating server: Internal - failed to load all models\n"
CASES = {
    "model code": (
        "E1130 13:24:02.8 7 model_lifecycle.cc:642] \"failed to load 'echo' version 1: Internal: "
        'FileNotFoundError: tables/arena.bin is missing\\n\\nAt:\\n  /r/echo/1/model.py(3): initialize\\n"\n',
        ("model echo", "FileNotFoundError: tables/arena.bin is missing", "build the repository again"),
    ),
    "module": (
        "E1130 13:24:02.8 7 model_lifecycle.cc:642] \"failed to load 'echo' version 1: Internal: "
        "ModuleNotFoundError: No module named 'onnxruntime'\\n\\nAt:\\n\"\n",
        ("model echo", "ModuleNotFoundError: No module named 'onnxruntime'", "install it into the Python"),
    ),
    "backend": (
        "E1130 13:24:02.8 7 model_lifecycle.cc:642] \"failed to load 'm' version 1: Invalid argument: "
        "unable to find backend library for backend 'tensorrt', try specifying runtime.\"\n",
        ("model m", "Invalid argument: unable to find backend library for backend 'tensorrt'", "container"),
    ),
    "config": (
        "[libprotobuf ERROR /x/text_format.cc:337] Error parsing text-format inference.ModelConfig: 4:46: "
        'Message type "inference.ModelInput" has no field named "dimz".\n'
        "E1130 13:24:02.8 7 manager.cc:1460] \"Poll failed for model directory 'echo': "
        'failed to read text proto from r/echo/config.pbtxt"\n',
        ("model echo", '4:46: Message type "inference.ModelInput" has no field named "dimz".', ""),
    ),
    "ensemble": (
        'E1130 13:24:02.8 7 manager.cc:703] "Invalid argument: ensemble ens contains '
        'models that are not available or ambiguous: nosuchmodel"\n',
        ("model ens", "contains models that are not available or ambiguous: nosuchmodel", ""),
    ),
    "port": (
        'E1130 13:24:02.8 7 main.cc:245] "failed to start GRPC service: Unavailable - Socket '
        "'127.0.0.1:18001' already in use \"\n",
        ("address 127.0.0.1:18001", "already in use", "end the process"),
    ),
    "flag": (
        "/opt/tritonserver: unrecognized option '--nosuchflag=1'\nUsage: tritonserver [options]\n",
        ("tritonserver", "unrecognized option '--nosuchflag=1'", ""),
    ),
    "stub": (
        "/b/python/triton_python_backend_stub: error while loading shared libraries: libpython3.11.so.1.0: "
        "cannot open shared object file: No such file or directory\n",
        ("tritonserver", "error while loading shared libraries: libpython3.11.so.1.0", "install it again"),
    ),
    "missing model.py": (
        "I1130 13:24:02.8 7 pb_stub.cc:2105]  Failed to preinitialize Python stub: Python model file "
        "not found in 'r/echo/1/model.py'\n",
        ("Python model", "Python model file not found in 'r/echo/1/model.py'", "build the repository again"),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_decisive_line(case: str) -> None:
    lines, (where, message, hint) = CASES[case]
    reason = find_reason(NOISE + lines + END)
    assert reason.where == where
    assert reason.message.startswith(message)
    assert "\\n" not in reason.message
    assert reason.recognised
    assert reason.hint.startswith(hint) or hint in reason.hint


def test_the_cause_wins_over_its_consequence() -> None:
    ensemble = "E1 manager.cc:703] \"Invalid argument: ensemble 'ens' depends on 'echo' which has\"\n"
    reason = find_reason(NOISE + ensemble + CASES["model code"][0] + END)
    assert reason.where == "model echo"


def test_unknown_failures_keep_the_last_words() -> None:
    reason = find_reason(NOISE + "terminate called after throwing an instance of 'std::bad_alloc'\n")
    assert not reason.recognised
    assert "bad_alloc" in reason.message
    assert "memory" in reason.hint


def test_an_empty_log() -> None:
    assert find_reason("").message == "said nothing"
