import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.apache.kafka.clients.consumer.CloseOptions;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.AuthorizationException;
import org.apache.kafka.common.errors.OutOfOrderSequenceException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * One instance of a read-process-write loop of the soak, in a process of its own that may be killed at any moment.
 *
 * <p>It takes the options of tests/cluster/transaction_loop.py, and writes the history and the values that
 * tests/cluster/history.py describes. It ends by SIGTERM after the transaction under way, and by itself when its
 * producer is fenced or cannot go on.
 */
public final class TransactionLoop {
    private static final long MAGIC_VALUE = 0x50AC50AC50AC50ACL;
    private static final int SEQUENCE_BITS = 40;
    private static final int INPUT_BITS = 18;
    private static final int PADDING_LONGS = 8;
    private static final byte COMMIT_TRANSACTION = 8;
    private static final byte ABORT_TRANSACTION = 9;
    private static final byte OK = 1;
    private static final byte UNKNOWN = 3;
    private static final int ABORTS_ONE_OF = 7;
    private static final int THINKING_MS = 400;
    private static final Duration POLL = Duration.ofMillis(300);
    private static final Duration CLOSE = Duration.ofSeconds(5);

    private static volatile boolean ends;

    private final int client;
    private final JsonNode options;
    private final FileOutputStream history;
    private final Random chance;
    private final long parent = parent();
    private final KafkaProducer<byte[], byte[]> producer;
    private final KafkaConsumer<byte[], byte[]> consumer;
    private long attempt;

    public static void main(String[] args) throws Exception {
        Thread loop = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            ends = true;
            try {
                loop.join();
            } catch (InterruptedException error) {
                Thread.currentThread().interrupt();
            }
        }));
        JsonNode options = new ObjectMapper().readTree(args[0]);
        int code = 0;
        try {
            new TransactionLoop(options).run();
        } catch (KafkaException | IllegalStateException error) {
            System.err.println("Java's loop " + options.get("client") + " ends: " + error);
            code = 1;
        }
        Runtime.getRuntime().halt(code); // Closes no producer: it dies as if it had crashed.
    }

    private TransactionLoop(JsonNode options) throws IOException {
        this.options = options;
        client = options.get("client").asInt();
        attempt = options.get("first_attempt").asLong();
        history = new FileOutputStream(options.get("history").asText(), true);
        chance = new Random(attempt * 1000 + client);
        Map<String, Object> both = Map.of(
            "bootstrap.servers", options.get("bootstrap").asText(), "request.timeout.ms", 3000,
            "metadata.max.age.ms", 1000, "retry.backoff.ms", 20, "retry.backoff.max.ms", 200,
            "reconnect.backoff.ms", 20, "reconnect.backoff.max.ms", 200);
        Map<String, Object> writes = new HashMap<>(both);
        writes.putAll(Map.of(
            "transactional.id", "soak-loop-" + client, "transaction.timeout.ms", 8000, "delivery.timeout.ms", 8000,
            "max.block.ms", 5000, "linger.ms", 2));
        Map<String, Object> reads = new HashMap<>(both);
        reads.putAll(Map.of(
            "group.id", options.get("group").asText(), "enable.auto.commit", false, "auto.offset.reset", "earliest",
            "isolation.level", "read_committed", "session.timeout.ms", 6000, "heartbeat.interval.ms", 1000,
            "fetch.max.wait.ms", 200, "max.poll.records", 10));
        producer = new KafkaProducer<>(writes, new ByteArraySerializer(), new ByteArraySerializer());
        consumer = new KafkaConsumer<>(reads, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private void run() throws Exception {
        untilAnswered(producer::initTransactions);
        consumer.subscribe(List.of(options.get("input").asText()));
        while (!ends && parent() == parent) {
            ConsumerRecords<byte[], byte[]> records = consumer.poll(POLL);
            if (!records.isEmpty()) {
                // The generation under which they were read: only a poll changes it.
                transact(records, consumer.groupMetadata());
            }
        }
        consumer.close(CloseOptions.timeout(CLOSE));
    }

    private void transact(ConsumerRecords<byte[], byte[]> records, ConsumerGroupMetadata member) throws Exception {
        long startedUs = nowUs();
        boolean aborts = chance.nextInt(ABORTS_ONE_OF) == 0;
        try {
            producer.beginTransaction();
            produce(records);
            Thread.sleep(chance.nextInt(THINKING_MS));
            producer.sendOffsetsToTransaction(records.nextOffsets(), member);
            if (aborts) {
                producer.flush();
            } else {
                untilAnswered(producer::commitTransaction);
                note(COMMIT_TRANSACTION, OK, records.count(), startedUs);
                return;
            }
        } catch (ProducerFencedException | OutOfOrderSequenceException | AuthorizationException error) {
            note(COMMIT_TRANSACTION, UNKNOWN, records.count(), startedUs);
            throw error;
        } catch (KafkaException error) {
            System.err.println("Java's loop " + client + ", attempt " + attempt + ": " + error);
        }
        abort(records, startedUs);
    }

    private void produce(ConsumerRecords<byte[], byte[]> records) {
        for (ConsumerRecord<byte[], byte[]> record : records) {
            long number = ByteBuffer.wrap(record.value()).getLong(Long.BYTES) & ((1L << INPUT_BITS) - 1);
            ByteBuffer value = ByteBuffer.allocate((2 + PADDING_LONGS) * Long.BYTES).putLong(MAGIC_VALUE);
            while (value.hasRemaining()) {
                value.putLong(valueOf(number));
            }
            for (JsonNode output : options.get("outputs")) {
                producer.send(new ProducerRecord<>(output.get(0).asText(), output.get(1).asInt(), null, value.array()));
            }
        }
    }

    /** What was read for an aborted transaction is read again. */
    private void abort(ConsumerRecords<byte[], byte[]> records, long startedUs) throws IOException {
        try {
            untilAnswered(producer::abortTransaction);
        } catch (KafkaException error) {
            note(ABORT_TRANSACTION, UNKNOWN, records.count(), startedUs);
            throw error;
        }
        note(ABORT_TRANSACTION, OK, records.count(), startedUs);
        for (TopicPartition partition : records.partitions()) {
            consumer.seek(partition, records.records(partition).get(0).offset());
        }
    }

    /** Makes the call until it is answered: who tires of this process kills it. */
    private void untilAnswered(Runnable call) {
        while (true) {
            try {
                call.run();
                return;
            } catch (TimeoutException error) {
                if (parent() != parent) {
                    throw error;
                }
            }
        }
    }

    /** Ends an attempt: the next one has the next number. */
    private void note(byte kind, byte outcome, int inputs, long startedUs) throws IOException {
        ByteBuffer record = ByteBuffer.allocate(40).put(kind).put(outcome).putShort((short) client).putInt(0);
        record.putLong(inputs).putLong(valueOf(0)).putLong(startedUs).putLong(nowUs());
        history.write(record.array());
        attempt++;
    }

    private long valueOf(long number) {
        return ((long) client << SEQUENCE_BITS) | (attempt << INPUT_BITS) | number;
    }

    /** Of the clock that Python calls monotonic. */
    private static long nowUs() {
        return System.nanoTime() / 1000;
    }

    private static long parent() {
        return ProcessHandle.current().parent().map(ProcessHandle::pid).orElse(0L);
    }
}
