"""All checks, in the order of their codes; docs/doctor.md lists them."""

from __future__ import annotations

from bireme.doctor.checks_gpu import GPU_CHECKS
from bireme.doctor.checks_host import HOST_CHECKS
from bireme.doctor.checks_server import SERVER_CHECKS
from bireme.doctor.finding import Check

__all__ = ["CHECKS"]

CHECKS: tuple[Check, ...] = (*SERVER_CHECKS, *HOST_CHECKS, *GPU_CHECKS)
