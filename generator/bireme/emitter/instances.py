"""How many processes and threads a repository gets: a rule from the serving machine's cores, and why.

Measured with perf/instances.py on 2 and on 16 cores (perf/results/instances*.json), N = 500, 1 to 32 clients
that never pause. P+DxT: P preprocess processes, D DNN processes of T threads. Between 2 and 16 cores the rule
is a straight line; above 16 nothing was measured.

preprocess: a process for every 4 cores. The kernel has one thread (parallel loops cost 20 times as much CPU
where cores are contended: processes are what scales, and they map the same tables).

* 16 cores, a DNN that costs nothing, as beside a GPU: 2, 4 and 8 processes answer 1.8, 2.8 and 3.0 times the
  requests of one at 32 clients, for 4, 15 and 27 % more CPU a request. So 4. Before a real TensorRT engine
  (H200, CUDA Graphs, an earlier measurement) four answer 1.9 times the requests of one.
* 2 cores: in no case did all rounds agree that two or four answered more than one; two cost up to 12 % more
  CPU a request and four 15 to 33 %, since each sees a part of the queue and merges less. So 1.

DNN on the CPU: three quarters of the cores as threads, in processes of up to 4 threads.

* 16 cores, the example (1 ms of DNN), 32 clients: 4+3x4 answers 1.3 times the requests of 2+2x4, which has
  3.5 times those of 1+1x1. 4+6x2 and 4+12x1 answer as many within 5 %, but their P99 is 1.2 and 1.6 times as
  long: fewer processes merge more of the queue. (A single client waits 10 % longer than with 2+2x4.)
* 16 cores, a network of 10 ms: four threads halve the latency of a single client. At 32 clients 1+8x1 answers
  1.25 times the requests of 1+2x4, at 1.5 times its P99, and holds four times as many copies of the weights.
* 2 cores: in no case did a second thread or process answer more; they cost up to 15 % more CPU a request
  (measured twice, the second time on a quiet machine: 2+2x1 against 1+1x1, 4 clients, 7 rounds: 1.03 (0.91 to
  1.18) times the requests for 1.14 times the CPU).

fused: a process does features and network in turn, so that the threads of all processes are as many as there
are cores. 2 cores: a second process uses the second core. More cores were not measured in this layout.

ONNX Runtime's own default, a thread for every core of the host, is throttled where a container has a quota.

DNN on a GPU, gpu target: two contexts, whatever the cores. With CUDA Graphs they give 1.7 times the rows per
second of one at 256 rows per request; four give 1.25 times more at 512 rows but less at 256, and each has its
own copy of the engine's working memory.

DNN on a GPU, gpu-python target: four processes, whatever the cores. Each process has one interpreter lock,
under which requests are unpacked and answers packed, so that processes scale where contexts alone would not.
An FP16 graph in a Python model (H200, 256 rows per request, 8 clients) did 935, 1162 and 1395 requests per
second in 1, 2 and 4 processes, with the GPU 54, 81 and 90 % busy; a TensorRT plan with graphs did 3887 in 4,
at 99 %. More than four were not measured, and there is little of the GPU left for them. Each holds the plan,
its contexts and its graphs once more.
"""

from __future__ import annotations

from bireme.spec import BuildSpec, Target
from bireme.spec_instances import Instances

__all__ = [
    "CORES_PER_PREPROCESS",
    "DNN_CONTEXTS_GPU",
    "DNN_PROCESSES_GPU",
    "MOST_DNN_THREADS",
    "choose_instances",
    "explain",
]

CORES_PER_PREPROCESS = 4
MOST_DNN_THREADS = 4
DNN_CONTEXTS_GPU = 2
DNN_PROCESSES_GPU = 4


def choose_instances(spec: BuildSpec, target: Target, usable: int) -> Instances:
    """What the spec says; what it leaves out follows from the cores.

    Args:
        spec: its `layout`, `cores`, `preprocess_instances`, `dnn_instances`, `dnn_threads`.
        target: where the DNN will run. On a GPU, `dnn_threads` means nothing.
        usable: cores that the building process may use; they count where the spec names none.
    """
    cores = spec.cores or usable
    preprocess = spec.preprocess_instances or max(1, cores // CORES_PER_PREPROCESS)
    if target != "cpu":
        dnn = spec.dnn_instances or (DNN_CONTEXTS_GPU if target == "gpu" else DNN_PROCESSES_GPU)
        return Instances(cores=cores, preprocess=preprocess, dnn=dnn)
    share = cores if spec.layout == "fused" else max(1, 3 * cores // 4)
    # Where the processes are given, their threads share the cores.
    most = share // spec.dnn_instances if spec.dnn_instances else cores // 4
    threads = spec.dnn_threads or min(MOST_DNN_THREADS, max(1, most))
    dnn = spec.dnn_instances or max(1, share // threads)
    # The fused model has no preprocess of its own.
    preprocess = 0 if spec.layout == "fused" else preprocess
    return Instances(cores=cores, preprocess=preprocess, dnn=dnn, dnn_threads=threads)


def explain(instances: Instances, spec: BuildSpec, target: Target) -> str:
    """One line for whoever builds: for which cores, and what that means."""
    source = "as the spec says" if spec.cores else "usable here; for another machine: `cores` in the spec"
    if instances.dnn_threads is None:
        unused = "; `dnn_threads` has no meaning on a GPU" if spec.dnn_threads else ""
        what = "DNN context" if target == "gpu" else "DNN process"
        dnn = f"{_count(instances.dnn, what)} a GPU{unused}"
    else:
        what = "DNN process" if instances.preprocess else "process"
        dnn = f"{_count(instances.dnn, what)} of {_count(instances.dnn_threads, 'thread')}"
    made = f"{_count(instances.preprocess, 'preprocess process')}, {dnn}" if instances.preprocess else dnn
    if spec.preprocess_instances and not instances.preprocess:
        made += "; `preprocess_instances` has no meaning in the fused layout"
    return f"instances for {_count(instances.cores, 'core')} ({source}): {made}"


def _count(number: int, what: str) -> str:
    plural = f"{what}es" if what.endswith("s") else f"{what}s"
    return f"{number} {what if number == 1 else plural}"
