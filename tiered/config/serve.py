"""The options of `tiered serve`: what stands on the command line, in the environment and in the file.

Owns their names, their order of precedence (flag, environment, file, default) and their checks. Never
opens anything but the file that was named, and never binds an address.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tiered.config.broker import BrokerSettings
from tiered.config.listeners import ListenerOptions
from tiered.config.setting import INT_MAX
from tiered.errors import InvalidConfig

if TYPE_CHECKING:
    import argparse

LOG_FORMATS = ("text", "json")
_STORE_SCHEMES = ("file", "s3")
_META_SCHEMES = ("sqlite", "postgresql")


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option: `--broker-id`, `TIERED_BROKER_ID` and the file's `broker_id` are the same one."""

    key: str
    metavar: str
    help: str
    is_switch: bool = False
    """Given or not: the flag takes no value, the variable and the file take true or false."""

    @property
    def flag(self) -> str:
        return "--" + self.key.replace("_", "-")

    @property
    def variable(self) -> str:
        return "TIERED_" + self.key.upper()


OPTIONS = (
    Option(
        key="kafka", metavar="HOST:PORT", help="where Kafka clients connect (127.0.0.1:9092); port 0 takes a free one"
    ),
    Option(key="advertise", metavar="HOST:PORT", help="what clients are told to connect to (the address bound)"),
    Option(key="http", metavar="HOST:PORT", help="the console, metrics and the HTTP APIs (127.0.0.1:8080)"),
    Option(key="data", metavar="DIR", help="the folder of the hot log (./data)"),
    Option(key="meta", metavar="URL", help="the catalogue: sqlite:///FILE or postgresql://USER@HOST/DB (DIR/meta.db)"),
    Option(
        key="store", metavar="URL", help="the object store: file:///DIR or s3://BUCKET/PREFIX?region=… (DIR/objects)"
    ),
    Option(key="broker_id", metavar="N", help="this broker's number (1)"),
    Option(key="rack", metavar="NAME", help="replicas are spread over racks (the host's name)"),
    Option(
        key="read_only",
        metavar="",
        help="only read the store: serve what other brokers have uploaded, and change nothing",
        is_switch=True,
    ),
    Option(key="log_format", metavar="FORMAT", help="text or json, on stderr (text)"),
)


