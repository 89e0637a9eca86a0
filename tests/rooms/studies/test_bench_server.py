"""`tftrt bench` against the development server, and against a proxy before it that fails and lies as a test programs it."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import types
from concurrent import futures

import grpc
import numpy as np
import pytest

from tests.conformance import models as conformance
from tests.conformance.launch import LocalServer
from tests.conftest import ROOT
from tests.mock_server import MODEL, MockServer
from tests.pages import quoted, unprinted
from tests.serving_models import eventually
from tftrt_tools.base import errors
from tftrt_tools.command_line.commands import _flags
from tftrt_tools.command_line.commands import bench as command
from tftrt_tools.servers.client import PREDICT, ServingError, protocols, request_bytes
from tftrt_tools.studies.bench import answers, breakdown, measure, server_metrics, targets

QUICK = ("--duration_seconds=0.4", "--warmup_seconds=0")
FIRST_ANSWERS = 16  # the default of --distinct
BATCHING = (
    "max_batch_size { value: 4 } batch_timeout_micros { value: 2000 } allowed_batch_sizes: 2 allowed_batch_sizes: 4"
)


class Proxy:
    """Forwards every call to a server. answer: function (number of the Predict call from 1, answer) -> answer, or (gRPC code, message).

    hold(until): from then on answers wait, two seconds at most, until that many Predict calls have been under way together once. The first
    answers, which are asked for one after the other, do not wait.
    """

    def __init__(self, address):
        self._hold_from, self._hold_until, self._inside, self._met = 0, 0, 0, threading.Condition()
        self.answer, self.number, self._lock = (lambda number, answer: answer), 0, threading.Lock()
        self._channel = grpc.insecure_channel(address)
        self._server = grpc.server(futures.ThreadPoolExecutor(8), (self,))
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def hold(self, until):
        self._hold_from, self._hold_until = self.number + FIRST_ANSWERS, until

    def service(self, details):
        return grpc.unary_unary_rpc_method_handler(
            lambda request, context: self._forward(details.method, request, context)
        )

    def _forward(self, method, request, context):
        answer = self._channel.unary_unary(method)(request)
        if method != PREDICT:
            return answer
        if self.number >= self._hold_from:
            self._wait_for_others()
        with self._lock:
            self.number += 1
            answer = self.answer(self.number, answer)
        if isinstance(answer, tuple):
            context.abort(*answer)
        return answer

    def _wait_for_others(self):
        with self._met:
            self._inside += 1
            if self._inside >= self._hold_until:
                self._hold_until = 0
                self._met.notify_all()
            self._met.wait_for(lambda: not self._hold_until, timeout=2)
            self._inside -= 1

    def stop(self):
        self._server.stop(None)
        self._channel.close()


@pytest.fixture(scope="module")
def server(zoo_model, tmp_path_factory):
    """A running development server with batching and its metrics page: digits, fragile."""
    folder = tmp_path_factory.mktemp("bench")
    (folder / "models" / "digits").mkdir(parents=True)
    (folder / "models" / "digits" / "1").symlink_to(zoo_model("digits_cnn"))
    conformance.fragile(folder / "models" / "fragile" / "1")
    listed = "".join(
        f'config {{ name: "{name}" base_path: "{folder / "models" / name}" model_platform: "tensorflow" }} '
        for name in ("digits", "fragile")
    )
    (folder / "models.config").write_text(f"model_config_list {{ {listed} }}")
    (folder / "batching").write_text(BATCHING)
    (folder / "monitoring").write_text("prometheus_config { enable: true }")
    flags = (
        f"--model_config_file={folder / 'models.config'}",
        "--enable_batching",
        f"--batching_parameters_file={folder / 'batching'}",
        f"--monitoring_config_file={folder / 'monitoring'}",
        "--grpc_max_threads=256",
    )  # a stall on a busy machine refuses nothing
    with LocalServer(flags, folder / "log") as running:
        running.model = zoo_model("digits_cnn")
        yield running
        running.stop()


@pytest.fixture
def proxy(server):
    one = Proxy(server.grpc_address)
    yield one
    one.stop()


@pytest.fixture
def bench(tmp_path):
    """A function (address or "", *flags) -> (exit code, the JSON)."""

    def run(address, *flags):
        path = tmp_path / "bench.json"
        path.unlink(missing_ok=True)
        values, positional = _flags.parse(
            "bench", command, [*filter(None, [address]), *QUICK, f"--json={path}", *flags]
        )
        code = command.run(values, positional)
        return code, json.loads(path.read_text())

    return run


def test_a_sweep_leaves_table_csv_requests_and_report(server, bench, tmp_path, capsys):
    code, found = bench(
        server.grpc_address,
        "--model_name=digits",
        "--concurrency=1,2",
        "--batch_size=1,3",
        f"--rest={server.rest_address}",
        f"--model_dir={server.model}",
        f"--csv={tmp_path / 'p.csv'}",
        f"--requests_csv={tmp_path / 'r.csv'}",
        f"--html={tmp_path / 'b.html'}",
        f"--hdr={tmp_path / 'b.hdr'}",
    )
    assert code == 0 and found["complete"] and found["subject"]["model_version"] == 1
    assert (
        found["subject"]["model_digest"].startswith("sha256:")
        and found["machine"]["digest"]
        and found["versions"]["grpcio"]
    )
    sizes = [
        len(request_bytes("digits", {"image": np.zeros((batch, 8, 8, 1), np.float32)}, "serving_default"))
        for batch in (1, 3)
    ]
    assert found["subject"]["request_bytes"] == sum(sizes) / 2
    rows = found["rows"]
    assert [(row["point"]["batch_size"], row["point"]["concurrency"]) for row in rows] == [
        (1, 1),
        (1, 2),
        (3, 1),
        (3, 2),
    ]
    for row in rows:
        assert row["answered"] == row["requests"] > 0 and not row["wrong"]
        assert row["server"]["requests"]["OK"] == pytest.approx(row["requests"], abs=0.3 * row["requests"] + 10)
        assert row["server"]["request_ms"] > 0 and set(row["server"]["batches"]) <= {"<4", "<8"}, (
            "one row is padded to two, three to four"
        )
        assert row["rows_per_second"] == pytest.approx(row["throughput"] * row["point"]["batch_size"])
    with open(tmp_path / "p.csv") as text:
        assert [int(row["requests"]) for row in csv.DictReader(text)] == [row["requests"] for row in rows]
    with open(tmp_path / "r.csv") as text:
        assert sum(1 for _ in csv.DictReader(text)) == sum(row["requests"] for row in rows)
    assert [line[:6] for line in (tmp_path / "b.hdr").read_text().splitlines() if line[:3] == "Tag"] == [
        f"Tag={one}," for one in (1, 2, 3, 4)
    ]
    page = (tmp_path / "b.html").read_text()
    told = re.findall(r"<li>(.*?)</li>", page.partition('<ol class="footnotes">')[2].partition("</ol>")[0])
    assert len(told) == len(set(told)), "a remark is told once"
    assert page.count("<svg") >= 2 and "What the server saw" in page and "needs 6636" in page
    assert not re.search(r'(src|href)="(?!#)', page), "it needs nothing else"
    shown = capsys.readouterr()
    assert "4/4" in shown.err and "needs 6636" in shown.out and "the server counted" in shown.out


@pytest.mark.parametrize(
    "flags", [("--warmup_seconds=0",), ("--warmup_seconds=0.5",), ("--scenario=open", "--rate=40")]
)
def test_a_short_run_s_counters_are_read_before_it_begins(server, bench, monkeypatch, flags):
    read, phases = [], []
    fetch, progress = server_metrics.fetch, measure._Meanwhile.progress
    monkeypatch.setattr(server_metrics, "fetch", lambda url: (read.append(list(phases)), fetch(url))[1])
    monkeypatch.setattr(
        measure._Meanwhile, "progress", lambda self, moment: (phases.append(moment.phase), progress(self, moment))[1]
    )
    code, found = bench(
        server.grpc_address, "--model_name=digits", "--duration_seconds=0.1", f"--rest={server.rest_address}", *flags
    )
    (row,) = found["rows"]
    assert code == 0 and read[1][-1] == "start" and "measure" not in read[1]
    assert row["server"]["requests"]["OK"] >= row["requests"], "and what was sent until it stopped"


def test_without_a_server_and_what_serving_costs(server, bench, capsys):
    code, found = bench(server.grpc_address, "--model_name=digits", f"--in_process={server.model}", "--min_queries=20")
    assert code == 0 and [row["target"] for row in found["rows"]] == ["server", "in process"]
    (price,) = found["prices"]
    assert (
        price["added_ms"] == pytest.approx(price["server_ms"] - price["in_process_ms"])
        and price["in_process_throughput"] > 0
    )
    assert found["rows"][1]["server"] is None
    assert not unprinted(
        quoted("tftrt bench localhost:8500 --model_name=digits --concurrency"),
        capsys.readouterr().out.replace(server.grpc_address, "localhost:8500"),
    )


def test_where_the_time_goes(server, bench, tmp_path, capsys):
    code, found = bench(
        server.grpc_address,
        "--model_name=digits",
        "--breakdown",
        f"--rest={server.rest_address}",
        f"--model_dir={server.model}",
        "--concurrency=1,2",
        f"--plot={tmp_path / 'time.png'}",
        f"--html={tmp_path / 'time.html'}",
    )
    said = capsys.readouterr().out
    assert code == 0 and [one["point"] for one in found["breakdowns"]] == [row["point"] for row in found["rows"]]
    assert not unprinted(quoted("tftrt bench localhost:8500 --model_name=digits --breakdown"), said)
    for taken, row in zip(found["breakdowns"], found["rows"], strict=True):
        parts = {part["name"]: part["ms"] for part in taken["parts"]}
        assert sum(parts.values()) == pytest.approx(taken["total_ms"]) and min(parts.values()) >= 0
        assert taken["total_ms"] == pytest.approx(
            row["service"]["mean_ms"] + parts[breakdown.ENCODING] + parts[breakdown.READING]
        )
        assert (
            parts[breakdown.MESSAGES] == pytest.approx(row["server"]["request_ms"] - row["server"]["runtime_ms"])
            and parts[breakdown.MESSAGES] > 0
        )
        assert parts[breakdown.QUEUE] > 0 and parts[breakdown.OPS] > 0 and breakdown.ENGINES not in parts
    assert (tmp_path / "time.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "time.html").read_text()
    assert "Where the time of a request goes" in page and breakdown.REST.replace("'", "&#39;") in page


def test_a_breakdown_says_what_it_lacks(server, bench, zoo_model, tmp_path):
    base = (server.grpc_address, "--model_name=digits", "--breakdown")
    served, files = f"--rest={server.rest_address}", f"--model_dir={server.model}"
    for flags, cause in (
        ((files,), "needs the server's counters"),
        ((served,), "its files are not named"),
        ((served, files, "--scenario=open", "--slo=p99<1s"), "does not go with a search"),
        ((served, files, f"--plot={tmp_path / 'time.gif'}"), "of no known kind"),
        ((served, "--model_dir=/nowhere"), "no such file"),
        ((served, f"--model_dir={zoo_model('ranker')}"), "is another model than 'digits'"),
    ):
        with pytest.raises(errors.UsageError, match=re.escape(cause)) as raised:
            bench(*base, *flags)
        assert raised.value.mend and "\n" not in raised.value.cause
    with pytest.raises(errors.UsageError, match="no server is named"):
        bench("", f"--in_process={server.model}", "--breakdown", served)
    with pytest.raises(errors.UsageError, match="--plot needs --breakdown"):
        bench(server.grpc_address, "--model_name=digits", f"--plot={tmp_path / 'time.png'}")
    with pytest.raises(errors.TftrtError, match="has no metrics: HTTP 404") as raised:
        bench(*base, files, f"--metrics_url=http://{server.rest_address}/nothing")
    assert "--monitoring_config_file" in raised.value.mend


@pytest.mark.slow
def test_in_process_alone_needs_no_address(server, bench):
    code, found = bench("", f"--in_process={server.model}", "--scenario=offline", "--min_queries=50")
    (row,) = found["rows"]
    assert code == 0 and (row["target"], row["answered"], found["subject"]["address"]) == ("in process", 50, "")


def test_the_open_loop_sends_what_was_asked_for(server, bench, tmp_path, capsys):
    code, found = bench(
        server.grpc_address,
        "--model_name=digits",
        "--scenario=open",
        "--rate=50,100",
        "--distribution=poisson",
        "--seed=3",
    )
    assert code == 0 and [row["point"]["rate"] for row in found["rows"]] == [50.0, 100.0]
    assert "50/s for 0.4 s are 20 requests, and p99 needs 662: --duration_seconds=14" in capsys.readouterr().err
    (tmp_path / "schedule").write_text("\n".join(str(0.01 * number) for number in range(20)))
    code, found = bench(
        server.grpc_address, "--model_name=digits", "--scenario=open", f"--schedule_file={tmp_path / 'schedule'}"
    )
    (row,) = found["rows"]
    assert code == 0 and row["requests"] == 20 and row["point"]["distribution"] == "schedule file"


def test_a_goal_that_is_missed_is_an_exit_code(server, bench, capsys):
    assert bench(server.grpc_address, "--model_name=digits", "--slo=p50<30s", "--min_queries=20")[0] == 0
    code, found = bench(server.grpc_address, "--model_name=digits", "--slo=p50<1us", "--min_queries=20")
    assert code == 3 and "p50<1us is" in found["problems"][0] and found["rows"][0]["kept"] is False
    code, found = bench(server.grpc_address, "--model_name=digits", "--scenario=open", "--rate=50", "--slo=p99<30s")
    assert (
        code == 3
        and found["rows"][0]["kept"] is None
        and "p99<30s is not known: 20 requests were answered" in found["problems"][0]
    ), "what is not shown is not kept"
    assert "FAILED" in capsys.readouterr().out


def test_the_highest_rate_is_searched_and_every_probe_kept(bench):
    with MockServer(null=True) as null:
        flags = (f"--model_name={MODEL}", "--scenario=open")
        code, found = bench(null.address, *flags, "--slo=p50<30s", "--highest_rate=300", "--lowest_rate=100")
        assert code == 0 and [row["point"]["rate"] for row in found["rows"]] == [100.0, 200.0, 300.0]
        assert found["searched"][0]["rate"] == 300 and all(row["kept"] and row["probe"] for row in found["rows"])
        code, found = bench(null.address, *flags, "--slo=p50<1us", "--lowest_rate=100")
        assert code == 3 and found["searched"][0]["rate"] is None and "100/s, does not keep it" in found["problems"][0]


def test_failed_requests_are_counted_and_can_be_required_not_to_be(server, bench, tmp_path):
    np.savez(tmp_path / "data.npz", index=np.array([0, 1, 7, 2], np.int32))
    flags = ("--model_name=fragile", f"--data={tmp_path / 'data.npz'}", "--min_queries=40")
    code, found = bench(server.grpc_address, *flags)
    (row,) = found["rows"]
    assert code == 0 and row["failed"] and row["answered"] and row["errors"][0]["code"] == "INVALID_ARGUMENT"
    assert "7 is not in [0, 3)" in row["errors"][0]["message"]
    code, found = bench(server.grpc_address, *flags, "--require_no_errors")
    assert code == 3 and "requests failed" in found["problems"][0]
    np.savez(tmp_path / "data.npz", index=np.array([7], np.int32))
    with pytest.raises(errors.TftrtError, match="answered none of 1 requests: INVALID_ARGUMENT") as raised:
        bench(server.grpc_address, *flags)
    assert raised.value.exit_code == 1


def test_answers_that_are_another_request_s_are_wrong(proxy, bench):
    seen = []

    def mixed(number, answer):
        seen.append(answer)
        return seen[0] if number > 100 else answer

    proxy.answer = mixed
    code, found = bench(proxy.address, "--model_name=digits", "--concurrency=4", "--min_queries=400")
    (row,) = found["rows"]
    assert code == 3 and row["wrong"] and row["checked"] > row["wrong"] and "answers are wrong" in found["problems"][0]
    assert any("a wrong answer to request" in note for note in row["notes"])


def test_first_answers_unlike_the_original_s_are_not_measured(proxy, server, bench):
    first = []
    proxy.answer = lambda number, answer: first.append(answer) or first[0]
    with pytest.raises(errors.CheckFailed, match="not like the original's"):
        bench(proxy.address, "--model_name=digits", f"--original={server.model}")


def test_every_first_answer_is_known_however_many_there_are(bench, monkeypatch):
    known = []
    monkeypatch.setattr(answers, "Judge", lambda calls, first, *rest: known.append(len(first)))
    with MockServer(null=True) as null:
        code, found = bench(null.address, f"--model_name={MODEL}", "--distinct=300")
    assert code == 0 and known == [300]


def test_first_answers_in_process_are_judged_before_the_load_and_the_server_s_rows_stay(
    server, bench, monkeypatch, tmp_path
):
    judged, loads = [], []

    def check(judge, first):
        judged.append(len(first))
        if len(judged) == 2:
            raise errors.CheckFailed("the answers are not like the original's")

    monkeypatch.setattr(answers, "check_first", check)
    progress = measure._Meanwhile.progress
    monkeypatch.setattr(
        measure._Meanwhile, "progress", lambda self, moment: (loads.append(len(judged)), progress(self, moment))[1]
    )
    code, found = bench(
        server.grpc_address, "--model_name=digits", f"--original={server.model}", f"--in_process={server.model}"
    )
    assert judged == [16, 16] and set(loads) == {1}, "nothing was asked after the second judgement"
    assert code == 3 and [row["target"] for row in found["rows"]] == ["server"] and found["rows"][0]["answered"]
    assert found["problems"] == ["the answers are not like the original's"] and not found["complete"]


def test_a_server_that_goes_away_leaves_what_was_measured(proxy, bench):
    def gone(number, answer):
        return (grpc.StatusCode.UNAVAILABLE, "shutting down") if number > 60 else answer

    proxy.answer = gone
    code, found = bench(
        proxy.address, "--model_name=digits", "--concurrency=1,2", "--expected=none", "--min_queries=80"
    )
    assert found["rows"][0]["errors"][0]["code"] == "UNAVAILABLE" and found["rows"][1]["answered"] == 0
    assert code == 1 and not found["complete"] and found["ended"].endswith("says UNAVAILABLE: shutting down")
    with pytest.raises(errors.TftrtError, match="answered none of 16 requests: UNAVAILABLE: shutting down"):
        bench(proxy.address, "--model_name=digits")
    proxy.stop()
    with pytest.raises(errors.TftrtError, match="no server at"):
        bench(proxy.address, "--model_name=digits")


def test_a_server_that_dies_in_the_last_row_makes_it_incomplete(proxy, bench, capsys):
    def dies(number, answer):
        if number == 60:
            threading.Thread(target=proxy.stop).start()
        return answer

    proxy.answer = dies
    code, found = bench(proxy.address, "--model_name=digits", "--concurrency=2", "--min_queries=120", "--slo=p50<60s")
    assert code == errors.EXIT_FAILED and not found["complete"] and found["rows"][0]["answered"] >= 40
    assert "the server answered no more for the last" in found["ended"] and "no server at" in found["ended"]
    assert "NOT COMPLETE: the server answered no more" in capsys.readouterr().out


@pytest.mark.parametrize(
    "code", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED], ids=lambda code: code.name
)
def test_a_server_that_is_only_overloaded_is_not_gone(proxy, bench, code):
    """The last requests fail; the same request is answered again as soon as the load is over."""
    proxy.answer = lambda number, answer: (code, "too much") if 60 < number <= 96 else answer
    ended, found = bench(
        proxy.address,
        "--model_name=digits",
        "--scenario=offline",
        "--concurrency=2",
        "--min_queries=80",
        "--expected=none",
    )
    assert ended == 0 and found["complete"] and found["rows"][0]["errors"][0]["count"] == 36


def test_a_server_that_is_still_busy_after_the_load_is_not_gone(proxy, bench, capsys):
    """Requests wait behind those that nobody waits for any more; the state of the model is told at once."""
    proxy.answer = lambda number, answer: (grpc.StatusCode.DEADLINE_EXCEEDED, "too much") if number > 60 else answer
    ended, found = bench(
        proxy.address,
        "--model_name=digits",
        "--scenario=offline",
        "--concurrency=2",
        "--min_queries=80",
        "--expected=none",
    )
    assert (
        ended == 0 and found["complete"] and "it has too much to do, or the model hangs" in "".join(capsys.readouterr())
    )


def test_a_model_that_hangs_makes_it_incomplete(proxy, bench, capsys):
    over = threading.Event()
    proxy.answer = lambda number, answer: answer if number <= FIRST_ANSWERS + 4 else over.wait(30) and answer
    try:
        ended, found = bench(proxy.address, "--model_name=digits", "--timeout_seconds=0.3", "--expected=none")
    finally:
        over.set()
    assert (
        ended == errors.EXIT_FAILED
        and not found["complete"]
        and found["rows"][0]["answered"]
        and "the model hangs" in found["ended"]
    )
    (said,) = (line for line in capsys.readouterr().out.splitlines() if "NOT COMPLETE" in line)
    assert "the server answered no more for the last" in said and found["ended"].endswith(
        "fix it, and restart the server"
    )


def test_a_backlog_is_awaited(proxy, bench, capsys):
    """Each request takes 50 ms, one at a time, and nobody waits for the later ones; so what comes after the load takes longer than a request may."""

    def slow(number, answer):
        time.sleep(0.05 * (number > FIRST_ANSWERS))
        return answer

    proxy.answer = slow
    ended, found = bench(
        proxy.address,
        "--model_name=digits",
        "--timeout_seconds=0.25",
        "--scenario=offline",
        "--concurrency=8",
        "--min_queries=48",
        "--expected=none",
    )
    shown = "".join(capsys.readouterr())
    assert (
        ended == 0
        and found["complete"]
        and found["rows"][0]["failed"]
        and "one more request may take" in shown
        and "hangs" not in shown
    )


@pytest.mark.parametrize("backlog, seconds, busy", [(0, 0.1, False), (0.05, 0.2, False), (1000, 0.1, True)])
def test_time_tells_a_hang_from_a_backlog(backlog, seconds, busy):
    asked = []

    class Hanging:
        protocol, address = protocols.TENSORFLOW_SERVING, "x:1"

        def predict_bytes(self, request, timeout):
            asked.append(timeout)
            time.sleep(timeout)
            raise ServingError("DEADLINE_EXCEEDED", "", "no answer")

        def status(self, model):
            pass

    server = targets.Server(Hanging(), types.SimpleNamespace(timeout=0.1, tls=None, channels=1, model_name="m"), "s")
    why, maybe = server.silence(backlog)
    assert (
        maybe is busy
        and why.startswith("no answer")
        and ("hangs" in why) is not busy
        and asked == [pytest.approx(seconds)]
    )


def test_a_server_that_refuses_for_a_moment_after_the_load_is_not_gone(proxy, bench):
    refused = []

    def busy(number, answer):
        if number <= 60 or refused and time.monotonic() > refused[0] + 0.4:
            return answer
        refused.append(time.monotonic())
        return grpc.StatusCode.RESOURCE_EXHAUSTED, "too much"

    proxy.answer = busy
    ended, found = bench(
        proxy.address,
        "--model_name=digits",
        "--scenario=offline",
        "--concurrency=2",
        "--min_queries=80",
        "--expected=none",
    )
    assert ended == 0 and found["complete"] and found["rows"][0]["errors"]


def test_answers_whose_entries_come_in_another_order_are_all_compared(proxy, bench):
    """As the real server writes the map of outputs."""

    def flipped(number, answer):
        first = 2 + answer[1]  # two fields, with sizes of one byte: an output and the version that answered
        return answer[first:] + answer[:first] if number % 2 else answer

    proxy.answer = flipped
    code, found = bench(proxy.address, "--model_name=digits", "--min_queries=6000", "--concurrency=4", "--slo=p99<60s")
    (row,) = found["rows"]
    assert code == 0 and row["unjudged"] == row["wrong"] == 0 and row["checked"] > 300
    assert found["subject"]["compared"] == "a sample was compared with the first answer to the same request"


def test_no_verdict_is_green_where_some_requests_fail(proxy, bench, capsys):
    proxy.answer = lambda number, answer: (
        (grpc.StatusCode.INTERNAL, "a slip") if number > 40 and number % 25 == 0 else answer
    )
    for flags in (
        ("--slo=p50<60s",),
        ("--slo=p50<60s", "--scenario=open", "--rate=200"),
        ("--require_no_errors",),
        ("--slo=p50<60s", "--scenario=open", "--lowest_rate=200", "--highest_rate=200"),
    ):
        code, found = bench(proxy.address, "--model_name=digits", "--min_queries=200", *flags)
        said = capsys.readouterr().out
        assert code == 3 and found["problems"] and "FAILED" in said and "PASSED" not in said, flags
        assert all(row["kept"] is not True for row in found["rows"] if row["failed"]) and not any(
            one["rate"] for one in found["searched"]
        )
    # What may fail by the promise does not miss it.
    code, _ = bench(proxy.address, "--model_name=digits", "--min_queries=400", "--slo=p50<60s,errors<=20%")
    assert code == 0


def test_a_concurrency_that_is_not_reached_is_told(proxy, bench):
    proxy.hold(4)
    _, found = bench(proxy.address, "--model_name=digits", "--scenario=offline", "--concurrency=16", "--min_queries=4")
    assert (
        "no more than 4 requests were under way at once: the concurrency was not reached" in found["rows"][0]["notes"]
    )
    proxy.hold(4)
    _, found = bench(proxy.address, "--model_name=digits", "--concurrency=4", "--min_queries=20")
    assert not any("under way" in note for note in found["rows"][0]["notes"])


@pytest.mark.parametrize(
    "flags, says",
    [
        (("--model_name=nope",), "command line names|does not list"),
        (("--model_name=digits", "--model_version=9"), "version 1 AVAILABLE"),
        (("--model_name=digits", "--version_label=x"), "version 1 AVAILABLE"),
    ],
)
def test_what_the_server_does_not_know_is_told_with_what_it_knows(server, bench, flags, says):
    with pytest.raises(errors.UsageError) as raised:
        bench(server.grpc_address, *flags)
    assert re.search(says, raised.value.mend), raised.value.mend


@pytest.mark.parametrize(
    "flags",
    [
        ("--scenario=open",),
        ("--slo=p99",),
        ("--lowest_rate=5",),
        ("--thresholds=snr_db>=3",),
        ("--model_dir=/none",),
        ("--rest=x",),
        ("--signature_keys=none",),
        ("--csv=/none/x.csv",),
        ("--scenario=open", "--slo=p99<1s", "--lowest_rate=9", "--highest_rate=1"),
        ("--shapes=image:1x9x8x1",),
    ],
)
def test_bad_flags_are_refused_before_anything_is_sent(server, bench, flags):
    with pytest.raises(errors.UsageError) as raised:
        bench(server.grpc_address, "--model_name=digits", *flags)
    assert raised.value.mend


@pytest.mark.parametrize("flag", ["in_process", "model_dir", "original"])
def test_a_directory_of_another_model_is_refused_before_anything_is_sent(server, bench, zoo_model, flag):
    with pytest.raises(
        errors.UsageError, match=f"--{flag}=.* is another model than 'digits', which is served: "
    ) as raised:
        bench(server.grpc_address, "--model_name=digits", f"--{flag}={zoo_model('ranker')}")
    assert "published from" in raised.value.mend


def test_a_page_without_metrics_is_told_before_the_work(server, bench):
    with pytest.raises(errors.TftrtError, match="does not answer|no metrics"):
        bench(server.grpc_address, "--model_name=digits", f"--metrics_url=http://{server.rest_address}/none")
    with pytest.raises(errors.TftrtError, match="it speaks no HTTP/1.1$"):
        bench(server.grpc_address, "--model_name=digits", f"--rest={server.grpc_address}")


def test_an_interrupt_writes_what_was_measured_and_says_so(proxy, tmp_path):
    code = (
        f"import sys; from tftrt_tools.command_line import cli; cli.COMMANDS['bench'] = ''; sys.exit(cli.main(['bench', {proxy.address!r}, "
        f"'--model_name=digits', '--warmup_seconds=0', '--concurrency=1,2', '--duration_seconds=3', '--json={tmp_path / 'b.json'}', "
        f"'--requests_csv={tmp_path / 'r.csv'}', '--html={tmp_path / 'b.html'}']))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    lines = iter(process.stderr.readline, "")
    assert any(line.startswith("2/2") for line in lines)
    answered = proxy.number
    eventually(lambda: proxy.number > answered + 2)  # in the second point, which takes three seconds
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1 and "NOT COMPLETE: interrupted" in out and "Traceback" not in err
    found = json.loads((tmp_path / "b.json").read_text())
    assert not found["complete"] and found["ended"] == "interrupted"
    assert [row["complete"] for row in found["rows"]] == [True, False]
    assert "Not complete" in (tmp_path / "b.html").read_text()
    assert (tmp_path / "r.csv.partial").exists() and not (tmp_path / "r.csv").exists()
