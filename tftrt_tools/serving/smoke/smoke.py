"""The smoke test: signatures asked for, calls sent, answers compared, the engines' traces gathered and weighed."""

import contextlib
import dataclasses

from tftrt_tools import errors, progress, scratch
from tftrt_tools.accuracy import judgement
from tftrt_tools.inputs.options import DataOptions
from tftrt_tools.serving import management_client
from tftrt_tools.serving.smoke import answers, evidence, gate, gpu_use, log_watch, measurement, plan, process, statistics, steps
from tftrt_tools.serving.smoke import client as clients
from tftrt_tools.serving.smoke import model as models
from tftrt_tools.serving.smoke.evidence import CERTAIN, LIKELY, NO, NOTHING, Evidence
from tftrt_tools.serving.smoke.result import CallResult, Smoke
from tftrt_tools.sources.opened import check, opened

_BURST_SECONDS = 1.5


@dataclasses.dataclass(frozen=True)
class Options:
    """model_version, version_label: which version, None and "" for the server's default; model_dir, data, shapes, ranges,
    thresholds: texts of the flags; original: source.Source or ""; batch_size: rows of a request with data, 0 for the declared ones;
    repeats: later requests of each shape;
    native_model_name: the original on the same server, or ""; native_model_version: of it, None for the default; log_file: of the server,
    or ""; server_pid: of its process, 0 to find it by its port; timeout: seconds for one request; require_engines: see result.Smoke; tls:
    client.Tls or None; allow_constant_outputs: accept answers that show nothing; output_kind: texts of the flag; reading, data_rows: how
    files of the data are read, and how many rows."""

    model_version: int | None = None
    version_label: str = ""
    model_dir: str = ""
    original: object = ""
    data: str = ""
    shapes: str = ""
    ranges: str = ""
    thresholds: str = ""
    batch_size: int = 0
    seed: int = 0
    signature_keys: tuple = ()
    repeats: int = 20
    native_model_name: str = ""
    log_file: str = ""
    server_pid: int = 0
    timeout: float = 60.0
    require_engines: bool = False
    tls: object = None
    native_model_version: int | None = None
    allow_constant_outputs: bool = False
    output_kind: tuple[str, ...] = ()
    reading: DataOptions = DataOptions()
    data_rows: int = 0


def smoke(address, model_name, options):
    """Test a running server.

    Args: address: HOST[:PORT] or unix:PATH of its gRPC port. model_name: as requests call it. options: Options.
    Returns: result.Smoke, also where something is wrong with the answers. Raises: UsageError; TftrtError where the server cannot be asked;
      CheckFailed where it ended.
    """
    rules = judgement.Rules.of(options)
    if options.original:
        check(options.original)
    with clients.Client(address, options.timeout, options.tls) as client, steps.worker() as worker, \
            scratch.folder("smoke") as folder, contextlib.ExitStack() as stack:
        progress.say("asking for the signatures")
        server, unseen = (process.of_id(options.server_pid), "") if options.server_pid else process.find(client.address)
        served = _served(client, server, "--model_name", model_name, options.model_version, options.version_label)
        native = _served(client, server, "--native_model_name", options.native_model_name,
                         options.native_model_version) if options.native_model_name else None
        path, same = models.locate(options.model_dir, served, server)
        planned = plan.plan(served, models.declared_shapes(path) if path else None, options, folder)
        if native:
            _check_native(native, planned)
        model = _read(path, same, served, worker) if path else None
        if options.original:
            original = stack.enter_context(opened(options.original))
            every_call = [call for group in planned.groups for call in group.calls]
            answers.check_original(options.original, worker.describe(original), every_call)
        seen = _Asked(client, served, native, server, model, options)
        try:
            measured = [seen.group(group) for group in planned.groups]
        except errors.CheckFailed as error:
            raise errors.CheckFailed(error.cause, "\n  ".join([error.mend, *seen.end_of_log()])) from None
        use = seen.gpu(planned, measured)
        ratios = seen.ratios(planned, measured)
        verdict = seen.verdict(planned, measured, use)
        form = _form(planned, measured, served, finite=not options.original)
        judged, kind = None, ("", "")
        if options.original:
            ran = {evidence.YES: True, evidence.NO: False}.get(verdict.answer) if verdict.certainty == CERTAIN else None
            kind = answers.arithmetic(model, ran, use)
            judged = _judged(planned, measured, kind[0], rules, original, folder, worker)
    results = tuple(CallResult(group.signature, group.calls[0].shapes, one.first, statistics.p50(one.later), one.sent, one.refused,
                               verdict.calls[group.text], ratios.get(group.text))
                    for group, one in zip(planned.groups, measured, strict=True))
    shown = server if server and server.known else None
    if server and not shown:
        unseen = f"{server.program} (pid {server.pid}) listens there, which is no server known here"
    version = gpu_use.version(server) if shown else ""
    return Smoke(client.address, model_name, served.version, shown, unseen, version, model, str(options.original), planned.sources, results,
                 judged, kind, tuple(form), use, verdict, options.require_engines, options.seed, planned.dropped)


def _served(client, server, flag, *which):
    try:
        return client.served(*which)
    except clients.NotServed as error:
        names = models.names(server) if server and server.known else []
        known = f"; its command line names {', '.join(names)}" if names else ""
        raise errors.UsageError(error.cause, error.mend or f"check {flag}{known or '; `tftrt versions` asks for its versions'}") from None


def _read(path, same, served, worker):
    progress.say("reading the model")
    model = models.from_step(path, same, worker.read_model(path))
    models.check_same(model, served)
    return model


