// Writes topics with franz-go. Argument: bootstrap. Each line of the input is a topic: its name, its codec, and the times
// of its records in milliseconds, batch by batch; null leaves one out.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type job struct {
	Topic, Codec string
	Batches      [][]*int64
}

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

func must[T any](value T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return value
}

func main() {
	clients := map[string]*kgo.Client{}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var wanted job
		must(0, json.Unmarshal(lines.Bytes(), &wanted))
		if clients[wanted.Codec] == nil {
			clients[wanted.Codec] = must(kgo.NewClient(kgo.SeedBrokers(os.Args[1]),
				kgo.ProducerBatchCompression(codecs[wanted.Codec]), kgo.RecordPartitioner(kgo.ManualPartitioner())))
		}
		number := 0
		for _, batch := range wanted.Batches {
			records := []*kgo.Record{}
			for _, ms := range batch {
				text := []byte(fmt.Sprint(number))
				record := &kgo.Record{Topic: wanted.Topic, Key: text, Value: text}
				if ms != nil {
					record.Timestamp = time.UnixMilli(*ms)
				}
				records = append(records, record)
				number++
			}
			must(0, clients[wanted.Codec].ProduceSync(context.Background(), records...).FirstErr())
		}
	}
	must(0, lines.Err())
}
