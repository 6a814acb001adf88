# SPDX-License-Identifier: Apache-2.0
"""What hybrid_reference computes with, in float64: recurrences row by row, attention in tiles of keys."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

Array = np.ndarray
ROWS, KEYS = 256, 2048  # of a tile of scores
L2_EPS = 1e-6


def blocks(count: int, size: int) -> Iterator[slice]:
    return (slice(first, min(first + size, count)) for first in range(0, count, size))


def sigmoid(x: Array) -> Array:
    return np.exp(-np.logaddexp(0, -x))


def silu(x: Array) -> Array:
    return x * sigmoid(x)


def softplus(x: Array) -> Array:
    return np.logaddexp(0, x)


def rms(x: Array, eps: float) -> Array:
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps)


def unit(x: Array) -> Array:
    return x / np.sqrt((x * x).sum(axis=-1, keepdims=True) + L2_EPS)


def gated(x: Array, both: Array, down: Array) -> Array:
    """`both`: the rows of the gate above those of the up."""
    gate, up = np.split(x @ both.T, 2, axis=1)
    return (silu(gate) * up) @ down.T


def convolved(x: Array, weight: Array) -> Array:
    """Causal, of each channel: x [rows, channels], weight [channels, 1, K]; zeros stand before the first row."""
    kernel = weight.shape[-1]
    before = np.concatenate([np.zeros((kernel - 1, x.shape[1])), x])
    made = np.zeros_like(x)
    for tap in range(kernel):
        made += before[tap : tap + len(x)] * weight[:, 0, tap]
    return made


def attended(q: Array, k: Array, v: Array) -> Array:
    """Causal attention of one head, [rows, dim] each; a running maximum and sum join the tiles."""
    out = np.empty_like(q)
    for rows in blocks(len(q), ROWS):
        peak, total, made = np.full(rows.stop - rows.start, -np.inf), 0.0, 0.0
        for keys in blocks(rows.stop, KEYS):
            scores = q[rows] @ k[keys].T
            if keys.stop > rows.start:
                positions = np.arange(rows.start, rows.stop)[:, None]
                scores[np.arange(keys.start, keys.stop) > positions] = -np.inf
            above = np.maximum(peak, scores.max(axis=1))
            scores -= above[:, None]
            np.exp(scores, out=scores)
            kept = np.exp(peak - above)
            total, made, peak = total * kept + scores.sum(axis=1), made * kept[:, None] + scores @ v[keys], above
        out[rows] = made / np.asarray(total)[:, None]
    return out


def delta_rule(q: Array, k: Array, v: Array, decay: Array, strength: Array) -> Array:
    """q, k [rows, heads, key dim], v [rows, heads, value dim], decay and strength [rows, heads]. In this order a row
    decays the state, corrects what the state gives for its key, and reads."""
    state = np.zeros((v.shape[1], k.shape[2], v.shape[2]))
    out = np.empty_like(v)
    for row in range(len(v)):
        state *= decay[row, :, None, None]
        known = (k[row, :, None] @ state)[:, 0]
        state += k[row, :, :, None] * (strength[row, :, None] * (v[row] - known))[:, None]
        out[row] = (q[row, :, None] @ state)[:, 0]
    return out


def scanned(x: Array, b: Array, c: Array, decay: Array) -> Array:
    """Mamba-2: x [rows, heads, dim] times its step, b and c [rows, heads, state], decay [rows, heads]."""
    state = np.zeros((x.shape[1], x.shape[2], b.shape[2]))
    out = np.empty_like(x)
    for row in range(len(x)):
        state *= decay[row, :, None, None]
        state += x[row, :, :, None] * b[row, :, None]
        out[row] = (state @ c[row, :, :, None])[..., 0]
    return out
