"""The options of `tiered serve`: what stands on the command line, in the environment and in the file.

Owns their names, their order of precedence (flag, environment, file, default) and their checks. Never
opens anything but the file that was named, and never binds an address.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tiered.config.broker import BrokerSettings, broker_setting
from tiered.config.client_security import ClientSecurity, inter_broker_security
from tiered.config.listeners import (
    HTTPS,
    ListenerOptions,
    advertised,
    http_tls,
    is_security_setting,
    parse_address,
    parse_listener,
    require_authentication,
    settings_of,
    with_security,
)
from tiered.config.quantity import in_plain_units
from tiered.config.setting import HIDDEN, INT_MAX
from tiered.config.tls import ListenerTls
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
    is_list: bool = False
    """The flag may be repeated; the variable takes several with commas, the file a list."""

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
    Option(
        key="listener",
        metavar="NAME=PROTOCOL://HOST:PORT",
        help="where clients connect, by name, with PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL; may be repeated. "
        "Without --kafka these are all",
        is_list=True,
    ),
    Option(
        key="advertise",
        metavar="[NAME=]HOST:PORT",
        help="what clients of a listener are told to connect to (the address bound); may be repeated",
        is_list=True,
    ),
    Option(
        key="inter_broker_listener",
        metavar="NAME",
        help="the listener over which brokers reach each other (the first one)",
    ),
    Option(
        key="http",
        metavar="[https://]HOST:PORT",
        help="the console, metrics and the HTTP APIs (127.0.0.1:8080); https:// with the certificate of http.ssl.… or "
        "ssl.…",
    ),
    Option(key="data", metavar="DIR", help="the folder of the hot log (./data)"),
    Option(key="meta", metavar="URL", help="metadata store: sqlite:///FILE or postgresql://USER@HOST/DB (DIR/meta.db)"),
    Option(
        key="store", metavar="URL", help="the object store: file:///DIR or s3://BUCKET/PREFIX?region=… (DIR/objects)"
    ),
    Option(key="broker_id", metavar="N", help="this broker's number (1)"),
    Option(key="rack", metavar="NAME", help="replicas are spread over racks (brokers without one: over hosts)"),
    Option(
        key="read_only",
        metavar="",
        help="only read the store: serve what other brokers have uploaded, and change nothing",
        is_switch=True,
    ),
    Option(
        key="insecure",
        metavar="",
        help="let in whoever reaches an address that is not of this machine alone, without asking who they are",
        is_switch=True,
    ),
    Option(key="log_format", metavar="FORMAT", help="text or json, on stderr (text)"),
)


KAFKAS_NAMES_OF_OPTIONS = {
    "broker.id": "--broker-id",
    "node.id": "--broker-id",
    "broker.rack": "--rack",
    "listeners": "--listener",
    "advertised.listeners": "--advertise",
    "inter.broker.listener.name": "--inter-broker-listener",
    "log.dir": "--data",
    "log.dirs": "--data",
}
"""What stands in Kafka's configuration file, and here is an option by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """Everything that `tiered serve` is told."""

    listeners: tuple[ListenerOptions, ...] = (ListenerOptions(),)
    """Where Kafka clients connect, the first one first."""
    http_host: str = "127.0.0.1"
    http_port: int = 8080
    http_tls: ListenerTls | None = None
    data_dir: Path
    meta_url: str
    store_url: str
    broker_id: int = 1
    rack: str | None = None
    settings: BrokerSettings
    log_format: str = "text"
    read_only: bool = False
    inter_broker_listener: str = ""
    inter_broker_security: ClientSecurity = field(default_factory=ClientSecurity)

    @property
    def inter_broker(self) -> ListenerOptions:
        """Where other brokers connect."""
        named = (each for each in self.listeners if each.name == self.inter_broker_listener)
        return next(named, self.listeners[0])


