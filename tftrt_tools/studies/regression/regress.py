"""The whole of `tftrt regress`: serve both models, compare their answers, measure in rounds until the verdict is clear, judge."""

import contextlib
import dataclasses
import hashlib
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from tftrt_tools.accuracy import judgement, labels, thresholds
from tftrt_tools.base import errors, terminal
from tftrt_tools.base.files import scratch
from tftrt_tools.base.process import progress
from tftrt_tools.base.stack import fingerprint
from tftrt_tools.base.statistics import interleaving
from tftrt_tools.models.inputs import calls as inputs
from tftrt_tools.models.inputs.options import DataOptions
from tftrt_tools.models.inputs.read import Rows
from tftrt_tools.models.kinds import names, opening, table
from tftrt_tools.models.savedmodel import passport, shapes
from tftrt_tools.models.sources.opened import check as check_model
from tftrt_tools.models.sources.opened import opened
from tftrt_tools.servers import client as clients
from tftrt_tools.servers.serving.smoke import engine_evidence, gate
from tftrt_tools.studies.bench import subject, threads
from tftrt_tools.studies.regression import answers, comparison, in_process, models, on_server, pair, pairing, rounds
from tftrt_tools.studies.regression import baseline as baseline_rules
from tftrt_tools.studies.regression import goals as goal_rules
from tftrt_tools.studies.regression import verdict as verdicts
from tftrt_tools.studies.regression.baseline import Baseline, Latest
from tftrt_tools.studies.regression.rounds import Side

INTERRUPTED = "interrupted"
_BOTH = rounds.NATIVE, rounds.CANDIDATE


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """The models, the requests, the length of the run, and the goals."""

    # Paths or source.Sources, or names of models on servers that run.
    native: Any
    candidate: Any
    # HOST:PORT of a server that runs and has both, "" to start one; and of the server of one of them, which may be of another kind.
    server: str = ""
    native_server: str = ""
    candidate_server: str = ""
    # Their versions and labels there; None and "" for the version that answers.
    native_version: int | None = None
    native_label: str = ""
    candidate_version: int | None = None
    candidate_label: str = ""
    # client.Tls of these servers, or None.
    tls: Any = None
    # Compare without a server.
    in_process: bool = False
    # Interpreters of other environments that run one model each, in process; "" for this one.
    native_python: str = ""
    candidate_python: str = ""
    # The server to start: its kind, Docker's image, the file of its log.
    backend: str = "local"
    image: str = ""
    log_file: str | None = None
    # Files of the served models, "" if not known.
    native_dir: str = ""
    candidate_dir: str = ""
    # The requests, as in `tftrt bench`: the signature, texts of the flags, the seed of drawn values.
    signature_name: str = ""
    # Signatures of one model each, "" for signature_name.
    native_signature: str = ""
    candidate_signature: str = ""
    shapes: str = ""
    data: str = ""
    ranges: str = ""
    seed: int = 0
    # Rows of a request; None to take them from the shapes.
    batch_size: int | None = None
    # How many different requests are timed.
    distinct: int = 16
    # The judgement of answers: texts of the flags.
    thresholds: str = ""
    allow_constant_outputs: bool = False
    output_kind: tuple[str, ...] = ()
    labels: str = ""
    accuracy_output: str = ""
    label_column: str = ""
    classes: str = ""
    # How files of the data are read, and how many rows, 0 for all.
    reading: DataOptions = DataOptions()
    data_rows: int = 0
    # Whether the answers are judged.
    compare: bool = True
    # Rounds at the first look, and at the last.
    rounds: int = 30
    max_rounds: int = 90
    # Requests to each model in a round, 0 to choose.
    requests: int = 0
    # Requests under way at a time.
    concurrency: int = 1
    # Names of verdict.METRICS; and those whose "cannot tell" makes the run's outcome "cannot tell".
    metrics: tuple[str, ...] = verdicts.DEFAULT_METRICS
    must_decide: tuple[str, ...] = ("p50",)
    # The smallest change of a ratio that counts, as a share.
    min_effect: float = verdicts.MIN_EFFECT
    goals: goal_rules.Goals = goal_rules.Goals()
    # A slower candidate is no failure.
    allow_worse: bool = False
    # The baseline that this run is compared with.
    baseline: Baseline | Latest | None = None
    # Seconds for one request.
    timeout: float = 60.0
    # Seconds after which no new round begins, and a request without an answer ends the one that runs.
    max_seconds: float = 600.0
    # NATIVE=CANDIDATE for each input and output with another name in the candidate, in process.
    rename: tuple[str, ...] = ()
    # How many other measurements run on this machine meanwhile.
    others: int = 0

    @property
    def addresses(self) -> dict[Side, str]:
        """{side: HOST:PORT of the server that has its model, "" where none runs}."""
        return {
            rounds.NATIVE: self.native_server or self.server,
            rounds.CANDIDATE: self.candidate_server or self.server,
        }

    @property
    def running(self) -> bool:
        """Whether the models are on servers that run already."""
        return bool(self.server or self.native_server or self.candidate_server)

    @property
    def signatures(self) -> dict[Side, str]:
        """{side: name of its signature, "" for the default}."""
        return {
            rounds.NATIVE: self.native_signature or self.signature_name,
            rounds.CANDIDATE: self.candidate_signature or self.signature_name,
        }

    @property
    def paired(self) -> bool:
        """Whether each model has a signature of its own."""
        return bool(self.native_signature or self.candidate_signature)

    @property
    def looks(self) -> int:
        """The most times that the data is judged; the last stretch of rounds may be shorter."""
        return len(interleaving.looks(self.rounds, self.max_rounds))


