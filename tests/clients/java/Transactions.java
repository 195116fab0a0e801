import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Writes transactions to all partitions of a topic; aborts every third, and reads what was committed. */
public final class Transactions {
    public static void main(String[] args) throws Exception {
        String topic = args[1];
        int transactions = Integer.parseInt(args[2]);
        int partitions = Integer.parseInt(args[3]);
        Properties told = new Properties();
        told.put("bootstrap.servers", args[0]);
        told.put("transactional.id", "java");
        Properties reads = new Properties();
        reads.put("bootstrap.servers", args[0]);
        reads.put("group.id", "java-group");
        reads.put("isolation.level", "read_committed");
        reads.put("enable.auto.commit", "false");
        int committed = 0;
        try (KafkaProducer<String, String> producer =
                        new KafkaProducer<>(told, new StringSerializer(), new StringSerializer());
                KafkaConsumer<String, String> consumer =
                        new KafkaConsumer<>(reads, new StringDeserializer(), new StringDeserializer())) {
            producer.initTransactions();
            for (int number = 0; number < transactions; number++) {
                boolean aborts = number % 3 == 2;
                producer.beginTransaction();
                for (int partition = 0; partition < partitions; partition++) {
                    String value = (aborts ? "aborted-" : "committed-") + number;
                    producer.send(new ProducerRecord<>(topic, partition, null, value));
                }
                if (aborts) {
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                    committed += partitions;
                }
            }
            List<String> found = new ArrayList<>();
            List<TopicPartition> assigned = new ArrayList<>();
            for (int partition = 0; partition < partitions; partition++) {
                assigned.add(new TopicPartition(topic, partition));
            }
            TopicPartition first = assigned.get(0);
            consumer.assign(assigned);
            consumer.seekToBeginning(assigned);
            long deadline = System.nanoTime() + 60_000_000_000L;
            Map<TopicPartition, Long> ends = consumer.endOffsets(assigned);
            while (System.nanoTime() < deadline
                    && assigned.stream().anyMatch(each -> consumer.position(each) < ends.get(each))) {
                consumer.poll(Duration.ofMillis(200)).forEach(record -> found.add(record.value()));
            }
            long wrong = found.stream().filter(each -> each.startsWith("aborted")).count();
            System.out.println("read " + found.size() + " of " + committed + ", aborted " + wrong);
        }
    }
}
