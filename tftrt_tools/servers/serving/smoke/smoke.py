"""The smoke test: asks for signatures, sends calls, compares answers, gathers evidence of the engines and weighs it."""

import contextlib
import dataclasses
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

from tftrt_tools.accuracy import judgement
from tftrt_tools.base import errors, terminal
from tftrt_tools.base.files import scratch
from tftrt_tools.base.process import progress
from tftrt_tools.base.stack import probes
from tftrt_tools.models.inputs import calls as inputs
from tftrt_tools.models.inputs.calls import Takes
from tftrt_tools.models.inputs.options import DataOptions
from tftrt_tools.models.kinds import opening
from tftrt_tools.models.savedmodel import passport
from tftrt_tools.servers.client import ServingError, Tls
from tftrt_tools.servers.serving.smoke import (
    answer_check,
    engine_evidence,
    gate,
    gpu_use,
    latency,
    log_watch,
    measurement,
    plan,
    served_model,
    server_process,
    steps,
)
from tftrt_tools.servers.serving.smoke import version_on_disk as models
from tftrt_tools.servers.serving.smoke.engine_evidence import CERTAIN, LIKELY, NO, NOTHING, Evidence
from tftrt_tools.servers.serving.smoke.plan import Group, Plan
from tftrt_tools.servers.serving.smoke.served_model import Served
from tftrt_tools.servers.serving.smoke.server_process import Process
from tftrt_tools.servers.serving.smoke.smoke_result import CallResult, Smoke
from tftrt_tools.tftrt.wrapping import added

_BURST_SECONDS = 1.5


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """What to test, and how."""

    # Version and label; None and "" for the server's default.
    model_version: int | None = None
    version_label: str = ""
    # Text of the flag; "" to take it from the server's command line.
    model_dir: str = ""
    # source.Source, or "".
    original: Any = ""
    # Texts of the flags.
    data: str = ""
    shapes: str = ""
    ranges: str = ""
    thresholds: str = ""
    # Rows of a request with data; 0 for the declared ones.
    batch_size: int = 0
    seed: int = 0
    signature_keys: tuple[str, ...] = ()
    # Later requests of each shape.
    repeats: int = 20
    # The original on the same server, or "".
    native_model_name: str = ""
    # The server's log, or "".
    log_file: str = ""
    # Id of the server's process; 0 to find it by its port.
    server_pid: int = 0
    # Seconds for one request.
    timeout: float = 60.0
    # Whether any answer but "yes" to "did the engines run" is a problem.
    require_engines: bool = False
    # None: a connection in the clear.
    tls: Tls | None = None
    # Version of the native model; None for the server's default.
    native_model_version: int | None = None
    # Accept answers that show nothing.
    allow_constant_outputs: bool = False
    # Texts of the flag.
    output_kind: tuple[str, ...] = ()
    # How files of the data are read, and how many rows.
    reading: DataOptions = DataOptions()
    data_rows: int = 0


