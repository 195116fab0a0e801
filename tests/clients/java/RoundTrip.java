import java.io.FileInputStream;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Writes some values to a topic and reads them back, with the properties of a file: for listeners that ask who comes. */
public final class RoundTrip {
    public static void main(String[] args) throws Exception {
        Properties told = new Properties();
        try (FileInputStream file = new FileInputStream(args[0])) {
            told.load(file);
        }
        String topic = args[1];
        int count = Integer.parseInt(args[2]);
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(told, new StringSerializer(), new StringSerializer())) {
            for (int number = 0; number < count; number++) {
                producer.send(new ProducerRecord<>(topic, 0, null, "java-" + number)).get();
            }
        }
        List<String> found = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(told, new StringDeserializer(), new StringDeserializer())) {
            TopicPartition partition = new TopicPartition(topic, 0);
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            long deadline = System.nanoTime() + 60_000_000_000L;
            while (found.size() < count && System.nanoTime() < deadline) {
                consumer.poll(Duration.ofMillis(500)).forEach(record -> found.add(record.value()));
            }
        }
        System.out.println("read " + found.size() + " " + found.get(0) + " " + found.get(found.size() - 1));
    }
}
