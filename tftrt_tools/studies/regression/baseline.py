"""Keeps results, and compares a run with one of them. It compares the candidate's lead over the native model of the same run; see
verdict.judge_change. Runs on unlike machines, or of unlike models and requests, are not compared at all."""

import dataclasses
import hashlib
import json
import os
import pathlib
import re
import tempfile
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tftrt_tools.base import errors
from tftrt_tools.base.files import documents, whole_file
from tftrt_tools.base.stack.fingerprint import Fingerprint
from tftrt_tools.base.version import __version__
from tftrt_tools.studies.regression import verdict as verdicts
from tftrt_tools.studies.regression.comparison import PASS, Compared, PerRound
from tftrt_tools.studies.regression.models import Model
from tftrt_tools.studies.regression.rounds import Side

LATEST, AUTO = "latest", "auto"
_FILE = re.compile(r"(\d{4,})\.json$")
_NAME = re.compile(r"[^A-Za-z0-9._-]+")
_METRICS = ("p50", verdicts.THROUGHPUT)
# The parts of a workload that define a series: figures with other values of these cannot be compared.
_KIND = ("through", "backend", "gate_closed", "signature", "shapes", "concurrency")
# One more, which only a run has that others ran beside: how many.
OTHERS = "others_meanwhile"


@dataclasses.dataclass(frozen=True)
class Baseline:
    """An earlier result. source: where it was found; document: as comparison.Regression.to_dict wrote it."""

    source: str
    document: Mapping[str, Any]

    def found(self, machine: Fingerprint, models: Mapping[Side, Model], workload: Mapping[str, Any]) -> "Baseline":
        """The Baseline itself, if the run differs from it only in the candidate.

        Args: machine: Fingerprint. models: {"native": models.Model, …}. workload: as in comparison.Regression.
        Raises: UsageError with everything that differs.
        """
        then, native = self.document, models["native"]
        found = [f"machine: {one}" for one in Fingerprint.from_dict(then["machine"]).differences(machine)]
        if then["tool"].rpartition(" ")[2] != __version__:
            found.append(f"tftrt-tools: {then['tool'].rpartition(' ')[2]}, now {__version__}")
        if not native.digest or then["native"]["digest"] != native.digest:
            found.append(
                f"native model: {then['native']['digest'][:19] or 'not known'}, now {native.digest[:19] or 'not known'}"
            )
        others = [
            f"{key.replace('_', ' ')}: {then['workload'].get(key)}, now {workload.get(key)}"
            for key in (*_KIND, OTHERS)
            if then["workload"].get(key) != workload.get(key)
        ]
        found += others
        if not others and then["workload"]["digest"] != workload["digest"]:
            found.append(
                f"the values that are sent: {then['workload'].get('values')}, now {workload.get('values')}, and they are others"
            )
        if found:
            raise errors.UsageError(
                f"the baseline {self.source} is of something else: {'; '.join(found)}",
                "measure a new one here with --save_baseline, or repeat the run as it was made"
                + ("" if native.digest else "; --native_dir and --candidate_dir tell which models a server has")
                + _as_then(then["workload"], workload),
            )
        return self

    def judge(self, figures: PerRound, min_effect: float, looks: int, seed: int) -> Compared:
        """Compared, for the PerRound of this run."""
        then = PerRound.from_dict(self.document["rounds"])
        pairs = [
            (_gaps(one.native_p50, one.candidate_p50), _gaps(one.native_rate, one.candidate_rate))
            for one in (then, figures)
        ]
        alpha = verdicts.ALPHA / len(_METRICS)
        judged = tuple(
            verdicts.judge_change(metric, before, after, min_effect=min_effect, alpha=alpha, looks=looks, seed=seed)
            for metric, before, after in zip(_METRICS, *pairs, strict=True)
        )
        return Compared(self.source, self.document["created"], self.document["candidate"]["digest"], judged)