def smoke(address: str, model_name: str, options: Options) -> Smoke:
    """Test a running server.

    Args: address: HOST[:PORT] or unix:PATH of its gRPC port. model_name: as requests call it. options: Options.
    Returns: Smoke, also for wrong answers. Raises: UsageError; TftrtError where the server cannot be asked;
      CheckFailed where it ended.
    """
    rules = judgement.Rules.of(options)
    if options.original:
        opening.check(options.original)
    with (
        served_model.Asking(address, options.timeout, options.tls) as client,
        steps.worker() as worker,
        scratch.folder("smoke") as folder,
        contextlib.ExitStack() as stack,
    ):
        progress.say("asking for the signatures")
        server, unseen = (
            (server_process.of_id(options.server_pid), "")
            if options.server_pid
            else server_process.find(client.address)
        )
        served = _served(client, server, "--model_name", model_name, options.model_version, options.version_label)
        native = (
            _served(client, server, "--native_model_name", options.native_model_name, options.native_model_version)
            if options.native_model_name
            else None
        )
        path, same = models.locate(options.model_dir, served, server)
        model = _read(path, same, served, worker) if path else None
        wrong_kind = _wrong_kind(model, server)
        takes, known_from = _takes(served, model, options)
        planned = plan.plan(takes, known_from, options, folder, triton=served.runs is not None)
        if native:
            _check_native(native, planned)
        if options.original:
            every_call = [call for group in planned.groups for call in group.calls]
            called = tuple(dict.fromkeys(call.signature for call in every_call))
            original = stack.enter_context(answer_check.opened(options.original, served, called, worker))
            answer_check.check_original(original.source, original.contents, every_call)
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
            ran = (
                {engine_evidence.YES: True, engine_evidence.NO: False}.get(verdict.answer)
                if verdict.certainty == CERTAIN
                else None
            )
            kind = answer_check.arithmetic(
                model, ran, use, triton=served.runs is not None, original=original.arithmetic
            )
            judged = _judged(planned, measured, kind[0], rules, original, folder)
    results = tuple(
        CallResult(
            signature=group.signature,
            shapes=group.calls[0].shapes,
            first_seconds=result.first,
            p50_seconds=latency.p50(result.later),
            requests=result.sent,
            refused=result.refused,
            engines=verdict.calls[group.text],
            native=ratios.get(group.text),
        )
        for group, result in zip(planned.groups, measured, strict=True)
    )
    shown = server if server and server.known else None
    if server and not shown and server.program == server_process.TRITON:
        unseen = f"a tritonserver (pid {server.pid}), of which only the answers are looked at"
    elif server and not shown:
        unseen = f"{server.program} (pid {server.pid}) listens there, which is no server known here"
    version = gpu_use.version(shown) if shown else ""
    return Smoke(
        address=client.protocol.scheme + client.address,
        model_name=model_name,
        model_version=served.version,
        server=shown,
        unseen=unseen,
        server_version=version,
        model=model,
        original=str(options.original),
        shapes_from=planned.sources,
        calls=results,
        judged=judged,
        arithmetic=kind,
        form=tuple(form),
        gpu=use,
        engines=verdict,
        require_engines=options.require_engines,
        seed=options.seed,
        dropped=planned.dropped,
        drew=planned.drew,
        twins=planned.twins,
        wrong_kind=wrong_kind,
    )


def _wrong_kind(model: models.Model | None, server: Process | None) -> str:
    """As Smoke.wrong_kind. Of a server on another machine nothing is known."""
    if model is None or not model.built_for or server is None or not server.known:
        return ""
    seen = probes.gpu_states.run(None).result
    return model.not_for(one["compute_capability"] for one in seen if one.get("compute_capability"))


def _served(
    client: served_model.Asking,
    server: Process | None,
    flag: str,
    name: str,
    version: int | None = None,
    label: str = "",
) -> Served:
    try:
        return client.served(name, version, label)
    except served_model.NotServed as error:
        names = models.names(server) if server and server.known else []
        hint = f"; its command line names {', '.join(names)}" if names else ""
        raise errors.UsageError(
            error.cause, error.mend or f"check {flag}{hint or '; `tftrt versions` asks for its versions'}"
        ) from None


def _read(path: pathlib.Path, same: bool, served: Served, worker: steps.Steps) -> models.Model:
    progress.say("reading the model")
    model = models.of(path, same, worker.read_version(path))
    models.check_same(model, served)
    return model


def _takes(served: Served, model: models.Model | None, options: Options) -> tuple[Takes, str]:
    """(calls.Takes, where its known shapes come from, in words). Only the files tell the shapes, which signatures are one function, and
    which inputs the conversion froze."""
    specs = {name: signature.inputs for name, signature in served.signatures.items()}
    if model is None:
        return inputs.Takes.of(specs, keys=options.signature_keys), ""
    takes = inputs.Takes.of(
        specs, model.twins, keys=options.signature_keys, manifest=passport.read(model.path, passport.MANIFEST)
    )
    takes = takes.limited_by({name: signature.inputs for name, signature in model.signatures.items()})
    declared, known_from = models.declared_shapes(model.path)
    return takes.with_known(declared).with_pictures(added.pictures(model.path)), known_from


