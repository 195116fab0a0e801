import java.io.File;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.MapFunction;
import org.apache.flink.api.common.serialization.SerializationSchema;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.sink.KafkaSinkBuilder;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/**
 * A job of Apache Flink in this process, exactly once: each order is copied under the key before its colon. Bootstrap,
 * folder for checkpoints, how transactional ids are named ("" for the connector's only way), the checkpoint to go on
 * from ("" for none). Fails where a file `fail` is in the folder, and takes it away. Ends with a savepoint when stdin
 * does.
 */
public final class FlinkJob {
    /** Of an order, key and number are parts. Flink takes no lambda for it. */
    private static final class Part implements SerializationSchema<String> {
        private final int index;

        private Part(int index) {
            this.index = index;
        }

        @Override
        public byte[] serialize(String order) {
            return order.split(":")[index].getBytes();
        }
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    public static void main(String[] args) throws Exception {
        String folder = args[1], naming = args[2], restored = args[3];
        Configuration settings = new Configuration();
        Map.of(
            "parallelism.default", "2",
            "execution.checkpointing.interval", "1 s",
            "execution.checkpointing.dir", "file://" + folder,
            "execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION",
            "restart-strategy.type", "fixed-delay",
            "restart-strategy.fixed-delay.attempts", "1000",
            "restart-strategy.fixed-delay.delay", "1 s",
            "jobmanager.bind-host", "127.0.0.1",
            "rest.bind-address", "127.0.0.1").forEach(settings::setString);
        if (!restored.isEmpty()) {
            settings.setString("execution.state-recovery.path", "file://" + restored);
        }
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.getExecutionEnvironment(settings);

        KafkaSource<String> source = KafkaSource.<String>builder()
            .setBootstrapServers(args[0])
            .setTopics("orders")
            .setGroupId("flink")
            .setStartingOffsets(OffsetsInitializer.earliest())
            .setValueOnlyDeserializer(new SimpleStringSchema())
            .build();
        KafkaSinkBuilder<String> sink = KafkaSink.<String>builder()
            .setBootstrapServers(args[0])
            .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
            .setTransactionalIdPrefix("flink")
            // Its default is an hour, more than brokers allow.
            .setProperty("transaction.timeout.ms", "600000")
            .setRecordSerializer(KafkaRecordSerializationSchema.<String>builder()
                .setTopic("copied")
                .setKeySerializationSchema(new Part(0))
                .setValueSerializationSchema(new Part(1))
                .build());
        if (!naming.isEmpty()) {
            // Connectors before 4.0 don't have it.
            Class<Enum> namings = (Class<Enum>)
                Class.forName("org.apache.flink.connector.kafka.sink.TransactionNamingStrategy");
            KafkaSinkBuilder.class.getMethod("setTransactionNamingStrategy", namings)
                .invoke(sink, Enum.valueOf(namings, naming));
        }
        File fail = new File(folder, "fail");
        environment.fromSource(source, WatermarkStrategy.noWatermarks(), "orders")
            .map((MapFunction<String, String>) order -> {
                if (fail.delete()) {
                    throw new IllegalStateException("told to fail");
                }
                return order;
            })
            .sinkTo(sink.build());

        JobClient job = environment.executeAsync("copy");
        System.out.println("started from " + restored);
        while (System.in.read() >= 0) { }
        job.stopWithSavepoint(false, "file://" + folder + "/savepoints", SavepointFormatType.CANONICAL)
            .get(60, TimeUnit.SECONDS);
        System.exit(0);
    }
}