def regress(options: Options) -> comparison.Regression:
    """Compare two models.

    Args: options: Options.
    Returns: comparison.Regression, also after an interrupt after the first round, with `ended`. Raises: UsageError; TftrtError if
    nothing could be measured.
    """
    check(options)
    check_models(options)
    machine = fingerprint.fingerprint()
    with _both(options, bool(machine.gpus)) as both:
        return _Run(options, both, machine).whole()


def check_models(options: Options) -> None:
    """Refuse models that are not there, or of a kind that cannot be compared so. Raises: UsageError, TftrtError."""
    for model in () if options.running else (options.native, options.candidate):
        (opening.check if options.in_process else check_model)(model)


@contextlib.contextmanager
def _both(options: Options, gpus: bool) -> Iterator[on_server.OnServer | in_process.InProcess]:
    """Yields: on_server.OnServer or in_process.InProcess."""
    with contextlib.ExitStack() as stack:
        if options.in_process:
            both = stack.enter_context(opening.opened(options.native, options.candidate))
            asked = (options.signature_name,) if options.signature_name else ()
            matched = (
                names.beside(*both)
                if options.paired
                else names.match(both[0], both[1], asked, names.parse(options.rename))
            )
            yield in_process.InProcess(options, both, matched, stack.enter_context(scratch.folder("regress")), gpus)
            return
        if not options.running:
            native, candidate = (stack.enter_context(opened(model)) for model in (options.native, options.candidate))
        closed: bool | None = None
        if options.running:
            server = pair.Server(
                address=options.addresses[rounds.NATIVE],
                candidate_address=options.addresses[rounds.CANDIDATE],
                native=options.native,
                candidate=options.candidate,
            )
        else:
            # Requests of what the build left native would fail.
            closed = options.goals.no_engine_fallback and not passport.left_native(
                passport.read(candidate, passport.MANIFEST)
            )
            env = {gate.VARIABLE: "False"} if closed else {}
            server = stack.enter_context(
                pair.served(native, candidate, options.backend, options.image, options.log_file, env)
            )
        opened_once = {
            address: stack.enter_context(clients.opened(address, timeout=options.timeout, tls=options.tls))
            for address in dict.fromkeys(server.addresses.values())
        }
        connected = {side: opened_once[address] for side, address in server.addresses.items()}
        yield on_server.OnServer(options, server, connected, gpus, closed)


