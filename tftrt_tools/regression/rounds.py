"""Interleaved rounds: both models are asked in turn, in short blocks, so that whatever the machine does meanwhile meets both.

A round is eight blocks in the order A B B A B A A B, and the next round has A and B exchanged. Inside a round a drift that is linear or
quadratic in time then adds the same to both (the order is that of Thue and Morse), and what the first or last place of a round does is
shared over two rounds. The requests of both models are the same, in the same order. Connections and load processes are made once, and only
one model is asked at a time.
"""

import contextlib
import dataclasses
import math

import numpy as np

from tftrt_tools import errors, progress
from tftrt_tools.load import generator, workers

NATIVE, CANDIDATE = "native", "candidate"
_ORDER = (0, 1, 1, 0, 1, 0, 0, 1)
BLOCKS = len(_ORDER) // 2
_BLOCK_SECONDS = 0.1
_LEAST, _MOST = 4, 256
_WARM_UP_SECONDS, _WARM_UP_LEAST = 1.0, 20


@dataclasses.dataclass(frozen=True)
class Block:
    """One stretch of requests to one model. seconds: float (answered,), in the order of sending; failed: requests that were not answered;
    active: seconds from the first send to the last answer."""

    seconds: np.ndarray
    failed: int
    active: float


@dataclasses.dataclass(frozen=True)
class Round:
    """blocks: (Block, …) of one model in one round."""

    blocks: tuple

    @property
    def seconds(self):
        """float (answered,)."""
        return np.concatenate([one.seconds for one in self.blocks])

    @property
    def failed(self):
        return sum(one.failed for one in self.blocks)

    @property
    def rate(self):
        """Requests answered a second while the model was asked."""
        return sum(len(one.seconds) for one in self.blocks) / sum(one.active for one in self.blocks)


@dataclasses.dataclass
class Measured:
    """What was measured so far. native, candidate: [Round], as many of both. errors: {model: [texts of the first failures]}."""

    native: list = dataclasses.field(default_factory=list)
    candidate: list = dataclasses.field(default_factory=list)
    errors: dict = dataclasses.field(default_factory=lambda: {NATIVE: [], CANDIDATE: []})

    def of(self, name):
        """[Round] of a model."""
        return self.native if name == NATIVE else self.candidate

    def failed(self, name):
        """Requests of a model that were not answered."""
        return sum(one.failed for one in self.of(name))

    @property
    def usable(self):
        """How many rounds, from the first, have an answer of both models."""
        whole = [len(one.seconds) > 0 and len(other.seconds) > 0 for one, other in zip(self.native, self.candidate, strict=True)]
        return whole.index(False) if False in whole else len(whole)


def order(number):
    """The models of the blocks of round `number`, counted from 0."""
    pair = (NATIVE, CANDIDATE) if number % 2 == 0 else (CANDIDATE, NATIVE)
    return [pair[place] for place in _ORDER]


def requests_of_block(latency_seconds, concurrency):
    """How many requests a block has, so that it lasts about _BLOCK_SECONDS: short against the machine's drift, long against the pause
    between two blocks."""
    wanted = math.ceil(_BLOCK_SECONDS / max(latency_seconds, 1e-6))
    return max(_LEAST, min(_MOST, wanted)) * concurrency


@dataclasses.dataclass(frozen=True)
class Share:
    """What is told to the load process of one model. team: workers.Team. of: (first, number) of its requests there, None for all."""

    team: object
    of: tuple | None = None


