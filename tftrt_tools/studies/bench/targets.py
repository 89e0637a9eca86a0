"""What is measured: a server, or the same runtime in a process of its own."""

from __future__ import annotations

import dataclasses
import math
import os
import pathlib
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tftrt_tools.base import errors
from tftrt_tools.base.stack import fingerprint
from tftrt_tools.models.execution import npz, run
from tftrt_tools.models.kinds.model import Model
from tftrt_tools.servers.client import Client, ModelSpec, ServingError, TritonClient, opened
from tftrt_tools.servers.load import function_load, generator, load_plan, payload
from tftrt_tools.servers.load.run_record import Records
from tftrt_tools.servers.load.several.conducting import Generators
from tftrt_tools.servers.serving.smoke import server_process
from tftrt_tools.studies.bench import in_process, measurements
from tftrt_tools.studies.bench.answers import Answer, Judge
from tftrt_tools.studies.bench.options import Options
from tftrt_tools.studies.bench.workload import Workload

# An expected answer that equals no answer, so that every answer is handed over and kept.
_UNKNOWN = b"\0"
# A server that fails now and then, or for a moment after too much load, is not gone.
_ATTEMPTS, _PAUSE_S = 3, 0.5
# A server has this many times its backlog for one more answer; longer than five minutes nobody waits.
_BACKLOGS, _LONGEST_S = 3, 300.0
_EMPTY_CALLS = load_plan.Plan(seconds=0.5, warm_up=load_plan.WarmUpRule(window_s=0.1, at_most_s=1.0), check_every=0)
# Takes the first answers, {index: answer}; gives the Judge of later answers, or None.
JudgeOf = Callable[[Mapping[int, Answer]], Judge | None]
OnProgress = Callable[[load_plan.Progress], None]


@dataclasses.dataclass(frozen=True)
class Sent:
    """payload: payload.Payload; without a server the calls that execution.run.named gives, as JSON takes them. rows: int [requests], rows
    of each. mean_bytes: of a request. answers: bytes of the server's first answers."""

    payload: Any
    rows: npt.NDArray[np.int64]
    mean_bytes: int
    answers: tuple[bytes, ...] = ()


def of_options(
    options: Options,
    client: Client | TritonClient | None,
    signature: str,
    folder: str | os.PathLike[str],
    model: Model | None,
    generators: Generators | None = None,
) -> list[Target]:
    """The targets that `options` name, the server first. Args: model: of --in_process. generators: that send the load from other
    machines, None for this one."""
    found: list[Target] = [Server(client, options, signature, generators)] if client else []
    return [*found, InProcess(model, folder, options.timeout)] if model else found


def gpus_are_here(address: str) -> bool:
    """Whether the measured model runs on the GPUs of this machine. Args: address: of client.Client, "" without a server."""
    return not address or address.startswith("unix:") or server_process.is_here(address.rpartition(":")[0].strip("[]"))


def client(options: Options) -> Client | TritonClient:
    """A client of the server that `options` name. Raises: UsageError."""
    return opened(options.address, timeout=options.timeout, tls=options.tls)


