import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Properties;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.TopicPartition;

/** One consumer: bootstrap, group, protocol (classic or consumer), topic or ^pattern. Leaves when stdin ends. */
public class GroupMember {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("group.id", arguments[1]);
        settings.put("group.protocol", arguments[2]);
        if (arguments[2].equals("classic")) {
            settings.put("session.timeout.ms", "6000");
            settings.put("heartbeat.interval.ms", "300");
            settings.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");
        }
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("metadata.max.age.ms", "500");
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        settings.put("value.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        ConsumerRebalanceListener told = new ConsumerRebalanceListener() {
            public void onPartitionsAssigned(Collection<TopicPartition> partitions) { }
            public void onPartitionsRevoked(Collection<TopicPartition> partitions) { say("revoked", partitions.size()); }
            public void onPartitionsLost(Collection<TopicPartition> partitions) { say("lost", partitions.size()); }
        };
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings)) {
            if (arguments[3].startsWith("^")) {
                consumer.subscribe(new SubscriptionPattern(arguments[3].substring(1)), told);
            } else {
                consumer.subscribe(List.of(arguments[3]), told);
            }
            String before = "";
            while (System.in.available() == 0) {
                int count = consumer.poll(Duration.ofMillis(100)).count();
                if (count > 0) {
                    say("read", count);
                    consumer.commitSync();
                }
                String now = new TreeSet<>(consumer.assignment().stream().map(Object::toString).toList()).toString();
                if (!now.equals(before)) {
                    say("has", now.replace(" ", ""));
                    before = now;
                }
            }
        } catch (org.apache.kafka.common.KafkaException error) {
            say("failed", error.getClass().getSimpleName());
        }
    }

    private static void say(String what, Object value) {
        System.out.println(what + " " + value);
    }
}
