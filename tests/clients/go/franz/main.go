// What a user of franz-go does first; one line for each answer. Arguments: bootstrap, topic, group.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const records = 30

func must[T any](value T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return value
}

func codeOf(err error) int16 {
	var refusal *kerr.Error
	if errors.As(err, &refusal) {
		return refusal.Code
	}
	return 0
}

func readAll(ctx context.Context, seeds []string, topic, group string) int {
	client := must(kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.ConsumeTopics(topic), kgo.ConsumerGroup(group),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())))
	defer client.Close()
	values := map[string]bool{}
	for len(values) < records {
		fetches := client.PollFetches(ctx)
		must(0, fetches.Err0())
		fetches.EachRecord(func(record *kgo.Record) { values[string(record.Value)] = true })
	}
	must(0, client.CommitUncommittedOffsets(ctx))
	return len(values)
}

func committed(ctx context.Context, admin *kadm.Client, topic, group string) []int64 {
	found := []int64{}
	for _, each := range must(admin.FetchOffsets(ctx, group)).Sorted() {
		found = append(found, each.At)
	}
	return found
}

func main() {
	seeds, topic, group := strings.Split(os.Args[1], ","), os.Args[2], os.Args[3]
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client := must(kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.RecordPartitioner(kgo.ManualPartitioner())))
	defer client.Close()
	admin := kadm.NewClient(client)

	fmt.Println("brokers", len(must(admin.ListBrokers(ctx))))
	must(admin.CreateTopic(ctx, 3, 1, nil, topic))
	fmt.Println("created", len(must(admin.ListTopics(ctx, topic))[topic].Partitions))
	_, err := admin.CreateTopic(ctx, 3, 1, nil, topic)
	fmt.Println("created again", codeOf(err))

	batch := []*kgo.Record{}
	for number := range records {
		batch = append(batch, &kgo.Record{Topic: topic, Partition: int32(number % 3), Value: fmt.Append(nil, number)})
	}
	must(0, client.ProduceSync(ctx, batch...).FirstErr())
	produced := int64(0)
	must(admin.ListEndOffsets(ctx, topic)).Each(func(end kadm.ListedOffset) { produced += end.Offset })
	fmt.Println("produced", produced)

	fmt.Println("read", readAll(ctx, seeds, topic, group))
	_, listed := must(admin.ListGroups(ctx))[group]
	fmt.Println("listed", listed)
	fmt.Println("described", must(admin.DescribeGroups(ctx, group))[group].State)
	fmt.Println("committed", committed(ctx, admin, topic, group))
	must(0, admin.CommitAllOffsets(ctx, group, must(admin.ListStartOffsets(ctx, topic)).Offsets()))
	fmt.Println("reset", committed(ctx, admin, topic, group))
	fmt.Println("read again", readAll(ctx, seeds, topic, group))

	retention := func(value string) error {
		answers, err := admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Name: "retention.ms", Value: &value}}, topic)
		must(0, err)
		return answers[0].Err
	}
	must(0, retention("3600000"))
	for _, config := range must(admin.DescribeTopicConfigs(ctx, topic))[0].Configs {
		if config.Key == "retention.ms" {
			fmt.Println("altered", config.MaybeValue())
		}
	}
	fmt.Println("refused", codeOf(retention("soon")))

	must(admin.DeleteGroup(ctx, group))
	must(admin.DeleteTopic(ctx, topic))
	// A client answers from memory for some seconds; a new one has none.
	stranger := must(kadm.NewOptClient(kgo.SeedBrokers(seeds...)))
	defer stranger.Close()
	fmt.Println("deleted", !must(stranger.ListTopics(ctx)).Has(topic))
}
