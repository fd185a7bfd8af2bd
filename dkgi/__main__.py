"""The command line: `python -m dkgi harness=native tools=full_dkgi model=heuristic limit=20`.

Exit codes: 0 all queries are finished, 1 a bug or unfinished queries, 2 something the user can fix, 3 stopped for
safety or by the provider's quota, 130 Ctrl-C, 143 SIGTERM, 129 SIGHUP.
Not covered: the other verbs, which are modules of their own (python -m dkgi.relog, dkgi.ui).
"""

import os
import sys
import traceback
from typing import TYPE_CHECKING

from dkgi import signals

if TYPE_CHECKING:
    from omegaconf import DictConfig


@signals.watched()
def main() -> None:
    """Run the command line of this process."""
    _prepare_streams()
    _run_hydra()


def _prepare_streams() -> None:
    """A terminal that cannot show a character gets another one instead of ending the run."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]


def _run_hydra() -> None:
    # Imports wait until they are needed: --help and shell completion must not pay for the rest.
    import hydra
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    from dkgi.console import fail, printing
    from dkgi.keys import refuse_keys
    from dkgi.paths import data_dir, runs_dir
    from dkgi.types import SetupError

    OmegaConf.register_new_resolver("dkgi.runs", lambda: str(runs_dir()), replace=True)
    # Makes Hydra raise what it would print over several lines, and leaves our own faults alone.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    command = hydra.main(version_base="1.3", config_path=str(data_dir("conf")), config_name="config")
    try:
        refuse_keys(sys.argv[1:])
        with printing():
            command(_run)()
    except SetupError as error:
        fail(error)
    except (HydraException, OmegaConfBaseException, YAMLError, UnicodeDecodeError, OSError) as error:
        fail(SetupError(_one_line(error)))
    except ValueError as error:
        # What Hydra says of `dataset=null` names no key.
        fail(SetupError(f"{' '.join(sys.argv[1:])}: {_one_line(error)}"))


def _run(config: "DictConfig") -> None:
    from dkgi.config import build
    from dkgi.console import fail
    from dkgi.experiment import run
    from dkgi.types import SetupError

    try:
        code = run(build(config))
    # Both here: what leaves this function as an exception would count as a fault of the command line.
    except SetupError as error:
        fail(error)
    except Exception:
        traceback.print_exc()
        sys.exit(1)
    if code:
        sys.exit(code)


def _one_line(error: Exception) -> str:
    """What Hydra or YAML says, without its advice on search paths and on keys that no option has."""
    text = str(error) or type(error).__name__
    for advice in ("Config search path", "To append to your config", "Set the environment variable"):
        text = text.partition(advice)[0]
    return f"{' '.join(text.split())}; `--help` shows the options and `--cfg job` the keys"


if __name__ == "__main__":
    main()
