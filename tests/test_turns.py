"""Turns of tests that share a GPU."""

import threading

import pytest

from tests.zoo import turn


@pytest.fixture
def waiting(tmp_path):
    """A function (alone) -> Event that is set while a thread has its turn; the thread gives it up at the end of the test, or when asked."""
    threads, done = [], threading.Event()

    def begin(alone, until=done):
        entered = threading.Event()

        def take():
            with turn(tmp_path / "gpu.lock", alone):
                entered.set()
                until.wait(30)

        threads.append(threading.Thread(target=take))
        threads[-1].start()
        return entered

    yield begin
    done.set()
    for thread in threads:
        thread.join(30)


def test_turns_are_shared(waiting):
    assert all(one.wait(30) for one in [waiting(alone=False) for _ in range(3)])


@pytest.mark.parametrize(("first", "second"), [(True, False), (True, True), (False, True)])
def test_who_is_alone_has_no_one_beside_him(first, second, waiting):
    leave = threading.Event()
    assert waiting(first, leave).wait(30)
    other = waiting(second)
    assert not other.wait(0.3)
    leave.set()
    assert other.wait(30)


def test_who_waits_to_be_alone_comes_before_those_who_come_later(waiting):
    leave, left = threading.Event(), threading.Event()
    assert waiting(False, leave).wait(30)
    alone = waiting(True, left)
    assert not alone.wait(0.3)
    later = waiting(False)
    assert not later.wait(0.3)
    leave.set()
    assert alone.wait(30) and not later.wait(0.3)
    left.set()
    assert later.wait(30)
