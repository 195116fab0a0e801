import java.time.Duration;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.TimeWindows;

/**
 * Kafka Streams, exactly once: each order is joined with the country of its customer, and the orders of a country are
 * counted in windows of a second. Bootstrap, folder for state, replicas. Says what becomes of it; ends when stdin does.
 */
public final class StreamsApp {
    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        settings.putAll(Map.of(
            "application.id", "orders-app", "bootstrap.servers", args[0], "state.dir", args[1],
            "processing.guarantee", "exactly_once_v2", "num.stream.threads", 2, "commit.interval.ms", 100,
            "session.timeout.ms", 6_000, "heartbeat.interval.ms", 500, "replication.factor", args[2]));
        // Each count is said, so that one that is left out or said twice shows.
        settings.put("statestore.cache.max.bytes", 0);
        settings.put("consumer.auto.offset.reset", "earliest");
        settings.put("default.key.serde", Serdes.StringSerde.class);
        settings.put("default.value.serde", Serdes.StringSerde.class);

        StreamsBuilder builder = new StreamsBuilder();
        KTable<String, String> customers = builder.table("customers");
        KStream<String, String> joined = builder.<String, String>stream("orders")
            .join(customers, (order, country) -> country + ":" + order);
        joined.to("joined");
        joined.groupBy((customer, order) -> order.substring(0, order.indexOf(':')))
            .windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofSeconds(1), Duration.ofDays(1)))
            .count()
            .toStream((window, count) -> window.key() + "@" + window.window().start())
            .mapValues(count -> count.toString())
            .to("counts", Produced.with(Serdes.String(), Serdes.String()));

        try (KafkaStreams streams = new KafkaStreams(builder.build(), settings)) {
            streams.setStateListener((now, before) -> System.out.println("state " + now));
            streams.setUncaughtExceptionHandler(error -> {
                System.out.println("failed " + error);
                return StreamThreadExceptionResponse.REPLACE_THREAD;
            });
            streams.start();
            while (System.in.read() >= 0) { }
            System.exit(streams.close(Duration.ofSeconds(60)) ? 0 : 1);
        }
    }
}
