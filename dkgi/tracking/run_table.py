"""The run table that MLflow's UI opens with: one row a cell, the columns people compare, best first.

>>> address(5000, experiment="1")
'http://127.0.0.1:5000/#/experiments/1/runs?viewStateShareKey=dkgi'
>>> table_link("1", grid_key("quickstart_ablation"))
'#/experiments/1/runs?viewStateShareKey=grid-quickstart_ablation'

MLflow keeps such a view in a tag of the experiment, in a form that it does not document: all of it is here. A grid has
a view of its own, since a filter in the address would take the columns away.
Not covered: writing the tags (database.py, grids.py) and the server (ui.py).
"""

import json
import re

KEY = "dkgi"

_COLUMNS = {
    "params.`dataset`": 80,
    "params.`harness`": 80,
    "params.`tools`": 130,
    "params.`model`": 110,
    "metrics.`n_queries`": 90,
    "metrics.`hit_at_1`": 85,
    "metrics.`recall_at_20`": 105,
    "metrics.`mrr`": 70,
    "metrics.`cost_usd`": 90,
    "metrics.`input_tokens`": 110,
    "metrics.`output_tokens`": 115,
}
"""What people compare, with the widths that show it whole, in pixels."""

_PAGE = {
    "orderByKey": "metrics.`hit_at_1`",
    "orderByAsc": False,
    "selectedColumns": list(_COLUMNS),
    "columnOrder": ["attributes.`Run Name`", *_COLUMNS],
    "columnWidths": _COLUMNS,
    "startTime": "ALL",
    "lifecycleFilter": "Active",
    "modelVersionFilter": "All Runs",
    "datasetsFilter": [],
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
    "autoRefreshEnabled": True,
}


def address(port: int, experiment: str) -> str:
    """The address of the run table on this machine's server at `port`."""
    return f"http://127.0.0.1:{port}/{table_link(experiment, KEY)}"


def table_link(experiment: str, key: str, *, charts: bool = False) -> str:
    """A view of the runs, as a table or as charts, for texts that the UI shows."""
    return f"#/experiments/{experiment}/runs?viewStateShareKey={key}" + ("&compareRunsMode=CHART" if charts else "")


def run_link(experiment: str, run: str) -> str:
    """The page of a run, for texts that the UI shows."""
    return f"#/experiments/{experiment}/runs/{run}"


def grid_key(grid: str) -> str:
    """The key of a grid's view, which is part of an address."""
    return f"grid-{re.sub('[^A-Za-z0-9_.-]', '_', grid)}"


def tag(key: str) -> str:
    """The experiment's tag that holds the view of a key."""
    return f"mlflow.sharedViewState.{key}"


def state(also: str = "") -> str:
    """The value of such a tag: the whole state of the page, since the UI takes what is missing for undefined.

    `also` is one more condition on the cells that the table shows.
    """
    # Cells only: a data set's thousands of query runs would bury them.
    conditions = ["tags.`dkgi.kind` = 'cell'", *([also] if also else [])]
    return json.dumps({"searchFilter": " AND ".join(conditions)} | _PAGE)