def _check_where(options: Options) -> None:
    """Refuse combinations of the models and the way they are called that cannot work."""
    asked = {
        "address": options.server,
        "native_address": options.native_server,
        "candidate_address": options.candidate_server,
    }
    named = [f"--{name}={given}" for name, given in asked.items() if given]
    if options.in_process and (named or options.backend != "local"):
        flag = named[0] if named else f"--launch={options.backend}"
        raise errors.UsageError(
            f"--in_process and {flag} exclude each other", "in process there is no server; leave one of them out"
        )
    for flag in ("rename", "native_python", "candidate_python"):
        if getattr(options, flag) and not options.in_process:
            raise errors.UsageError(f"--{flag} has no effect on a server", "leave it out, or --address and --launch")
    there = {
        f"--{side}_{what}": getattr(options, f"{side}_{what}") for side in _BOTH for what in ("dir", "version", "label")
    } | {"--tls": options.tls}
    missing = [side for side, address in options.addresses.items() if options.running and not address]
    if missing:
        raise errors.UsageError(
            f"--{missing[0]}_address is missing: each model is on a server that runs, or none is",
            f"give --{missing[0]}_address=HOST:PORT; --address is one that has both",
        )
    beside = {"--server_image": options.image, "--log_file": options.log_file} if options.running else there
    for flag, value in beside.items():
        if value not in (None, ""):
            raise errors.UsageError(
                f"{flag} has no effect {'with' if options.running else 'without'} --address", "leave it out"
            )
    for side in _BOTH:
        if there[f"--{side}_version"] is not None and there[f"--{side}_label"]:
            raise errors.UsageError(f"--{side}_version and --{side}_label exclude each other", "give one of them")
    if options.paired and (options.signature_name or options.rename):
        raise errors.UsageError(
            f"{'--signature_keys' if options.signature_name else '--rename'} does not go with --native_signature and "
            "--candidate_signature",
            "leave it out: these name the signatures",
        )
    same = options.signatures[rounds.NATIVE] == options.signatures[rounds.CANDIDATE]
    one = len(set(options.addresses.values())) == 1
    if (
        options.running
        and one
        and same
        and options.native == options.candidate
        and (options.native_version, options.native_label) == (options.candidate_version, options.candidate_label)
    ):
        raise errors.UsageError(
            f"--native and --candidate are both {options.native!r} on {options.addresses[rounds.NATIVE]}",
            "name two models, or two versions of it (--native_label=stable --candidate_label=canary); a model against "
            "itself is measured from its directory",
        )
    if options.running and options.backend != "local":
        flag = named[0].partition("=")[0]
        raise errors.UsageError(
            f"{flag} and --launch={options.backend} exclude each other", "a server that runs needs no backend"
        )


def check(options: Options) -> None:
    """Refuse options that can never work. Raises: UsageError."""
    for flag, named in (("metrics", options.metrics), ("must_decide", options.must_decide)):
        unknown = [one for one in named if one not in verdicts.METRICS]
        if unknown or flag == "metrics" and not named:
            raise errors.UsageError(
                f"--{flag}: there is no {unknown[0] if unknown else 'metric'}",
                f"metrics: {', '.join(verdicts.METRICS)}",
            )
    missing = [one for one in options.must_decide if one not in options.metrics]
    if missing:
        raise errors.UsageError(f"--must_decide={missing[0]} is not among --metrics", "add it there")
    least = verdicts.rounds_needed(options.metrics, options.looks)
    if options.rounds < least:
        raise errors.UsageError(
            f"--rounds={options.rounds} can show nothing: at least {least} are needed for "
            f"{terminal.counted(len(options.metrics), 'metric')} and {terminal.counted(options.looks, 'look')} at the rounds",
            f"--rounds={least}"
            + (f" --max_rounds={least}" if least > options.max_rounds else "")
            + ", or fewer --metrics",
        )
    if options.max_rounds < options.rounds:
        raise errors.UsageError(f"--max_rounds={options.max_rounds} is below --rounds={options.rounds}", "raise it")
    if options.labels and not options.data:
        raise errors.UsageError(
            "--labels needs --data: random inputs have no right class",
            "add --data with the rows that the labels are about",
        )
    if options.goals.accuracy and not options.compare:
        raise errors.UsageError("a goal on accuracy and --nocompare exclude each other", "leave one of them out")
    if options.labels and not options.goals.accuracy:
        raise errors.UsageError(
            "--labels without a goal on accuracy has no effect", "add --accuracy=top1:threshold=…, or leave it out"
        )
    _check_where(options)
    if thresholds.LABELS in judgement.Rules.of(options).bounds:
        raise errors.UsageError(
            "--thresholds: the score against --labels is a goal here", "write --accuracy=METRIC:threshold=…"
        )


