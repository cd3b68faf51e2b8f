"""Train the click model on the Open Bandit Dataset sample and export it.

    python examples/obd/train.py --out build/obd

writes `saved_model/`, `requests.jsonl` (sample requests, the first one is the example) and `metrics.json`.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

# TensorFlow reads these when it is imported.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")

import keras
import network
import numpy as np
import sample_requests
import tensorflow as tf
from dataset import FEATURES, Log, load
from evaluation import Interval, bootstrap, popularity

from bireme.errors import BiremeError

TRAIN_DAYS = (1, 2, 3, 4, 5)
HELD_OUT_DAYS = (6, 7)
SEED = 7
BATCH = 512
# The next four come from choose.py, which sees the train days only.
EPOCHS = 4
LEARNING_RATE = 1e-3
L2 = 1e-4
DROPOUT = 0.3
REQUESTS = 300
WRITTEN = ("saved_model", "requests.jsonl", "metrics.json")

Say = Callable[[str], None]


def main(arguments: list[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(description="Train the click model on the Open Bandit Dataset sample.")
    parser.add_argument(
        "--out", type=Path, default=Path("build/obd"), help="folder to write (default: %(default)s)"
    )
    parser.add_argument(
        "--epochs", type=int, default=EPOCHS, help="passes over the train days (default: %(default)s)"
    )
    parser.add_argument("--quiet", action="store_true", help="print errors only")
    options = parser.parse_args(arguments)
    if options.epochs < 1:
        parser.error("--epochs must be at least 1")
    say: Say = (lambda _: None) if options.quiet else (lambda text: print(text, flush=True))
    try:
        run(options.out, options.epochs, say)
    except BiremeError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except OSError as error:
        print(f"{options.out}: cannot be written: {error.strerror} (name another --out)", file=sys.stderr)
        return 1
    return 0


def run(out: Path, epochs: int = EPOCHS, say: Say = print) -> dict[str, Any]:
    """Load, train, evaluate, export.

    Args:
        out: folder to create or replace.
        epochs: passes over the train days.
        say: takes progress lines.

    Returns:
        What `metrics.json` holds.
    """
    check_replaceable(out)
    make_deterministic(SEED)
    log = load()
    train, held_out = log.on_days(TRAIN_DAYS), log.on_days(HELD_OUT_DAYS)
    say(f"{log.size} impressions, {int(log.click.sum())} clicks; {train.size} for training")
    model = fit(train, epochs, say=say)
    metrics = evaluate(model, train, held_out, epochs)
    export(model, sample_requests.draw(held_out, REQUESTS, SEED), metrics, out)
    say(table(metrics))
    say(f"wrote {out}")
    return metrics


def check_replaceable(out: Path) -> None:
    """Refuse to replace anything but an earlier export.

    Raises:
        BiremeError: `out` is a file, or holds something that this script does not write.
    """
    if not out.exists():
        return
    others = sorted({entry.name for entry in out.iterdir()} - set(WRITTEN)) if out.is_dir() else [out.name]
    if others:
        raise BiremeError(
            str(out), f"holds '{others[0]}', which is no part of an export", "name another --out"
        )


def make_deterministic(seed: int) -> None:
    """Equal runs give equal weights: seeds, deterministic kernels, a fixed split of sums over threads."""
    keras.utils.set_random_seed(seed)
    tf.config.experimental.enable_op_determinism()
    # Thread pools can be sized only before TensorFlow's first operation; a second call finds them sized.
    if tf.config.threading.get_intra_op_parallelism_threads() == 0:
        tf.config.threading.set_intra_op_parallelism_threads(2)
        tf.config.threading.set_inter_op_parallelism_threads(2)


def fit(
    train: Log,
    epochs: int,
    *,
    learning_rate: float = LEARNING_RATE,
    l2: float = L2,
    dropout: float = DROPOUT,
    units: tuple[int, ...] = (256, 128, 64),
    say: Say = print,
) -> keras.Model:
    """Train a fresh model on a log, telling the loss of each epoch."""
    model = network.build(network.measure(train), units=units, l2=l2, dropout=dropout, seed=SEED)
    model.compile(
        keras.optimizers.Adam(learning_rate),
        {"click": keras.losses.BinaryCrossentropy()},
        metrics={"click": keras.metrics.BinaryCrossentropy(name="log_loss")},
    )

    def report_epoch(epoch: int, logs: dict[str, float]) -> None:
        # The L2 penalty dominates the loss; the log loss alone tells how well clicks are predicted.
        say(f"epoch {epoch + 1}/{epochs}  loss {logs['loss']:.5f}  log loss {logs['log_loss']:.5f}")

    report = keras.callbacks.LambdaCallback(on_epoch_end=report_epoch)
    model.fit(batches(train, shuffle=True), epochs=epochs, shuffle=False, verbose=0, callbacks=[report])
    return model


def batches(log: Log, shuffle: bool = False) -> tf.data.Dataset:
    """(features, {"click": float32}) batches of a log, in time order or shuffled by SEED."""
    columns = {name: tf.constant(log.features[name]) for name in FEATURES}
    label = tf.constant(log.click, tf.float32)
    rows = tf.data.Dataset.range(log.size)
    if shuffle:
        rows = rows.shuffle(log.size, seed=SEED)
    # Gathering whole batches is far quicker than slicing single rows of twelve string tensors.
    return rows.batch(BATCH).map(
        lambda index: (
            {name: tf.gather(column, index) for name, column in columns.items()},
            {"click": tf.gather(label, index)},
        )
    )


def predict(model: keras.Model, log: Log) -> np.ndarray[Any, Any]:
    """Click probability of every impression, float32 [rows]."""
    out: np.ndarray[Any, Any] = model.predict(batches(log), verbose=0)["click"]
    return out


def evaluate(model: keras.Model, train: Log, held_out: Log, epochs: int) -> dict[str, Any]:
    """AUC of the model and of item popularity on held-out days, with 95 % bootstrap intervals."""
    items = held_out.features["item_id"]
    scores = {
        "model": predict(model, held_out),
        "popularity": popularity(train.features["item_id"], train.click, items),
    }
    intervals = bootstrap(held_out.click, scores, seed=SEED)
    return {
        "train": {"days": list(TRAIN_DAYS), "impressions": train.size, "clicks": int(train.click.sum())},
        "held_out": {
            "days": list(HELD_OUT_DAYS),
            "impressions": held_out.size,
            "clicks": int(held_out.click.sum()),
        },
        "epochs": epochs,
        "auc": {name: dataclasses.asdict(interval) for name, interval in intervals.items()},
    }


def table(metrics: dict[str, Any]) -> str:
    """The metrics as a few lines for people."""
    held_out = metrics["held_out"]
    lines = [f"{'AUC, days ' + ' and '.join(map(str, held_out['days'])):<24}{'value':>8}   95 % interval"]
    for name, raw in metrics["auc"].items():
        auc = Interval(**raw)
        lines.append(f"{name:<24}{auc.value:>8.3f}   {auc.low:.3f} to {auc.high:.3f}")
    lines.append(f"from {held_out['clicks']} clicks in {held_out['impressions']} impressions: wide intervals")
    return "\n".join(lines)


def export(
    model: keras.Model, requests: list[sample_requests.Request], metrics: dict[str, Any], out: Path
) -> None:
    """Write everything into a folder beside `out`, then put it in its place."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}-") as work:
        fresh, old = Path(work) / "new", Path(work) / "old"
        fresh.mkdir()
        model.export(fresh / "saved_model", verbose=False)
        sample_requests.write(requests, fresh / "requests.jsonl")
        (fresh / "metrics.json").write_text(json.dumps(metrics, indent=2) + "\n", encoding="utf-8")
        if out.exists():
            out.rename(old)
        fresh.rename(out)


if __name__ == "__main__":
    sys.exit(main())