def _check_native(native, planned):
    for group in planned.groups:
        one = native.signatures.get(group.signature)
        if one is None or {spec.name for spec in one.inputs} != set(group.calls[0].inputs):
            raise errors.UsageError(f"--native_model_name={native.name} has no signature {group.signature!r} with the same inputs",
                                    "serve the original of the converted model under that name")


def _form(planned, measured, served, finite):
    for group, one in zip(planned.groups, measured, strict=True):
        # A group that was refused has no answers.
        for call, answer in zip(group.calls, one.answers, strict=not one.refused):
            yield from answers.form_problems(call.text(), answer, served.signatures[call.signature].outputs, finite)


def _judged(planned, measured, kind, rules, original, folder, worker):
    pairs = [(call, answer) for group, one in zip(planned.groups, measured, strict=True)
             for call, answer in zip(group.calls, one.answers, strict=not one.refused)]
    if not pairs:
        return None
    reference = answers.reference(original, [call for call, _ in pairs], folder, worker)
    progress.say("comparing")
    return answers.compare([(call, reference.answer(number), answer) for number, (call, answer) in enumerate(pairs)], kind,
                           planned.own_data, rules)


class _Asked:
    """Sends the groups and gathers what speaks of the engines."""

    def __init__(self, client, served, native, server, model, options):
        self._server = server if server and server.known else None
        self._model, self._options = model, options
        self._converted = measurement.Sender(client, served)
        self._native = measurement.Sender(client, native) if native else None
        self._log = log_watch.LogWatch(options.log_file) if options.log_file else None
        self._found = []

    def group(self, group):
        """Send a plan.Group. Returns: measurement.Measured."""
        one = measurement.group(self._converted, group, self._options.repeats)
        if self._log:
            names = None if self._model is None else [engine.name for engine in self._model.engines_of(group.signature)]
            self._found += log_watch.read(self._log.new(), group.text, names, one.sent)[0]
        if one.refused:
            refusal = gate.of_refusal(one.refused, group.text)
            self._found += [refusal] if refusal else []
        else:
            slow = measurement.first_request(one, group.text)
            self._found += [slow] if slow else []
        return one

    def end_of_log(self):
        """The last lines that the server wrote, where its log is known."""
        return ["the end of its log:", *self._log.new().splitlines()[-12:]] if self._log else []

    def gpu(self, planned, measured):
        """The gpu_use.Use of the server, or None where its process is not seen."""
        if not self._server:
            return None
        progress.say("looking at the server's process")
        busy = None
        groups = [group for group, one in zip(planned.groups, measured, strict=True) if not one.refused]
        if groups and self._server.program == process.SERVING:
            call = groups[-1].calls[0]
            request = self._converted.request(call)
            busy = gpu_use.burst(lambda: self._converted.send(request, call), _BURST_SECONDS)
        use = gpu_use.look(self._server, busy)
        self._found.append(use.evidence())
        return use

    def ratios(self, planned, measured):
        """{text of a call: statistics.Ratio against the native model}."""
        found = {}
        for group, one in zip(planned.groups, measured, strict=True):
            if self._native and not one.refused:
                try:
                    found[group.text] = measurement.against_native(self._converted, self._native, group.calls[0], self._options.repeats)
                except management_client.ServerError as error:
                    raise errors.TftrtError(f"--native_model_name={self._options.native_model_name} refuses {group.text}: {error.text}",
                                            "serve the original of the converted model under that name") from None
                self._found.append(measurement.of_ratio(found[group.text], group.text))
        return found

    def verdict(self, planned, measured, use):
        """The evidence.Verdict of everything gathered."""
        has, of_model = {}, []
        for group, one in zip(planned.groups, measured, strict=True):
            has[group.text] = None if self._model is None else bool(self._model.engines_of(group.signature))
            if self._model is not None:
                of_model.append(self._of_model(group))
            if use and not one.refused and self._server.environ is not None:
                self._found.append(gate.of_answer(self._server.environ, use, self._model, group.text, group.signature))
        return evidence.judge([*of_model, *self._found], has, self._settle())

    def _of_model(self, group):
        engines = self._model.engines_of(group.signature)
        # The files are the served ones by the server's own word, or only by that of --model_dir.
        weight = CERTAIN if self._model.same else LIKELY
        if not engines:
            return Evidence("model", f"signature {group.signature!r} of {self._model.path} has no engine op: there is nothing to run", NO,
                            weight, group.text)
        silent = [engine.hole for engine in engines if engine.silent]
        if silent:
            return Evidence("model", silent[0], NO, weight, group.text)
        return Evidence("model", f"{len(engines)} engine op{'s'[:len(engines) != 1]} in signature {group.signature!r}", NOTHING,
                        call=group.text)

    def _settle(self):
        """What would make the answer surer."""
        found = []
        if self._model is None:
            found.append("--model_dir=DIRECTORY: the files of the served version say whether there are engine ops at all")
        if not self._server or self._server.environ is None:
            found.append("run this on the server's machine and as its user: its process then shows its environment and its GPU memory")
        if not self._server or not gate.closed(self._server.environ or {}):
            found.append(f"start the server with {gate.VARIABLE}=False: a request that would run natively then fails")
        if not self._log:
            found.append("--log_file=FILE, with the server started with TF_CPP_VMODULE=trt_engine_op=1 and TF_CPP_MIN_LOG_LEVEL=0: each "
                         "run of an engine is a line of its log")
        if not self._native:
            found.append("--native_model_name=NAME: serve the original beside it, and the two are timed in turn")
        return found


