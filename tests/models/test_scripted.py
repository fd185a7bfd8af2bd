"""The scripted model: what is written is what comes."""

import json
from pathlib import Path

import pytest

from dkgi.models.scripted import Scripted, ScriptedSpec
from dkgi.types import Model, ModelError, Reply, SetupError, Usage, UserText
from tests.places import free_place


def model(tmp_path: Path, scripts: object, query: int = 1, attempt: int = 1) -> Model:
    path = tmp_path / "replies.json"
    path.write_text(json.dumps(scripts))
    return Scripted(ScriptedSpec("scripted", "scripted", path, None)).model(free_place(query, attempt=attempt))


def test_the_n_th_request_gets_the_n_th_reply(tmp_path: Path) -> None:
    script = model(tmp_path, {"*": [[{"text": "a"}, {"text": "b"}]]})
    assert script.reply([UserText("q")], []).text == "a"
    assert script.reply([UserText("q"), Reply("a")], []).text == "b"
    assert script.reply([UserText("q")], []).text == "a"


def test_a_query_has_its_own_script_before_the_common_one(tmp_path: Path) -> None:
    scripts = {"*": [[{"text": "any"}]], "7": [[{"text": "seven"}]]}
    assert model(tmp_path, scripts, query=7).reply([], []).text == "seven"
    assert model(tmp_path, scripts, query=8).reply([], []).text == "any"


def test_the_last_attempt_stands_for_all_later_ones(tmp_path: Path) -> None:
    scripts = {"*": [[{"text": "first"}], [{"text": "later"}]]}
    assert [model(tmp_path, scripts, attempt=n).reply([], []).text for n in (1, 2, 3)] == ["first", "later", "later"]


def test_errors_are_raised_with_what_they_cost(tmp_path: Path) -> None:
    line = {"error": {"message": "down", "kind": "server"}, "usage": {"output": 5}}
    with pytest.raises(ModelError, match="down") as caught:
        model(tmp_path, {"*": [[line]]}).reply([], [])
    assert (caught.value.kind, caught.value.usage) == ("server", Usage(output=5, requests=1))


def test_a_script_that_ends_is_an_error_and_not_an_answer(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="ends after 0 replies"):
        model(tmp_path, {"*": [[]]}).reply([], [])


@pytest.mark.parametrize("content", ["[]", '{"*": [{"text": "x"}]}', "", "{", "[1"])
def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "replies.json"
    path.write_text(content)
    with pytest.raises(SetupError, match=r"model\.replies: cannot use .*replies\.json"):
        Scripted(ScriptedSpec("scripted", "scripted", path, None))
