"""Moves one model of a running server to other versions and labels, or leaves it as it was, both on the server and in its file.

    1. the version policy gets the new versions beside those that serve      reload; wait until the new ones are AVAILABLE
    2. the labels move, which the server does to loaded versions only        reload; ask by label which version answers
    3. versions that are not wanted any more leave the policy                reload

If anything fails before the label has answered, everything is undone: file and server get their old state. Afterwards only step 3 is
undone.
"""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import signal
import threading
import time
from collections.abc import Iterable, Iterator

from tftrt_tools.base import errors
from tftrt_tools.base.files import whole_file
from tftrt_tools.base.process import progress
from tftrt_tools.servers.client import Client, ServingError, VersionStatus
from tftrt_tools.servers.client.model_service import AVAILABLE, LOADING
from tftrt_tools.servers.serving.configuration import model_config
from tftrt_tools.servers.serving.configuration.model_config import Model
from tftrt_tools.servers.serving.management import managed_server
from tftrt_tools.servers.serving.management.models_config_file import ConfigFile

_POLL_SECONDS = 0.2
_SLOW_POLL_SECONDS = 1.0
# A version that failed before stays listed as END until the server polls its folders again, every second by default.
_STALE_SECONDS = 10
_RESTORE_SECONDS = 60
# A load that takes longer may be one that fails again and again: the server names no error while it tries.
_LONG_SECONDS = 60


@dataclasses.dataclass(frozen=True)
class Waiting:
    """seconds: for the new versions to load; stale_seconds: how long an error of an earlier load may stay listed."""

    seconds: float
    stale_seconds: float = _STALE_SECONDS


class Transition:
    """Moves one model. client: Client; file: ConfigFile as the server has it."""

    def __init__(self, client: Client, file: ConfigFile, waiting: Waiting) -> None:
        self._client, self._file, self._waiting = client, file, waiting
        self._now = file  # the last state of file and server

    def run(self, new: Model, needed: Iterable[int], resend: bool = False) -> None:
        """Args: new: the new Model. needed: versions that must be AVAILABLE before a label moves. resend: the server may differ from the
        file, so send the configuration even if nothing changes.

        Raises: TftrtError with the server's words, Interrupted; the old state holds then.
        """
        old = self._file.model(new.name)
        before = self._client.status(new.name)
        available = {state.version for state in before if state.state == AVAILABLE}
        # A label of the file on a version that is not loaded would make the server refuse the whole configuration.
        labels = {label: version for label, version in old.labels.items() if version in available}
        both = dataclasses.replace(
            old, policy=model_config.SPECIFIC, versions=_together(old, new, available), labels=labels
        )
        whole_file.write_text(self._file.pending, self._file.text)
        try:
            if resend or set(both.versions) != set(old.versions) or old.policy != model_config.SPECIFIC:
                self._give(self._file.with_model(both), resend)
            self._wait(
                new.name,
                set(needed),
                {state.version: state for state in before if state.failed},
                available & set(both.versions),
            )
            moved = dataclasses.replace(both, labels=new.labels)
            self._give(self._file.with_model(moved))
            self._verify(moved)
        except BaseException as error:
            raise self._undone(error, self._file, "the old version goes on serving") from None
        committed = self._now
        try:
            if new != moved:
                self._give(self._file.with_model(new))
            self._file.write_previous(new.name)
        except BaseException as error:
            raise self._undone(error, committed, "the labels were moved, and no version was unloaded") from None
        self._file.pending.unlink(missing_ok=True)

    def _give(self, file: ConfigFile, again: bool = False) -> None:
        if file.text == self._now.text and not again:
            return
        if self._is_edited():
            raise errors.TftrtError(f"{file.path} was edited meanwhile", "run the command again")
        self._now = file
        file.write()
        progress.say("giving the server its configuration")
        self._client.reload(file.config, self._waiting.seconds or None)

    def _is_edited(self) -> bool:
        """Whether another has written the file since this change did."""
        try:
            return self._file.path.read_text(errors="replace") != self._now.text
        except OSError:
            return False  # it is gone: it is written again

    def _wait(self, name: str, needed: set[int], stale: dict[int, VersionStatus], serving: set[int]) -> None:
        """Wait until all of `needed` are AVAILABLE. Args: stale: {version: VersionStatus} of earlier errors. serving: versions
        that were AVAILABLE and stay in the policy."""
        start, pause = time.monotonic(), _POLL_SECONDS
        states: dict[int, VersionStatus] = {}
        while True:
            states = self._states(name, needed) or states
            waiting = sorted(
                version for version in needed if version not in states or states[version].state != AVAILABLE
            )
            if not waiting:
                return
            lost = sorted(version for version in serving if version in states and states[version].state != AVAILABLE)
            if lost:
                base = self._file.model(name).base_path
                raise errors.TftrtError(
                    f"the server gave up version {lost[0]} of {name!r}, which it was told to keep: it is not in {base}",
                    "is this the file of that server, with its own paths?",
                )
            passed = time.monotonic() - start
            for version in waiting:
                state = states.get(version)
                if state != stale.get(version):
                    stale.pop(version, None)
                if state and state.failed and (version not in stale or passed > self._waiting.stale_seconds):
                    raise errors.TftrtError(
                        f"version {version} of {name!r} did not load: {state.error_text()}",
                        "fix that version, publish it under the next number, and promote that",
                    )
            if passed > self._waiting.seconds:
                raise self._too_late(name, waiting[0], states.get(waiting[0]))
            progress.say(_waiting_for(name, waiting[0], states.get(waiting[0]), passed))
            time.sleep(min(pause, max(self._waiting.seconds - passed, 0.01)))
            pause = min(pause * 1.2, _SLOW_POLL_SECONDS)

    def _states(self, name: str, needed: set[int]) -> dict[int, VersionStatus]:
        """{version: VersionStatus}, {} where the server is too busy to answer. Raises: TftrtError where it is gone."""
        try:
            return {state.version: state for state in self._client.status(name)}
        except ServingError as error:
            if error.code == "DEADLINE_EXCEEDED":
                return {}
            if error.code != "UNAVAILABLE":
                raise
            versions = ", ".join(map(str, sorted(needed)))
            raise errors.TftrtError(
                f"the server went away while version {versions} of {name!r} was loading: {error.cause}",
                "its log says why; engines of another TensorRT end a server",
            ) from None

    def _too_late(self, name: str, version: int, state: VersionStatus | None) -> errors.TftrtError:
        seen = f"its state is {state.state}" if state else "the server has not seen it"
        last = f" ({state.error_text()})" if state and state.error_text() else ""
        base = self._file.model(name).base_path
        seconds = f"{self._waiting.seconds:g} s"
        if state and state.state == LOADING:
            return errors.TftrtError(
                f"version {version} of {name!r} is not available after {seconds}: its state is {LOADING}{last}. A version that cannot load "
                "is in that state too while the server tries again: by default six attempts, a minute apart, without a word of the error",
                "the server's log has the error (`tftrt log FILE` explains it); --wait_seconds waits longer; a server with "
                "--max_num_load_retries=0 tells it after the first attempt",
            )
        return errors.TftrtError(
            f"version {version} of {name!r} is not available after {seconds}: {seen}{last}",
            "--wait_seconds waits longer; the server's log says what it does"
            if state
            else f"is there a folder {base}/{version} where the server runs?",
        )

    def _verify(self, model: Model) -> None:
        for label, version in model.labels.items():
            answers = managed_server.version_of(self._client, model.name, label)
            if answers != version:
                raise errors.TftrtError(
                    f"the label {label!r} of {model.name!r} was given to version {version}, and "
                    f"{'no version' if answers is None else f'version {answers}'} answers",
                    "look with `tftrt versions`",
                )

    def _undone(self, error: BaseException, file: ConfigFile, then: str) -> BaseException:
        """Give file and server what `file` says. Returns: the exception to raise."""
        with _signals_held():
            edited = self._is_edited()
            problem = restore(self._client, file, not edited)
        back = (
            f"the server has its configuration back, and {file.path} is as it was edited"
            if edited
            else f"{file.path} and the server have their configuration back"
        )
        message = problem or f"{back}: {then}"
        if isinstance(error, KeyboardInterrupt):
            return errors.Interrupted("interrupted", message)
        known_error = errors.from_os_error(error) if isinstance(error, OSError) else error
        if not isinstance(known_error, errors.TftrtError):
            return known_error  # a bug keeps its traceback
        return errors.TftrtError(known_error.cause, f"{known_error.mend}; {message}" if known_error.mend else message)


