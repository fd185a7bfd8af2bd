"""A trajectory becomes a trace that tells the same story, costs the same, and harms nobody who looks at it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from dkgi import tracking
from dkgi.pricing import dollars
from dkgi.tracking.spans import READ_CHARS, TEXT_CHARS, spans
from dkgi.types import Prices, Step, Usage

if TYPE_CHECKING:
    from tests.tracking.conftest import Log

PRICES = Prices(input=0.1, cached_input=0.01, cache_write=0.1, output=0.5)
IMAGE = "![t](http://x/y.png)"


def convert(*steps: Step, prices: Prices | None = PRICES) -> list[dict[str, Any]]:
    return spans(steps, trace="ab" * 16, name="hpo:00017", model="luna", prices=prices)


def attribute(span: dict[str, Any], name: str) -> Any:
    return json.loads(span["attributes"][name])


def inputs(span: dict[str, Any]) -> Any:
    return attribute(span, "mlflow.spanInputs")


def outputs(span: dict[str, Any]) -> Any:
    return attribute(span, "mlflow.spanOutputs")


def message(span: dict[str, Any]) -> Any:
    return outputs(span)["choices"][0]["message"]


def test_a_trajectory_becomes_replies_and_tool_calls_below_the_agent(log: Log) -> None:
    found = convert(*log.steps())
    kinds = [(attribute(span, "mlflow.spanType"), span["name"]) for span in found]
    assert kinds == [("AGENT", "hpo:00017"), ("CHAT_MODEL", "reply 1"), ("TOOL", "bash"), ("CHAT_MODEL", "reply 2")]
    assert {span["parent_span_id"] for span in found[1:]} == {found[0]["span_id"]}
    seconds = [(s["start_time_unix_nano"] / 1e9, s["end_time_unix_nano"] / 1e9) for s in found]
    assert seconds == [(100, 105), (100, 102), (102, 103), (103, 105)]


def test_a_reply_holds_only_the_messages_that_are_new_to_it(log: Log) -> None:
    _, first, _, second = convert(*log.steps())
    assert inputs(first)["messages"] == [{"role": "user", "content": "Which genes?"}]
    assert inputs(second)["messages"] == [{"role": "tool", "tool_call_id": "a", "content": "nodes\nedges\n"}]
    call = {"id": "a", "type": "function", "function": {"name": "bash", "arguments": '{"command": "ls"}'}}
    assert message(first) == {"role": "assistant", "content": "", "tool_calls": [call]}


def test_several_calls_of_one_reply_stay_together() -> None:
    usage = Usage(10, 0, 0, 1)
    found = convert(
        Step("user", "Q"),
        Step("reasoning_summary", "First I look.", usage=usage),
        Step("tool_call", "{}", name="bash", call_id="a"),
        Step("tool_call", "{}", name="read", call_id="b"),
        Step("tool_result", "1", name="bash", call_id="a"),
        Step("tool_result", "2", name="read", call_id="b", is_error=True),
        Step("assistant", "A"),
    )
    assert [span["name"] for span in found] == ["hpo:00017", "reply 1", "bash", "read ✗", "reply 2"]
    assert message(found[1])["content"] == "First I look."
    assert [call["id"] for call in message(found[1])["tool_calls"]] == ["a", "b"]
    assert found[3]["status"]["code"] == "STATUS_CODE_ERROR"
    assert [read["content"] for read in inputs(found[4])["messages"]] == ["1", "2"]


def test_two_replies_in_a_row_are_told_apart_by_their_usage() -> None:
    usage = Usage(10, 0, 0, 1)
    found = convert(Step("user", "Q"), Step("assistant", "a", usage=usage), Step("assistant", "b", usage=usage))
    assert [message(span)["content"] for span in found] == ["b", "a", "b"]


def test_the_costs_of_the_spans_add_up_to_the_cost_of_the_usage(log: Log) -> None:
    used = [step.usage for step in log.steps() if step.usage]
    costs = [
        attribute(span, "mlflow.llm.cost") for span in convert(*log.steps()) if "mlflow.llm.cost" in span["attributes"]
    ]
    assert sum(cost["total_cost"] for cost in costs) == pytest.approx(dollars(sum(used, Usage()), PRICES))
    assert costs[0]["input_cost"] == pytest.approx((1000 * 0.1 + 200 * 0.01) / 1e6)
    assert costs[0]["output_cost"] == pytest.approx(50 * 0.5 / 1e6)


def test_without_prices_no_span_names_a_model_that_mlflow_could_price(log: Log) -> None:
    text = json.dumps(convert(*log.steps(), prices=None))
    assert "luna" not in text
    assert "mlflow.llm.cost" not in text


@pytest.mark.parametrize("arguments", ['{"command": "%s"}', '["%s"]', "%s", '{"nested": {"a": ["%s"]}}'])
def test_no_text_of_an_agent_or_a_tool_is_live_markdown(arguments: str) -> None:
    ticks = f"````\n{IMAGE}"
    found = convert(
        Step("user", IMAGE),
        Step("reasoning_summary", IMAGE),
        Step("assistant", IMAGE),
        Step("tool_call", arguments % IMAGE, name="bash", call_id="a"),
        Step("tool_result", ticks, name="bash", call_id="a"),
    )
    agent, reply, tool = found
    assert IMAGE not in json.dumps([inputs(agent), message(agent), inputs(reply), message(reply)["content"]])
    assert outputs(tool) == f"`````\n{ticks}\n`````"
    for value in inputs(tool).values():
        assert value.startswith("```")
        assert value.endswith("```")


def test_long_texts_are_cut_and_say_so() -> None:
    text = "x" * (TEXT_CHARS + 7)
    _, reply = convert(Step("user", text), Step("assistant", "A"))
    (read,) = inputs(reply)["messages"]
    assert read["content"] == "x" * TEXT_CHARS + " [... 7 more characters]"


def test_a_long_output_is_whole_in_the_tools_span_and_begun_in_the_next_reply() -> None:
    text = "x" * 18_000
    _, tool, reply = convert(Step("tool_result", text, name="bash", call_id="a"), Step("assistant", "A"))
    assert outputs(tool) == f"```\n{text}\n```"
    assert inputs(reply)["messages"][0]["content"] == "x" * READ_CHARS + " [... 14000 more characters]"


def test_a_trajectory_without_steps_has_no_spans() -> None:
    assert convert() == []


def test_mlflow_shows_the_trace_of_a_run_with_our_tokens_and_cost(log: Log) -> None:
    log.write(log.open(traces=True), log.result())
    (run,) = log.found()
    (trace,) = log.traces()
    assert trace.info.trace_metadata["mlflow.sourceRun"] == run.info.run_id
    assert trace.info.request_preview == "Which genes?"
    assert trace.info.state == "OK"
    assert trace.info.request_time == 100_000
    assert trace.info.execution_duration == 5_000
    assert trace.info.tags["dkgi.tools"] == "full_dkgi"
    assert trace.info.token_usage["input_tokens"] == 2400
    assert trace.info.token_usage["output_tokens"] == 70
    assert trace.info.cost["total_cost"] == pytest.approx(dollars(Usage(1500, 900, 0, 70), PRICES))
    assert [span.name for span in trace.data.spans] == ["hpo:00017", "reply 1", "bash", "reply 2"]


def test_a_cell_without_traces_writes_none(log: Log) -> None:
    log.write(log.open(traces=False), log.result())
    assert log.traces() == []


def test_mlflow_puts_no_price_of_its_own_on_a_model_without_one(log: Log) -> None:
    config = {**log.cell.config, "model": {"name": "gpt-4o", "prices": None}}
    cell = tracking.CellInfo(log.cell.cell, {**log.cell.axes, "model": "gpt-4o"}, config)
    log.write(log.open(traces=True, cell=cell), log.result(cost_usd=None))
    (trace,) = log.traces()
    assert trace.info.cost is None
    assert trace.info.token_usage["input_tokens"] == 2400
