"""Configurations that several tests look at, each composed once in a process: Hydra takes a tenth of a second for one.

>>> composed("tools=no_edges").tools.name
'no_edges'

An Experiment is frozen, so that no test can change what another one sees. Not covered: a folder of options of the
user's own (DKGI_CONF) or another one for runs, which are read when it is composed; such tests call dkgi.config.load.
"""

from functools import cache

from dkgi.config import Experiment, load


@cache
def composed(*overrides: str) -> Experiment:
    return load(overrides)
