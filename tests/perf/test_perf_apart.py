"""Server and clients on cores of their own."""

from __future__ import annotations

import os

import pytest

from apart import start_apart
from bireme.errors import SpecError


@pytest.fixture
def cores():
    before = os.sched_getaffinity(0)
    yield sorted(before)
    os.sched_setaffinity(0, before)


def test_the_server_starts_on_the_first_cores_and_the_rest_stay_for_the_clients(cores):
    if len(cores) < 2:
        pytest.skip("needs two cores")
    seen = []
    start_apart(lambda: seen.append(os.sched_getaffinity(0)), 1)
    assert seen == [{cores[0]}]
    assert os.sched_getaffinity(0) == set(cores[1:])


def test_without_a_number_all_share_all(cores):
    seen = []
    start_apart(lambda: seen.append(os.sched_getaffinity(0)), 0)
    assert seen == [set(cores)]
    assert os.sched_getaffinity(0) == set(cores)


def test_no_core_left_for_the_clients_is_refused(cores):
    with pytest.raises(SpecError, match=f"there are {len(cores)}"):
        start_apart(lambda: pytest.fail("started"), len(cores))
    assert os.sched_getaffinity(0) == set(cores)
