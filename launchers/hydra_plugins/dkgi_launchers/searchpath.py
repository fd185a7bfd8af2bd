"""User folders of configuration, named in `DKGI_CONF`, come before the shipped one.

    DKGI_CONF=~/my_conf python -m dkgi model=mine       # ~/my_conf/model/mine.yaml, or one that replaces a shipped file

Several folders are separated like those of PATH; the first one wins.
Not covered: validation of what lies there; it passes the same checks as the shipped files.
"""

import os
from pathlib import Path

from hydra.core.config_search_path import ConfigSearchPath, SearchPathQuery
from hydra.plugins.search_path_plugin import SearchPathPlugin


class UserFolders(SearchPathPlugin):
    """Puts the folders of `DKGI_CONF` in front of the shipped configuration."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        folders = [part for part in os.environ.get("DKGI_CONF", "").split(os.pathsep) if part]
        # Each call puts its folder directly before the shipped one, so the first one goes in first.
        for folder in folders:
            absolute = Path(folder).expanduser().absolute()
            search_path.prepend("dkgi-user", f"file://{absolute}", SearchPathQuery(provider="main"))
