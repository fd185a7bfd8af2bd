"""A place for a model's requests that nobody has to pay for.

>>> free_place(query=7).attempt
1
"""

import time
from pathlib import Path

from dkgi.meter import Ledger
from dkgi.types import Place


def free_place(
    query: int = 1, *, repeat: int = 0, attempt: int = 1, seconds: float = 60, folder: Path = Path("nowhere")
) -> Place:
    """Requests of one attempt, to end in `seconds`; `folder` is only needed by models that record requests."""
    account = Ledger(cap_usd=None, prices=None).account(cap_usd=None)
    return Place(query, repeat, attempt, time.monotonic() + seconds, folder, account)
