"""Programs of `tests/clients/java`, compiled against the Java client from Maven Central, and Kafka's own tools."""

import subprocess
from pathlib import Path

from tests.clients.foreign_tools import tool

SOURCES = Path(__file__).parent / "java"
SCRIPTS = {
    "kafka-client-metrics": "org.apache.kafka.tools.ClientMetricsCommand",
    "kafka-configs": "org.apache.kafka.tools.ConfigCommand",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-groups": "org.apache.kafka.tools.GroupsCommand",
    "kafka-metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
}


def compiled(program: str, folder: Path, *options: str, project: str = "pom.xml") -> Path:
    """`folder`, with the project's jars and this program's classes in it: its class path is `{folder}/*:{folder}`."""
    fetch_jars(project, folder, *options)
    source = str(SOURCES / f"{program}.java")
    subprocess.run([tool("javac"), "-cp", f"{folder}/*", "-d", str(folder), source], check=True, timeout=120)
    return folder


def fetch_jars(project: str, folder: Path, *options: str) -> None:
    """What the project depends on, in `folder`. Maven keeps its own copies in the home folder."""
    fetch = [tool("mvn"), "-q", "-B", *options, "-f", str(SOURCES / project), "dependency:copy-dependencies"]
    subprocess.run([*fetch, f"-DoutputDirectory={folder}"], check=True, timeout=600)


class KafkaTools:
    """What the scripts of Kafka's bin folder run, by their names there. `jars` is what `fetch_jars` was given."""

    def __init__(self, jars: Path, bootstrap: str) -> None:
        self.jars = jars
        self.bootstrap = bootstrap

    def run(self, script: str, *arguments: str, told: str = "") -> list[str]:
        """The lines it said; raises AssertionError with its words when it failed."""
        done = self.ask(script, *arguments, told=told)
        assert done.returncode == 0, f"{script} {' '.join(arguments)}\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
        return done.stdout.splitlines()

    def ask(self, script: str, *arguments: str, told: str = "") -> subprocess.CompletedProcess[str]:
        """What became of it, for who expects a refusal."""
        # A tool lives for a second or two: the better compiler would never earn what it costs.
        java = [tool("java"), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", f"{self.jars}/*"]
        command = [*java, SCRIPTS[script], "--bootstrap-server", self.bootstrap, *arguments]
        return subprocess.run(command, input=told, capture_output=True, text=True, timeout=120, check=False)
