"""All rules, in the order in which their findings are listed."""

from __future__ import annotations

from bireme.lint.finding import Rule
from bireme.lint.rules_ensemble import ENSEMBLE_RULES
from bireme.lint.rules_files import FILE_RULES
from bireme.lint.rules_gpu_python import GPU_PYTHON_RULES
from bireme.lint.rules_graph_specs import GRAPH_SPEC_RULES
from bireme.lint.rules_graphs import GRAPH_RULES
from bireme.lint.rules_memory import MEMORY_RULES
from bireme.lint.rules_network import NETWORK_RULES
from bireme.lint.rules_python import PYTHON_RULES
from bireme.lint.rules_queue import QUEUE_RULES
from bireme.lint.rules_server import SERVER_RULES
from bireme.lint.rules_settings import SETTING_RULES
from bireme.lint.rules_version import VERSION_RULES

__all__ = ["RULES"]

RULES: tuple[Rule, ...] = (
    *GRAPH_RULES,
    *GRAPH_SPEC_RULES,
    *SETTING_RULES,
    *SERVER_RULES,
    *GPU_PYTHON_RULES,
    *NETWORK_RULES,
    *FILE_RULES,
    *PYTHON_RULES,
    *ENSEMBLE_RULES,
    *QUEUE_RULES,
    *MEMORY_RULES,
    *VERSION_RULES,
)
