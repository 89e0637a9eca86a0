"""When requests are sent in an open loop: fixed before the run, so that a slow server cannot slow the sender down.

A schedule is an int64 array of nanoseconds from the start, ascending, one entry a request.
"""

import math
import os
import pathlib
import typing

import numpy as np
import numpy.typing as npt

from tftrt_tools.base import errors

_SECOND = 1_000_000_000
# 48 bytes of record for each: what one machine can hold and a person can wait for.
LONGEST = 50_000_000
Schedule: typing.TypeAlias = npt.NDArray[np.int64]


def constant(rate: float, seconds: float) -> Schedule:
    """Equal gaps. Args: rate: requests a second, > 0. seconds: length, > 0. Returns: int64 [rate * seconds, rounded]; the first at 0."""
    count = _count(rate, seconds)
    result: Schedule = np.round(np.arange(count) * (_SECOND / rate)).astype(np.int64)
    return result


def poisson(rate: float, seconds: float, seed: int) -> Schedule:
    """A Poisson process, as many independent users make it: gaps are drawn from the exponential distribution with mean 1 / rate
    (inversion by numpy's ziggurat, PCG64), added up, and cut at `seconds`. The count is random, with mean and variance rate * seconds.

    Args: rate: requests a second, > 0. seconds: length, > 0. seed: int >= 0; the same seed gives the same schedule. Returns: int64 [n].
    """
    mean = _count(rate, seconds)
    random = np.random.default_rng(seed)
    sums: list[npt.NDArray[np.float64]] = []
    last = 0.0
    while last < seconds:
        # One draw is nearly always enough: six standard deviations more than the mean.
        part = last + np.cumsum(random.exponential(1 / rate, mean + 6 * math.isqrt(mean) + 8))
        sums.append(part)
        last = float(part[-1])
    instants = np.concatenate(sums)
    result: Schedule = np.round(instants[instants < seconds] * _SECOND).astype(np.int64)
    return result


def read(path: str | os.PathLike[str]) -> Schedule:
    """A schedule from a text file: seconds from the start, one number a line, ascending; empty lines and lines with # are left out.

    Returns: int64 [n]. Raises: UsageError with the line's number.
    """
    try:
        lines = pathlib.Path(path).read_text().splitlines()
    except UnicodeDecodeError:
        raise errors.UsageError(
            f"{path} is no text", "a schedule is a text file: seconds from the start, one number a line"
        ) from None
    instants: list[float] = []
    last = 0.0
    for number, line in enumerate(lines, 1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        try:
            instant = float(text)
        except ValueError:
            instant = math.nan
        if not 0 <= instant < math.inf:
            raise errors.UsageError(
                f"{path}, line {number}: {text[:40]!r} is no time", "write seconds from the start, one number a line"
            )
        if instant < last:
            raise errors.UsageError(
                f"{path}, line {number}: {text} s is before the {last:g} s above it", "sort the lines"
            )
        instants.append(instant)
        last = instant
    if not instants:
        raise errors.UsageError(f"{path} holds no times", "write seconds from the start, one number a line")
    result: Schedule = np.round(np.array(instants) * _SECOND).astype(np.int64)
    return result


def checked(schedule: npt.ArrayLike) -> Schedule:
    """The schedule as an array. Raises: UsageError if it is not a schedule."""
    array = np.asarray(schedule)
    if array.ndim != 1 or not array.size or array.dtype.kind not in "iu":
        raise errors.UsageError(
            f"a schedule is a 1-D array of whole nanoseconds, not {array.dtype} {list(array.shape)}",
            "make it with schedule.constant, poisson or read",
        )
    array = array.astype(np.int64)
    if array[0] < 0 or (np.diff(array) < 0).any():
        raise errors.UsageError("the instants of a schedule do not ascend from 0", "sort them")
    return array


def _count(rate: float, seconds: float) -> int:
    if not (0 < rate < math.inf and 0 < seconds < math.inf):
        raise errors.UsageError(
            f"no schedule of {rate:g} requests a second for {seconds:g} s", "both have to be above 0"
        )
    count = max(1, round(rate * seconds))
    if count > LONGEST:
        raise errors.UsageError(
            f"{rate:g} requests a second for {seconds:g} s are {count} requests", f"at most {LONGEST} fit in one run"
        )
    return count
