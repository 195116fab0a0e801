"""A cluster for the length of a test: its folder, its ports, its object store and its broker.

Owns all of these from start to stop, and leaves nothing behind: no thread, no descriptor, no file. Must never
import the broker before one is started, and never touch the caller's event loop.
"""

import socket
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self
from urllib.parse import quote

from tiered.testing.broker_control import BrokerControl
from tiered.testing.cluster_options import Told, settings_of, text_of

if TYPE_CHECKING:
    from tiered.testing.faulty_s3 import FaultyS3
    from tiered.testing.lives import Life

CATALOGUE = "meta.db"


def cluster(
    brokers: int = 1,
    *,
    topics: Mapping[str, int] | None = None,
    topic_defaults: Mapping[str, object] | None = None,
    settings: Mapping[str, object] | None = None,
    s3: Literal["moto"] | None = None,
    store: str | None = None,
    sql: str | None = None,
    data: Path | str | None = None,
    in_process: bool = True,
) -> "LocalCluster":
    """A cluster that starts at `with` (or `async with`, or `.start()`) and is gone afterwards.

    - `topics`: {name: partitions} to create at once.
    - `topic_defaults`: topic configs, such as {"retention.ms": 1000}, for topics that do not say.
    - `settings`: broker settings under Kafka's names, over those of `QUICK_SETTINGS`.
    - `s3="moto"`: objects go to an S3 server in this process, whose faults are `c.s3`. Needs `tiered[testing]`.
    - `store`, `sql`: the URL of another object store (a local folder is the default) or catalogue (SQLite).
    - `data`: a folder to keep; without it a temporary one is made and removed.
    - `in_process=False`: the broker is a process of its own, and `c.broker.kill()` is SIGKILL.
    """
    if brokers != 1:
        raise ValueError(
            f"brokers={brokers} is not possible: clusters of several brokers come with replication, which this version "
            "does not have; use brokers=1"
        )
    if s3 not in (None, "moto"):
        raise ValueError(f's3={s3!r} is not known: use s3="moto", or store="s3://…" for a server of your own')
    if s3 is not None and store is not None:
        raise ValueError('s3="moto" makes a store of its own: leave store away')
    return LocalCluster(
        topics=dict(topics or {}),
        topic_defaults=dict(topic_defaults or {}),
        settings=dict(settings or {}),
        with_s3=s3 is not None,
        store=store,
        sql=sql,
        data=None if data is None else Path(data),
        in_process=in_process,
    )


