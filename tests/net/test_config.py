"""A broker's configuration: everything has a place in the manual, and a mistake has a sentence."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from sterna.core.assembly import client_settings
from sterna.core.handover.options import Handover
from sterna.core.history.options import BufferOptions, HistoryOptions, Search
from sterna.core.routing.options import Strategy
from sterna.model.filters import Filter
from sterna.model.location import MovementGraph
from sterna.net.address import Address, AddressError
from sterna.net.config import (
    MIB,
    BrokerConfig,
    BufferConfig,
    ConfigError,
    ConfigSection,
    Durability,
    LimitsConfig,
    description,
    keys,
    sections,
    variable,
)
from sterna.net.config_reference import reference
from sterna.net.nodes import settings_of
from sterna.wire.frames import digest

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "configuration.md"

pytestmark = pytest.mark.spec("LV-6")


def load(tmp_path: Path, text: str, environment: dict[str, str] | None = None) -> BrokerConfig:
    path = tmp_path / "broker.toml"
    path.write_text(text, encoding="utf-8")
    return BrokerConfig.load(path, environment)


def problems(text: str, tmp_path: Path, environment: dict[str, str] | None = None) -> list[str]:
    """What is wrong with a file, without its name at the beginning."""
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text, environment)
    return [p.removeprefix(f"{tmp_path / 'broker.toml'}: ") for p in caught.value.problems]


def test_a_name_is_enough(tmp_path: Path) -> None:
    """The defaults listen on loopback only and keep what they acknowledge."""
    config = load(tmp_path, 'name = "b1"')

    assert config.listen.startswith("127.0.0.1:")
    assert config.http.listen == ""
    assert config.durability.level is Durability.BATCH
    assert config.network.handover_protocol == Handover.RELOCATION
    assert config.limits.frame_bytes_max == MIB
    assert config.data == str(tmp_path / "data")


def test_a_file_sets_what_it_names(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        """
        name = "b1"
        data = "/srv/b1"
        [network]
        neighbours = ["sterna://127.0.0.1:7462", "sterna://[::1]:7463"]
        strategy = "merging"
        [limits]
        queue_bytes_max = "2 GiB"
        frame_bytes_max = 65536
        handshake_s = 2
        """,
    )

    assert config.data == "/srv/b1"
    assert config.network.neighbours[1] == "sterna://[::1]:7463"
    assert config.routing_options.strategy is Strategy.MERGING
    assert config.limits.queue_bytes_max == 2 * 2**30
    assert config.limits.handshake_s == 2.0


@pytest.mark.spec("LV-6", "DO-4")
def test_homes_hold_clients_that_are_elsewhere_to_the_same_limit(tmp_path: Path) -> None:
    config = load(tmp_path, 'name = "b1"\n[limits]\nsubscriptions_per_client_max = 7', {})

    assert config.handover_options.filters_max == 7


def test_the_environment_goes_before_the_file(tmp_path: Path) -> None:
    """Variables are called after table and key; what is no key's name is left to others."""
    config = load(
        tmp_path,
        'name = "b1"\n[limits]\nconnections_max = 5\nhandshake_s = 1.5',
        {
            "STERNA_NAME": "b2",
            "STERNA_LIMITS_CONNECTIONS_MAX": "7",
            "STERNA_LIMITS_FRAME_BYTES_MAX": "2 MiB",
            "STERNA_LIMITS_KEPT_S": "90",
            "STERNA_NETWORK_NEIGHBOURS": "sterna://a:1, sterna://b:2",
            "STERNA_NETWORK_QUENCHING": "true",
            "STERNA_DURABILITY_LEVEL": "sync",
            "STERNA_CAMPAIGN": "20",
            "PATH": "/bin",
        },
    )

    assert config.name == "b2"
    assert config.limits.connections_max == 7
    assert config.limits.handshake_s == 1.5
    assert config.limits.frame_bytes_max == 2 * MIB
    assert config.handover_options.cache_ttl_us == 90_000_000
    assert config.network.neighbours == ("sterna://a:1", "sterna://b:2")
    assert config.network.quenching
    assert config.durability.level is Durability.SYNC


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", 'name: is missing: every broker needs one, such as name = "b1"'),
        ('name = "b/1"', "name: is 'b/1'; write letters, digits, '-', '_' and '.'"),
        ("name = 7", "name: is 7; expected a string in quotes, got a whole number"),
        ('name = "b"\nlistn = "x:1"', "listn: is not a key; did you mean listen?"),
        ('name = "b"\n[netwrk]\n', "netwrk: is not a key; did you mean network?"),
        (
            'name = "b"\n[limits]\nframe_byte_max = 1',
            "limits.frame_byte_max: is not a key; did you mean frame_bytes_max?",
        ),
        ('name = "b"\n[log]\nzzz = 1', "log.zzz: is not a key; there are level, format"),
        ('name = "b"\nlimits = 3', "limits: is a table: write its keys below [limits]"),
        (
            'name = "b"\n[limits]\nconnections_max = 0',
            "limits.connections_max: is 0; expected a whole number >= 1",
        ),
        (
            'name = "b"\n[limits]\nqueue_bytes_max = "99999999999 GiB"',
            "limits.queue_bytes_max: is 107374182398926258176; expected a whole number <= 92233720",
        ),
        (
            f'name = "b"\n[durability]\nsnapshot_inputs = {2**63}',
            "durability.snapshot_inputs: is 9223372036854775808; expected a whole number <= 9223",
        ),
        (
            'name = "b"\n[limits]\nconnections_max = true',
            "limits.connections_max: is True; expected a whole number",
        ),
        (
            'name = "b"\n[limits]\nhandshake_s = nan',
            "limits.handshake_s: is nan; expected a number > 0.0",
        ),
        (
            'name = "b"\n[limits]\nqueue_bytes_max = "5 furlongs"',
            "limits.queue_bytes_max: is '5 furlongs'; write bytes as a number, or as in \"64 MiB\"",
        ),
        (
            'name = "b"\n[durability]\nlevel = "Batch"',
            "durability.level: is 'Batch'; choose one of none, batch, sync",
        ),
        (
            'name = "b"\n[network]\nquenching = "yes"',
            "network.quenching: is 'yes'; expected true or false, got a string in quotes",
        ),
        ('name = "b"\nlisten = "7461"', "listen: '7461' is no address: write host:port"),
        ('name = "b"\nlisten = "a:70000"', "listen: 'a:70000' is no address"),
        ('name = "b"\nadvertised_address = "a:0"', "advertised_address: 'a:0' needs a port"),
        (
            'name = "b"\n[network]\nneighbours = ["127.0.0.1:7461"]',
            "network.neighbours: '127.0.0.1:7461' is no address of a broker: write sterna://",
        ),
        (
            'name = "b"\n[limits]\nin_flight_bytes_max = "1 KiB"',
            "limits.in_flight_bytes_max: is less than limits.frame_bytes_max",
        ),
        (
            'name = "b"\n[durability]\nbytes_max = "100 MiB"',
            "durability.bytes_max: is less than segment_bytes and snapshot_bytes together",
        ),
        (
            'name = "b"\n[network]\nhandover = "homing"',
            "network.handover: is 'homing'; choose one of none, naive, relocation, standard, pref",
        ),
        (
            'name = "b"\nnetwork.handover = "standard"\nprotocols.standard.subscriptions = "both"',
            "protocols.standard: subscriptions is 'both'; choose one of broker, device",
        ),
        (
            'name = "b"\nnetwork.handover = "prefetching"\nprotocols.prefetching.brokers_max = 0',
            "protocols.prefetching: prefetching goes to at least one broker: brokers_max",
        ),
        (
            'name = "b"\n[network]\nhandover = "home"\n[protocols.home]\nsubscriptions = "device"',
            "protocols.home: Object contains unknown field `subscriptions`",
        ),
        (
            'name = "b"\n[network]\nhandover = "logging"\n[protocols.standard]',
            "protocols.standard: is not used here; there are logging",
        ),
        (
            'name = "b"\n[network]\nparent = "a"',
            "network.parent: needs network.hierarchy = true, at this and all other brokers",
        ),
        (
            'name = "b"\n[network]\nhierarchy = true\nparent = "b"',
            "network.parent: is this broker itself: name a neighbour, or leave it out",
        ),
        ('name = "b"\n[journal]\nbytes_max = 5', "journal.bytes_max: is less than one file"),
        ('name = "b"\n[places]\ngraph = "no.csv"', "places.graph: cannot read"),
        (
            'name = "b"\n[history]\nsearch = "all"',
            "history.search: is 'all'; choose one of none, nearest, largest, merged, junctions",
        ),
        (
            'name = "b"\n[history]\nkeep_s = -1',
            "history.keep_s: is -1; expected a number > 0.0",
        ),
        (
            'name = "b"\n[history]\npublishers_max = 0',
            "history.publishers_max: is 0; expected a whole number >= 1",
        ),
        (
            'name = "b"\n[history]\nhold_s = 1',
            "history.hold_s: is less than search_timeout_s: clients would not wait for a search",
        ),
        (
            'name = "b"\n[[history.buffers]]\nevents_max = 1',
            "history.buffers: is [{'events_max': 1}]; object missing required field filter",
        ),
        (
            'name = "b"\n[[history.buffers]]\nfilter = "kind ="',
            "history.buffers: line 1, column 7: expected",
        ),
        (
            'name = "b"\n[[history.buffers]]\nfilter = "place IN myloc"',
            "history.buffers: 'place IN myloc' depends on a client",
        ),
        (
            'name = "b"\n[[history.buffers]]\nfilter = "a = 1"\nbytes_max = "5 m"',
            "history.buffers: is '5 m'; write bytes as a number, or as in \"64 MiB\"",
        ),
        (
            'name = "b"\nhistory.buffers = [{ filter = "a=1" }, { filter = "a = 1" }]',
            "history.buffers: has the same filter twice: leave one of them out",
        ),
        (
            'name = "b"\n[[mqtt.lift]]\ntopics = "a/#/b"',
            "mqtt.lift: the topics 'a/#/b' are no topic filter: # stands anywhere but alone",
        ),
        (
            'name = "b"\nmqtt.lift = [{ topics = "#", depth_max = 0 }]',
            "mqtt.lift: is [{'topics': '#', 'depth_max': 0}]; expected a whole number >= 1",
        ),
        (
            'name = "b"\n[mqtt]\ntopic = "vehicles"',
            "mqtt.topic: 'vehicles' is no template for topics: it has no placeholder",
        ),
        (
            'name = "b"\n[mqtt]\ntopic = "v-{id}/{n}"',
            "mqtt.topic: 'v-{id}/{n}' is no template for topics: 'v-{id}' is no level",
        ),
        ('name = "b"\n[mqtt]\npayload = "xml"', "mqtt.payload: is 'xml';"),
        ('name = "b"\n[places]\ngrid = 16', "places.grid: is 16; expected a whole number <= 15"),
    ],
)
def test_a_mistake_has_one_clear_sentence(text: str, problem: str, tmp_path: Path) -> None:
    """It names the key, what is there, and what to write instead."""
    (only,) = problems(text, tmp_path)

    assert only.startswith(problem)


