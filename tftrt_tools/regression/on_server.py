"""Both models on a server: what they are, what they answer, whether the candidate's engines ran, and the load on them."""

from tftrt_tools import client as clients
from tftrt_tools import errors, progress
from tftrt_tools.bench import subject
from tftrt_tools.load import generator, payload
from tftrt_tools.regression import answers, models, rounds
from tftrt_tools.savedmodel import shapes

THROUGH = "server"


class OnServer:
    """Args: options: regress.Options. server: pair.Server. client: client.Client of it. gpus: whether this machine has any."""

    through = THROUGH

    def __init__(self, options, server, client, gpus):
        self._options, self._server, self._client = options, server, client
        # Of a server that ran before nobody says what it computes with.
        self.gpus = None if options.server else gpus
        # Of a server that ran before nobody says whether it is.
        self.gate_closed = options.goals.no_engine_fallback if not options.server else None
        self.where = {"address": server.address, "backend": server.backend, "reason": server.reason}
        self.models = {}

    def sides(self):
        """{name of rounds: {signature: (inputs, outputs)}}; fills `models`, {name: models.Model}. Raises: UsageError, TftrtError."""
        options, found = self._options, {}
        served = {rounds.NATIVE: self._server.native, rounds.CANDIDATE: self._server.candidate}
        paths = (options.native_dir, options.candidate_dir) if options.server else (options.native, options.candidate)
        versions = ((options.native_version, options.native_label), (options.candidate_version, options.candidate_label))
        for (name, model), path, which in zip(served.items(), paths, versions, strict=True):
            told = subject.of_server(self._client, _Asked(model, *which))
            if options.server and path:
                subject.check_files({f"{name}_dir": path}, model, told.signatures)
            progress.say(f"reading the {name} model")
            self.models[name] = models.read(path, model, told.version)
            found[name] = told.signatures
        native, candidate = (self.models[name] for name in served)
        if options.server and (native.name, native.version) == (candidate.name, candidate.version):
            raise errors.UsageError(f"both are version {native.version} of {native.name!r}: a model against itself",
                                    "`tftrt versions` shows which version a label is on")
        return found

    def answers(self, signature, calls):
        """[[{output: ndarray} of a call] of a model], the native one first. Raises: TftrtError where a model refuses one."""
        found = []
        for name, one in self.models.items():
            try:
                found.append(answers.asked(self._client, one.name, signature, calls, one.version))
            except clients.ServingError as error:
                raise answers.read_failure(error, name, one.title) from None
        return found

    def engines(self, signature, calls):
        """Whether the candidate's engines ran at the shapes of `calls`, as `tftrt smoke` finds out: evidence.Verdict."""
        from tftrt_tools.serving.smoke import smoke

        options, candidate, native = self._options, self.models[rounds.CANDIDATE], self.models[rounds.NATIVE]
        timed = [dict(one) for one in dict.fromkeys(tuple(sorted(call.shapes.items())) for call in calls)]
        # Rows of the user's where they can be cut to the size that is timed; else values that are drawn for the same shapes.
        own = options.data if options.data and ":" not in options.data else ""
        sent = {"data": own, "batch_size": options.batch_size or 1} if own else {"shapes": shapes.flag_text(signature, timed)}
        asked = smoke.Options(
            candidate.version, model_dir=candidate.path if options.server else "", **sent, ranges=options.ranges, seed=options.seed,
            signature_keys=(signature,), native_model_name=native.name,
            native_model_version=native.version, tls=options.tls, log_file=options.log_file or "",
            server_pid=self._server.pid if self._server.backend == "local" else 0, timeout=options.timeout)
        return smoke.smoke(self._server.address, candidate.name, asked).engines

    def asking(self, signature, calls):
        """A context manager with the rounds.Asker of the timed calls."""
        payloads = {name: payload.Payload(clients.PREDICT, tuple(clients.request_bytes(one.name, call.inputs, signature, one.version)
                                                                 for call in calls)) for name, one in self.models.items()}
        target = generator.Target(self._client.address, generator.Tls.of(self._options.tls), self._options.timeout)
        return rounds.asking(target, payloads, self._options.concurrency, self.problem)

    def problem(self):
        """Why the server ended, as a TftrtError, or None."""
        return self._server.problem()


class _Asked:
    """What subject.of_server wants to know."""

    def __init__(self, model_name, version, label):
        self.model_name, self.model_version, self.version_label = model_name, version, label
