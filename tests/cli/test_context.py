"""Which broker a command is for: a word, STERNA_URL, `sterna context`, or this machine."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.cli.addressing import LOCAL, brokers, contexts_file, is_address, split
from sterna.model.filters import Filter, FilterError
from sterna.net.local import LocalNetwork
from tests.cli.conftest import sterna, sterna_json
from tests.strategies import filter_text, seeded

pytestmark = pytest.mark.spec("LV-7")


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test has a configuration directory of its own."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("STERNA_URL", raising=False)


def test_the_word_before_the_environment_before_the_context(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert brokers(None) == [LOCAL]
    assert sterna("context", "add", "city", "10.0.0.1:7461", "sterna://10.0.0.2") == (0, "", "")
    assert brokers(None) == [LOCAL], "nobody has chosen it"
    assert sterna("context", "use", "city") == (0, "", "")
    assert brokers(None) == ["sterna://10.0.0.1:7461", "sterna://10.0.0.2:7461"]
    monkeypatch.setenv("STERNA_URL", "sterna://10.0.0.3, 10.0.0.4:1,@city")
    assert brokers(None)[:2] == ["sterna://10.0.0.3", "sterna://10.0.0.4:1"]
    assert len(brokers(None)) == 4
    assert brokers("@city") == ["sterna://10.0.0.1:7461", "sterna://10.0.0.2:7461"]
    assert brokers("[::1]:9") == ["sterna://[::1]:9"]


def test_contexts_come_and_go() -> None:
    assert "context add" in sterna("context", "list")[2]
    sterna("context", "add", "a", "a:1")
    sterna("context", "add", "long-name", "b:1", "--use")
    assert sterna("context", "list")[1] == "  a          sterna://a:1\n* long-name  sterna://b:1\n"
    assert sterna_json("context", "list") == (
        0,
        {
            "current": "long-name",
            "contexts": {"a": ["sterna://a:1"], "long-name": ["sterna://b:1"]},
        },
    )
    assert sterna("context", "remove", "long-name")[0] == 0
    assert sterna_json("context", "list")[1]["current"] is None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["context", "add", "a b", "x:1"], "is no name"),
        (["context", "add", "a", "x:y"], "is no address"),
        (["context", "add", "known", "x:1"], "already"),
        (["context", "use", "absent"], "there is no context 'absent'"),
        (["context", "remove", "absent"], "known"),
        (["status", "@absent"], "there is no context"),
        (["sub", "@absent", "a = 1"], "there is no context"),
        (["pub", "@absent", "a=1"], "there is no context"),
        (["sub", "@known"], "give a filter"),
        (["kick", "a:1", "b", "c"], "one client"),
    ],
)
def test_wrong_use_is_told(arguments: list[str], said: str) -> None:
    sterna("context", "add", "known", "x:1")

    status, out, err = sterna(*arguments)

    assert (status, out) == (2, "")
    assert err.startswith("error: ")
    assert said in err.replace("\n", " ")


def test_what_cannot_be_read_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    file = contexts_file()
    file.parent.mkdir(parents=True)
    for text in ("{", "[]", '{"contexts": 1, "current": null}'):
        file.write_text(text)
        assert "is damaged" in sterna("context", "list")[2].replace("\n", " ")
        assert sterna("status")[0] == 2
    monkeypatch.setenv("STERNA_URL", "http://x")
    assert "STERNA_URL in the environment" in sterna("status")[2].replace("\n", " ")


def test_commands_find_their_broker(network: LocalNetwork, monkeypatch: pytest.MonkeyPatch) -> None:
    """By host and port, by a context, and by nothing but the environment."""
    url = network.url("B2")
    bare = url.removeprefix("sterna://")
    sterna("context", "add", "here", bare)
    assert sterna("pub", bare, "topic=named", "n=1")[0] == 0
    assert sterna("pub", "@here", "topic=named", "n=2")[0] == 0
    monkeypatch.setenv("STERNA_URL", bare)
    assert sterna("pub", "topic=named", "n=3")[0] == 0
    assert sterna("pub", stdin='{"topic": "named", "n": 4}\n')[0] == 0

    options = ["--past", "4", "--count", "4", "--format", "{n}", "--quiet"]
    assert sterna("sub", "topic = 'named'", *options)[1].split() == ["1", "2", "3", "4"]
    for command in ("status", "topology", "queues"):
        assert sterna_json(command)[0] == 0
    assert sterna_json("status")[1]["name"] == "B2"
    assert sterna("kick", "nobody")[0] == 1


def test_words() -> None:
    assert split(["a = 1"]) == (None, ["a = 1"])
    assert split(["b:1", "a = 1"]) == ("b:1", ["a = 1"])
    for word in ("url='sterna://x'", "url=http://x", "a:b=1", "-", "price", "NOT a"):
        assert not is_address(word)


@given(seeded(filter_text))
def test_no_filter_is_taken_for_a_broker(text: str) -> None:
    assert not is_address(text)


@given(st.from_regex(r"(@[a-z]+|[a-z]+://[a-z]+(:[0-9]+)?|[a-z.]+:[0-9]{1,5})", fullmatch=True))
def test_no_broker_is_a_filter(word: str) -> None:
    if is_address(word):
        with pytest.raises(FilterError):
            Filter(word)
