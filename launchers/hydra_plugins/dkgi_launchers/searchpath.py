"""User folders of configuration, named in `DKGI_CONF`, come before the shipped one.

    DKGI_CONF=~/my_conf python -m dkgi model=mine       # ~/my_conf/model/mine.yaml, or one that replaces a shipped file

Several folders are separated like those of PATH; the first one wins.
Not covered: validation of what lies there; it passes the same checks as the shipped files.
"""

from hydra.core.config_search_path import ConfigSearchPath, SearchPathQuery
from hydra.plugins.search_path_plugin import SearchPathPlugin

from dkgi.paths import user_folders


class UserFolders(SearchPathPlugin):
    """Puts the folders of `DKGI_CONF` in front of the shipped configuration."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        # Each call puts its folder directly before the shipped one, so the first one goes in first.
        for folder in user_folders():
            search_path.prepend("dkgi-user", f"file://{folder}", SearchPathQuery(provider="main"))