KAFKAS_NAMES_OF_OPTIONS = {
    "broker.id": "--broker-id",
    "node.id": "--broker-id",
    "broker.rack": "--rack",
    "listeners": "--kafka",
    "advertised.listeners": "--advertise",
    "log.dir": "--data",
    "log.dirs": "--data",
}
"""What stands in Kafka's configuration file, and here is an option by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """Everything that `tiered serve` is told. `advertise_*` are None where the address bound is meant."""

    kafka_host: str = "127.0.0.1"
    kafka_port: int = 9092
    advertise_host: str | None = None
    advertise_port: int | None = None
    http_host: str = "127.0.0.1"
    http_port: int = 8080
    data_dir: Path
    meta_url: str
    store_url: str
    broker_id: int = 1
    rack: str
    settings: BrokerSettings
    log_format: str = "text"
    read_only: bool = False

    @property
    def listener(self) -> ListenerOptions:
        """Where Kafka clients connect."""
        return ListenerOptions(
            host=self.kafka_host,
            port=self.kafka_port,
            advertise_host=self.advertise_host,
            advertise_port=self.advertise_port,
        )


def add_serve_arguments(parser: "argparse.ArgumentParser") -> None:
    """Gives `parser` the options of `tiered serve`; none has a default, so that their absence can be seen."""
    for option in OPTIONS:
        if option.is_switch:
            parser.add_argument(option.flag, dest=option.key, action="store_true", default=None, help=option.help)
        else:
            parser.add_argument(option.flag, dest=option.key, metavar=option.metavar, help=option.help)
    parser.add_argument("--config", metavar="FILE", help="a TOML file with these options and a table [settings]")
    parser.add_argument(
        "--set", metavar="KEY=VALUE", action="append", help="a broker setting under Kafka's name; may be repeated"
    )


def config_path(arguments: object, environ: Mapping[str, str]) -> Path | None:
    """The file that `--config` or `TIERED_CONFIG` names, if either does."""
    given = getattr(arguments, "config", None) or environ.get("TIERED_CONFIG")
    return Path(given) if given else None


def read_config_file(path: Path) -> dict[str, Any]:
    """The contents of a TOML file; raises InvalidConfig that names it when it is missing or is no TOML."""
    import tomllib

    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise InvalidConfig(f"cannot read the configuration file {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidConfig(f"the configuration file {path} is no TOML: {error}") from error


def load_serve_options(
    arguments: object, environ: Mapping[str, str], toml: Mapping[str, Any] | None = None
) -> ServeOptions:
    """What to serve: each option from its flag, else its variable, else the file, else its default.

    `arguments` is argparse's namespace (an option that was not given is None or absent); `toml` is the
    parsed file, and when it is None the file that the flag or the variable names is read. Broker settings
    are merged setting by setting in the same order. Raises InvalidConfig that names what is wrong.
    """
    if toml is None:
        path = config_path(arguments, environ)
        toml = read_config_file(path) if path is not None else {}
    _refuse_unknown_keys(toml)

    def told(key: str) -> tuple[str | None, str]:
        option = next(each for each in OPTIONS if each.key == key)
        if (value := getattr(arguments, key, None)) is not None:
            return str(value), option.flag
        if value := environ.get(option.variable):
            return value, option.variable
        if key in toml:
            return str(toml[key]), f"{key} in the configuration file"
        return None, option.flag

    kafka_host, kafka_port = _address(*told("kafka"), default=("127.0.0.1", 9092))
    http_host, http_port = _address(*told("http"), default=("127.0.0.1", 8080))
    advertise, advertise_name = told("advertise")
    advertise_host, advertise_port = (
        _address(advertise, advertise_name, default=("", 0), port_0_is_fine=False)
        if advertise is not None
        else (None, None)
    )
    data_dir = Path(told("data")[0] or "data").expanduser().absolute()
    log_format, log_format_name = told("log_format")
    if log_format is not None and log_format not in LOG_FORMATS:
        raise InvalidConfig(
            f"{log_format_name}={log_format} is not allowed: it must be one of {', '.join(LOG_FORMATS)}"
        )
    read_only = _switch(*told("read_only"))
    if read_only and told("meta")[0] is not None:
        raise InvalidConfig(
            f"{told('meta')[1]} names a catalogue, and a broker with --read-only has none: leave it out"
        )
    return ServeOptions(
        kafka_host=kafka_host,
        kafka_port=kafka_port,
        advertise_host=advertise_host,
        advertise_port=advertise_port,
        http_host=http_host,
        http_port=http_port,
        data_dir=data_dir,
        meta_url=_url(*told("meta"), schemes=_META_SCHEMES, default=f"sqlite:///{_in_url(data_dir)}/meta.db"),
        store_url=_url(*told("store"), schemes=_STORE_SCHEMES, default=f"file://{_in_url(data_dir)}/objects"),
        broker_id=_broker_id(*told("broker_id")),
        rack=told("rack")[0] or _host_name(),
        settings=BrokerSettings.of(_settings(arguments, environ, toml)),
        log_format=log_format or "text",
        read_only=read_only,
    )


def _settings(arguments: object, environ: Mapping[str, str], toml: Mapping[str, Any]) -> dict[str, str]:
    table = toml.get("settings", {})
    if not isinstance(table, Mapping):
        raise InvalidConfig("settings in the configuration file must be a table: [settings]")
    merged = _flattened(table)
    merged |= _pairs([each for each in environ.get("TIERED_SET", "").split(";") if each.strip()], "TIERED_SET")
    merged |= _pairs(getattr(arguments, "set", None) or [], "--set")
    for name in merged.keys() & KAFKAS_NAMES_OF_OPTIONS.keys():
        raise InvalidConfig(f"{name} is no setting here: it is the option {KAFKAS_NAMES_OF_OPTIONS[name]}")
    return merged


def _pairs(texts: list[str], where: str) -> dict[str, str]:
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise InvalidConfig(f"{where} {text!r} is not allowed: it must be KEY=VALUE")
        pairs[name.strip()] = value.strip()
    return pairs


def _flattened(table: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """TOML reads the bare key `num.partitions` as a table `num`: both that and the quoted key are meant."""
    flat: dict[str, str] = {}
    for key, value in table.items():
        name = prefix + key
        match value:
            case Mapping():
                flat |= _flattened(value, name + ".")
            case bool():
                flat[name] = "true" if value else "false"
            case list():
                flat[name] = ",".join(str(each) for each in value)
            case _:
                flat[name] = str(value)
    return flat


def _refuse_unknown_keys(toml: Mapping[str, Any]) -> None:
    legal = {option.key for option in OPTIONS} | {"settings"}
    for key in toml:
        if key not in legal:
            raise InvalidConfig(f"unknown key {key!r} in the configuration file; known are {', '.join(sorted(legal))}")


def _address(text: str | None, name: str, *, default: tuple[str, int], port_0_is_fine: bool = True) -> tuple[str, int]:
    if text is None:
        return default
    host, colon, port_text = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        host = ""  # An IPv6 address without brackets: its last group would be taken for the port.
    port = int(port_text) if port_text.isascii() and port_text.isdigit() and len(port_text) <= 5 else -1
    if not colon or not host or not (0 if port_0_is_fine else 1) <= port <= 65_535:
        first = 0 if port_0_is_fine else 1
        raise InvalidConfig(
            f"{name}={text} is not allowed: it must be HOST:PORT with a port from {first} to 65535 ([…] around IPv6)"
        )
    return host, port


def _url(text: str | None, name: str, *, schemes: tuple[str, ...], default: str) -> str:
    if text is None:
        return default
    scheme, separator, rest = text.partition("://")
    if not separator or not rest or scheme.partition("+")[0] not in schemes:
        # A URL may carry a password: the message shows the scheme alone.
        shown = f"{scheme}://…" if separator else "a text without ://"
        raise InvalidConfig(
            f"{name} is {shown}: it must be a URL that begins with {' or '.join(f'{s}://' for s in schemes)}"
        )
    return text


def _in_url(path: Path) -> str:
    """The path, so that a URL's reader finds it again."""
    return str(path).replace("%", "%25").replace("#", "%23").replace("?", "%3F")


def _broker_id(text: str | None, name: str) -> int:
    if text is None:
        return 1
    if not (text.isascii() and text.isdigit() and int(text[:11]) <= INT_MAX):
        raise InvalidConfig(f"{name}={text} is not allowed: it must be a whole number from 0 to {INT_MAX}")
    return int(text)


def _switch(text: str | None, name: str) -> bool:
    if text is not None and text.lower() not in ("true", "false"):
        raise InvalidConfig(f"{name}={text} is not allowed: it must be true or false")
    return text is not None and text.lower() == "true"


def _host_name() -> str:
    import platform  # Costs more than the rest of this module, and an explicit rack spares it.

    return platform.node() or "localhost"
