import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.AbortTransactionSpec;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListTransactionsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** What applications and tools do with transactions, one line for each outcome: bootstrap, prefix of all names. */
public final class TransactionTour {
    private static final long WAIT_S = 60;
    private static String bootstrap;
    private static String prefix;
    private static Admin admin;

    public static void main(String[] args) throws Exception {
        bootstrap = args[0];
        prefix = args[1];
        try (Admin made = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin = made;
            commitsAndAborts();
            fences();
            timesOut();
            readsProcessesWrites("classic");
            readsProcessesWrites("consumer");
            toolsSeeAndAbort();
            toolsFence();
        }
    }

    private static void commitsAndAborts() throws Exception {
        String one = topic("one");
        String two = topic("two");
        try (KafkaProducer<String, String> producer = producer("tour", 60_000)) {
            producer.initTransactions();
            for (int number = 0; number < 6; number++) {
                producer.beginTransaction();
                producer.send(new ProducerRecord<>(one, 0, null, "one-" + number));
                producer.send(new ProducerRecord<>(two, 1, null, "two-" + number));
                if (number % 2 == 0) {
                    producer.commitTransaction();
                } else {
                    producer.flush();
                    producer.abortTransaction();
                }
            }
        }
        say("committed " + read("read_committed", one, 0) + " " + read("read_committed", two, 1));
        say("uncommitted " + read("read_uncommitted", one, 0).size());
    }

    private static void fences() throws Exception {
        String topic = topic("fenced");
        try (KafkaProducer<String, String> first = producer("fenced", 60_000);
                KafkaProducer<String, String> second = producer("fenced", 60_000)) {
            first.initTransactions();
            first.beginTransaction();
            first.send(new ProducerRecord<>(topic, 0, null, "first")).get();
            second.initTransactions();
            second.beginTransaction();
            second.send(new ProducerRecord<>(topic, 0, null, "second")).get();
            say("fenced commit " + failure(first::commitTransaction));
            say("fenced begin " + failure(first::beginTransaction));
            second.commitTransaction();
        }
        try (KafkaProducer<String, String> first = producer("fenced", 60_000);
                KafkaProducer<String, String> second = producer("fenced", 60_000)) {
            first.initTransactions();
            second.initTransactions();
            first.beginTransaction();
            say("fenced send " + failure(() -> first.send(new ProducerRecord<>(topic, 0, null, "late")).get()));
        }
        say("after fencing " + read("read_committed", topic, 0));
    }