class _Run:
    def __init__(
        self, options: Options, both: on_server.OnServer | in_process.InProcess, machine: fingerprint.Fingerprint
    ) -> None:
        self._options, self._both, self._machine = options, both, machine
        self._begun = time.monotonic()
        self._notes: list[str] = []
        self._measured = rounds.Measured()
        self._engines: engine_evidence.Verdict | None = None
        self._judged: answers.Judged | None = None
        self._baseline: Baseline | None = None
        self._per_block = 0

    def whole(self) -> comparison.Regression:
        options = self._options
        sides = self._both.sides()
        self._models = self._both.models
        self._notes += self._both.notes
        for address in dict.fromkeys(options.addresses.values()):
            if too_many := threads.note(address, options.concurrency):
                progress.note(f"note: {too_many}")
                self._notes.append(too_many)
        both, own = pairing.calls(options, sides, self._takes)
        self._signatures = {name: one.calls[0].signature for name, one in both.items()}
        self._truth = _truth(options, both[rounds.NATIVE].files)
        calls = {name: one.calls for name, one in both.items()}
        self._notes += _about_engines(self._models[rounds.CANDIDATE], self._both, options.goals.no_engine_fallback)
        timed = {name: one[: options.distinct] for name, one in calls.items()}
        self._notes += dict.fromkeys(f"random: {line}" for one in both.values() for line in filter(None, [one.drew]))
        self._workload = self._described(calls, timed)
        self._baseline = (
            options.baseline.found(self._machine, self._models, self._workload) if options.baseline else None
        )
        try:
            if options.compare:
                self._judged = self._compared(calls, own)
                self._notes += self._judged.warnings
                if self._judged.problems and not options.data:
                    self._notes.append(
                        "the answers were judged on random values, which the model may never see: --data gives real ones"
                    )
            if options.goals.no_engine_fallback:
                self._engines = self._both.engines(timed[rounds.CANDIDATE])
            self._measure(timed)
        except answers.Refused as refused:
            # Nothing can be timed; this is a result, and not an error.
            failed, said = (
                {rounds.NATIVE: 0, rounds.CANDIDATE: 1},
                {rounds.CANDIDATE: [f"{refused.cause}; {refused.mend}"]},
            )
            self._notes.append("nothing was timed: the candidate does not answer all requests that are sent")
            return dataclasses.replace(self._result(), failed=failed, errors=said)
        except KeyboardInterrupt:
            if not self._measured.usable:
                raise
            return self._result(INTERRUPTED)
        except errors.TftrtError as error:
            problem = self._both.problem() or error
            if not self._measured.usable:
                raise problem from None
            return self._result(problem.cause)
        return self._result()

    def _takes(self, signature: str, signatures: subject.Signatures) -> inputs.Takes:
        """The inputs of the signature. Files are read for the names of its twins only if --data or --shapes could use them."""
        options = self._options
        paths = (options.native_dir, options.candidate_dir) if options.running else (options.native, options.candidate)
        same = subject.same(paths) if all(paths) and (options.data or options.shapes) else []
        takes = subject.takes(signature, signatures, same, self._models[rounds.CANDIDATE].path)
        # A server tells no limits.
        at_hand = [path for path in paths if path] if isinstance(self._both, on_server.OnServer) else []
        return takes.limited_by(*subject.inputs(at_hand)) if at_hand else takes

    def _described(self, calls: pairing.Calls, timed: pairing.Calls) -> dict[str, Any]:
        """A description of the requests, to compare other runs with this one."""
        options, digest = self._options, hashlib.sha256()
        native = timed[rounds.NATIVE]
        for call in native if not options.paired else (*native, *timed[rounds.CANDIDATE]):
            for name, array in sorted(call.inputs.items()):
                digest.update(f"{name}{array.dtype}{array.shape}".encode())
                digest.update(
                    repr(array.tolist()).encode() if array.dtype == object else np.ascontiguousarray(array).tobytes()
                )
        return {
            "through": self._both.through,
            "backend": self._both.where["backend"] or self._both.ran_before,
            "gate_closed": self._both.gate_closed,
            "signature": " and ".join(dict.fromkeys(self._signatures.values())),
            "shapes": list(dict.fromkeys(shapes.call_text(call.shapes) for side in timed.values() for call in side)),
            "values": options.data or f"random, seed {options.seed}",
            "timed": len(native),
            "compared": len(calls[rounds.NATIVE]),
            "concurrency": options.concurrency,
            "digest": digest.hexdigest()[:16],
            **({baseline_rules.OTHERS: options.others} if options.others else {}),
            **{f"{side}_in": text for side, text in getattr(self._both, "elsewhere", {}).items()},
        }

    def _compared(self, calls: pairing.Calls, own: bool) -> answers.Judged:
        options = self._options
        kind = models.arithmetic(self._models[rounds.NATIVE], self._models[rounds.CANDIDATE], self._both.gpus)
        kind = pairing.arithmetic(kind, calls)
        origin: inputs.Origin = "data" if options.data else "shapes" if options.shapes else "signature"
        with inputs.explained(dict.fromkeys(self._signatures.values(), origin)):
            native, candidate = self._both.answers(calls)
        return answers.judge(
            calls[rounds.NATIVE],
            native,
            candidate,
            kind,
            own,
            judgement.Rules.of(options),
            answers.parse_goals(options.goals.accuracy),
            self._truth,
            options.accuracy_output,
        )

    def _measure(self, timed: pairing.Calls) -> None:
        options = self._options
        with self._both.asking(timed) as asker:
            asker.until = self._begun + options.max_seconds
            latency = max(asker.warm_up().values())
            self._per_block = rounds.requests_of_block(latency, options.concurrency)
            if options.requests:
                # With fewer than are under way at a time, the load would not be the requested one.
                self._per_block = max(-(-options.requests // rounds.BLOCKS), options.concurrency)
            self._check_requests()

            def one_round(number: int) -> None:
                progress.say(f"round {number + 1}", number, options.max_rounds)
                asker.round(number, self._per_block, self._measured)

            def decided() -> bool:
                asker.judge_itself(self._measured)
                progress.say("judging")
                return not self._result().rounds_help

            looks = interleaving.looks(options.rounds, options.max_rounds)
            if interleaving.until_decided(looks, one_round, decided, asker.late):
                self._notes.append(rounds.ended_early(options.max_seconds))
                asker.judge_itself(self._measured)

    def _check_requests(self) -> None:
        """Refuse a run that will have too few requests for a metric that decides it; note it for other metrics. Raises: UsageError."""
        options, each = self._options, self._per_block * rounds.BLOCKS
        for metric in options.metrics:
            wanted, most = verdicts.requests_needed(metric), each * options.max_rounds
            if most < wanted:
                cause = f"{metric} needs {wanted} requests to each model, and {options.max_rounds} rounds of {each} are {most}"
                if metric in options.must_decide:
                    raise errors.UsageError(
                        cause, f"--requests={-(-wanted // options.max_rounds)}, or more --max_rounds"
                    )
                self._notes.append(cause)

    def _result(self, ended: str = "") -> comparison.Regression:
        options, measured = self._options, self._measured
        whole, not_judged = measured.usable, self._speed_not_judged()
        native, candidate = measured.native[:whole], measured.candidate[:whole]
        seconds = [[one.seconds for one in side] for side in (native, candidate)]
        rates = [np.array([one.rate for one in side]) for side in (native, candidate)]
        found = (
            verdicts.judge(
                seconds[0],
                seconds[1],
                options.metrics,
                min_effect=options.min_effect,
                looks=options.looks,
                seed=options.seed,
                native_rates=rates[0],
                candidate_rates=rates[1],
            )
            if whole
            else None
        )
        failed = {name: measured.failed(name) for name in _BOTH}
        if found and not_judged:
            found = verdicts.without_verdict(found, not_judged)
        elif found and any(failed.values()):
            lost = sum(failed.values())
            found = verdicts.without_verdict(
                found, f"{terminal.counted(lost, 'request')} failed; the times are of the others"
            )
        medians = [tuple(float(np.median(one)) for one in side) for side in seconds]
        figures = comparison.PerRound(*medians, *(tuple(map(float, one)) for one in rates))
        judged = self._baseline if whole and not not_judged else None
        compared = judged.judge(figures, options.min_effect, options.looks, options.seed) if judged else None
        kept = (
            goal_rules.judge(
                options.goals, found, self._models[rounds.CANDIDATE], self._judged, self._engines, not_judged
            )
            if found
            else ()
        )
        return comparison.Regression(
            stamp=passport.stamp(),
            native=self._models[rounds.NATIVE],
            candidate=self._models[rounds.CANDIDATE],
            server=self._both.where,
            workload=self._workload,
            settings=self._settings(),
            fingerprint=self._machine,
            verdict=found,
            rounds=figures,
            requests=self._per_block * rounds.BLOCKS,
            failed=failed,
            errors=dict(measured.errors),
            answers=self._judged,
            engines=self._engines,
            kept=kept,
            must_decide=options.must_decide,
            compared=compared,
            allow_worse=options.allow_worse,
            speed_not_judged=not_judged,
            ended=ended,
            seconds=time.monotonic() - self._begun,
            notes=(*self._notes, *measured.limits),
        )

    def _speed_not_judged(self) -> str:
        """Why the times say nothing of the candidate's engines, "" where they do."""
        if self._both.gpus is not False or not self._both.replaces_engine_ops or self._is_plan():
            return ""
        candidate = self._models[rounds.CANDIDATE]
        engines: bool | None = bool(candidate.engine_ops)
        if isinstance(self._both, on_server.OnServer) and not candidate.path:
            engines = self._both.candidate_has_engines()
        if engines is None:
            return "the server has no GPU, and whether the candidate has engines is not known; --candidate_dir tells"
        if engines:
            return "there is no GPU here, so both models ran as TensorFlow ops; a machine with a GPU gives one"
        return ""

    def _is_plan(self) -> bool:
        """Whether the candidate is run by TensorRT alone."""
        path = self._models[rounds.CANDIDATE].path
        return bool(path) and table.kind(path).alone

    def _settings(self) -> dict[str, Any]:
        options = self._options
        return {
            "rounds": options.rounds,
            "max_rounds": options.max_rounds,
            "looks": options.looks,
            "requests_per_block": self._per_block,
            "concurrency": options.concurrency,
            "metrics": list(options.metrics),
            "must_decide": list(options.must_decide),
            "min_effect": options.min_effect,
            "alpha": verdicts.ALPHA,
            "seed": options.seed,
            "thresholds": options.thresholds,
            "goals": options.goals.to_dict(),
        }


def _about_engines(
    candidate: models.Model, both: on_server.OnServer | in_process.InProcess, watched: bool
) -> list[str]:
    """Remarks on what is really measured, a line each."""
    if not candidate.path and both.through == on_server.THROUGH:
        return (
            ["whether the candidate has engines is not known: --candidate_dir tells which model it is"]
            if not watched
            else []
        )
    # In process, nothing but TensorRT runs a plan.
    if not candidate.engine_ops or isinstance(both, in_process.InProcess) and table.kind(candidate.path).alone:
        return []
    if both.gpus is False and not both.replaces_engine_ops:
        return [
            "there is no GPU here, and such a server has no kernel for the candidate's engine ops: it refuses what reaches one; "
            "--launch=local runs them as TensorFlow ops"
        ]
    if both.gpus is False:
        return [
            "there is no GPU here: the candidate's engine ops ran as TensorFlow ops, so neither speed nor answers are those of "
            "TensorRT"
        ]
    left = [f"{name} {why}: it ran in TensorFlow, which is no fallback" for name, why in candidate.left_native.items()]
    return left if watched else [*left, "nobody looked whether the candidate's engines ran; --no_engine_fallback does"]


def _truth(options: Options, rows: Rows | None) -> labels.Labels | None:
    """The labels.Labels of --labels, or None."""
    if not options.labels:
        return None
    return labels.read(options.labels, rows, options.label_column, options.classes)
