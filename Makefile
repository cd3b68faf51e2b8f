# `make` lists the targets. Everything installs itself into .venv; only Python 3.10-3.12 and make are needed.
.DEFAULT_GOAL := help
SHELL := /bin/bash
# The newest Python that every pinned package has wheels for. Override: make PYTHON=/path/to/python3.11 …
PYTHON ?= $(shell for p in python3.12 python3.11 python3.10 python3; do \
	"$$p" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] < (3, 13))' 2>/dev/null && { echo "$$p"; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

.PHONY: venv
venv: $(STAMP) ## install everything into .venv

$(STAMP): pyproject.toml constraints.txt
	@if [ -z "$(PYTHON)" ]; then echo "make: no Python 3.10, 3.11 or 3.12 found on PATH; install one (Debian: apt install python3 python3-venv) or name it: make PYTHON=/path/to/python3.11"; exit 2; fi
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "make: $(PYTHON) has no venv module; on Debian and Ubuntu: apt install python3-venv"; exit 2; }
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade-strategy only-if-needed -c constraints.txt pip setuptools
	@echo "installing pinned packages (about 2 GB on disk, 1-3 minutes)"
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[build,embedded,perf,dev]'
	# The Open Bandit sample rides in this wheel; its own dependencies (torch, …) are not wanted.
	$(BIN)/python -m pip install --quiet --no-deps obp==0.4.1
	@touch $@
