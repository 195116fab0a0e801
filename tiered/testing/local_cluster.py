"""A cluster for the length of a test: its folder, its ports, its object store and its brokers.

Owns all of these from start to stop, and leaves nothing behind: no thread, no descriptor, no file. Must never
import the broker before one is started, and never touch the caller's event loop.
"""

import socket
import sqlite3
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self
from urllib.parse import quote

from tiered.testing.broker_control import BrokerControl, Life
from tiered.testing.cluster_options import CheckedOptions, settings_of, text_of

if TYPE_CHECKING:
    from tiered.testing.faulty_s3 import FaultyS3
    from tiered.testing.shared_catalogue import SharedDatabase

CATALOGUE = "meta.db"
MAX_BROKERS = 16


class LocalCluster:
    """Starts at `with` (or `async with`, or `.start()`) and is gone afterwards. Tests call it `cluster(...)`."""

    def __init__(
        self,
        brokers: int = 1,
        *,
        topics: Mapping[str, int] | None = None,
        topic_defaults: Mapping[str, object] | None = None,
        settings: Mapping[str, object] | None = None,
        listeners: Mapping[str, str] | None = None,
        inter_broker_listener: str | None = None,
        https: bool = False,
        s3: Literal["moto"] | None = None,
        store: str | None = None,
        sql: str | None = None,
        data: Path | str | None = None,
        in_process: bool = True,
    ) -> None:
        """Makes nothing yet.

        - `brokers`: how many. Several share one catalogue; topics have three replicas then, where there are as many.
        - `topics`: {name: partitions} to create at once.
        - `topic_defaults`: topic configs, such as {"retention.ms": 1000}, for topics that do not say.
        - `settings`: broker settings under Kafka's names, over those of `QUICK_SETTINGS`.
        - `listeners`: {name: protocol} beside the plaintext one, such as {"SECURE": "SSL"}; see `bootstrap_at`.
        - `inter_broker_listener`: the one that brokers use among themselves, unless it is the plaintext one.
        - `https`: the HTTP doors speak TLS, with the certificate of `ssl.keystore.location` in `settings`.
        - `s3="moto"`: objects go to an S3 server in this process, whose faults are `c.s3`. Needs `moto[s3,server]`.
        - `store`, `sql`: the URL of another object store (a local folder is the default) or catalogue (SQLite).
        - `data`: a folder to keep; without it a temporary one is made and removed.
        - `in_process=False`: each broker is a process of its own, and `kill()` is SIGKILL. Several need `sql`.
        """
        if not 1 <= brokers <= MAX_BROKERS:
            raise ValueError(f"brokers={brokers} is not possible: 1 to {MAX_BROKERS} are")
        if brokers > 1 and not in_process and sql is None:
            raise ValueError(
                "in_process=False with several brokers needs PostgreSQL, for SQLite is one process's alone: give "
                'sql="postgresql://USER@HOST/DB", or let them live in this process'
            )
        if s3 not in (None, "moto"):
            raise ValueError(f's3={s3!r} is not known: use s3="moto", or store="s3://…" for a server of your own')
        if s3 is not None and store is not None:
            raise ValueError('s3="moto" makes a store of its own: leave store away')
        self._topics = dict(topics or {})
        self._topic_defaults = dict(topic_defaults or {})
        self._settings = dict(settings or {})
        self._listeners = dict(listeners or {})
        self._inter_broker_listener = inter_broker_listener
        self._http_scheme = "https" if https else "http"
        self._listener_ports: dict[str, tuple[int, ...]] = {}
        self._with_s3 = s3 is not None
        self._store = store
        self._sql = sql
        self._given_data = None if data is None else Path(data)
        self._in_process = in_process
        self._stack = ExitStack()
        self._s3: FaultyS3 | None = None
        self._catalogue: SharedDatabase | None = None
        self._told: tuple[CheckedOptions, ...] = ()
        self.brokers = tuple(BrokerControl(self._begin, index + 1) for index in range(brokers))
        """Stop, kill and start one of them: the first has `broker_id` 1."""
        self.broker = self.brokers[0]
        """Stops, kills and starts the broker, or the first of several."""

    # Start and stop

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        import asyncio

        starting = asyncio.ensure_future(asyncio.to_thread(self.start))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            # No caller would end what the thread is about to have started.
            await asyncio.gather(starting, return_exceptions=True)
            await asyncio.to_thread(self.stop)
            raise

    async def __aexit__(self, *_: object) -> None:
        import asyncio

        await asyncio.to_thread(self.stop)

    def start(self) -> Self:
        """Returns when all brokers serve and `topics` exist. Raises TieredError or OSError when they cannot."""
        if self._told:
            raise RuntimeError("this cluster runs already; cluster() makes another one")
        with ExitStack() as stack:
            self._told = self._prepare(stack)
            stack.callback(self._forget)
            stack.callback(self._at_once, BrokerControl.stop)
            self._at_once(BrokerControl.start)
            if len(self.brokers) > 1:
                from tiered.testing import topics

                topics.run(topics.all_met(self.bootstrap))
            for name, partitions in self._topics.items():
                self.create_topic(name, partitions=partitions)
            if self._s3 is not None:
                stack.callback(self._s3.heal)  # The broker's last words should not wait for a fault.
            self._stack = stack.pop_all()
        return self

    def stop(self) -> None:
        """Ends everything, whatever state the test has left it in. Harmless twice."""
        self._stack.close()

    def _at_once(self, step: Callable[[BrokerControl], None]) -> None:
        """The step for every broker, also where it fails for one; raises what failed first."""
        if len(self.brokers) == 1:
            step(self.broker)
            return
        with ThreadPoolExecutor(len(self.brokers), thread_name_prefix="tiered-testing") as threads:
            steps = [threads.submit(step, each) for each in self.brokers]
        for each in steps:
            each.result()

    def _prepare(self, stack: ExitStack) -> tuple[CheckedOptions, ...]:
        settings = settings_of(self._settings, self._topic_defaults, brokers=len(self.brokers))
        data = self._given_data
        if data is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="tiered-", ignore_cleanup_errors=True))
            data = Path(folder) / "data"
        data = data.absolute()
        data.mkdir(parents=True, exist_ok=True)
        if self._sql is None and not (data / CATALOGUE).exists():
            (data / CATALOGUE).write_bytes(fresh_catalogue())
        in_url = quote(str(data))
        sql_url = self._sql or f"sqlite:///{in_url}/{CATALOGUE}"
        if len(self.brokers) > 1 and sql_url.startswith("sqlite:"):
            from tiered.testing.shared_catalogue import SharedDatabase

            self._catalogue = SharedDatabase.of(sql_url)
            stack.callback(self._catalogue.close_sync)
        store_url = self._store or (self._start_s3(stack) if self._with_s3 else f"file://{in_url}/objects")
        is_alone = len(self.brokers) == 1
        self._listener_ports = {name: tuple(_kept_port(stack) for _ in self.brokers) for name in self._listeners}
        return tuple(
            CheckedOptions(
                broker_id=each.broker_id,
                rack="test" if is_alone else f"rack-{each.broker_id}",
                data=data if is_alone else data / f"broker-{each.broker_id}",
                kafka_port=_kept_port(stack),
                http_port=_kept_port(stack),
                settings=settings,
                sql_url=sql_url,
                store_url=store_url,
                listeners=tuple(
                    f"{name}={protocol}://127.0.0.1:{self._listener_ports[name][each.broker_id - 1]}"
                    for name, protocol in self._listeners.items()
                ),
                inter_broker_listener=self._inter_broker_listener,
                http_scheme=self._http_scheme,
            )
            for each in self.brokers
        )

    def _start_s3(self, stack: ExitStack) -> str:
        from tiered.runtime import new_uuid
        from tiered.testing.faulty_s3 import faulty_s3
        from tiered.testing.moto_s3 import REGION, moto_s3

        bucket = f"tiered-{new_uuid()}"
        self._s3 = stack.enter_context(faulty_s3(stack.enter_context(moto_s3(bucket))))
        return f"s3://{bucket}/test?region={REGION}&endpoint_url={self._s3.url}"

    def _begin(self, broker_id: int) -> Life:
        told = self._running[broker_id - 1]
        told.data.mkdir(exist_ok=True)
        if self._in_process:
            from tiered.testing.thread_life import ThreadLife

            if not self._with_s3:
                return ThreadLife(told, nullcontext, self._catalogue)
            from tiered.testing.moto_s3 import aws_environment

            return ThreadLife(told, aws_environment, self._catalogue)
        from tiered.testing.process_life import ProcessLife

        return ProcessLife(told, self.aws_environ if self._with_s3 else {})

    def _forget(self) -> None:
        self._told = ()
        self._s3 = self._catalogue = None

    # Where it is

    @property
    def bootstrap(self) -> str:
        """`bootstrap.servers` of Kafka clients: every broker. The same before and after a restart."""
        return ",".join(f"127.0.0.1:{each.kafka_port}" for each in self._running)

    def bootstrap_at(self, listener: str) -> str:
        """The same for another listener."""
        return ",".join(f"127.0.0.1:{port}" for port in self._listener_ports[listener])

    @property
    def http_url(self) -> str:
        """Health, metrics, the catalogue and the console, of the first broker that runs. The first request takes

        longer: it imports the server.
        """
        return self.http_urls[next((at for at, each in enumerate(self.brokers) if each.is_running), 0)]

    @property
    def http_urls(self) -> tuple[str, ...]:
        """The same of each broker."""
        return tuple(f"{self._http_scheme}://127.0.0.1:{each.http_port}" for each in self._running)

    @property
    def store_url(self) -> str:
        """The object store as Spark's option `store` takes it."""
        return self._running[0].store_url

    @property
    def sql_url(self) -> str:
        """The catalogue as SQLAlchemy takes it; docs/sql.md says what may be selected."""
        return self._running[0].sql_url

    @property
    def data(self) -> Path:
        """The data folder of the broker; of several, the folder that `broker-1` and the others are in."""
        first = self._running[0].data
        return first if len(self.brokers) == 1 else first.parent

    @property
    def _running(self) -> tuple[CheckedOptions, ...]:
        if not self._told:
            raise RuntimeError("this cluster is not running: use `with cluster() as c:`, or call start()")
        return self._told

    # S3

    @property
    def s3(self) -> "FaultyS3":
        """The faults of the S3 server: `fail`, `delay`, `heal`, and what was `seen`."""
        if self._s3 is None:
            raise RuntimeError('this cluster has no S3: make it with cluster(s3="moto")')
        return self._s3

    @property
    def s3_bucket(self) -> str:
        """The bucket's name."""
        assert self.s3 is not None
        return self._running[0].store_url.removeprefix("s3://").partition("/")[0]

    @property
    def aws_environ(self) -> dict[str, str]:
        """The environment that a program (a Spark job) needs, so that `store_url` opens for it."""
        from tiered.testing.moto_s3 import ENVIRON

        return dict(ENVIRON)

    def s3_client(self) -> Any:
        """boto3's client on the bucket's server, past the faults: for the test to look with. Close it."""
        from tiered.testing.moto_s3 import s3_client

        return s3_client(self.s3.upstream)

    # Topics

    def create_topic(
        self,
        name: str | None = None,
        *,
        partitions: int = 1,
        replicas: int | None = None,
        configs: Mapping[str, object] | None = None,
    ) -> str:
        """The topic's name, once it exists; without a name a new one is given. Raises BrokerError.

        `replicas` of each partition are as many as there are brokers, and three at most, unless it says so.
        """
        from tiered.peer.topic_admin import BROKERS_DEFAULT
        from tiered.testing import topics

        if name is None:
            from tiered.runtime import new_uuid

            name = f"topic-{new_uuid().hex[:12]}"
        texts = {key: text_of(value) for key, value in (configs or {}).items()}
        replication_factor = BROKERS_DEFAULT if replicas is None else replicas
        topics.run(topics.create(self.bootstrap, name, partitions, texts, replication_factor=replication_factor))
        return name

    def tier(self, topic: str, *, keep_local: bool = True, timeout_s: float = 30.0) -> None:
        """Returns when every record that `topic` has now is in the object store and in its checkpoint.

        With `keep_local=False` also when none of them is on the local disk any more, so that the next read is a
        cold one. Raises TimeoutError that says what is late. The topic's configs are changed meanwhile.
        """
        from tiered.testing import topics

        def is_written_down() -> bool:
            running = [each.life.health() for each in self.brokers if each.is_running]
            return bool(running) and all(each["stale_checkpoints"] == 0 for each in running)

        topics.run(
            topics.tier(
                self.bootstrap, topic, keep_local=keep_local, timeout_s=timeout_s, is_written_down=is_written_down
            )
        )

    def health(self) -> dict[str, Any]:
        """The answer of `/readyz` of the broker, or of the first of several."""
        return self.broker.life.health()


cluster = LocalCluster


@cache
def fresh_catalogue() -> bytes:
    """The SQLite catalogue of a broker that has just been installed: made once, later brokers have a copy."""
    from sqlalchemy import create_engine

    from tiered.meta import migrations

    engine = create_engine("sqlite://")
    try:
        with engine.begin() as conn:
            migrations.create(conn)
        with engine.connect() as conn:
            driver = conn.connection.driver_connection
            assert isinstance(driver, sqlite3.Connection)
            return driver.serialize()
    finally:
        engine.dispose()


def _kept_port(stack: ExitStack) -> int:
    """A free port of loopback that stays ours until `stack` ends, also while no broker listens on it.

    Source: Linux lets a second socket bind the address when both have SO_REUSEADDR and none of them listens; the
    kernel gives a bound port to nobody who asks for any.
    """
    sock = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("127.0.0.1", 0))
    port: int = sock.getsockname()[1]
    return port
