# `make` lists the targets. Everything installs itself into .venv; Python 3.10-3.12 and make are all it takes.
.DEFAULT_GOAL := help
SHELL := /bin/bash

# The first Python that can carry the project. Another one: make PYTHON=/path/to/python3.11 …
PYTHON ?= $(firstword $(foreach p,python3 python3.12 python3.11 python3.10,\
	$(shell $(p) scripts/check_python.py >/dev/null 2>&1 && echo $(p))))
BIN := .venv/bin
INSTALLED := .venv/.installed
SPEC := examples/obd/bireme.yaml
SAVED_MODEL := build/obd/saved_model/saved_model.pb
# Passed to `bireme serve`, for example SERVE_FLAGS="--http 9000 --grpc 9001 --metrics 9002".
SERVE_FLAGS ?=
# Passed to the family table, for example FAMILIES_FLAGS="--jobs 2" or FAMILIES_FLAGS="--only keras_DIN".
FAMILIES_FLAGS ?=
CODE := generator backends examples perf scripts tests setup.py

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-16s %s\n", $$1, $$2}'

.PHONY: venv
venv: $(INSTALLED) ## install everything into .venv

$(INSTALLED): pyproject.toml setup.py constraints.txt
	@[ -n "$(PYTHON)" ] || { for p in python3 python3.12 python3.11 python3.10; do \
		command -v $$p >/dev/null && $$p scripts/check_python.py; done; \
		echo "make: no fitting Python found; name one: make PYTHON=/path/to/python3.11"; exit 2; }
	@$(PYTHON) scripts/check_python.py
	$(PYTHON) -m venv .venv
	@echo "installing pinned packages into .venv: 2 GB on disk, 1 to 3 minutes"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --editable '.[build,embedded,perf,dev]'
	@# The Open Bandit sample rides in this wheel; its own dependencies are not wanted.
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps obp==0.4.1
	@# Compiled during the installation, silently; says so, or what is missing: no reason to stop.
	-@$(BIN)/bireme kernel
	@touch $@

.PHONY: kernel
kernel: $(INSTALLED) ## compile the feature kernel, if its sources have changed
	-@$(BIN)/bireme kernel

.PHONY: train
train: $(SAVED_MODEL) ## train the example model on the Open Bandit sample

