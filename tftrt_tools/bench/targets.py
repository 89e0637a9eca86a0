"""What is measured: a server, or the same runtime in a process of its own."""

import dataclasses
import pathlib

import numpy as np

from tftrt_tools import client as clients
from tftrt_tools import errors
from tftrt_tools.bench import result
from tftrt_tools.execution import npz, run
from tftrt_tools.load import generator, in_process, payload
from tftrt_tools.serving.smoke import process
from tftrt_tools.sources.opened import opened as opened_model

# An expected answer that none is equal to, so that each is handed over to be kept.
_UNKNOWN = b"\0"


@dataclasses.dataclass(frozen=True)
class Sent:
    """payload: payload.Payload, or without a server the paths of the calls' inputs. rows: int [requests], rows of each. mean_bytes: of a
    request."""

    payload: object
    rows: np.ndarray
    mean_bytes: int


def opened(options, client, signature, folder):
    """The targets that `options` name, the server first."""
    found = [Server(client, options, signature)] if client else []
    return [*found, InProcess(options, signature, folder)] if options.in_process else found


def gpus_are_here(address):
    """Whether the GPUs of this machine are those that are measured. Args: address: of client.Client, "" without a server."""
    return not address or address.startswith("unix:") or process.is_here(address.rpartition(":")[0].strip("[]"))


def client(options):
    """A client.Client of the server that `options` name. Raises: UsageError."""
    return clients.Client(options.address, timeout=options.timeout, tls=options.tls)


class Server:
    """A running server. Args: client: client.Client; signature: name of the one that is asked."""

    name = result.SERVER

    def __init__(self, client, options, signature):
        self._options, self._signature = options, signature
        self._target = generator.Target(client.address, generator.Tls.of(options.tls), options.timeout, options.channels)

    def prepare(self, load, judge_of):
        """The requests of a workload, and what they are answered: every one is sent once.

        Args: load: workload.Workload. judge_of: function of [{output: ndarray}], the first answers, that gives an answers.Judge or None.
        Returns: Sent. Raises: TftrtError where the server answers none of them; CheckFailed where the answers are wrong.
        """
        options = self._options
        requests = tuple(clients.request_bytes(options.model_name, call.inputs, self._signature, options.model_version,
                                               options.version_label) for call in load.calls)
        rows, mean = np.array([call.rows for call in load.calls]), round(sum(map(len, requests)) / len(requests))
        first = {}
        asked = payload.Payload(clients.PREDICT, requests, (_UNKNOWN,) * len(requests),
                                lambda index, answer: first.setdefault(index, answer) and "")
        # One after the other: a server with batching fails a whole batch for one bad request in it.
        plan = generator.Plan("offline", concurrency=1, seconds=0.001, max_queries=len(requests), warm_up=None, check_every=1,
                              judge_all=True, max_seconds=len(requests) * options.timeout)
        records = generator.run(self._target, asked, plan)
        if records.partial:
            raise KeyboardInterrupt if records.partial == "interrupted" else errors.TftrtError(records.partial)
        if not records.ok.any():
            failed = next(iter(records.errors.values()))
            why = " ".join([f"{failed.name}:", *" ".join(failed.messages[:1]).split()])
            raise errors.TftrtError(f"{self._target.address} answered none of {len(requests)} requests: {why}",
                                    "mend the requests (--shapes, --data, --signature_keys) or the server")
        known = {index: read(answer) for index, answer in first.items()}
        judge = judge_of(known)
        if judge is None:
            return Sent(payload.Payload(clients.PREDICT, requests), rows, mean)
        expected = tuple(first.get(index) for index in range(len(requests)))
        return Sent(payload.Payload(clients.PREDICT, requests, expected, lambda index, answer: judge.problem(index, answer)), rows, mean)

    def run(self, sent, plan, on_progress):
        """record.Records of a generator.Plan. Raises: TftrtError."""
        return generator.run(self._target, sent.payload, plan, on_progress)


class InProcess:
    """The model in a child process of its own for each point, without a server. Args: folder: for what parent and child exchange."""

    name = result.IN_PROCESS

    def __init__(self, options, signature, folder):
        self._options, self._signature, self._folder = options, signature, pathlib.Path(folder)
        self._judge_of, self._prepared = None, 0

    def prepare(self, load, judge_of):
        """As Server.prepare. The first answers are judged before the load of the first point, as the model is loaded then; later ones are
        not compared."""
        self._prepared += 1
        self._judge_of = judge_of
        saved = run.save_calls(load.calls, self._folder / f"calls-{self._prepared}")
        rows = np.array([call.rows for call in load.calls])
        size = round(sum(array.nbytes for call in load.calls for array in call.inputs.values()) / len(load.calls))
        return Sent([path for _, path in saved], rows, size)

    def run(self, sent, plan, on_progress):
        """record.Records of a generator.Plan. Raises: TftrtError, child.ChildDied; CheckFailed where the first answers are wrong."""
        folder = self._folder / f"answers-{self._prepared}"
        folder.mkdir(exist_ok=True)
        with opened_model(self._options.in_process) as model:
            request = {"model": model, "signature": self._signature, "calls": sent.payload,
                       "answers": str(folder) if self._judge_of else ""}
            return in_process.run("tftrt_tools.bench.in_process_model:make", request, plan, on_progress=on_progress,
                                  on_ready=lambda: self._judge(folder))

    def _judge(self, folder):
        if self._judge_of:
            judge_of, self._judge_of = self._judge_of, None
            judge_of({int(path.stem): npz.load(path) for path in folder.glob("*.npz")})


def read(answer):
    """{output: ndarray} of a PredictResponse's bytes. Raises: ValueError."""
    return clients.response_arrays(answer)[1]
