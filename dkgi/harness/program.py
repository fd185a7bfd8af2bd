"""What harnesses with an external program share: how its session and its jail decide about an attempt.

>>> ended(session, late=False)
Ending(stop='turn_limit', answer='', error='')

Not covered: what a program makes of its own end (pi.py, codex.py); its jail (jail/external.py).
"""

from dataclasses import dataclass

from dkgi.harness.native import ERROR_STOPS
from dkgi.types import ModelError, Program, SandboxError, Session, Stop

LOOK_S = 0.25
"""How often a program that runs is looked at."""
END_S = 5.0
"""How long a program that has ended may take until that is known."""


@dataclass(frozen=True, slots=True)
class Ending:
    stop: Stop
    answer: str = ""
    error: str = ""


def ended(session: Session, *, late: bool) -> Ending | None:
    """How its session ended an attempt; None where that is the program's to say. What ended a request counts before what
    the program made of it. Raises the fault where no query can be answered."""
    fault, last = session.fault, session.last
    if fault is not None and not isinstance(fault, ModelError):
        raise fault
    told = f"{fault.kind}: {fault}" if fault else ""
    if late:
        return Ending("time_limit", last.text if last else "", told)
    if fault is not None:
        return Ending(ERROR_STOPS.get(fault.kind, "model_error"), error=told)
    if session.over_turns:
        return Ending("turn_limit")
    if last is not None and last.stop == "refused":
        return Ending("refused", last.text)
    return None


def check_jail(program: Program, name: str, *, memory_mb: int, scratch_mb: int | None = None) -> None:
    """Raise SandboxError where a program that has ended was killed, and not for its time."""
    reasons = {
        "memory": f"{name} used more memory than harness.memory_mb={memory_mb}",
        "scratch": f"{name} and its commands keep more than harness.scratch_mb={scratch_mb}",
        "sandbox": f"the jail of {name} was killed from outside",
    }
    if reason := reasons.get(program.killed_by or ""):
        raise SandboxError(reason)
