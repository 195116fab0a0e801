import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;

/** What Kafka's own tools do with a cluster, through the same client; one line for each answer. */
public final class ClusterAdmin {
    private static final long WAIT_S = 60;

    private static List<Integer> ids(List<Node> nodes) {
        return nodes.stream().map(Node::id).collect(Collectors.toList());
    }

    private static TopicPartitionInfo described(Admin admin, String topic) throws Exception {
        return admin.describeTopics(List.of(topic)).allTopicNames().get(WAIT_S, TimeUnit.SECONDS).get(topic)
            .partitions().get(0);
    }

    public static void main(String[] args) throws Exception {
        String topic = args[1];
        TopicPartition partition = new TopicPartition(topic, 0);
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", args[0]))) {
            TreeSet<Integer> brokers = new TreeSet<>();
            admin.describeCluster().nodes().get(WAIT_S, TimeUnit.SECONDS).forEach(node -> brokers.add(node.id()));
            System.out.println("brokers " + brokers);
            admin.createTopics(List.of(new NewTopic(topic, Map.of(0, List.of(1, 2))))).all().get(WAIT_S, TimeUnit.SECONDS);
            System.out.println("created " + ids(described(admin, topic).replicas()));
            admin.alterPartitionReassignments(
                Map.of(partition, Optional.of(new NewPartitionReassignment(List.of(3, 1))))).all().get(WAIT_S, TimeUnit.SECONDS);
            long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_S);
            while (!admin.listPartitionReassignments(Set.of(partition)).reassignments().get(WAIT_S, TimeUnit.SECONDS).isEmpty()
                    && System.nanoTime() < deadline) {
                Thread.sleep(50);
            }
            System.out.println("moved " + ids(described(admin, topic).replicas()));
            try {
                admin.electLeaders(ElectionType.PREFERRED, Set.of(partition)).partitions().get(WAIT_S, TimeUnit.SECONDS)
                    .get(partition).ifPresent(error -> { throw new IllegalStateException(error); });
                System.out.println("elected");
            } catch (IllegalStateException error) {
                System.out.println("not elected " + error.getCause().getClass().getSimpleName());
            }
            while (described(admin, topic).leader().id() != 3 && System.nanoTime() < deadline) {
                Thread.sleep(50);
            }
            System.out.println("leader " + described(admin, topic).leader().id());
            try {
                admin.alterPartitionReassignments(
                    Map.of(partition, Optional.of(new NewPartitionReassignment(List.of(9))))).all().get(WAIT_S, TimeUnit.SECONDS);
            } catch (java.util.concurrent.ExecutionException error) {
                System.out.println("refused " + error.getCause().getClass().getSimpleName());
            }
            try {
                admin.alterPartitionReassignments(Map.of(partition, Optional.empty())).all().get(WAIT_S, TimeUnit.SECONDS);
            } catch (java.util.concurrent.ExecutionException error) {
                System.out.println("nothing to cancel " + error.getCause().getClass().getSimpleName());
            }
            try {
                admin.unregisterBroker(1).all().get(WAIT_S, TimeUnit.SECONDS);
            } catch (java.util.concurrent.ExecutionException error) {
                System.out.println("kept " + error.getCause().getClass().getSimpleName());
            }
        }
    }
}
