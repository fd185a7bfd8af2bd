"""The command line, as a user gives it.

>>> dkgi("limit=0").returncode
2
"""

import os
import subprocess
import sys


def dkgi(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `python -m dkgi` to its end, with these variables beside those of this process."""
    return subprocess.run(
        [sys.executable, "-m", "dkgi", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, **environment},
    )
