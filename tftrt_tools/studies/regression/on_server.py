"""Both models on a server, or each on its own: signatures, answers, whether the candidate's engines ran, and the load on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tftrt_tools.base import errors
from tftrt_tools.base.process import progress
from tftrt_tools.models.savedmodel import shapes
from tftrt_tools.servers import client as clients
from tftrt_tools.servers.load import load_plan, payload
from tftrt_tools.servers.serving.smoke import engine_evidence, gpu_use, server_process, version_on_disk
from tftrt_tools.studies.bench import subject
from tftrt_tools.studies.regression import answers, models, pair, rounds

if TYPE_CHECKING:
    import contextlib

    from tftrt_tools.models.execution.run import Call
    from tftrt_tools.studies.regression.regress import Options

THROUGH = "server"


class OnServer:
    """Args: options: regress.Options. server: pair.Server. asked: {side: client.Client or client.TritonClient of its server}. gpus:
    whether this machine has any. gate_closed: whether a native segment fails its request there, None where that is not known."""

    through = THROUGH

    def __init__(
        self,
        options: Options,
        server: pair.Server,
        asked: Mapping[rounds.Side, Any],
        gpus: bool,
        gate_closed: bool | None,
    ) -> None:
        self._options, self._server, self._clients = options, server, asked
        # Of a server that ran before it is known at most that it has none.
        running = server_process.find(asked[rounds.CANDIDATE].address)[0] if options.running else None
        self._running = running
        self.gpus = _gpus(running) if options.running else gpus
        addresses = list(dict.fromkeys(server.addresses.values()))
        # One server alone: all but the models is the same.
        self._one = len(addresses) == 1
        kinds = [asked[side].protocol.server for side in (rounds.NATIVE, rounds.CANDIDATE)]
        self.ran_before = (
            "a server that ran before" if self._one else f"two servers that ran before: {' and '.join(kinds)}"
        )
        self.notes = (
            ()
            if self._one
            else (
                f"two servers: the verdict is on each model together with its server, {kinds[0]} at {addresses[0]} and {kinds[1]} at "
                f"{addresses[1]}, and with the way there",
            )
        )
        self.gate_closed = gate_closed
        # Without a GPU the development server computes them in TensorFlow; the real one has no kernel for them.
        self.replaces_engine_ops = server.backend == "local" or bool(
            running and running.program == server_process.LOCAL
        )
        address = server.address if self._one else f"{addresses[0]} (native) and {addresses[1]} (candidate)"
        self.where = {"address": address, "backend": server.backend, "reason": server.reason}
        self.models: dict[rounds.Side, models.Model] = {}

    def candidate_has_engines(self) -> bool | None:
        """By the files that a server of this machine serves; None where they are not found, or damaged."""
        candidate = self.models[rounds.CANDIDATE]
        path = self._running and version_on_disk.of_server(self._running, candidate.name, candidate.version)
        if not path:
            return None
        try:
            return bool(models.read(path, candidate.name).engine_ops)
        except errors.TftrtError:
            return None

    def sides(self) -> dict[rounds.Side, Any]:
        """{name of rounds: {signature: (inputs, outputs)}}; fills `models`, {name: models.Model}. Raises: UsageError, TftrtError."""
        options, found = self._options, {}
        served = {rounds.NATIVE: self._server.native, rounds.CANDIDATE: self._server.candidate}
        paths = (options.native_dir, options.candidate_dir) if options.running else (options.native, options.candidate)
        versions = (
            (options.native_version, options.native_label),
            (options.candidate_version, options.candidate_label),
        )
        for (name, model), path, which in zip(served.items(), paths, versions, strict=True):
            told = subject.of_server(self._clients[name], _Asked(model, *which))
            if options.running and path:
                with subject.on_disk({f"{name}_dir": path}) as named:
                    subject.check_files(named, model, told.signatures)
            progress.say(f"reading the {name} model")
            self.models[name] = models.read(path, model, told.version)
            found[name] = told.signatures
        native, candidate = (self.models[name] for name in served)
        same = options.signatures[rounds.NATIVE] == options.signatures[rounds.CANDIDATE]
        if (
            options.running
            and self._one
            and same
            and (native.name, native.version) == (candidate.name, candidate.version)
        ):
            raise errors.UsageError(
                f"both are version {native.version} of {native.name!r}: a model against itself",
                "`tftrt versions` shows which version a label is on",
            )
        return found

    def answers(self, calls: Mapping[rounds.Side, Sequence[Call]]) -> list[Sequence[answers.Answer]]:
        """[[{output: ndarray} of a call] of a model], the native one first. Raises: TftrtError where a model refuses one."""
        found: list[Sequence[answers.Answer]] = []
        for name, one in self.models.items():
            try:
                found.append(answers.asked(self._clients[name], one.name, calls[name], one.version))
            except clients.ServingError as error:
                raise answers.read_failure(error, name, one.title) from None
        return found

    def engines(self, calls: Sequence[Call]) -> engine_evidence.Verdict:
        """Whether the candidate's engines ran at the shapes of `calls`, as `tftrt smoke` finds out: evidence.Verdict."""
        from tftrt_tools.servers.serving.smoke import smoke

        signature = calls[0].signature
        options, candidate, native = self._options, self.models[rounds.CANDIDATE], self.models[rounds.NATIVE]
        beside = self._one and not options.paired
        timed = [dict(one) for one in dict.fromkeys(tuple(sorted(call.shapes.items())) for call in calls)]
        # The user's rows if they can be cut to the timed size; else values drawn for the same shapes.
        own = options.data if options.data and ":" not in options.data else ""
        sent = (
            {"data": own, "batch_size": options.batch_size or 1}
            if own
            else {"shapes": shapes.flag_text(signature, timed)}
        )
        asked = smoke.Options(
            model_version=candidate.version,
            model_dir=candidate.path if options.running else "",
            **sent,
            ranges=options.ranges,
            seed=options.seed,
            signature_keys=(signature,),
            native_model_name=native.name if beside else "",
            native_model_version=native.version if beside else None,
            tls=options.tls,
            log_file=options.log_file or "",
            server_pid=self._server.pid if self._server.backend == "local" else 0,
            timeout=options.timeout,
        )
        return smoke.smoke(self._server.addresses[rounds.CANDIDATE], candidate.name, asked).engines

    def asking(self, calls: Mapping[rounds.Side, Sequence[Call]]) -> contextlib.AbstractContextManager[rounds.Asker]:
        """A context manager with the rounds.Asker of the timed calls."""
        payloads, targets = {}, {}
        for name, one in self.models.items():
            client = self._clients[name]
            payloads[name] = payload.Payload(
                client.protocol.path,
                tuple(
                    client.protocol.request_bytes(one.name, call.inputs, call.signature, one.version)
                    for call in calls[name]
                ),
            )
            targets[name] = load_plan.Target(
                address=client.address, tls=load_plan.Tls.of(self._options.tls), timeout_s=self._options.timeout
            )
        return rounds.asking(targets, payloads, self._options.concurrency, self.problem)

    def problem(self) -> errors.TftrtError | None:
        """Why the server ended, as a TftrtError, or None."""
        return self._server.problem()


class _Asked:
    """The facts that subject.of_server needs."""

    def __init__(self, model_name: str, version: int | None, label: str) -> None:
        self.model_name, self.model_version, self.version_label = model_name, version, label


def _gpus(server: server_process.Process | None) -> bool | None:
    """False where a server of this machine certainly uses no GPU, None where nobody can tell or it uses one."""
    if server is None or not server.known:
        return None
    use = gpu_use.look(server)
    return False if use.uses is False and use.weight == engine_evidence.CERTAIN else None
