"""The command line: `python -m dkgi harness=native tools=full_dkgi model=heuristic limit=20`.

Exit codes: 0 all queries are finished, 1 a bug or Hydra's own error, 2 something the user can fix, 3 stopped for
safety, 130 Ctrl-C.
Not covered: the other verbs, which are modules of their own (python -m dkgi.relog, dkgi.ui).
"""

import sys

import hydra
from omegaconf import DictConfig

from dkgi.paths import data_dir


@hydra.main(version_base="1.3", config_path=str(data_dir("conf")), config_name="config")
def _run(config: DictConfig) -> None:
    # Imports wait until here: --help and shell completion must not pay for them.
    from dkgi.config import build
    from dkgi.console import fail
    from dkgi.experiment import run
    from dkgi.types import SetupError

    try:
        code = run(build(config))
    except SetupError as error:
        fail(error)
    except KeyboardInterrupt:
        code = 130
    if code:
        sys.exit(code)


def main() -> None:
    """Run the command line of this process."""
    from omegaconf import OmegaConf

    from dkgi.console import fail
    from dkgi.keys import refuse_keys
    from dkgi.paths import runs_dir
    from dkgi.types import SetupError

    OmegaConf.register_new_resolver("dkgi.runs", lambda: str(runs_dir()), replace=True)
    try:
        refuse_keys(sys.argv[1:])
    except SetupError as error:
        fail(error)
    _run()


if __name__ == "__main__":
    main()