$(SAVED_MODEL): $(wildcard examples/obd/*.py) | $(INSTALLED)
	$(BIN)/python examples/obd/train.py --out build/obd
	@touch $@

.PHONY: repo
repo: $(SAVED_MODEL) ## build model_repository/ from the example model
	$(BIN)/bireme build $(SPEC) --repository model_repository --target $(or $(TARGET),cpu)

.PHONY: serve
serve: $(SAVED_MODEL) ## build, start tritonserver, rank the example request, keep serving
	$(BIN)/bireme build $(SPEC) --repository model_repository --quiet
	$(BIN)/bireme serve --repository model_repository $(SERVE_FLAGS)

.PHONY: verify
verify: $(SAVED_MODEL) ## served scores against TensorFlow's, 2,000 requests over gRPC and over HTTP
	$(BIN)/bireme build $(SPEC) --repository model_repository --quiet
	$(BIN)/bireme verify $(SPEC) --repository model_repository

.PHONY: compare
compare: $(SAVED_MODEL) ## ensemble, fused model and floor against the whole SavedModel in one Python model: ratios
	$(BIN)/python perf/compare.py --spec $(SPEC) --out perf/results/compare.json

.PHONY: compare-apart
compare-apart: $(SAVED_MODEL) ## the same with a core for the server and the other for its clients
	$(BIN)/python perf/compare.py --spec $(SPEC) --candidates 500 --clients 4 --cores 1 --baseline 1x1 \
		--out perf/results/compare_apart.json
	$(BIN)/python perf/compare.py --reference --candidates 500 --clients 4 --cores 1 --baseline 1x1 \
		--out perf/results/compare_reference_apart.json

.PHONY: compare-reference
compare-reference: $(INSTALLED) ## the same for a DeepFM of a usual size with integer ids
	$(BIN)/python perf/compare.py --reference --candidates 500 --out perf/results/compare_reference.json

# A hash in compiled code for a loop in Python; it needs a C++ compiler to install, so it is no dependency.
STRING_PACKAGES := build/strings/packages

$(STRING_PACKAGES)/.installed: | $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target $(STRING_PACKAGES) pyfarmhash==0.5.1
	@touch $@

.PHONY: bench-strings
bench-strings: $(STRING_PACKAGES)/.installed ## 10,000 strings in a request against a loop in Python: ratios, JSON, picture
	PYTHONPATH=$(STRING_PACKAGES) $(BIN)/python perf/strings.py --out perf/results/strings.json

.PHONY: bench
bench: $(SAVED_MODEL) ## what a candidate costs in preprocess: slopes, JSON, picture
	$(BIN)/python perf/micro/preprocess_slope.py --spec $(SPEC) --out perf/results/preprocess_slope.json

.PHONY: bench-user-once
bench-user-once: $(INSTALLED) ## what computing the user side once saves, in four networks: ratios, JSON, picture
	$(BIN)/python perf/micro/user_once.py --out perf/results/user_once.json

# torch and cffi, beside the environment: only benchmarks compare with them.
BENCH_PACKAGES := build/bench/packages

$(BENCH_PACKAGES)/.installed: perf/micro/requirements.txt | $(INSTALLED)
	rm -rf $(BENCH_PACKAGES)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target $(BENCH_PACKAGES) -r $<
	@touch $@

.PHONY: bench-gather
bench-gather: $(BENCH_PACKAGES)/.installed ## gather and pool: the kernel against the memory's limit, numpy and torch
	$(BIN)/python perf/micro/gather.py --packages $(BENCH_PACKAGES) --out perf/results/gather.json

.PHONY: bench-vehicles
bench-vehicles: $(BENCH_PACKAGES)/.installed ## how tensors reach the kernel: ctypes against cffi
	$(BIN)/python perf/micro/vehicles.py --packages $(BENCH_PACKAGES) --out perf/results/vehicles.json

.PHONY: bench-preprocess
bench-preprocess: $(INSTALLED) ## a whole preprocess: the runtime against TensorFlow and plain numpy
	$(BIN)/python perf/micro/whole_preprocess.py --out perf/results/preprocess.json

# Other people's models, beside the environment instead of in it: only the family table needs them.
FAMILY_PACKAGES := build/families/packages

$(FAMILY_PACKAGES)/.installed: examples/families/requirements.txt | $(INSTALLED)
	rm -rf $(FAMILY_PACKAGES)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target $(FAMILY_PACKAGES) -r $<
	@touch $@

.PHONY: families
families: $(FAMILY_PACKAGES)/.installed ## export, compile and compare about 70 model families: docs/families.md
	$(BIN)/python examples/families/families.py $(FAMILIES_FLAGS)

.PHONY: families-typed
families-typed: $(FAMILY_PACKAGES)/.installed ## would a strongly typed TensorRT take every family: docs/families_typed.json
	$(BIN)/python examples/families/families_typed.py $(FAMILIES_FLAGS)

.PHONY: bench-user-ahead
bench-user-ahead: $(SAVED_MODEL) ## ten slices that share one user against ten requests: ratios, JSON, picture
	$(BIN)/python perf/user_ahead.py --spec $(SPEC) --out perf/results/user_ahead.json

.PHONY: bench-build
bench-build: $(SAVED_MODEL) ## what a build takes: the example, and 300 features with 2 GB of tables
	$(BIN)/python perf/build_bench.py --spec $(SPEC) --single --out perf/results/build.json

.PHONY: bench-instances
bench-instances: $(SAVED_MODEL) ## how many processes and threads: ratios to one of each, JSON, picture
	$(BIN)/python perf/instances.py --spec $(SPEC) --out perf/results/instances.json

.PHONY: bench-jemalloc
bench-jemalloc: $(SAVED_MODEL) ## jemalloc against the system's allocator: CPU a request, memory, JSON, picture
	$(BIN)/python perf/jemalloc.py --spec $(SPEC) --out perf/results/jemalloc.json

.PHONY: bench-memory
bench-memory: $(INSTALLED) ## 4 instances, 2 GB of tables: memory, huge pages, what SIGKILL leaves; kinds of pages
	$(BIN)/python perf/memory.py --out perf/results/memory.json
	$(BIN)/python perf/micro/page_kinds.py --out perf/results/page_kinds.json

# How long the load lasts: make soak MINUTES=30.
MINUTES ?= 10

.PHONY: soak
soak: $(SAVED_MODEL) ## 10 minutes at full load: memory of the server and its processes over time, flat or not
	$(BIN)/python perf/soak.py --spec $(SPEC) --minutes $(MINUTES) --out perf/results/soak.json

.PHONY: precision
precision: $(INSTALLED) ## what FP16 costs in AUC and ranks, on models trained on the spot: table, JSON, picture
	$(BIN)/python perf/precision.py --out perf/results/precision.json

# Which Python runs the check: the one whose packages tritonserver's models find, TensorRT among them.
GPU_PYTHON ?= $(BIN)/python
# Seconds: make gpu-check BUDGET=300.
BUDGET ?= 480

.PHONY: gpu-prepare
gpu-prepare: $(SAVED_MODEL) ## build, where TensorFlow is, what gpu-check needs: build/gpu/prepared
	$(BIN)/python perf/gpu/prepare.py --out build/gpu/prepared

.PHONY: gpu-check
gpu-check: ## on a GPU machine: engines, tests, proof of scores and graphs, measurements, in BUDGET seconds
	$(GPU_PYTHON) perf/gpu/check.py --prepared build/gpu/prepared --out perf/results --budget $(BUDGET)

.PHONY: gpu-report
gpu-report: ## docs/gpu-results.md and pictures from what gpu-check has measured
	$(GPU_PYTHON) perf/gpu/plots.py --results perf/results/gpu.json
	$(GPU_PYTHON) perf/gpu/report.py --results perf/results/gpu.json --out docs/gpu-results.md

.PHONY: gpu-rehearse
gpu-rehearse: $(SAVED_MODEL) ## gpu-check without a GPU, on the cpu target with small loads
	$(BIN)/python perf/gpu/prepare.py --out build/gpu_rehearsal/prepared --target cpu --cores 2 \
		--network 64 100 200 --example 20
	$(BIN)/python perf/gpu/check.py --prepared build/gpu_rehearsal/prepared --out build/gpu_rehearsal \
		--budget 900 --rehearse

.PHONY: lint
lint: $(INSTALLED) ## ruff and mypy
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy
	$(BIN)/mypy backends/python/preprocess/model.py
	$(BIN)/mypy backends/python/dnn/model.py
	$(BIN)/mypy backends/python/dnn_gpu/model.py
	$(BIN)/mypy backends/python/fused/model.py
	MYPYPATH=perf $(BIN)/mypy perf/*.py perf/*/*.py

# Side by side what starts no server: two of those would take each other's cores and time.
QUICK := not slow and not gpu and not k8s

.PHONY: test
test: lint kernel $(SAVED_MODEL) ## lint and all quick tests that need no GPU, about 25 minutes
	$(BIN)/pytest -n auto --maxprocesses 4 --dist loadfile -m "not triton and $(QUICK)"
	$(BIN)/pytest -m "triton and $(QUICK)"

.PHONY: format
format: $(INSTALLED) ## let ruff rewrite the code
	$(BIN)/ruff check --fix $(CODE)
	$(BIN)/ruff format $(CODE)

.PHONY: clean
clean: ## remove what was built, but not .venv
	rm -rf build .pytest_cache .mypy_cache .ruff_cache
	find model_repository -mindepth 1 -maxdepth 1 ! -name README.md -exec rm -rf {} +
