"""Looking back in time without a loop: the latest thing known, and sums over what became known in a window.

All times are int64 microseconds, all keys int codes (negative: no key, never matches). "Known at t" means availability <= t. Sums are of
whole numbers and so exact: taking one event away changes no other sum by a rounding error.
"""

from __future__ import annotations

import numpy as np

_KEY_SHIFT = np.int64(1) << np.int64(32)


def latest(
    keys: np.ndarray, happened: np.ndarray, version: np.ndarray, available: np.ndarray, query_keys: np.ndarray, query_times: np.ndarray
) -> np.ndarray:
    """Index int64 [queries] of the newest event (by time it happened, then version) with the query's key that was available by then; -1: none.

    An old observation that is published late does not displace a newer one.
    """
    rows = np.flatnonzero(keys >= 0)
    if not len(rows):
        return np.full(len(query_keys), -1, dtype=np.int64)
    freshness = np.empty(len(rows), dtype=np.int64)
    by_freshness = np.lexsort((version[rows], happened[rows]))
    freshness[by_freshness] = np.arange(len(rows))
    moments, place = _places(keys[rows], available[rows])
    order = np.argsort(place, kind="stable")
    key_of = keys[rows][order].astype(np.int64)
    newest = np.maximum.accumulate(key_of * _KEY_SHIFT + freshness[order])
    at = np.searchsorted(place[order], _query_places(moments, query_keys, query_times)) - 1
    found = (at >= 0) & (query_keys >= 0) & (key_of[at] == query_keys)
    return np.where(found, rows[by_freshness[newest[at] % _KEY_SHIFT]], -1)


def window_sums(
    keys: np.ndarray, available: np.ndarray, values: tuple[np.ndarray, ...], query_keys: np.ndarray, query_times: np.ndarray, width: int
) -> tuple[np.ndarray, ...]:
    """(count, sum of values[0], ...) float64 [queries] over events with the query's key that became available in (t - width, t]."""
    rows = np.flatnonzero(keys >= 0)
    moments, place = _places(keys[rows], available[rows])
    order = np.argsort(place, kind="stable")
    stop = np.searchsorted(place[order], _query_places(moments, query_keys, query_times))
    start = np.searchsorted(place[order], _query_places(moments, query_keys, query_times - width))
    has_key = query_keys >= 0
    sums = [np.where(has_key, stop - start, 0).astype(np.float64)]
    for column in values:
        running = np.concatenate(([0], np.cumsum(column[rows][order].astype(np.int64))))
        sums.append(np.where(has_key, running[stop] - running[start], 0).astype(np.float64))
    return tuple(sums)


def _places(keys: np.ndarray, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct times, and per event one number that orders by key, then time (ranks, so that no time is too large)."""
    moments = np.unique(times)
    return moments, keys.astype(np.int64) * _KEY_SHIFT + np.searchsorted(moments, times)


def _query_places(moments: np.ndarray, keys: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Per query the first place after all events of its key that were available by its time."""
    return keys.astype(np.int64) * _KEY_SHIFT + np.searchsorted(moments, times, side="right")
