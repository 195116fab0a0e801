// Writes topics with sarama 1.45.0, whose batches leave max_timestamp out. Argument: bootstrap. Each line of the input
// is a topic: its name, its codec, and the times of its records in milliseconds, batch by batch; null leaves one out.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/IBM/sarama"
)

type job struct {
	Topic, Codec string
	Batches      [][]*int64
}

func must[T any](value T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return value
}

func producerOf(bootstrap, codec string) sarama.SyncProducer {
	config := sarama.NewConfig()
	config.Version = sarama.V2_8_0_0
	config.Producer.Return.Successes = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Partitioner = sarama.NewManualPartitioner
	must(0, config.Producer.Compression.UnmarshalText([]byte(codec)))
	return must(sarama.NewSyncProducer([]string{bootstrap}, config))
}

func main() {
	producers := map[string]sarama.SyncProducer{}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var wanted job
		must(0, json.Unmarshal(lines.Bytes(), &wanted))
		if producers[wanted.Codec] == nil {
			producers[wanted.Codec] = producerOf(os.Args[1], wanted.Codec)
		}
		number := 0
		for _, batch := range wanted.Batches {
			messages := []*sarama.ProducerMessage{}
			for _, ms := range batch {
				text := sarama.StringEncoder(fmt.Sprint(number))
				message := &sarama.ProducerMessage{Topic: wanted.Topic, Key: text, Value: text}
				if ms != nil {
					message.Timestamp = time.UnixMilli(*ms)
				}
				messages = append(messages, message)
				number++
			}
			must(0, producers[wanted.Codec].SendMessages(messages))
		}
	}
	must(0, lines.Err())
	for _, producer := range producers {
		must(0, producer.Close())
	}
}