def restore(client: Client, file: ConfigFile, write: bool = True) -> str:
    """Give file and server what ConfigFile `file` says. Args: write: whether the file gets it. Returns: "" or why that could not be done,
    one line."""
    try:
        if write:
            file.write()
    except OSError as error:
        return f"{file.path} could not be written ({error.strerror}): its content from before is {file.pending}"
    try:
        client.reload(file.config, _RESTORE_SECONDS)
    except ServingError as error:
        # The file `pending` stays: the next command starts with the configuration that the server did not take.
        return (
            f"{file.path} has its old content, but the server did not take it ({error.cause}): start it with that file"
        )
    file.pending.unlink(missing_ok=True)
    return ""


def recover(client: Client, path: str | pathlib.Path) -> str | None:
    """Undo what a killed promotion left. Returns: a line that says so, or None. Raises: TftrtError if the server does not take it."""
    file = ConfigFile.read(path)
    if not file.pending.is_file():
        return None
    old = ConfigFile(file.path, file.pending.read_text())
    problem = restore(client, old)
    if problem:
        raise errors.TftrtError(
            f"an earlier promotion was cut off, and it cannot be undone: {problem}",
            "fix that, and run the command again",
        )
    return f"an earlier promotion was cut off: {file.path} and the server have their configuration from before it again"


def _waiting_for(name: str, version: int, state: VersionStatus | None, seconds: float) -> str:
    """What is waited for, and after a while what may be wrong."""
    if seconds < _LONG_SECONDS or state is None or state.state != LOADING:
        return f"waiting for version {version} of {name}"
    return (
        f"waiting for version {version} of {name}, {LOADING} for {seconds:.0f} s: a large model, or one that cannot load and that the "
        "server tries again (its log says so)"
    )


def _together(old: Model, new: Model, available: set[int]) -> tuple[int, ...]:
    """The present and the new versions together, the smallest first."""
    serving = old.versions if old.policy == model_config.SPECIFIC else available
    coming = new.versions if new.policy == model_config.SPECIFIC else new.labels.values()
    return tuple(sorted({*serving, *old.labels.values(), *coming}))


@contextlib.contextmanager
def _signals_held() -> Iterator[None]:
    """Ctrl-C and SIGTERM wait for the end of the block, so that everything is undone."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