    private static void timesOut() throws Exception {
        String topic = topic("late");
        try (KafkaProducer<String, String> producer = producer("late", 1_000)) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, 0, null, "late")).get();
            awaitState(prefix + "late", TransactionState.COMPLETE_ABORT);
            say("late commit " + failure(producer::commitTransaction));
        }
        try (KafkaProducer<String, String> producer = producer("late", 60_000)) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, 0, null, "again"));
            producer.commitTransaction();
        }
        say("after the time-out " + read("read_committed", topic, 0));
    }

    private static void readsProcessesWrites(String protocol) throws Exception {
        String input = topic("input-" + protocol);
        String output = topic("output-" + protocol);
        try (KafkaProducer<String, String> producer = producer("", 0)) {
            for (int number = 0; number < 100; number++) {
                producer.send(new ProducerRecord<>(input, number % 2, null, "" + number));
            }
        }
        ConsumerGroupMetadata before = null;
        Map<TopicPartition, OffsetAndMetadata> last = new HashMap<>();
        try (KafkaProducer<String, String> producer = producer("rpw-" + protocol, 60_000);
                KafkaConsumer<String, String> consumer = consumer("read_committed", protocol)) {
            producer.initTransactions();
            consumer.subscribe(List.of(input));
            boolean commits = false;
            for (int done = 0; done < 100; ) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
                if (records.isEmpty()) {
                    continue;
                }
                producer.beginTransaction();
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                for (ConsumerRecord<String, String> record : records) {
                    producer.send(new ProducerRecord<>(output, record.partition(), null, record.value()));
                    offsets.put(new TopicPartition(input, record.partition()), new OffsetAndMetadata(record.offset() + 1, "m"));
                }
                producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                before = consumer.groupMetadata();
                if (commits) {
                    producer.commitTransaction();
                    last.putAll(offsets);
                    done += records.count();
                } else {
                    producer.abortTransaction();
                    Map<TopicPartition, OffsetAndMetadata> stood = consumer.committed(consumer.assignment());
                    for (TopicPartition partition : consumer.assignment()) {
                        OffsetAndMetadata found = stood.get(partition);
                        consumer.seek(partition, found == null ? 0 : found.offset());
                    }
                    say("offsets after an abort " + stood.values().stream().filter(each -> each != null).count());
                }
                commits = true;
            }
            Map<TopicPartition, OffsetAndMetadata> stood = consumer.committed(consumer.assignment());
            say("offsets after commits " + new TreeMap<>(offsetsOf(stood)).values() + " same " + stood.equals(last));
        }
        TopicPartition partition = new TopicPartition(input, 0);
        try (KafkaProducer<String, String> producer = producer("rpw-" + protocol, 60_000);
                KafkaConsumer<String, String> consumer = consumer("read_committed", protocol)) {
            producer.initTransactions();
            consumer.subscribe(List.of(input));
            while (consumer.assignment().isEmpty()) {
                consumer.poll(Duration.ofMillis(200));
            }
            producer.beginTransaction();
            ConsumerGroupMetadata gone = before;
            Map<TopicPartition, OffsetAndMetadata> offsets = Map.of(partition, new OffsetAndMetadata(7));
            say("member that is gone " + failure(() -> {
                producer.sendOffsetsToTransaction(offsets, gone);
                producer.commitTransaction();
            }));
            producer.abortTransaction();
            producer.beginTransaction();
            producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
            producer.commitTransaction();
            say("then " + consumer.committed(Set.of(partition)).get(partition).offset());
        }
        say("processed " + (read("read_committed", output, 0).size() + read("read_committed", output, 1).size()));
    }

    private static void toolsSeeAndAbort() throws Exception {
        String topic = topic("seen");
        TopicPartition partition = new TopicPartition(topic, 0);
        String id = prefix + "seen";
        try (KafkaProducer<String, String> producer = producer("seen", 60_000)) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, 0, null, "seen")).get();
            ListTransactionsOptions ongoing = new ListTransactionsOptions().filterStates(Set.of(TransactionState.ONGOING));
            admin.listTransactions(ongoing).all().get(WAIT_S, TimeUnit.SECONDS)
                .forEach(each -> say("listed " + each.transactionalId().substring(prefix.length()) + " " + each.state()));
            TransactionDescription open = described(id);
            say("described " + open.state() + " " + open.transactionTimeoutMs() + " "
                + open.topicPartitions().equals(Set.of(partition)) + " " + open.transactionStartTimeMs().isPresent());
            ProducerState found = producersOf(partition).get(0);
            say("producer " + (found.producerId() == open.producerId()) + " " + (found.producerEpoch() == open.producerEpoch())
                + " from " + found.currentTransactionStartOffset().getAsLong());
            AbortTransactionSpec spec = new AbortTransactionSpec(
                partition, found.producerId(), (short) found.producerEpoch(), found.coordinatorEpoch().orElse(0));
            admin.abortTransaction(spec).all().get(WAIT_S, TimeUnit.SECONDS);
            say("aborted, open " + producersOf(partition).get(0).currentTransactionStartOffset().isPresent());
            say("read after it " + read("read_committed", topic, 0));
        }
        say("unknown " + failure(() -> described(prefix + "nobody")));
    }

    private static void toolsFence() throws Exception {
        String topic = topic("tool");
        try (KafkaProducer<String, String> producer = producer("tool", 60_000)) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, 0, null, "tool")).get();
            admin.fenceProducers(List.of(prefix + "tool")).all().get(WAIT_S, TimeUnit.SECONDS);
            say("fenced by a tool " + failure(producer::commitTransaction));
        }
        say("read after that " + read("read_committed", topic, 0));
    }

    private static TransactionDescription described(String id) throws Exception {
        return admin.describeTransactions(List.of(id)).description(id).get(WAIT_S, TimeUnit.SECONDS);
    }

    private static void awaitState(String id, TransactionState state) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_S);
        while (described(id).state() != state && System.nanoTime() < deadline) {
            Thread.sleep(50);
        }
    }

    private static List<ProducerState> producersOf(TopicPartition partition) throws Exception {
        return admin.describeProducers(List.of(partition)).partitionResult(partition).get(WAIT_S, TimeUnit.SECONDS).activeProducers();
    }

    private static String topic(String name) throws Exception {
        String topic = prefix + name;
        admin.createTopics(List.of(new NewTopic(topic, 2, (short) 1))).all().get(WAIT_S, TimeUnit.SECONDS);
        return topic;
    }

    /** With no name: one without transactions. */
    private static KafkaProducer<String, String> producer(String name, int timeoutMs) {
        Map<String, Object> settings = new HashMap<>(Map.of("bootstrap.servers", bootstrap));
        if (!name.isEmpty()) {
            settings.put("transactional.id", prefix + name);
            settings.put("transaction.timeout.ms", timeoutMs);
        }
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }

    private static KafkaConsumer<String, String> consumer(String isolation, String protocol) {
        Map<String, Object> settings = new HashMap<>(Map.of(
            "bootstrap.servers", bootstrap, "group.id", prefix + protocol, "group.protocol", protocol,
            "isolation.level", isolation, "auto.offset.reset", "earliest", "enable.auto.commit", "false",
            "fetch.max.wait.ms", 50));
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    /** All values up to the end that the isolation level has. */
    private static List<String> read(String isolation, String topic, int number) {
        TopicPartition partition = new TopicPartition(topic, number);
        List<String> values = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer = consumer(isolation, "classic")) {
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_S);
            long end = consumer.endOffsets(List.of(partition)).get(partition);
            while (consumer.position(partition) < end && System.nanoTime() < deadline) {
                consumer.poll(Duration.ofMillis(100)).forEach(record -> values.add(record.value()));
            }
        }
        return values;
    }

    private static Map<String, Long> offsetsOf(Map<TopicPartition, OffsetAndMetadata> of) {
        Map<String, Long> found = new HashMap<>();
        of.forEach((partition, offset) -> found.put(partition.toString(), offset == null ? -1 : offset.offset()));
        return found;
    }

    private interface Step {
        void run() throws Exception;
    }

    private static String failure(Step step) throws Exception {
        try {
            step.run();
            return "nothing";
        } catch (ExecutionException error) {
            return error.getCause().getClass().getSimpleName();
        } catch (KafkaException error) {
            return error.getClass().getSimpleName()
                + (error.getCause() == null ? "" : " of " + error.getCause().getClass().getSimpleName());
        }
    }

    private static void say(String line) {
        System.out.println(line);
    }
}
