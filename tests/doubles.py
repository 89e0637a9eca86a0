"""Stand-ins for jobs: a function of the test in place of the child process."""

import json

from tftrt_tools.base import records
from tftrt_tools.base.process import child


def job(monkeypatch, replaced, function):
    """Let `replaced` (a jobs.Job) call `function` in this process. What it takes and gives goes through JSON, as between processes.
    Returns: a list that gets each Request."""
    requests = []

    def run(request, *args, **options):
        requests.append(replaced.read_request(json.loads(json.dumps(records.plain(request)))))
        answer = json.loads(json.dumps(records.plain(function(requests[-1]))))
        return child.Outcome(replaced.read_answer(answer), "")

    monkeypatch.setattr(replaced, "run", run)
    return requests