class Asker:
    """Load on both models; made by `asking` and `asking_one`. Args: shares: {name: Share}. name: of what is asked, for messages."""

    def __init__(self, shares, name, concurrency):
        self._shares, self._name, self._concurrency = shares, name, concurrency
        self._failures = {name: [] for name in shares}

    def warm_up(self):
        """Ask both models until each was asked for a while. Returns: {model: median seconds}. Raises: TftrtError where one answers
        nothing."""
        found = {}
        for name in (NATIVE, CANDIDATE, NATIVE, CANDIDATE):
            progress.say(f"warming up {name}")
            seconds = []
            for count in (_LEAST, _WARM_UP_LEAST):
                block = self.block(name, count * self._concurrency)
                if not len(block.seconds):
                    raise errors.TftrtError(f"the {name} model answered none of {count} requests: {'; '.join(self.failures(name))}",
                                            "mend the requests (--shapes, --data), the model or the server")
                seconds.append(float(np.median(block.seconds)))
            rest = min(_MOST * 8, math.ceil(_WARM_UP_SECONDS / 2 / max(seconds[-1], 1e-6)))
            if rest > _WARM_UP_LEAST:
                seconds.append(float(np.median(self.block(name, rest).seconds)))
            found[name] = seconds[-1]
        return found

    def block(self, name, count):
        """Ask one model `count` times. Returns: Block. Raises: KeyboardInterrupt, errors.Interrupted; TftrtError where its process
        ended."""
        share = self._shares[name]
        team, before = share.team, len(share.team.rows)
        team.tell([{"do": "closed", "slots": self._concurrency, "limit": count, "start": 0, "due_at_start": False, "of": share.of}])
        while not team.idle():
            team.listen_until_idle(1.0)
            if team.problems:
                raise errors.TftrtError(f"the load on {self._name} ended: {team.problems[0]}", "run the command again")
        rows = team.rows[before:]
        if not rows:
            return Block(np.zeros(0), 0, 0.0)
        rows = np.concatenate(rows)
        rows = rows[np.argsort(rows[:, 1], kind="stable")]
        answered = rows[:, 3] == 0
        self._note_failures(name, team, rows[~answered, 3])
        return Block((rows[answered, 2] - rows[answered, 1]) / 1e9, int((~answered).sum()), (rows[:, 2].max() - rows[:, 1].min()) / 1e9)

    def _note_failures(self, name, team, codes):
        for code in dict.fromkeys(codes.tolist()):
            known, texts = team.messages.get(code, (str(code), ["no message"]))
            self._failures[name] += [one for text in texts if (one := f"{known}: {text}") not in self._failures[name]]

    def round(self, number, count, measured):
        """Add round `number`, with `count` requests in each block, to Measured."""
        blocks = {NATIVE: [], CANDIDATE: []}
        for name in order(number):
            blocks[name].append(self.block(name, count))
        measured.native.append(Round(tuple(blocks[NATIVE])))
        measured.candidate.append(Round(tuple(blocks[CANDIDATE])))
        for name in blocks:
            measured.errors[name] = self.failures(name)

    def failures(self, name):
        """The first failures of a model, as text."""
        return self._failures[name][:3]


@contextlib.contextmanager
def asking(target, payloads, concurrency=1):
    """Start a load process for each model of a server.

    Args: target: generator.Target. payloads: {NATIVE: payload.Payload, CANDIDATE: …}. concurrency: requests under way at a time.
    Yields: Asker. Raises: TftrtError where there is no connection.
    """
    plan = generator.Plan("closed", concurrency, check_every=0)
    with contextlib.ExitStack() as stack:
        shares = {}
        for name, one in payloads.items():
            shares[name] = Share(stack.enter_context(workers.started(generator.jobs(target, one, plan))))
        for one in shares.values():
            one.team.connected(target.address, target.connect_s)
        yield Asker(shares, target.address, concurrency)


@contextlib.contextmanager
def asking_one(job, firsts, count, load_seconds, env=None, concurrency=1):
    """Start one process that has both models.

    Args: job: job.Job. firsts: {NATIVE: index of its first request, CANDIDATE: …}. count: requests of each. load_seconds: for the models to
      be loaded. env: variables to set in it.
    Yields: Asker. Raises: TftrtError where a model cannot be loaded.
    """
    with workers.started([job], env) as team:
        team.connected("the models in process", load_seconds)
        yield Asker({name: Share(team, (first, count)) for name, first in firsts.items()}, "the models in process", concurrency)
