import csv
import importlib.metadata
from datetime import datetime, timedelta

import dataset
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.errors import BiremeError

START = datetime.fromisoformat("2019-11-24T23:59:58+00:00")


def write_csv(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def impression(second, item, items, click=0, affinities=None, user="u"):
    row = {"timestamp": str(START + timedelta(seconds=second)), "item_id": item, "click": click}
    row |= {f"user_feature_{k}": f"{user}{k}" for k in range(4)}
    return row | {f"user-item_affinity_{k}": (affinities or [0.0] * items)[k] for k in range(items)}


@pytest.fixture
def folder(tmp_path):
    """A sample of two items per campaign and one impression per file, save for the one of random/all."""
    for policy in dataset.POLICIES:
        for campaign in dataset.CAMPAIGNS:
            items = [
                {"item_id": i, "item_feature_0": i + 0.5}
                | {f"item_feature_{k}": f"{policy}-{i}-{k}" for k in (1, 2, 3)}
                for i in (1, 0)
            ]
            write_csv(tmp_path / policy / campaign / "item_context.csv", items)
            write_csv(tmp_path / policy / campaign / f"{campaign}.csv", [impression(0, 0, 2)])
    rows = [impression(1, 1, 2, click=1, affinities=[3.0, 7.0]), impression(3, 0, 2, user="v")]
    write_csv(tmp_path / "random" / "all" / "all.csv", rows)
    return tmp_path


def test_rows_join_user_item_affinity_and_history(folder):
    log = dataset.load(folder)
    row = int(np.flatnonzero(log.click)[0])
    values = {name: column[row] for name, column in log.features.items()}
    assert values["item_id"] == "all-1"
    assert (values["item_feature_0"], values["item_feature_2"]) == (1.5, "random-1-2")
    assert values["affinity"] == 7.0
    assert log.affinities[row].tolist() == [3.0, 7.0]
    assert [values[f"user_feature_{k}"] for k in range(4)] == ["u0", "u1", "u2", "u3"]
    # One second before, bts showed all-0 to the same cohort; campaigns do not share their histories.
    assert [name for name in values["recent_items"] if name] == ["all-0"]


def test_both_policies_use_the_item_hashes_of_random(folder):
    log = dataset.load(folder)
    assert all(str(value).startswith("random-") for value in log.features["item_feature_1"])


def test_day_and_hour_change_at_midnight_utc(folder):
    log = dataset.load(folder)
    after = log.features["user_feature_0"] == "v0"
    assert (log.day[after].tolist(), log.features["hour"][after].tolist()) == ([2], [0])
    assert set(log.day[~after]) == {1}
    assert set(log.features["hour"][~after]) == {23}
    assert log.on_days([2]).features["item_id"].tolist() == ["all-0"]


INSTANTS = st.lists(st.tuples(st.integers(0, 6), st.sampled_from("ab"), st.sampled_from("xy")), max_size=40)


@given(INSTANTS, st.integers(1, 4))
def test_history_holds_the_newest_strictly_earlier_items(draws, length):
    rows = [
        (START + timedelta(seconds=second), campaign, (cohort,), f"item-{i}")
        for i, (second, campaign, cohort) in enumerate(sorted(draws))
    ]
    got = dataset.recent_items(rows, length)
    for i, (time, campaign, cohort, _) in enumerate(rows):
        before = [r[3] for r in rows[:i] if r[0] < time and r[1:3] == (campaign, cohort)]
        expected = before[::-1][:length]
        assert got[i].tolist() == expected + [""] * (length - len(expected))


def test_real_sample_is_complete_and_typed(log):
    assert log.size == 60_000
    assert {name: c.size for name, c in log.catalogs.items()} == {"all": 80, "men": 34, "women": 46}
    assert set(log.day) == set(range(1, 8))
    assert set(log.features) == set(dataset.FEATURES)
    for name, dtype in {"hour": np.int64, "item_feature_0": np.float32, "affinity": np.float32}.items():
        assert log.features[name].dtype == dtype
        assert np.isfinite(log.features[name]).all()
    assert log.features["recent_items"].shape == (log.size, dataset.HISTORY)
    known = {name for c in log.catalogs.values() for name in c.features["item_id"]}
    assert set(log.features["item_id"]) == known
    assert set(log.features["recent_items"].ravel()) <= known | {""}


def test_missing_wheel_names_the_remedy(monkeypatch):
    def absent(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", absent)
    with pytest.raises(BiremeError, match="make venv") as error:
        dataset.load()
    assert error.value.where == "obp"


@pytest.mark.parametrize("damage", ["missing", "empty", "column", "item", "number"])
def test_damaged_file_is_named(folder, damage):
    path = folder / "bts" / "men" / "men.csv"
    text = path.read_text()
    if damage == "missing":
        path.unlink()
    elif damage == "empty":
        path.write_text(text.splitlines()[0] + "\n")
    elif damage == "column":
        path.write_text(text.replace("click", "clack"))
    elif damage == "item":
        write_csv(path, [impression(0, 2, 2)])
    else:
        path.write_text(text.replace("0.0", "much"))
    with pytest.raises(BiremeError) as error:
        dataset.load(folder)
    assert error.value.where == str(path)
    assert "make venv" in error.value.hint
