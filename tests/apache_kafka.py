"""Apache Kafka itself, from Maven Central: one broker that is its own controller, for what is compared or mirrored, and
more that join it.

Owns their processes and folders. They listen on loopback only.
"""

import base64
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.broker_process import free_port
from tests.clients.foreign_tools import tool
from tests.clients.java_client import fetch_jars

FORMAT_S, STOP_S = 60.0, 60.0
START_S = 600.0
"""After a kill it looks through the log of every partition before it answers."""
# What the script in Kafka's bin folder gives it.
JAVA_OPTIONS = (
    *("-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true"),
)
# A single broker can keep one copy. All else is Kafka's default.
ALONE = {
    "node.id": 1,
    "controller.listener.names": "CONTROLLER",
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
}


class ApacheKafka:
    """One broker of Apache Kafka. `start` returns once it answers; after `stop` it can be started again."""

    def __init__(
        self,
        jars: Path,
        folder: Path,
        settings: Mapping[str, object] | None = None,
        *,
        joins: "ApacheKafka | None" = None,
        over_tls: bool = False,
    ) -> None:
        """`jars` is what `fetch_jars("broker.xml", …)` filled; data, properties and log are in `folder`.

        One that joins another needs a `node.id` of its own. `over_tls` adds a listener, for which the settings name a
        key store.
        """
        folder.mkdir(parents=True, exist_ok=True)
        port = free_port()
        tls_port = free_port(besides=port)
        self.bootstrap, self.tls = f"127.0.0.1:{port}", f"127.0.0.1:{tls_port}"
        self.controller: str = joins.controller if joins else f"127.0.0.1:{free_port(besides=port)}"
        new_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        self.cluster_id: str = joins.cluster_id if joins else new_id
        self.folder, self.log = folder, folder / "kafka.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._properties = folder / "server.properties"
        self._java = [tool("java"), *JAVA_OPTIONS, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
        self._java += ["-cp", f"{jars}/*"]
        listeners = [f"PLAINTEXT://{self.bootstrap}"]
        listeners += [f"SSL://{self.tls}"] * over_tls + [f"CONTROLLER://{self.controller}"] * (joins is None)
        own = {
            "listeners": ",".join(listeners),
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT",
            "process.roles": "broker" if joins else "broker,controller",
            "controller.quorum.voters": f"1@{self.controller}",
            "log.dirs": folder / "data",
        }
        lines = [f"{name}={value}\n" for name, value in {**ALONE, **own, **(settings or {})}.items()]
        self._properties.write_text("".join(lines))
        self._format()

    def _format(self) -> None:
        words = ["kafka.tools.StorageTool", "format", f"--cluster-id={self.cluster_id}"]
        words += ["--config", str(self._properties)]
        done = subprocess.run([*self._java, *words], capture_output=True, text=True, timeout=FORMAT_S, check=False)
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]

    @property
    def kafka_port(self) -> int:
        return int(self.bootstrap.rpartition(":")[2])

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Raises AssertionError with its own words when it does not answer."""
        with self.log.open("ab") as log:
            command = [*self._java, "kafka.Kafka", str(self._properties)]
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        # Else its next try may come ten seconds after the broker's first answer.
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0, "reconnect.backoff.max.ms": 200})
        deadline = time.monotonic() + START_S
        while True:
            try:
                if admin.list_topics(timeout=1).brokers:
                    return
            except KafkaException:
                pass
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise AssertionError(f"Apache Kafka did not start:\n{self.log.read_text()[-4000:]}")

    def stop(self) -> None:
        """A controlled shutdown; kill -9 when it takes too long. Nothing where it does not run."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """kill -9."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()


@contextmanager
def apache_kafka(folder: Path, settings: Mapping[str, object] | None = None) -> Iterator[ApacheKafka]:
    """A running one, with all that it needs in `folder`; stopped at the end."""
    fetch_jars("broker.xml", folder / "jars")
    kafka = ApacheKafka(folder / "jars", folder, settings)
    try:
        kafka.start()
        yield kafka
    finally:
        kafka.stop()
