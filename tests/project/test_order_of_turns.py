"""All places that time candidates in turns do it in the order of base.statistics.interleaving."""

import itertools
import pathlib
import re
import types

import pytest

import tftrt_tools
from tftrt_tools.base.statistics import interleaving
from tftrt_tools.servers.serving.smoke import latency, measurement
from tftrt_tools.studies.batching import turns as batching_turns
from tftrt_tools.studies.profiling.job import recorder
from tftrt_tools.studies.regression import rounds as regression_rounds
from tftrt_tools.studies.tuning import repeats, turns_job

PACKAGE = pathlib.Path(tftrt_tools.__file__).parent
OWNER = "base/statistics/interleaving.py"
# A sequence that is turned round, or one of two orders, by whether a number is odd.
OWN_ORDER = re.compile(r":: ?-1 if |\([01], [01]\) if |if [\w. ]+ % 2( == \d)? else (reversed|\(|\[)")


def of_tuning(say, monkeypatch):
    monkeypatch.setattr(turns_job, "count", lambda call: 1)
    monkeypatch.setattr(turns_job, "block", lambda call, calls: [call()])
    turns_job.in_turns([lambda: say("A"), lambda: say("B"), lambda: say("C")])
    return "ABC", turns_job.ROUNDS, 1


def of_builds(say, monkeypatch):
    class Timed:
        counts = (1,)

        def __init__(self, worker, side):
            self.name = side.model

        def medians(self, counts):
            return [say(self.name)]

    monkeypatch.setattr(repeats, "Timed", Timed)
    monkeypatch.setattr(repeats, "time_model", types.SimpleNamespace(worker=lambda env: _nothing()))
    repeats.turns({number: repeats.Side(model=name, saved=[]) for number, name in enumerate("ABC")}, "comparing", 5)
    return "ABC", 5, 1


def of_batching(say, monkeypatch):
    both = [types.SimpleNamespace(block=lambda rate, seconds, number, name=name: say(name)) for name in "AB"]
    view = types.SimpleNamespace(note=lambda text: None)
    rounds = batching_turns._Rounds(None, both, 1.0, 1.0, 1.0, view)
    for number in range(5):
        rounds.add(number)
    return "AB", 5, 1


def of_smoke(say, monkeypatch):
    class Sender:
        def __init__(self, name):
            self.name = name

        def request(self, call):
            return b""

        def send(self, request, call):
            say(self.name)
            return b"", 1.0

    monkeypatch.setattr(measurement, "_WARM_UP", 0)
    call = types.SimpleNamespace(text=lambda: "a call")
    assert measurement.against_native(Sender("B"), Sender("A"), call, 5).blocks == 5
    return "AB", 5, measurement._REQUESTS


def _of_rounds(names):
    def run(say, monkeypatch):
        asker = regression_rounds.Turns(dict.fromkeys(names), "x", 1)
        monkeypatch.setattr(asker, "block", lambda name, count: say(name))
        for number in range(5):
            done = asker.turn(number, 1)
            assert all(len(one.blocks) == regression_rounds.BLOCKS for one in done.values())
        return names, 5, regression_rounds.BLOCKS

    return run


def of_profile(say, monkeypatch):
    monkeypatch.setattr(recorder, "_warm", lambda call: 1.0)
    monkeypatch.setattr(interleaving, "block", lambda timed, count: [timed()])
    calls = {name: (_whole(say, name), {"untraced": []}) for name in "AB"}
    made = types.SimpleNamespace(_try=lambda step, function, *given: function(*given), _write=lambda: None)
    recorder.Recorder._turns(made, calls, 5)
    assert all(len(facts["untraced"]) == 5 for _, facts in calls.values())
    return "AB", 5, 1


def _whole(say, name):
    return types.SimpleNamespace(call=lambda: None, timed=lambda: say(name))


def of_graphs(say, monkeypatch):
    pytest.importorskip("tensorrt")
    from tftrt_tools.studies.profiling.job import plan_job

    plain, graph = (lambda: None), types.SimpleNamespace(nodes=1, launch=lambda: None)
    chosen = types.SimpleNamespace(
        context=types.SimpleNamespace(call=plain, enqueue=plain, stream=0),
        cuda=types.SimpleNamespace(wait=lambda stream: None, captured=lambda enqueue, stream: graph),
    )
    monkeypatch.setattr(plan_job, "_median_wall", lambda call: say("plain" if call is plain else "graph"))
    monkeypatch.setattr(plan_job, "_row", lambda _, launch: say("plain_row" if launch is plain else "graph_row"))
    facts = {}
    plan_job._graphed(chosen, facts)
    assert list(facts["turns"]) == ["plain", "graph", "plain_row", "graph_row"]
    return list(facts["turns"]), plan_job._ROWS, 1


class _nothing:
    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


@pytest.mark.parametrize(
    "place", [of_tuning, of_builds, of_batching, of_smoke, _of_rounds("AB"), _of_rounds("ABC"), of_profile, of_graphs]
)
def test_the_blocks_come_in_the_one_order(place, monkeypatch):
    said = []
    names, rounds, blocks = place(said.append, monkeypatch)
    assert said == [
        *itertools.chain.from_iterable(interleaving.order(names, number, blocks) for number in range(rounds))
    ]


def own_orders():
    return [
        str(path.relative_to(PACKAGE))
        for path in sorted(PACKAGE.rglob("*.py"))
        if OWN_ORDER.search(path.read_text()) and path.relative_to(PACKAGE).as_posix() != OWNER
    ]


def test_no_other_module_alternates_by_itself():
    assert own_orders() == []
    for text in (
        "names[:: -1 if n % 2 else 1]",
        "(0, 1) if n % 2 == 0 else (1, 0)",
        "ways if n % 2 else reversed(ways)",
    ):
        assert OWN_ORDER.search(text), text


def test_smoke_pairs_the_requests_of_a_round(monkeypatch):
    """Native takes 2, 4, 6, …, converted 1, 2, 3, …: a pair of means for each round."""
    seen = []
    monkeypatch.setattr(latency, "ratio", lambda blocks: seen.extend(map(tuple, blocks)))

    class Sender:
        def __init__(self, each):
            self.each, self.done = each, 0

        def request(self, call):
            return b""

        def send(self, request, call):
            self.done += self.each
            return b"", float(self.done)

    monkeypatch.setattr(measurement, "_WARM_UP", 0)
    measurement.against_native(Sender(1), Sender(2), types.SimpleNamespace(text=lambda: ""), 3)
    assert seen == [(3.0, 1.5), (7.0, 3.5), (11.0, 5.5)]