def _as_then(then: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """The flag that measures on a server, as a baseline did that is compared with a run in process; "" for others."""
    if (
        then.get("through") != "server"
        or now.get("through") == "server"
        or then.get("backend") not in ("binary", "docker", "local")
    ):
        return ""
    return f"; --launch={then['backend']} measures as then"


def _gaps(native: tuple[float, ...], candidate: tuple[float, ...]) -> npt.NDArray[np.float64]:
    result: npt.NDArray[np.float64] = np.log(np.asarray(candidate)) - np.log(np.asarray(native))
    return result


def read(path: str | pathlib.Path) -> Baseline:
    """The Baseline in a file. Raises: UsageError if the file is not a baseline."""
    try:
        document = documents.read(path)
        whole = document["kind"] == "regression" and document["schema_version"] == 1
        Fingerprint.from_dict(document["machine"])
        figures = [np.asarray(one, float) for one in dataclasses.astuple(PerRound.from_dict(document["rounds"]))]
        whole &= all(one.shape == figures[0].shape and bool(np.all((one > 0) & np.isfinite(one))) for one in figures)
        document["tool"], document["created"], document["outcome"]
        document["native"]["digest"], document["candidate"]["digest"], document["workload"]["digest"]
    except FileNotFoundError:
        raise errors.UsageError(f"no such baseline: {path}", "--save_baseline=FILE writes one") from None
    except OSError as error:
        raise errors.UsageError(
            f"the baseline {path} cannot be read: {error.strerror}", "--save_baseline=FILE writes one"
        ) from None
    except documents.MISREAD:
        whole = False
    if not whole:
        raise errors.UsageError(f"{path} is no result of tftrt regress", "--save_baseline=FILE writes one")
    if not document.get("complete"):
        raise errors.UsageError(f"{path} is of a run that ended early ({document.get('ended')})", "measure it again")
    return Baseline(str(path), document)


def directory(given: str = "") -> pathlib.Path:
    """Where results are kept: `given`, else $XDG_STATE_HOME/tftrt/regressions, or ~/.local/state/tftrt/regressions. Raises: TftrtError
    where there is no home."""
    if given:
        return pathlib.Path(given)
    state = os.environ.get("XDG_STATE_HOME", "")
    # The XDG specification: a relative path is to be ignored.
    base = state if os.path.isabs(state) else os.path.join(os.path.expanduser("~"), ".local", "state")
    if not os.path.isabs(base):
        raise errors.TftrtError(
            "there is no home folder for the history", "set HOME or XDG_STATE_HOME, or give --history_dir"
        )
    return pathlib.Path(base) / "tftrt" / "regressions"


def series_name(candidate: str) -> str:
    """The name under which results of a candidate are kept, by its path or name on the server."""
    return _clean(pathlib.Path(candidate).absolute().name)


def _clean(name: str) -> str:
    """The name, in a form that a folder can have."""
    return _NAME.sub("-", name).strip("-.") or "model"


def listing(folder: pathlib.Path) -> list[tuple[int, pathlib.Path]]:
    """[(number, path)] of the results in a folder, the oldest first."""
    if not folder.is_dir():
        return []
    found = ((_FILE.match(path.name), path) for path in folder.iterdir())
    return sorted((int(match[1]), path) for match, path in found if match)


def save(document: Mapping[str, Any], folder: pathlib.Path) -> pathlib.Path:
    """Put a result into `folder` under the next number, whole or not at all. Returns: its path. Raises: OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".new-") as aside:
        whole = pathlib.Path(aside) / "whole"
        whole_file.write_text(whole, json.dumps(document, indent=1) + "\n")
        number = max((number for number, _ in listing(folder)), default=0) + 1
        while True:
            path = folder / f"{number:04d}.json"
            try:
                # A link never replaces a file, so two runs that end together keep both results.
                os.link(whole, path)
                return path
            except FileExistsError:
                number += 1


def asked_text(document: Mapping[str, Any]) -> str:
    """How the models of a result were called, for people."""
    work = document["workload"]
    closed = ", gate closed" if work.get("gate_closed") else ""
    how = work["through"] if work["through"] == work.get("backend") else f"{work['through']} ({work.get('backend')})"
    beside = f", {work[OTHERS]} measured beside it" if work.get(OTHERS) else ""
    return f"{how}{closed}, {work['signature']} {'; '.join(work['shapes'])}, {work['concurrency']} at a time{beside}"


def place(history_dir: pathlib.Path, machine: Fingerprint, name: str, workload: Mapping[str, Any]) -> pathlib.Path:
    """The folder of one series: a candidate, called in one way, on one kind of machine."""
    keys = (*_KIND, OTHERS) if OTHERS in workload else _KIND
    kind = hashlib.sha256(json.dumps([workload.get(key) for key in keys]).encode()).hexdigest()[:8]
    return history_dir / machine.digest / f"{_clean(name)}@{kind}"


@dataclasses.dataclass(frozen=True)
class Latest:
    """The newest result of a series that passed. history_dir: Path. name: of the candidate's series."""

    history_dir: pathlib.Path
    name: str

    def found(self, machine: Fingerprint, models: Mapping[Side, Model], workload: Mapping[str, Any]) -> Baseline:
        """The Baseline, as Baseline.found checks it. Raises: UsageError if there is none, with what there is instead."""
        for _, path in reversed(listing(place(self.history_dir, machine, self.name, workload))):
            kept = _readable(path)
            if kept and kept.document["outcome"] == PASS:
                return kept.found(machine, models, workload)
        raise self._refusal(machine)

    def _refusal(self, machine: Fingerprint) -> errors.UsageError:
        mend = (
            "measure one here with --save_baseline=auto; results of a server that regress started need its --launch, and those that "
            "others were measured beside need its --on and --batch_size"
        )
        here = sorted(
            folder.name
            for folder in (self.history_dir / machine.digest).glob(f"{_clean(self.name)}@*")
            if listing(folder)
        )
        if here:
            return errors.UsageError(
                f"no baseline of {self.name} passed with this signature, these shapes, this concurrency and this way "
                f"of serving; others are in {self.history_dir / machine.digest}: {', '.join(here)}",
                mend,
            )
        paths = [path for folder in self.history_dir.glob(f"*/{_clean(self.name)}@*") for _, path in listing(folder)]
        elsewhere = next(filter(None, map(_readable, sorted(paths, key=lambda path: -path.stat().st_mtime))), None)
        if elsewhere:
            differs = Fingerprint.from_dict(elsewhere.document["machine"]).differences(machine)
            return errors.UsageError(
                f"no baseline of {self.name} is of this machine; the newest is of another: {'; '.join(differs)}", mend
            )
        return errors.UsageError(
            f"there is no baseline of {self.name} in {self.history_dir}", "--save_baseline=auto keeps one there"
        )


def _readable(path: pathlib.Path) -> Baseline | None:
    """The Baseline in a file, or None where it is another program's, or damaged."""
    try:
        return read(path)
    except errors.UsageError:
        return None