def test_all_mistakes_are_named_at_once(tmp_path: Path) -> None:
    found = problems(
        "nam = 1\n[http]\nlisten = 4\n[limits]\nhandshake_s = -1",
        tmp_path,
        {"STERNA_LIMITS_KEPT_S": "soon"},
    )

    assert [problem.split(":")[0] for problem in found] == [
        *("nam", "limits.handshake_s", "STERNA_LIMITS_KEPT_S", "http.listen", "name"),
    ]


def test_a_mistyped_variable_is_named(tmp_path: Path) -> None:
    (only,) = problems('name = "b"', tmp_path, {"STERNA_LIMITS_KEPT": "5"})

    assert (
        only
        == "STERNA_LIMITS_KEPT: is not a variable of Sterna; did you mean STERNA_LIMITS_KEPT_S?"
    )


@pytest.mark.parametrize(
    ("content", "problem"),
    [(b"name = ", "is not valid TOML"), (b"name = '\xff'", "is not a text file in UTF-8")],
)
def test_a_file_that_is_no_toml(content: bytes, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "broker.toml"
    path.write_bytes(content)

    with pytest.raises(ConfigError, match=problem):
        BrokerConfig.load(path)
    with pytest.raises(ConfigError, match=r"cannot read .*nowhere"):
        BrokerConfig.load(tmp_path / "nowhere")


def test_a_printed_configuration_reads_the_same(tmp_path: Path) -> None:
    """`--print-config` can be edited and given back; every key is in it, with its meaning."""
    graph = tmp_path / "rooms.csv"
    graph.write_text("kitchen,hall\nattic\n", encoding="utf-8")
    changed = load(
        tmp_path,
        """
        name = "b.2_x-1"
        advertised_address = "broker.example:7461"
        [network]
        neighbours = ["sterna://127.0.0.1:1"]
        handover = "naive"
        [places]
        graph = "rooms.csv"
        [limits]
        kept_s = 0.5
        frame_bytes_max = 1000
        """,
    )

    text = changed.to_toml()

    assert load(tmp_path, text) == changed
    every: list[type[ConfigSection]] = [BrokerConfig, *sections(BrokerConfig).values()]
    for section in every:
        assert all(f"\n{field.name} =" in text.replace("# ", "") for field in keys(section))


@pytest.mark.spec("PA-2", "PA-3")
def test_the_history_is_what_the_file_says(tmp_path: Path) -> None:
    """Without a word about it, it is what the core has without any settings."""
    assert load(tmp_path, 'name = "b"').history_options == HistoryOptions()
    config = load(
        tmp_path,
        """
        name = "b"
        [history]
        memory_events_max = 0
        memory_bytes_max = "8 MiB"
        keep_s = 90
        publisher_events_max = 7
        publishers_max = 3
        search = "nearest"
        search_timeout_s = 0.5
        hold_s = 1.5
        prepares = true
        [[history.buffers]]
        filter = "kind = 'alarm'"
        bytes_max = "1 MiB"
        [[history.buffers]]
        filter = "kind = 'fire'"
        events_max = 5
        keep_s = 60
        """,
    )

    assert config.history_options == HistoryOptions(
        events_max=0,
        bytes_max=8 * MIB,
        age_max_us=90_000_000,
        publisher_events=7,
        publishers_max=3,
        search=Search.NEAREST,
        search_us=500_000,
        hold_us=1_500_000,
        prepares=True,
        buffers=(
            BufferOptions(filter=Filter("kind = 'alarm'"), bytes_max=MIB),
            BufferOptions(filter=Filter("kind = 'fire'"), events_max=5, age_max_us=60_000_000),
        ),
    )
    plain, told = (
        client_settings(settings_of(each)) for each in (load(tmp_path, 'name = "b"'), config)
    )
    assert told.history == HistoryOptions(hold_us=1_500_000)  # Clients hold, and do nothing else.
    assert digest(told) != digest(plain) == digest(replace(plain, history=HistoryOptions()))
    assert load(tmp_path, config.to_toml()) == config
    text = '[{ filter = "kind = 1", events_max = 2 }]'
    changed = BrokerConfig.from_mapping({"name": "b"}, {"STERNA_HISTORY_BUFFERS": text})
    assert changed.history.buffers == (BufferConfig(filter="kind = 1", events_max=2),)


def test_places_come_from_a_file_or_a_grid(tmp_path: Path) -> None:
    """The movement graph of the file is the one that brokers use; without one there are none."""
    graph = tmp_path / "rooms.json"
    graph.write_text('{"edges": [["a", "b"]], "locations": ["attic"], "directed": true}')

    config = load(tmp_path, 'name = "b"\n[places]\ngraph = "rooms.json"\ndwell_s = 0.5')
    options = config.places_options(None)

    assert options is not None
    assert options.dwell_us == 500_000
    space = options.space()
    assert isinstance(space, MovementGraph)
    assert set(space.locations) == {"a", "b", "attic"}
    assert [sorted(space.ploc(place, 1)) for place in ("a", "b")] == [["a", "b"], ["b"]]
    assert load(tmp_path, 'name = "b"').places_options(None) is None
    grid = load(tmp_path, 'name = "b"\n[places]\ngrid = 8').places_options(None)
    assert grid is not None
    assert grid.h3_resolution == 8


def test_every_key_is_explained_and_has_a_variable_of_its_own() -> None:
    every: dict[str, type[ConfigSection]] = {"": BrokerConfig, **sections(BrokerConfig)}
    names = [
        variable(name, field.name)
        for name, section in every.items()
        for field in keys(section)
        if description(field)
    ]

    assert len(names) == len(set(names)) > 40


def test_the_reference_is_up_to_date() -> None:
    """The page in docs is what the structs say."""
    command = "python -m sterna.net.config_reference > docs/reference/configuration.md"

    assert PAGE.read_text(encoding="utf-8") == reference(), f"run {command}"


def test_limits_are_the_promised_ones() -> None:
    """The safe defaults of the manual."""
    limits = LimitsConfig()

    assert (limits.handshake_s, limits.handshake_bytes_max) == (5.0, 64 * 1024)
    assert limits.frame_bytes_max == 1024 * 1024


@pytest.mark.parametrize("text", ["127.0.0.1:7461", "broker-1.example:1", "[::1]:65535", "a:0"])
def test_addresses_are_read_and_written(text: str) -> None:
    assert str(Address.parse(text)) == text


@pytest.mark.parametrize(
    "text", ["", "a", ":1", "a:", "a:65536", "::1:5", "a b:1", "a:1\n", "[x]:1"]
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(AddressError, match="host:port"):
        Address.parse(text)
    with pytest.raises(AddressError, match="sterna://host:port"):
        Address.from_url(text)


def test_a_url_names_a_broker() -> None:
    assert Address.from_url("sterna://127.0.0.1") == ("127.0.0.1", 7461)
    assert Address.from_url("sterna://[::1]:5/").url == "sterna://[::1]:5"
    for url in ("http://a:1", "sterna://", "sterna://a:0", "sterna://a:b", "sterna://a:1/x"):
        with pytest.raises(AddressError):
            Address.from_url(url)
