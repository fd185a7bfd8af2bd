"""The run table that MLflow's UI opens with: one row a cell, the columns people compare, best first.

>>> address(5000, experiment="1")
'http://127.0.0.1:5000/#/experiments/1/runs?viewStateShareKey=dkgi'

MLflow keeps such a view in a tag of the experiment, in a form that it does not document: all of it is here.
Not covered: writing the tag (tracking.py) and the server (ui.py).
"""

import json

KEY = "dkgi"
TAG = f"mlflow.sharedViewState.{KEY}"

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


def address(port: int, experiment: str) -> str:
    """The address of the run table on this machine's server at `port`."""
    return f"http://127.0.0.1:{port}/#/experiments/{experiment}/runs?viewStateShareKey={KEY}"


STATE = json.dumps(
    {
        # Cells only: a data set's thousands of query runs would bury them.
        "searchFilter": "tags.`dkgi.kind` = 'cell'",
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
)
"""The value of the tag: the whole state of the page, since the UI takes what is missing for undefined."""
