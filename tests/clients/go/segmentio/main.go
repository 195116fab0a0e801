// What a user of segmentio/kafka-go does first; one line for each answer. Arguments: bootstrap, topic, group.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"
)

const records = 30

var partitions = []int{0, 1, 2}

func must[T any](value T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return value
}

func codeOf(err error) int {
	var refusal kafka.Error
	errors.As(err, &refusal)
	return int(refusal)
}

func readAll(ctx context.Context, brokers []string, topic, group string) int {
	reader := kafka.NewReader(kafka.ReaderConfig{Brokers: brokers, Topic: topic, GroupID: group,
		StartOffset: kafka.FirstOffset, MaxWait: 100 * time.Millisecond})
	values := map[string]bool{}
	for len(values) < records {
		values[string(must(reader.ReadMessage(ctx)).Value)] = true // In a group this commits too.
	}
	must(0, reader.Close())
	return len(values)
}

func committed(ctx context.Context, client *kafka.Client, topic, group string) []int64 {
	asked := &kafka.OffsetFetchRequest{GroupID: group, Topics: map[string][]int{topic: partitions}}
	found := make([]int64, len(partitions))
	for _, each := range must(client.OffsetFetch(ctx, asked)).Topics[topic] {
		must(0, each.Error)
		found[each.Partition] = each.CommittedOffset
	}
	return found
}

func main() {
	brokers, topic, group := strings.Split(os.Args[1], ","), os.Args[2], os.Args[3]
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client := &kafka.Client{Addr: kafka.TCP(brokers...)}

	fmt.Println("brokers", len(must(client.Metadata(ctx, &kafka.MetadataRequest{})).Brokers))
	create := func() error {
		wanted := []kafka.TopicConfig{{Topic: topic, NumPartitions: 3, ReplicationFactor: 1}}
		return must(client.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: wanted})).Errors[topic]
	}
	must(0, create())
	asked := &kafka.MetadataRequest{Topics: []string{topic}}
	fmt.Println("created", len(must(client.Metadata(ctx, asked)).Topics[0].Partitions))
	fmt.Println("created again", codeOf(create()))

	writer := &kafka.Writer{
		Addr: client.Addr, Topic: topic, Balancer: &kafka.RoundRobin{}, BatchTimeout: time.Millisecond,
		RequiredAcks: kafka.RequireAll, // It asks for none by itself, and then the ends may be asked for too early.
	}
	batch := []kafka.Message{}
	for number := range records {
		batch = append(batch, kafka.Message{Value: fmt.Append(nil, number)})
	}
	must(0, writer.WriteMessages(ctx, batch...))
	must(0, writer.Close())
	produced := int64(0)
	ends := map[string][]kafka.OffsetRequest{topic: {kafka.LastOffsetOf(0), kafka.LastOffsetOf(1), kafka.LastOffsetOf(2)}}
	for _, each := range must(client.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: ends})).Topics[topic] {
		produced += each.LastOffset
	}
	fmt.Println("produced", produced)

	fmt.Println("read", readAll(ctx, brokers, topic, group))
	listed := false
	for _, each := range must(client.ListGroups(ctx, &kafka.ListGroupsRequest{})).Groups {
		listed = listed || each.GroupID == group
	}
	fmt.Println("listed", listed)
	described := must(client.DescribeGroups(ctx, &kafka.DescribeGroupsRequest{GroupIDs: []string{group}}))
	fmt.Println("described", described.Groups[0].GroupState)
	fmt.Println("committed", committed(ctx, client, topic, group))
	// Its own word for the beginning, which is -2 on the wire.
	start := []kafka.OffsetCommit{}
	for _, partition := range partitions {
		start = append(start, kafka.OffsetCommit{Partition: partition, Offset: kafka.FirstOffset})
	}
	commit := &kafka.OffsetCommitRequest{GroupID: group, GenerationID: -1, Topics: map[string][]kafka.OffsetCommit{topic: start}}
	for _, each := range must(client.OffsetCommit(ctx, commit)).Topics[topic] {
		must(0, each.Error)
	}
	fmt.Println("reset", committed(ctx, client, topic, group))
	fmt.Println("read again", readAll(ctx, brokers, topic, group))

	retention := func(value string) error {
		config := kafka.IncrementalAlterConfigsRequestConfig{Name: "retention.ms", Value: value}
		resource := kafka.IncrementalAlterConfigsRequestResource{ResourceType: kafka.ResourceTypeTopic, ResourceName: topic,
			Configs: []kafka.IncrementalAlterConfigsRequestConfig{config}}
		wanted := &kafka.IncrementalAlterConfigsRequest{Resources: []kafka.IncrementalAlterConfigsRequestResource{resource}}
		return must(client.IncrementalAlterConfigs(ctx, wanted)).Resources[0].Error
	}
	must(0, retention("3600000"))
	of := kafka.DescribeConfigRequestResource{ResourceType: kafka.ResourceTypeTopic, ResourceName: topic,
		ConfigNames: []string{"retention.ms"}}
	configs := must(client.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{Resources: []kafka.DescribeConfigRequestResource{of}}))
	fmt.Println("altered", configs.Resources[0].ConfigEntries[0].ConfigValue)
	fmt.Println("refused", codeOf(retention("soon")))

	groups := must(client.DeleteGroups(ctx, &kafka.DeleteGroupsRequest{GroupIDs: []string{group}}))
	must(0, groups.Errors[group])
	topics := must(client.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{topic}}))
	must(0, topics.Errors[topic])
	// The transport answers Metadata from memory for some seconds; a connection of one's own does not.
	connection := must(kafka.DialContext(ctx, "tcp", brokers[0]))
	left := false
	for _, each := range must(connection.ReadPartitions()) {
		left = left || each.Topic == topic
	}
	must(0, connection.Close())
	fmt.Println("deleted", !left)
}
