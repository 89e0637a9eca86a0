"""A function in a process of its own, called once or many times."""

import importlib.metadata
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time

import pytest

from tftrt_tools.base import errors
from tftrt_tools.base.process import child, environment, progress

TARGET = "tests.rooms.base.test_child:work"
_calls = []


def _tell(text):
    for number in range(50):
        progress.say(text, number, 50)


def work(request):  # noqa: C901
    """What the child does in these tests."""
    _calls.append(request)
    what = request["do"]
    if what == "refuse":
        raise errors.UsageError("no such thing", "take another")
    if what == "bug":
        raise ZeroDivisionError("a slip")
    if what == "leave":
        sys.exit(7)
    if what == "abort":
        os.write(2, b"last words\n")
        os.abort()
    if what == "temporary":
        return tempfile.mkstemp(prefix="__autograph_generated_file")[1]
    if what == "sleep":
        progress.say("sleeping")
        time.sleep(60)
    if what == "steps":
        for number in range(request["steps"]):
            progress.say("step", number, request["steps"])
            time.sleep(request["seconds"])
        return request["steps"]
    if what == "read":
        return sys.stdin.read() + os.read(0, 10).decode()
    if what == "not JSON":
        return object()
    if what == "threads":
        threads = [threading.Thread(target=_tell, args=(str(thread) * 5000,)) for thread in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return None
    if what == "environment":
        return os.environ.get(request["name"])
    print("said", request.get("text", ""))
    return {"calls": len(_calls), "pid": os.getpid(), "text": request.get("text", "")}


def _open_fds():
    return set(os.listdir("/proc/self/fd"))


def _gone(pid):
    return not pathlib.Path(f"/proc/{pid}").exists()


def test_run_answers_once_in_a_process_of_its_own():
    first, second = (child.run(TARGET, {"do": "answer", "text": text}) for text in "ab")
    assert first.result["calls"] == second.result["calls"] == 1
    assert first.result["pid"] != second.result["pid"] and first.log == "said a\n"


def test_a_worker_answers_many_calls_in_one_process_each_with_its_own_log():
    with child.worker(TARGET) as worker:
        outcomes = [worker.call({"do": "answer", "text": text * 70_000}) for text in "abc"]
    assert [one.result["calls"] for one in outcomes] == [1, 2, 3]
    assert len({one.result["pid"] for one in outcomes}) == 1
    assert [one.log for one in outcomes] == [f"said {text * 70_000}\n" for text in "abc"]
    assert _gone(outcomes[0].result["pid"])


@pytest.mark.parametrize(
    "what, kind",
    [("refuse", errors.UsageError), ("bug", child.ChildBug), ("leave", child.ChildBug), ("not JSON", child.ChildBug)],
)
def test_an_error_ends_the_call_and_not_the_worker(what, kind):
    with child.worker(TARGET) as worker:
        before = worker.call({"do": "answer"}).result["pid"]
        with pytest.raises(kind):
            worker.call({"do": what})
        assert worker.alive
        assert worker.call({"do": "answer"}).result == {"calls": 3, "pid": before, "text": ""}


def test_cuda_loads_kernels_when_they_are_called_unless_the_user_says_otherwise(monkeypatch):
    request = {"do": "environment", "name": "CUDA_MODULE_LOADING"}
    monkeypatch.delenv(request["name"], raising=False)
    assert child.run(TARGET, request).result == "LAZY"
    monkeypatch.setenv(request["name"], "EAGER")
    assert child.run(TARGET, request).result == "EAGER"


@pytest.mark.parametrize(
    ("faulty", "device", "hidden", "said", "value"),
    [
        (True, True, None, None, "0"),
        (True, True, "1", None, "0"),
        (True, True, "-1", None, None),
        (True, True, None, "1", "1"),
        (True, False, None, None, None),
        (False, True, None, None, None),
    ],
    ids=[
        "sees a GPU",
        "sees one of several",
        "GPUs are hidden",
        "the user says otherwise",
        "no GPU",
        "another release",
    ],
)
def test_onednn_is_off_where_tensorflow_gives_a_gpu_its_kernels(
    faulty, device, hidden, said, value, monkeypatch, tmp_path
):
    monkeypatch.setattr(environment, "faulty", lambda: faulty)
    monkeypatch.setattr(environment, "_DEVICES", (str(tmp_path if device else tmp_path / "gone"),))
    for name, text in {"CUDA_VISIBLE_DEVICES": hidden, environment.ONEDNN: said}.items():
        if text is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, text)
    assert child.run(TARGET, {"do": "environment", "name": environment.ONEDNN}).result == value


@pytest.mark.parametrize(
    ("version", "expected"), [("2.14.1", False), ("2.15.1", True), ("2.17.0", True), ("2.18.0", False), (None, False)]
)
def test_which_tensorflow_does_so(version, expected, monkeypatch):
    def of(name):
        if version is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(environment.importlib.metadata, "version", of)
    assert environment.faulty.__wrapped__() is expected


def test_progress_of_several_threads_comes_whole():
    said = []
    with progress.listening(lambda *what: said.append(what)):
        child.run(TARGET, {"do": "threads"})
    assert sorted(said) == sorted((str(thread) * 5000, number, 50) for thread in range(4) for number in range(50))