def _check_native(native: Served, planned: Plan) -> None:
    for group in planned.groups:
        signature = native.signatures.get(group.signature)
        if signature is None or {spec.name for spec in signature.inputs} != set(group.calls[0].inputs):
            raise errors.UsageError(
                f"--native_model_name={native.name} has no signature {group.signature!r} with the same inputs",
                "serve the original of the converted model under that name",
            )


def _form(planned: Plan, measured: Sequence[measurement.Measured], served: Served, finite: bool) -> Iterator[str]:
    for group, result in zip(planned.groups, measured, strict=True):
        # A group that was refused has no answers.
        for call, answer in zip(group.calls, result.answers, strict=not result.refused):
            yield from answer_check.form_problems(
                call.text(), answer, served.signatures[call.signature].outputs, finite
            )


def _judged(
    planned: Plan,
    measured: Sequence[measurement.Measured],
    kind: str,
    rules: judgement.Rules,
    original: answer_check.Original,
    folder: str,
) -> judgement.Judgement | None:
    pairs = [
        (call, answer)
        for group, result in zip(planned.groups, measured, strict=True)
        for call, answer in zip(group.calls, result.answers, strict=not result.refused)
    ]
    if not pairs:
        return None
    reference = answer_check.reference(original, [call for call, _ in pairs], folder)
    progress.say("comparing")
    return answer_check.compare(
        [(call, reference.answer(number), answer) for number, (call, answer) in enumerate(pairs)],
        kind,
        planned.own_data,
        rules,
    )


