"""Keys: read from the environment, refused everywhere else, never shown."""

import pytest

from dkgi.keys import looks_like_key, read_key, refuse_keys
from dkgi.types import SetupError

KEY = "sk-no-real-key-5d0c77a1e4"


@pytest.mark.parametrize(("value", "key"), [("", None), ("  ", None), (f" {KEY}\n", KEY), ("EMPTY", "EMPTY")])
def test_a_key_is_read_without_the_space_around_it(
    value: str, key: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_KEY", value)
    assert read_key("SOME_KEY") == key


def test_a_variable_that_is_not_set_holds_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOME_KEY", raising=False)
    assert read_key("SOME_KEY") is None


@pytest.mark.parametrize("value", [f"{KEY}\n{KEY}", f"{KEY} 2", f"{KEY}é", f"{KEY}\x7f"])
def test_a_key_that_no_header_can_hold_is_refused_without_being_shown(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_KEY", value)
    with pytest.raises(SetupError, match="SOME_KEY") as caught:
        read_key("SOME_KEY")
    assert KEY not in str(caught.value)


def test_an_argument_that_holds_a_key_is_named_without_it() -> None:
    assert looks_like_key(KEY)
    refuse_keys(["model=luna", "limit=5"])
    with pytest.raises(SetupError, match=r"model\.model: this looks like an API key") as caught:
        refuse_keys([f"model.model={KEY}"])
    assert KEY not in str(caught.value)