def add_serve_arguments(parser: "argparse.ArgumentParser") -> None:
    """Gives `parser` the options of `tiered serve`; none has a default, so that their absence can be seen."""
    for option in OPTIONS:
        kind: dict[str, Any] = {"metavar": option.metavar, "action": "append" if option.is_list else "store"}
        if option.is_switch:
            kind = {"action": "store_true", "default": None}
        parser.add_argument(option.flag, dest=option.key, help=option.help, **kind)
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
    """The options of a broker: each from its flag, else its variable, else the file, else its default.

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

    def told_all(key: str) -> tuple[list[str], str]:
        option = next(each for each in OPTIONS if each.key == key)
        if value := getattr(arguments, key, None):
            return [str(each) for each in value], option.flag
        text, where = told(key) if not isinstance(toml.get(key), list) or environ.get(option.variable) else (None, "")
        if text is None and isinstance(toml.get(key), list):
            return [str(each) for each in toml[key]], f"{key} in the configuration file"
        return [each for each in (text or "").split(",") if each.strip()], where

    security, texts = _apart(_settings(arguments, environ, toml))
    listeners = _listeners(told("kafka"), told_all("listener"), told_all("advertise"), security)
    inter_broker, inter_broker_name = told("inter_broker_listener")
    inter_broker = (inter_broker or listeners[0].name).upper()
    among_brokers = next((each for each in listeners if each.name == inter_broker), None)
    if among_brokers is None:
        raise InvalidConfig(
            f"{inter_broker_name}={inter_broker} is no listener: there is {', '.join(each.name for each in listeners)}"
        )
    http, http_name = told("http")
    http_host, http_port = _address(http and http.removeprefix(HTTPS), http_name, default=("127.0.0.1", 8080))
    http_security = http_tls(security) if http is not None and http.startswith(HTTPS) else None
    if not _switch(*told("insecure")):
        asks_login = texts.get("tiered.http.authentication", "none").strip() != "none"
        require_authentication(listeners, (http_host, http_port), http_security, http_name, http_asks_login=asks_login)
    data_dir = Path(told("data")[0] or "data").expanduser().absolute()
    log_format, log_format_name = told("log_format")
    if log_format is not None and log_format not in LOG_FORMATS:
        raise InvalidConfig(
            f"{log_format_name}={log_format} is not allowed: it must be one of {', '.join(LOG_FORMATS)}"
        )
    read_only = _switch(*told("read_only"))
    if read_only and told("meta")[0] is not None:
        raise InvalidConfig(
            f"{told('meta')[1]} names a metadata store, and a broker with --read-only has none: leave it out"
        )
    return ServeOptions(
        listeners=listeners,
        inter_broker_listener=inter_broker,
        inter_broker_security=inter_broker_security(among_brokers, settings_of(security, inter_broker)),
        http_host=http_host,
        http_port=http_port,
        http_tls=http_security,
        data_dir=data_dir,
        meta_url=_url(*told("meta"), schemes=_META_SCHEMES, default=f"sqlite:///{_in_url(data_dir)}/meta.db"),
        store_url=_url(*told("store"), schemes=_STORE_SCHEMES, default=f"file://{_in_url(data_dir)}/objects"),
        broker_id=_broker_id(*told("broker_id")),
        rack=told("rack")[0] or None,
        settings=BrokerSettings.of(texts | _without_secrets(security)),
        log_format=log_format or "text",
        read_only=read_only,
    )


def _apart(merged: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """(settings of listeners, all others)"""
    security = {name: value for name, value in merged.items() if is_security_setting(name)}
    return security, {name: value for name, value in merged.items() if name not in security}


def _without_secrets(security: Mapping[str, str]) -> dict[str, str]:
    """To be described; what holds is in the listeners, and of a secret only that it was given."""
    return {name: HIDDEN if broker_setting(name).is_sensitive else value for name, value in security.items()}


def _listeners(
    kafka: tuple[str | None, str],
    named: tuple[list[str], str],
    advertise: tuple[list[str], str],
    security: Mapping[str, str],
) -> tuple[ListenerOptions, ...]:
    """That of --kafka, where it is given or there is no other, then the named ones."""
    found = []
    if kafka[0] is not None or not named[0]:
        host, port = _address(*kafka, default=("127.0.0.1", 9092))
        found.append(ListenerOptions(host=host, port=port, option=kafka[1]))
    found += [parse_listener(text, named[1]) for text in named[0]]
    for each in found:
        if [other.name for other in found].count(each.name) > 1:
            raise InvalidConfig(f"two listeners are named {each.name}: give each a name of its own with NAME=…")
    return with_security(advertised(found, *advertise), security)


def _settings(arguments: object, environ: Mapping[str, str], toml: Mapping[str, Any]) -> dict[str, str]:
    table = toml.get("settings", {})
    if not isinstance(table, Mapping):
        raise InvalidConfig("settings in the configuration file must be a table: [settings]")
    merged = _flattened(table)
    merged |= _pairs([each for each in environ.get("TIERED_SET", "").split(";") if each.strip()], "TIERED_SET")
    merged |= _pairs(getattr(arguments, "set", None) or [], "--set")
    merged = {name: in_plain_units(name, text) for name, text in merged.items()}
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


def _address(text: str | None, name: str, *, default: tuple[str, int]) -> tuple[str, int]:
    return default if text is None else parse_address(text, name)


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