class _Asked:
    """Sends the groups and gathers evidence of the engines."""

    def __init__(
        self,
        client: served_model.Asking,
        served: Served,
        native: Served | None,
        server: Process | None,
        model: models.Model | None,
        options: Options,
    ) -> None:
        self._server = server if server and server.known else None
        self._model, self._options, self._platform = model, options, served.runs
        self._converted = measurement.Sender(client, served)
        self._native = measurement.Sender(client, native) if native else None
        self._log = log_watch.LogWatch(options.log_file) if options.log_file else None
        self._found: list[Evidence] = [served.runs.evidence()] if served.runs else []

    def group(self, group: Group) -> measurement.Measured:
        """Send a plan.Group. Returns: measurement.Measured."""
        result = measurement.group(self._converted, group, self._options.repeats)
        engines = self._model.engines_of(group.signature) if self._model else ()
        left = {engine.name: engine.left for engine in engines if engine.left}
        if self._log:
            names = None if self._model is None else [engine.name for engine in engines if not engine.left]
            self._found += log_watch.read(self._log.new(), group.text, names, result.sent, left)[0]
        if result.refused:
            refusal = gate.of_refusal(result.refused, group.text, left)
            self._found += [refusal] if refusal else []
        return result

    def end_of_log(self) -> list[str]:
        """The last lines that the server wrote, if its log is known."""
        return ["the end of its log:", *self._log.new().splitlines()[-12:]] if self._log else []

    def gpu(self, planned: Plan, measured: Sequence[measurement.Measured]) -> gpu_use.Use | None:
        """The gpu_use.Use of the server, or None where its process is not seen."""
        if not self._server:
            return None
        progress.say("looking at the server's process")
        busy = None
        groups = [group for group, result in zip(planned.groups, measured, strict=True) if not result.refused]
        if groups and self._server.program == server_process.SERVING:
            call = groups[-1].calls[0]
            request = self._converted.request(call)
            busy = gpu_use.burst(lambda: self._converted.send(request, call), _BURST_SECONDS)
        use = gpu_use.look(self._server, busy)
        self._found.append(use.evidence())
        return use

    def ratios(self, planned: Plan, measured: Sequence[measurement.Measured]) -> dict[str, latency.Ratio]:
        """{text of a call: latency.Ratio against the native model}."""
        by_signature = {}
        for group, result in zip(planned.groups, measured, strict=True):
            if self._native and not result.refused:
                try:
                    by_signature[group.text] = measurement.against_native(
                        self._converted, self._native, group.calls[0], self._options.repeats
                    )
                except ServingError as error:
                    raise errors.TftrtError(
                        f"--native_model_name={self._options.native_model_name} refuses {group.text}: {error.line}",
                        "serve the original of the converted model under that name",
                    ) from None
                self._found.append(measurement.of_ratio(by_signature[group.text], group.text))
        return by_signature

    def verdict(
        self, planned: Plan, measured: Sequence[measurement.Measured], use: gpu_use.Use | None
    ) -> engine_evidence.Verdict:
        """The engine_evidence.Verdict of everything gathered."""
        has, of_model = {}, []
        for group, result in zip(planned.groups, measured, strict=True):
            has[group.text] = None if self._model is None else bool(self._model.engines_of(group.signature))
            if self._model is not None:
                of_model.append(_of_model(self._model, group))
            slow = None if result.refused else measurement.first_request(result, group.text, self._builds(use))
            self._found += [slow] if slow else []
            if use and self._server and not result.refused and self._server.environ is not None:
                self._found.append(gate.of_answer(self._server.environ, use, self._model, group.text, group.signature))
        return engine_evidence.judge([*of_model, *self._found], has, self._settle())

    def _builds(self, use: gpu_use.Use | None) -> bool:
        """Whether an engine may be built inside a request."""
        return self._platform.builds if self._platform else not (use and use.uses is False and use.weight == CERTAIN)

    def _settle(self) -> list[str]:
        """What would make the answer more certain."""
        if self._platform:
            return self._platform.settle
        remarks = []
        if self._model is None:
            remarks.append(
                "--model_dir=DIRECTORY: the files of the served version say whether there are engine ops at all"
            )
        if not self._server or self._server.environ is None:
            remarks.append(
                "run this on the server's machine and as its user: its process then shows its environment and its GPU memory"
            )
        if not self._server or not gate.closed(self._server.environ or {}):
            remarks.append(f"start the server with {gate.VARIABLE}=False: a request that would run natively then fails")
        if not self._log:
            remarks.append(
                "--server_log=FILE, with the server started with TF_CPP_VMODULE=trt_engine_op=1 and TF_CPP_MIN_LOG_LEVEL=0: each "
                "run of an engine is a line of its log"
            )
        if not self._native:
            remarks.append("--native_model_name=NAME: serve the original beside it, and the two are timed in turn")
        return remarks


def _of_model(model: models.Model, group: Group) -> Evidence:
    """Evidence from the files of the served version, about the engines of a signature."""
    engines = model.engines_of(group.signature)
    # Either the server's command line names the files, or only --model_dir does.
    weight = CERTAIN if model.same else LIKELY
    if not engines:
        return Evidence(
            source="model",
            seen=f"signature {group.signature!r} of {model.path} has no engine op: there is nothing to run",
            speaks=NO,
            weight=weight,
            call=group.text,
        )
    left = [f"{engine.name} {engine.left}" for engine in engines if engine.left]
    if len(left) == len(engines):
        return Evidence(
            source="model",
            seen=f"signature {group.signature!r} has no engine: {'; '.join(left)}",
            speaks=NO,
            weight=weight,
            call=group.text,
        )
    silent = [engine.hole for engine in engines if engine.silent]
    if silent:
        return Evidence(source="model", seen=silent[0], speaks=NO, weight=weight, call=group.text)
    besides = f"; {'; '.join(left)}, which is no fallback" if left else ""
    return Evidence(
        source="model",
        seen=f"{terminal.counted(len(engines), 'engine op')} in signature {group.signature!r}{besides}",
        speaks=NOTHING,
        call=group.text,
    )
