// What a user of sarama does first; one line for each answer. Arguments: bootstrap, topic, group.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/IBM/sarama"
)

const records = 30

var partitions = []int32{0, 1, 2}

func must[T any](value T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return value
}

func codeOf(err error) sarama.KError {
	var refusal sarama.KError
	var ofTopic *sarama.TopicError
	if errors.As(err, &ofTopic) {
		return ofTopic.Err
	}
	errors.As(err, &refusal)
	return refusal
}

type handler struct{ values chan string }

func (handler) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (handler) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (h handler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, more := <-claim.Messages():
			if !more {
				return nil
			}
			session.MarkMessage(message, "")
			h.values <- string(message.Value)
		case <-session.Context().Done():
			return nil
		}
	}
}

func readAll(client sarama.Client, topic, group string) int {
	member := must(sarama.NewConsumerGroupFromClient(group, client))
	ctx, cancel := context.WithCancel(context.Background())
	reading := handler{make(chan string)}
	ended := make(chan error)
	go func() { ended <- member.Consume(ctx, []string{topic}, reading) }()
	values := map[string]bool{}
	for len(values) < records {
		select {
		case value := <-reading.values:
			values[value] = true
		case err := <-ended:
			must(0, err)
		}
	}
	cancel()
	must(0, <-ended)
	must(0, member.Close())
	return len(values)
}

func committed(admin sarama.ClusterAdmin, topic, group string) []int64 {
	found := []int64{}
	answer := must(admin.ListConsumerGroupOffsets(group, map[string][]int32{topic: partitions}))
	for _, partition := range partitions {
		found = append(found, answer.GetBlock(topic, partition).Offset)
	}
	return found
}

func main() {
	topic, group := os.Args[2], os.Args[3]
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Return.Successes = true
	client := must(sarama.NewClient(strings.Split(os.Args[1], ","), config))
	admin := must(sarama.NewClusterAdminFromClient(client))
	defer admin.Close()

	brokers, _, err := admin.DescribeCluster()
	fmt.Println("brokers", len(must(brokers, err)))
	detail := &sarama.TopicDetail{NumPartitions: 3, ReplicationFactor: 1}
	must(0, admin.CreateTopic(topic, detail, false))
	fmt.Println("created", len(must(admin.DescribeTopics([]string{topic}))[0].Partitions))
	fmt.Println("created again", int16(codeOf(admin.CreateTopic(topic, detail, false))))

	producer := must(sarama.NewSyncProducerFromClient(client))
	batch := []*sarama.ProducerMessage{}
	for number := range records {
		value := sarama.StringEncoder(fmt.Sprint(number))
		batch = append(batch, &sarama.ProducerMessage{Topic: topic, Partition: int32(number % 3), Value: value})
	}
	must(0, producer.SendMessages(batch))
	must(0, producer.Close())
	produced := int64(0)
	for _, partition := range partitions {
		produced += must(client.GetOffset(topic, partition, sarama.OffsetNewest))
	}
	fmt.Println("produced", produced)

	fmt.Println("read", readAll(client, topic, group))
	_, listed := must(admin.ListConsumerGroups())[group]
	fmt.Println("listed", listed)
	fmt.Println("described", must(admin.DescribeConsumerGroups([]string{group}))[0].State)
	fmt.Println("committed", committed(admin, topic, group))
	// Nothing of the cluster's admin resets offsets: who has to, manages the group's offsets without a member.
	manager := must(sarama.NewOffsetManagerFromClient(group, client))
	managed := []sarama.PartitionOffsetManager{}
	for _, partition := range partitions {
		one := must(manager.ManagePartition(topic, partition))
		one.ResetOffset(sarama.OffsetOldest, "")
		managed = append(managed, one)
	}
	manager.Commit()
	for _, one := range managed {
		must(0, one.Close())
	}
	must(0, manager.Close())
	fmt.Println("reset", committed(admin, topic, group))
	fmt.Println("read again", readAll(client, topic, group))

	retention := func(value string) error {
		entry := sarama.IncrementalAlterConfigsEntry{Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &value}
		entries := map[string]sarama.IncrementalAlterConfigsEntry{"retention.ms": entry}
		return admin.IncrementalAlterConfig(sarama.TopicResource, topic, entries, false)
	}
	must(0, retention("3600000"))
	asked := sarama.ConfigResource{Type: sarama.TopicResource, Name: topic, ConfigNames: []string{"retention.ms"}}
	fmt.Println("altered", must(admin.DescribeConfig(asked))[0].Value)
	fmt.Println("refused", int16(codeOf(retention("soon"))))

	must(0, admin.DeleteConsumerGroup(group))
	must(0, admin.DeleteTopic(topic))
	_, left := must(admin.ListTopics())[topic]
	fmt.Println("deleted", !left)
}
