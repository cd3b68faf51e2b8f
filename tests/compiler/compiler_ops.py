"""What models do with their tensors, one op or habit each: see test_compile_ops.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from compiler_dense import Dense


def of_sequence(function: Callable[..., Any], **parts: Any) -> Dense:
    """x [rows, 4, 3] of the item, u [rows, 4, 3] of the user, w [rows, 3] of the item."""
    inputs = {"x": ("item", (4, 3)), "u": ("user", (4, 3)), "w": ("item", (3,))}
    return Dense(inputs, function, parts)  # type: ignore[arg-type]


def total(y: Any) -> Any:
    """[rows, ...] → [rows], each number with a weight of its own."""
    flat = tf.reshape(y, [-1, int(np.prod(y.shape[1:]))])
    return tf.linalg.matvec(flat, tf.range(1.0, flat.shape[1] + 1)) / 10


def joined(y: Any, *others: Any) -> Any:
    return total(y) + sum(total(other) for other in others)


def batch(x: Any) -> Any:
    return tf.shape(x)[0]


#: What a model does with x, u and w.
OPS: dict[str, Callable[..., Any]] = {
    "cumsum": lambda x, u, w: total(tf.cumsum(x * u, axis=1)) + total(tf.cumsum(w, -1, exclusive=True)),
    "cumsum backwards": lambda x, u, w: joined(tf.cumsum(u, axis=2, reverse=True) * x, w),
    "diagonals": lambda x, u, w: joined(
        tf.linalg.set_diag(x[:, :3] * u[:, :3], w),
        tf.linalg.set_diag(u, w),
        tf.linalg.set_diag(tf.transpose(x, [0, 2, 1]), u[:, 0]),
    ),
    "diagonal parts": lambda x, u, w: joined(tf.linalg.diag_part(x * u), tf.linalg.diag(w) * u[:, :3]),
    "triangles": lambda x, u, w: joined(tf.linalg.band_part(x * u, -1, 0), tf.linalg.band_part(u, 0, 1), w),
    "top": lambda x, u, w: joined(*tf.math.top_k(x + u, k=2)[:1], tf.math.top_k(u, 3)[0], w),
    "top places": lambda x, u, w: joined(tf.cast(tf.math.top_k(x, 2)[1], tf.float32) + u[:, :, :2], w),
    "argmax": lambda x, u, w: joined(
        tf.cast(tf.argmax(x * u, -1), tf.float32), tf.cast(tf.argmin(u, 1), tf.float32), w
    ),
    "one hot": lambda x, u, w: joined(
        tf.one_hot(tf.argmax(x, -1), 3, 2.0, -1.0) * u, tf.one_hot(tf.argmax(u, 1), 4, axis=1), w
    ),
    "own places": lambda x, u, w: joined(
        tf.gather(u, tf.argmax(x, 2), batch_dims=1), tf.gather(x, tf.argmax(u, 1), batch_dims=1), w
    ),
    "rows of a constant": lambda x, u, w: joined(
        tf.gather(tf.reshape(tf.range(12.0), [3, 4]), tf.argmax(x + u, 2)), w
    ),
    "fixed places": lambda x, u, w: joined(
        tf.gather(x, [3, 0, 0], axis=1) * tf.gather(u, [1, 2, 2], axis=1), tf.gather(w, 1, axis=1)[:, None]
    ),
    "reduce": lambda x, u, w: joined(
        tf.reduce_logsumexp(x + u, [1, 2])[:, None],
        tf.norm(x, ord=1, axis=-1),
        tf.norm(u, axis=1),
        tf.reduce_prod(w, -1, keepdims=True),
    ),
    "diagonal": lambda x, u, w: joined(
        tf.linalg.set_diag(x[:, :3] * u[:, :3], tf.ones_like(w) * -4.0), tf.linalg.set_diag(u[:, 1:], w)
    ),
    "pad": lambda x, u, w: joined(
        tf.pad(x, [[0, 0], [1, 2], [0, 0]], constant_values=0.5)
        * tf.pad(u, [[0, 0], [2, 1], [0, 0]], "REFLECT"),
        w,
    ),
    "tile": lambda x, u, w: joined(
        tf.tile(w[:, None], [1, 4, 1]) * u,
        tf.tile(x, [1, 2, 1]),
        tf.tile(u, [1, 1, 2]) * tf.tile(x, [1, 1, 2]),
    ),
    "broadcast to the batch": lambda x, u, w: joined(
        tf.broadcast_to(tf.range(12.0), [batch(x), 12]) * tf.reshape(x, [batch(x), 12]),
        tf.broadcast_to(w[:, None], tf.shape(u)) * u,
    ),
    "constants of the batch's size": lambda x, u, w: joined(
        tf.concat([tf.ones([batch(u), 1, 3]), u, tf.fill([batch(u), 2, 3], 0.5)], 1),
        tf.zeros_like(w),
        tf.concat([tf.ones_like(w) * 3, w], 1),
    ),
    "learned token in front": lambda x, u, w: joined(
        tf.concat([tf.tile(tf.constant([[[1.0, 2.0, 3.0]]]), [batch(u), 1, 1]), u, x], 1), w
    ),
    "stacked": lambda x, u, w: joined(tf.stack([x, u], 1), tf.stack(tf.unstack(x, axis=1)[::-1], 2), w),
    "time-major": lambda x, u, w: joined(
        tf.transpose(tf.nn.softmax(tf.cumsum(tf.transpose(x + u, [1, 0, 2]), 0), axis=0)[1:], [1, 2, 0]), w
    ),
    "time-major steps": lambda x, u, w: joined(
        tf.add_n([tf.transpose(x, [1, 0, 2])[t] * (t + 1) for t in range(4)]),
        tf.transpose(u, [1, 0, 2])[-1],
        w,
    ),
    "flattened steps": lambda x, u, w: joined(
        tf.reshape(
            tf.nn.relu(tf.matmul(tf.reshape(x * u, [-1, 3]), tf.reshape(tf.range(6.0), [3, 2]))), [-1, 4, 2]
        ),
        w,
    ),
    "flattened time-major": lambda x, u, w: joined(
        tf.transpose(
            tf.reshape(tf.tanh(tf.reshape(tf.transpose(x, [1, 0, 2]), [-1, 3]) - 0.5), [4, -1, 3]), [1, 0, 2]
        ),
        u,
        w,
    ),
    "heads in front": lambda x, u, w: joined(
        tf.concat(
            tf.split(
                tf.nn.softmax(tf.concat(tf.split(x, 3, 2), 0) * tf.tile(u[:, :, :1], [3, 1, 1]), 1), 3, 0
            ),
            2,
        ),
        w,
    ),
    "experts in front": lambda x, u, w: joined(
        tf.transpose(tf.matmul(w, tf.reshape(tf.range(24.0), [4, 3, 2]) / 10), [1, 0, 2]), x * u
    ),
    "a matrix for each step": lambda x, u, w: joined(
        tf.matmul((x + u)[:, :, None], tf.reshape(tf.range(24.0), [4, 3, 2]) / 10), w
    ),
    "a matrix from the left": lambda x, u, w: joined(
        tf.matmul(tf.reshape(tf.range(8.0), [2, 4]), x * u),
        tf.transpose(tf.matmul(tf.reshape(tf.range(6.0), [2, 3]), w, transpose_b=True)),
    ),
    "products of steps": lambda x, u, w: joined(
        tf.einsum("bld,bmd->blm", x, u),
        tf.einsum("bld,bd,de->bl", u, w, tf.reshape(tf.range(9.0), [3, 3])),
        tf.matmul(x, u, transpose_a=True),
    ),
    "choice beside infinity": lambda x, u, w: joined(
        tf.where(x > 0, tf.math.log(x), 0.0), tf.where(u > 0, tf.math.rsqrt(u), 1.0), w
    ),
    "masked softmax": lambda x, u, w: joined(
        tf.nn.softmax(tf.where(u > -0.5, x, tf.fill(tf.shape(x), -1e9)), axis=1), w
    ),
    "triangle": lambda x, u, w: joined(tf.linalg.band_part(tf.matmul(x, u, transpose_b=True), -1, 0), w),
    "activations": lambda x, u, w: joined(
        tf.nn.gelu(x),
        tf.nn.gelu(u, approximate=True),
        tf.nn.elu(w),
        tf.nn.crelu(x),
        tf.nn.relu6(w),
        tf.math.atan(u),
        tf.math.expm1(w),
    ),
    "normalised": lambda x, u, w: joined(
        tf.math.l2_normalize(x + u, -1),
        (u - tf.reduce_mean(u, [1, 2], keepdims=True)) / tf.math.reduce_std(u, [1, 2], keepdims=True),
        w,
    ),
    "size of the batch for nothing": lambda x, u, w: joined(
        tf.reshape(x, tf.concat([tf.shape(u)[:1], [12]], 0)),
        w[: tf.shape(u)[0]],
        tf.reshape(u, [tf.size(u) // 12, 2, 6]),
    ),
}