class LocalCluster:
    """What `cluster()` gives. `with` starts it and ends it; `start` and `stop` do so by hand, in a notebook."""

    def __init__(
        self,
        *,
        topics: dict[str, int],
        topic_defaults: dict[str, object],
        settings: dict[str, object],
        with_s3: bool,
        store: str | None,
        sql: str | None,
        data: Path | None,
        in_process: bool,
    ) -> None:
        self._topics = topics
        self._topic_defaults = topic_defaults
        self._settings = settings
        self._with_s3 = with_s3
        self._store = store
        self._sql = sql
        self._given_data = data
        self._in_process = in_process
        self._stack = ExitStack()
        self._s3: FaultyS3 | None = None
        self._told: Told | None = None
        self.broker = BrokerControl(self._begin)
        """Stops, kills and starts the broker."""

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
            # Nobody would end what the thread is about to have started.
            await asyncio.gather(starting, return_exceptions=True)
            await asyncio.to_thread(self.stop)
            raise

    async def __aexit__(self, *_: object) -> None:
        import asyncio

        await asyncio.to_thread(self.stop)

    def start(self) -> Self:
        """Returns when the broker serves and `topics` exist. Raises TieredError or OSError when it cannot."""
        if self._told is not None:
            raise RuntimeError("this cluster runs already; cluster() makes another one")
        with ExitStack() as stack:
            self._told = self._prepare(stack)
            stack.callback(self._forget)
            stack.callback(self.broker.stop)
            self.broker.start()
            for name, partitions in self._topics.items():
                self.create_topic(name, partitions=partitions)
            if self._s3 is not None:
                stack.callback(self._s3.heal)  # The broker's last words should not wait for a fault.
            self._stack = stack.pop_all()
        return self

    def stop(self) -> None:
        """Ends everything, whatever state the test has left it in. Harmless twice."""
        self._stack.close()

    def _prepare(self, stack: ExitStack) -> Told:
        settings = settings_of(self._settings, self._topic_defaults)
        data = self._given_data
        if data is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="tiered-", ignore_cleanup_errors=True))
            data = Path(folder) / "data"
        data = data.absolute()
        data.mkdir(parents=True, exist_ok=True)
        if self._sql is None and not (data / CATALOGUE).exists():
            from tiered.testing.fresh_catalogue import fresh_catalogue

            (data / CATALOGUE).write_bytes(fresh_catalogue())
        in_url = quote(str(data))
        return Told(
            data=data,
            kafka_port=_kept_port(stack),
            http_port=_kept_port(stack),
            settings=settings,
            sql_url=self._sql or f"sqlite:///{in_url}/{CATALOGUE}",
            store_url=self._store or (self._start_s3(stack) if self._with_s3 else f"file://{in_url}/objects"),
        )

    def _start_s3(self, stack: ExitStack) -> str:
        from tiered.runtime import new_uuid
        from tiered.testing.faulty_s3 import faulty_s3
        from tiered.testing.moto_s3 import REGION, moto_s3

        bucket = f"tiered-{new_uuid()}"
        self._s3 = stack.enter_context(faulty_s3(stack.enter_context(moto_s3(bucket))))
        return f"s3://{bucket}/test?region={REGION}&endpoint_url={self._s3.url}"

    def _begin(self) -> "Life":
        assert self._told is not None
        if self._in_process:
            from tiered.testing.thread_life import ThreadLife

            if not self._with_s3:
                return ThreadLife(self._told, nullcontext)
            from tiered.testing.moto_s3 import aws_environment

            return ThreadLife(self._told, aws_environment)
        from tiered.testing.process_life import ProcessLife

        return ProcessLife(self._told, self.aws_environ if self._with_s3 else {})

    def _forget(self) -> None:
        self._told = self._s3 = None

    # Where it is

    @property
    def bootstrap(self) -> str:
        """`bootstrap.servers` of Kafka clients. The same before and after a restart."""
        return f"127.0.0.1:{self._running.kafka_port}"

    @property
    def http_url(self) -> str:
        """Health, metrics, the catalogue and the console. The first request takes longer: it imports the server."""
        return f"http://127.0.0.1:{self._running.http_port}"

    @property
    def store_url(self) -> str:
        """The object store as Spark's option `store` takes it."""
        return self._running.store_url

    @property
    def sql_url(self) -> str:
        """The catalogue as SQLAlchemy takes it; docs/sql.md says what may be selected."""
        return self._running.sql_url

    @property
    def data(self) -> Path:
        """The broker's data folder."""
        return self._running.data

    @property
    def _running(self) -> Told:
        if self._told is None:
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
        return self._running.store_url.removeprefix("s3://").partition("/")[0]

    @property
    def aws_environ(self) -> dict[str, str]:
        """What the environment of a program (a Spark job) must hold, so that `store_url` opens for it."""
        from tiered.testing.moto_s3 import ENVIRON

        return dict(ENVIRON)

    def s3_client(self) -> Any:
        """boto3's client on the bucket's server, past the faults: for the test to look with. Close it."""
        from tiered.testing.moto_s3 import s3_client

        return s3_client(self.s3.upstream)

    # Topics

    def create_topic(
        self, name: str | None = None, *, partitions: int = 1, configs: Mapping[str, object] | None = None
    ) -> str:
        """The topic's name, once it exists; without a name a new one is given. Raises BrokerError."""
        from tiered.testing import topics

        if name is None:
            from tiered.runtime import new_uuid

            name = f"topic-{new_uuid().hex[:12]}"
        texts = {key: text_of(value) for key, value in (configs or {}).items()}
        topics.run(topics.create(self.bootstrap, name, partitions, texts))
        return name

    def tier(self, topic: str, *, keep_local: bool = True, timeout_s: float = 30.0) -> None:
        """Returns when every record that `topic` has now is in the object store and in its checkpoint.

        With `keep_local=False` also when none of them is on the local disk any more, so that the next read is a
        cold one. Raises TimeoutError that says what is late. The topic's configs are changed meanwhile.
        """
        from tiered.testing import topics

        def is_written_down() -> bool:
            return bool(self.health()["stale_checkpoints"] == 0)

        topics.run(
            topics.tier(
                self.bootstrap, topic, keep_local=keep_local, timeout_s=timeout_s, is_written_down=is_written_down
            )
        )

    def health(self) -> dict[str, Any]:
        """What `/readyz` says."""
        return self.broker.life.health()


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
