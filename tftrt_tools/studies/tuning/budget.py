"""How long a search may try."""

import dataclasses


class Spent(Exception):
    """The budget ends a search; the text says which part of it, as a flag."""


@dataclasses.dataclass(frozen=True)
class Budget:
    """trials: the most trials; minutes: no trial begins once the trials have taken this long; trial_minutes: a trial is ended after this
    time, 0 for never."""

    trials: int = 12
    minutes: float = 60.0
    trial_minutes: float = 0.0

    def seconds_left(self, seconds: float) -> float:
        """Seconds of trials, after which none begins. Args: seconds: that trials took already."""
        return 60 * self.minutes - seconds

    def check(self, trials: int, seconds: float, following: str = "") -> None:
        """Raise Spent where no further trial may begin. Args: trials: that were done; seconds: that they took; following: what would be
        next, for people."""
        rest = f"; {following}" if following else ""
        if trials >= self.trials:
            raise Spent(f"--max_trials={self.trials} are done{rest}")
        if seconds >= 60 * self.minutes:
            raise Spent(f"--max_minutes={self.minutes:g} are over{rest}")
