"""Findings as SARIF 2.1.0, which code hosts and editors show beside the lines.

Source: OASIS, Static Analysis Results Interchange Format (SARIF) Version 2.1.0.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from bireme import __version__
from bireme.lint.finding import Finding, Rule

__all__ = ["sarif"]

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def sarif(findings: Sequence[Finding], rules: Sequence[Rule]) -> str:
    """One run as JSON text.

    Args:
        findings: what was found; each names a rule of `rules`.
        rules: all rules that were applied.
    """
    places = {rule.code: index for index, rule in enumerate(rules)}
    run = {
        "tool": {
            "driver": {
                "name": "bireme lint",
                "version": __version__,
                "rules": [_rule(rule) for rule in rules],
            }
        },
        "originalUriBaseIds": {"REPOSITORY": {"description": {"text": "the model repository"}}},
        "results": [_result(finding, places[finding.code]) for finding in findings],
    }
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1)


def _rule(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.code,
        "shortDescription": {"text": rule.about},
        "fullDescription": {"text": f"{rule.about}: {rule.why}"},
        "help": {"text": rule.fix},
        "defaultConfiguration": {"level": rule.severity},
        "properties": {"triton": str(rule.releases)},
    }


def _result(finding: Finding, index: int) -> dict[str, Any]:
    artifact: dict[str, Any] = {"artifactLocation": {"uri": finding.file, "uriBaseId": "REPOSITORY"}}
    if finding.line is not None:
        artifact["region"] = {"startLine": finding.line}
    return {
        "ruleId": finding.code,
        "ruleIndex": index,
        "level": finding.severity,
        "message": {"text": f"{finding.where}: {finding.message}. Fix: {finding.fix}"},
        "locations": [
            {
                "physicalLocation": artifact,
                "logicalLocations": [{"fullyQualifiedName": finding.where}],
            }
        ],
    }