class Server:
    """A running server. Args: signature: name of the one that is asked. generators: that send the load, None for this machine."""

    name = measurements.SERVER

    def __init__(
        self, client: Client | TritonClient, options: Options, signature: str, generators: Generators | None = None
    ) -> None:
        self._generators = generators
        self._options, self._signature, self._protocol, self._client = options, signature, client.protocol, client
        self._answered = b""  # a request that was answered
        self._target = load_plan.Target(
            address=client.address,
            tls=load_plan.Tls.of(options.tls),
            timeout_s=options.timeout,
            channels=options.channels,
            unordered=client.protocol.unordered,
        )

    def prepare(self, load: Workload, judge_of: JudgeOf) -> Sent:
        """Make the requests of a workload, and send each once for its first answer.

        Args: load: workload.Workload. judge_of: function of [{output: ndarray}], the first answers, that gives an answers.Judge or None.
        Returns: Sent. Raises: TftrtError where the server answers none of them; CheckFailed where the answers are wrong.
        """
        options, protocol = self._options, self._protocol
        requests = tuple(map(self.encoded, load.calls))
        rows, mean = np.array([call.rows for call in load.calls]), round(sum(map(len, requests)) / len(requests))
        first: dict[int, bytes] = {}
        asked = payload.Payload(
            protocol.path,
            requests,
            (_UNKNOWN,) * len(requests),
            lambda index, answer: "" if first.setdefault(index, answer) else "",
        )
        # One by one: in a server with batching one bad request makes its whole batch fail.
        plan = load_plan.Plan(
            kind="offline",
            concurrency=1,
            seconds=0.001,
            max_queries=len(requests),
            warm_up=None,
            check_every=1,
            judge_all=True,
            max_seconds=len(requests) * options.timeout,
        )
        records = generator.run(self._target, asked, plan)
        if records.partial:
            raise KeyboardInterrupt if records.partial == "interrupted" else errors.TftrtError(records.partial)
        if not records.ok.any():
            failed = next(iter(records.errors.values()))
            why = " ".join([f"{failed.name}:", *" ".join(failed.messages[:1]).split()])
            raise errors.TftrtError(
                f"{self._target.address} answered none of {len(requests)} requests: {why}",
                "fix the requests (--shapes, --data, --signature_keys) or the server",
            )
        self._answered = requests[next(iter(first), 0)]
        known = {index: self.read(answer) for index, answer in first.items()}
        judge = judge_of(known)
        if judge is None:
            return Sent(payload.Payload(protocol.path, requests), rows, mean, tuple(first.values()))
        expected = tuple(first.get(index) for index in range(len(requests)))
        return Sent(
            payload.Payload(protocol.path, requests, expected, lambda index, answer: judge.problem(index, answer)),
            rows,
            mean,
            tuple(first.values()),
        )

    def encoded(self, call: run.Call) -> bytes:
        """The request of a call."""
        options = self._options
        result: bytes = self._protocol.request_bytes(
            options.model_name, call.inputs, self._signature, options.model_version, options.version_label
        )
        return result

    def read(self, answer: bytes) -> dict[str, npt.NDArray[Any]]:
        """{output: ndarray} of an answer's bytes. Raises: ValueError."""
        result: dict[str, npt.NDArray[Any]] = self._protocol.response_arrays(answer)[1]
        return result

    def empty_call_seconds(self) -> float:
        """Mean seconds of a call that moves next to nothing and runs no model, one at a time. Raises: TftrtError where none is answered."""
        options = self._options
        path, asked = self._protocol.empty_call(ModelSpec(options.model_name, options.model_version))
        records = generator.run(self._target, payload.Payload(path, (asked,)), _EMPTY_CALLS)
        if not records.ok.any():
            raise errors.TftrtError(
                f"{self._target.address} does not answer {path}", f"is it a {self._protocol.server}?"
            )
        return float(records.service_ns.mean()) / 1e9

    def patience(self, backlog: float) -> float:
        """Seconds that one more request may take. Args: backlog: seconds of work that the server may have left."""
        work = math.ceil(10 * _BACKLOGS * backlog) / 10
        return max(self._options.timeout, work if work <= _LONGEST_S else 0.0)

    def silence(self, backlog: float) -> tuple[str, bool]:
        """(why a request that was answered before is answered no more, without any load beside it, "" where it is; whether the server may
        only be busy with what it was sent).

        Time tells a hang from a backlog. One more request may take three times the backlog, and the timeout at least. If it has no answer
        by then, the model hangs. A server that says DEADLINE_EXCEEDED sooner is at work. Where three times the backlog is more than five
        minutes, nobody can tell: it may be busy.

        Args: backlog: as for `patience`.
        """
        why, seconds = "", self.patience(backlog)
        for attempt in range(_ATTEMPTS):
            if attempt:
                time.sleep(_PAUSE_S)
            begun = time.monotonic()
            try:
                self._client.predict_bytes(self._answered, timeout=seconds)
            except ServingError as error:
                why = error.cause
                if error.code == "DEADLINE_EXCEEDED":
                    waited = time.monotonic() - begun > 0.9 * seconds
                    if not self._is_there():
                        return why, False
                    if waited and _BACKLOGS * backlog <= seconds:
                        return (
                            f"{why}, though it tells its model's state: the model hangs; fix it, and restart the server",
                            False,
                        )
                    return why, True
            else:
                return "", True
        return why, False

    def _is_there(self) -> bool:
        try:
            self._client.status(self._options.model_name)
        except errors.TftrtError:
            return False
        return True

    def run(self, sent: Sent, plan: load_plan.Plan, on_progress: OnProgress) -> Records:
        """run_record.Records of a load_plan.Plan. Raises: TftrtError."""
        if self._generators:
            return self._generators.run(self._target, sent.payload, plan, on_progress)
        return generator.run(self._target, sent.payload, plan, on_progress)


class InProcess:
    """The model in a child process of its own for each point, without a server.

    Args: folder: for files that parent and child exchange. timeout: seconds of a call; one that takes longer
      hangs.
    """

    name = measurements.IN_PROCESS

    def __init__(self, model: Model, folder: str | os.PathLike[str], timeout: float = 60.0) -> None:
        self._model, self._folder, self._timeout = model, pathlib.Path(folder), timeout
        self._judge_of: JudgeOf | None = None
        self._prepared = 0

    def prepare(self, load: Workload, judge_of: JudgeOf) -> Sent:
        """As Server.prepare. The first answers are judged just before the load of the first point, when the model is loaded; later ones
        are not compared."""
        self._prepared += 1
        self._judge_of = judge_of
        saved = run.save_calls(load.calls, self._folder / f"calls-{self._prepared}")
        rows = np.array([call.rows for call in load.calls])
        size = round(sum(array.nbytes for call in load.calls for array in call.inputs.values()) / len(load.calls))
        return Sent(tuple(run.named(saved)), rows, size)

    def run(self, sent: Sent, plan: load_plan.Plan, on_progress: OnProgress) -> Records:
        """run_record.Records of a load_plan.Plan. Raises: TftrtError, child.ChildDied; CheckFailed where the first answers are wrong."""
        folder = self._folder / f"answers-{self._prepared}"
        folder.mkdir(exist_ok=True)
        request = run.LoadRequest(
            model=self._model.path, calls=sent.payload, answers=str(folder) if self._judge_of else ""
        )
        return function_load.run(
            in_process.maker(self._model.kind.runtime),
            request,
            plan,
            on_progress=on_progress,
            on_ready=lambda: self._judge(folder),
            name=f"{self._model.title} in process",
            call_s=self._timeout,
            first_s=self._first_seconds(),
        )

    def _first_seconds(self) -> float:
        """Of each first call: on a GPU it may build engines, which takes minutes."""
        return max(self._timeout, function_load.LOAD_SECONDS) if fingerprint.fingerprint().gpus else self._timeout

    def _judge(self, folder: pathlib.Path) -> None:
        if self._judge_of:
            judge_of, self._judge_of = self._judge_of, None
            judge_of({int(path.stem): npz.load(path) for path in folder.glob("*.npz")})


Target = Server | InProcess
