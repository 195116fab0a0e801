import java.util.Collections;
import java.util.List;
import java.util.ArrayList;
import java.util.Properties;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Several producers commit transactions of one record for each partition of a topic. Bootstrap, topic, producers,
 * partitions, transactions of all producers together. Prints how long each transaction took, in milliseconds.
 */
public final class TransactionPace {
    public static void main(String[] args) throws Exception {
        int producers = Integer.parseInt(args[2]);
        int partitions = Integer.parseInt(args[3]);
        AtomicInteger left = new AtomicInteger(Integer.parseInt(args[4]));
        List<Long> tookMs = Collections.synchronizedList(new ArrayList<>());
        ExecutorService threads = Executors.newFixedThreadPool(producers);
        List<Future<?>> running = new ArrayList<>();
        for (int number = 0; number < producers; number++) {
            Properties settings = new Properties();
            settings.put("bootstrap.servers", args[0]);
            settings.put("transactional.id", "pace-" + number);
            running.add(threads.submit(() -> {
                try (KafkaProducer<String, String> producer =
                        new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
                    producer.initTransactions();
                    while (left.getAndDecrement() > 0) {
                        long startedNs = System.nanoTime();
                        producer.beginTransaction();
                        for (int partition = 0; partition < partitions; partition++) {
                            producer.send(new ProducerRecord<>(args[1], partition, null, "v"));
                        }
                        producer.commitTransaction();
                        tookMs.add((System.nanoTime() - startedNs) / 1_000_000);
                    }
                }
            }));
        }
        for (Future<?> each : running) {
            each.get();
        }
        threads.shutdown();
        tookMs.forEach(System.out::println);
    }
}
