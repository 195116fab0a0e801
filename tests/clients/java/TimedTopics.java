import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;

/**
 * Writes topics. Argument: bootstrap. Each line of the input is a topic: its name, its codec, and the times of its
 * records in milliseconds, batch by batch; null leaves one out.
 */
public final class TimedTopics {
    public static void main(String[] args) throws Exception {
        Map<String, KafkaProducer<String, String>> producers = new HashMap<>();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        ObjectMapper json = new ObjectMapper();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode wanted = json.readTree(line);
            KafkaProducer<String, String> producer = producers.computeIfAbsent(
                    wanted.get("codec").asText(),
                    codec -> new KafkaProducer<>(
                            Map.of("bootstrap.servers", args[0], "compression.type", codec, "linger.ms", 1000),
                            new StringSerializer(), new StringSerializer()));
            int number = 0;
            for (JsonNode batch : wanted.get("batches")) {
                for (JsonNode ms : batch) {
                    String text = String.valueOf(number++);
                    Long time = ms.isNull() ? null : ms.asLong();
                    producer.send(new ProducerRecord<>(wanted.get("topic").asText(), 0, time, text, text));
                }
                producer.flush();
            }
        }
        producers.values().forEach(KafkaProducer::close);
    }
}
