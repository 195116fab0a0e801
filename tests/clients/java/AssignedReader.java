import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;

/** Reads partition 0 of a topic without a group: bootstrap, topic, a time. Says the ends, each record, and what is at that time. */
public class AssignedReader {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "none");
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        settings.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        TopicPartition partition = new TopicPartition(arguments[1], 0);
        try (KafkaConsumer<byte[], String> consumer = new KafkaConsumer<>(settings)) {
            consumer.assign(List.of(partition));
            long start = consumer.beginningOffsets(List.of(partition)).get(partition);
            long end = consumer.endOffsets(List.of(partition)).get(partition);
            System.out.println("offsets " + start + " " + end);
            var found = consumer.offsetsForTimes(Map.of(partition, Long.parseLong(arguments[2]))).get(partition);
            System.out.println("at " + (found == null ? "none" : found.offset()));
            consumer.seekToBeginning(List.of(partition));
            while (consumer.position(partition) < end) {
                for (ConsumerRecord<byte[], String> each : consumer.poll(Duration.ofSeconds(5))) {
                    System.out.println("record " + each.offset() + " " + each.value());
                }
            }
        }
    }
}
