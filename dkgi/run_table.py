"""The run table that MLflow's UI opens with: one row a cell, the columns people compare, best first.

>>> address(5000, experiment="1")
'http://127.0.0.1:5000/#/experiments/1/runs?viewStateShareKey=dkgi'

MLflow keeps such a view in a tag of the experiment, in a form that it does not document: all of it is here.
Not covered: writing the tag (tracking.py) and the server (ui.py).
"""

import base64
import json
import zlib
from typing import Any

KEY = "dkgi"
TAG = f"mlflow.sharedViewState.{KEY}"
_COMPRESSED = "deflate;"

COLUMNS = (
    *(f"params.`{name}`" for name in ("dataset", "harness", "model", "tools")),
    *(
        f"metrics.`{name}`"
        for name in ("cost_usd", "hit_at_1", "input_tokens", "mrr", "n_queries", "output_tokens", "recall_at_20")
    ),
)


def address(port: int, experiment: str) -> str:
    """The address of the run table on this machine's server at `port`."""
    return f"http://127.0.0.1:{port}/#/experiments/{experiment}/runs?viewStateShareKey={KEY}"


def encode(state: dict[str, Any]) -> str:
    """`state` as the value of the tag."""
    packed = zlib.compress(json.dumps(state, separators=(",", ":")).encode())
    return _COMPRESSED + base64.b64encode(packed).decode()


def decode(value: str) -> dict[str, Any]:
    """What `encode` was given."""
    state: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(value.removeprefix(_COMPRESSED))))
    return state


def state() -> dict[str, Any]:
    """The view: cells only, since a data set's thousands of query runs would bury them."""
    return {
        "searchFilter": "tags.`dkgi.kind` = 'cell'",
        "orderByKey": "metrics.`hit_at_1`",
        "orderByAsc": False,
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "modelVersionFilter": "All Runs",
        "datasetsFilter": [],
        "selectedColumns": list(COLUMNS),
        "runsExpanded": {},
        "runsPinned": [],
        "runsHidden": [],
        "runsHiddenMode": "FIRST_10_RUNS",
        "viewMaximized": False,
        "runListHidden": False,
        "isAccordionReordered": False,
        "useGroupedValuesInCharts": True,
        "hideEmptyCharts": True,
        "groupBy": None,
        "compareRunCharts": None,
        "compareRunSections": None,
        "autoRefreshEnabled": True,
        "chartsSearchFilter": "",
    }
