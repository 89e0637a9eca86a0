"""The closed loop: some callers, each of which calls again as soon as its call has come back."""

import threading
import time

from benchmarks import _stats

WARM_CALLS = 5
WARM_SECONDS = 0.3


def measure(calls, batch, seconds, least=50):
    """Time synchronous calls.

    Args:
      calls: one function for each caller (thread); each makes one whole call and returns when its answer is there.
      batch: images in one call. seconds: how long to measure. least: calls that each caller makes at least.

    Returns: {"workers", "n", "p50_ms", "p99_ms", "mean_ms", "min_ms", "images_s"}.
    """
    times = [[] for _ in calls]
    spans, failures = [None] * len(calls), []
    ready = threading.Barrier(len(calls))

    def caller(index, call):
        try:
            warm(call)
            ready.wait()
            spans[index] = until(call, time.perf_counter() + seconds, least, times[index])
        except threading.BrokenBarrierError:
            pass
        except Exception as error:
            failures.append(error)
            ready.abort()

    threads = [threading.Thread(target=caller, args=item) for item in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    wall = max(end for _, end in spans) - min(start for start, _ in spans)
    every = [one for each in times for one in each]
    return {"workers": len(calls), **_stats.summary(every), "images_s": len(every) * batch / wall}


def warm(call, seconds=WARM_SECONDS):
    """Call until clocks have risen and allocators settled."""
    end = time.perf_counter() + seconds
    done = 0
    while done < WARM_CALLS or time.perf_counter() < end:
        call()
        done += 1


def until(call, deadline, least, times):
    """Call until `deadline`, by time.perf_counter, and `least` times at least; seconds go into `times`. Returns: (start, end)."""
    start = before = time.perf_counter()
    while before < deadline or len(times) < least:
        call()
        after = time.perf_counter()
        times.append(after - before)
        before = after
    return start, before
