# SPDX-License-Identifier: Apache-2.0
"""Bounds of time and memory for what others have written: templates, and libraries that read damaged files."""

from __future__ import annotations

import os
import resource
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class TimeIsUp(Exception):
    pass


def address_space_bytes() -> int:
    """What the process has of it now; 0 where the system does not say."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def machine_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def memory_limit(more_bytes: int) -> Iterator[None]:
    """A MemoryError where the process would need more than it has now and `more_bytes`; some libraries end the process
    instead."""
    used = address_space_bytes()
    before, hard = resource.getrlimit(resource.RLIMIT_AS)
    limits = [limit for limit in (before, used + more_bytes) if limit != resource.RLIM_INFINITY]
    if used:
        resource.setrlimit(resource.RLIMIT_AS, (min(limits), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (before, hard))


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """TimeIsUp in the Python code that is running then. Outside of the main thread there is no limit."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> None:
        raise TimeIsUp

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