def test_an_abort_ends_the_worker_and_says_its_last_words():
    with child.worker(TARGET) as worker:
        worker.call({"do": "answer", "text": "earlier"})
        with pytest.raises(child.ChildDied) as death:
            worker.call({"do": "abort"})
        assert (
            death.value.signal_name == "SIGABRT"
            and "last words" in death.value.mend
            and "earlier" not in death.value.log
        )
        assert not worker.alive
        with pytest.raises(child.ChildDied, match="has ended"):
            worker.call({"do": "answer"})


def test_a_worker_that_dies_between_two_calls_is_told_at_the_next():
    with child.worker(TARGET) as worker:
        os.kill(worker.call({"do": "answer"}).result["pid"], signal.SIGSEGV)
        with pytest.raises(child.ChildDied, match="SIGSEGV"):
            worker.call({"do": "answer"})


def test_a_call_has_a_time_limit_and_the_calls_before_it_do_not_count():
    with child.worker(TARGET) as worker:
        worker.call({"do": "answer"}, timeout=60)
        with pytest.raises(child.ChildDied, match="SIGKILL") as death:
            worker.call({"do": "sleep"}, timeout=0.2)
    assert "longer than 0.2 s" in death.value.mend


def test_a_call_that_says_nothing_for_too_long_is_ended_and_one_that_goes_on_is_not():
    with child.worker(TARGET) as worker:
        # Its steps take longer together than one may.
        assert worker.call({"do": "steps", "steps": 6, "seconds": 0.2}, silence=child.Silence(60, 1.0)).result == 6
        with pytest.raises(child.ChildDied, match="it hangs: for 0.3 s no call came to an end") as death:
            worker.call({"do": "steps", "steps": 2, "seconds": 30}, silence=child.Silence(60, 0.3, "--timeout_seconds"))
    assert "a larger --timeout_seconds waits longer" in death.value.mend and death.value.exit_code == errors.EXIT_FAILED
    with child.worker(TARGET) as worker, pytest.raises(child.ChildDied, match="for 0.2 s"):
        worker.call({"do": "sleep"}, silence=child.Silence(0.2, 60))


def test_a_module_that_is_not_there_is_a_bug_with_its_traceback():
    with child.worker("tests.nowhere:work") as worker, pytest.raises(child.ChildBug, match="ModuleNotFoundError"):
        worker.call({})


def test_what_the_function_reads_from_stdin_is_nothing_and_never_the_next_request():
    with child.worker(TARGET) as worker:
        assert worker.call({"do": "read"}).result == ""
        assert worker.call({"do": "answer"}).result["calls"] == 2


def test_an_interrupted_call_ends_the_worker_since_its_answer_would_be_taken_for_the_next():
    def interrupt(*_said):
        raise KeyboardInterrupt

    with child.worker(TARGET) as worker:
        pid = worker.call({"do": "answer"}).result["pid"]
        with pytest.raises(KeyboardInterrupt), progress.listening(interrupt):
            worker.call({"do": "sleep"})
        assert not worker.alive and _gone(pid)


def test_ctrl_c_in_a_call_ends_the_child_too(tmp_path):
    code = (
        "import sys; from tftrt_tools.base.process import child, progress\n"
        f"with child.worker({TARGET!r}) as worker:\n"
        "  print(worker.call({'do': 'answer'}).result['pid'], flush=True)\n"
        "  with progress.listening(lambda *said: print(*said, flush=True)): worker.call({'do': 'sleep'})\n"
    )
    root = str(pathlib.Path(__file__).resolve().parents[3])
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": root},
    )
    pid = int(process.stdout.readline())
    assert process.stdout.readline().startswith("sleeping")
    process.send_signal(signal.SIGINT)
    assert "KeyboardInterrupt" in process.communicate(timeout=30)[1]
    assert _gone(pid)


@pytest.mark.parametrize("last", ["answer", "bug", "abort"])
def test_neither_files_nor_processes_are_left_over(last, tmp_path):
    before = _open_fds()
    with child.worker(TARGET, log_file=tmp_path / "log") as worker:
        pid = worker.call({"do": "answer"}).result["pid"]
        try:
            worker.call({"do": last})
        except (child.ChildBug, child.ChildDied):
            pass
    assert _open_fds() == before and _gone(pid)
    assert (tmp_path / "log").read_text().startswith("said")


def test_temporary_files_of_a_child_go_with_it():
    before = set(pathlib.Path(tempfile.gettempdir()).iterdir())
    with child.worker(TARGET) as worker:
        left = pathlib.Path(worker.call({"do": "temporary"}).result)
        assert left.is_file() and left.parent not in before
    assert not left.exists() and not [one for one in left.parents if "tftrt-scratch-child" in one.name and one.exists()]


def test_the_environment_is_set_for_all_calls():
    with child.worker("os:getenv", env={"TFTRT_SAMPLE": "1"}) as worker:
        assert [worker.call("TFTRT_SAMPLE").result, worker.call("TFTRT_ELSE").result] == ["1", None]
