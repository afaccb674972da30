package main

import (
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const sampleCount = 100

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

// samples are records for two partitions: null, empty and long fields, headers, unordered times.
func samples(firstTime int64) []*kgo.Record {
	var records []*kgo.Record
	for i := range sampleCount {
		record := &kgo.Record{
			Partition: int32(i % 2),
			Key:       fmt.Appendf(nil, "key-%d", i),
			Value:     fmt.Appendf(nil, "value-%d%s", i, strings.Repeat(" ", i)),
			Timestamp: time.UnixMilli(firstTime + int64(i*1000-i%4*5000)),
		}
		if i%5 == 0 {
			record.Key = nil
		} else if i%7 == 0 {
			record.Key = []byte{}
		}
		if i%11 == 3 {
			record.Value = nil
		} else if i%13 == 0 {
			record.Value = []byte{}
		}
		if i%3 == 0 {
			record.Headers = []kgo.RecordHeader{
				{Key: "number", Value: fmt.Appendf(nil, "%d", i)},
				{Key: "null"},
				{Key: "ünïcode", Value: []byte("wért")},
				{Key: "number", Value: []byte{}},
			}
		}
		records = append(records, record)
	}
	return records
}

// produce sends the samples: arguments codec, acks (all, 1, 0), idempotent or plain, first time.
func produce(p play) {
	options := []kgo.Opt{
		kgo.DefaultProduceTopic(p.topic),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(codecs[p.arguments[0]]),
		kgo.ProducerLinger(20 * time.Millisecond),
	}
	switch p.arguments[1] {
	case "1":
		options = append(options, kgo.RequiredAcks(kgo.LeaderAck()))
	case "0":
		options = append(options, kgo.RequiredAcks(kgo.NoAck()))
	}
	if p.arguments[2] != "idempotent" {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	client := p.client(options...)
	defer client.Close()
	records := samples(p.number(3))
	check(client.ProduceSync(p.ctx, records...).FirstErr())
	for _, record := range records {
		fmt.Println(record.Partition, record.Offset)
	}
}

// consume reads all samples of both partitions from the start by assignment.
func consume(p play) {
	start := map[int32]kgo.Offset{0: kgo.NewOffset().AtStart(), 1: kgo.NewOffset().AtStart()}
	for _, record := range p.read(p.topic, start, sampleCount) {
		fmt.Println(seen(record))
	}
}

// seek reads the last records from different starting points; argument: the samples' first time.
func seek(p play) {
	half := sampleCount / 2
	show := func(name string, offset kgo.Offset, count int) {
		var offsets []int64
		for _, record := range p.read(p.topic, map[int32]kgo.Offset{0: offset}, count) {
			offsets = append(offsets, record.Offset)
		}
		fmt.Println(name, offsets)
	}
	show("exact", kgo.NewOffset().At(int64(half-5)), 5)
	show("before the end", kgo.NewOffset().AtEnd().Relative(-3), 3)
	show("after the start", kgo.NewOffset().AtStart().Relative(40), half-40)
	show("by time", kgo.NewOffset().AfterMilli(p.number(0)+90_000), 4)
	show("out of range", kgo.NewOffset().At(1_000_000), 50)
	show("epoch", kgo.NewOffset().At(int64(half-2)).WithEpoch(0), 2)
}

// read returns `count` records of assigned partitions, ordered by partition and offset.
func (p play) read(topic string, from map[int32]kgo.Offset, count int) []*kgo.Record {
	client := p.client(
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxWait(200*time.Millisecond),
	)
	defer client.Close()
	return p.take(client, count)
}

// take polls a client until it has `count` records; fails when more come with them.
func (p play) take(client *kgo.Client, count int) []*kgo.Record {
	var records []*kgo.Record
	for len(records) < count {
		fetches := client.PollFetches(p.ctx)
		check(fetches.Err())
		records = append(records, fetches.Records()...)
	}
	if len(records) != count {
		panic(fmt.Sprintf("%d records instead of %d", len(records), count))
	}
	sort.SliceStable(records, func(i, j int) bool {
		if records[i].Partition != records[j].Partition {
			return records[i].Partition < records[j].Partition
		}
		return records[i].Offset < records[j].Offset
	})
	return records
}

// seen is everything a consumer learns of a record but the producer id.
func seen(record *kgo.Record) string {
	headers := make([]string, len(record.Headers))
	for i, header := range record.Headers {
		headers[i] = header.Key + "=" + quoted(header.Value)
	}
	line := fmt.Sprintln(
		record.Partition, record.Offset, record.Timestamp.UnixMilli(), quoted(record.Key),
		quoted(record.Value), headers, "codec", record.Attrs.CompressionType(),
		"time", record.Attrs.TimestampType(), "epochs", record.LeaderEpoch, record.ProducerEpoch,
		"idempotent", record.ProducerID >= 0, "transactional", record.Attrs.IsTransactional(),
	)
	return strings.TrimSuffix(line, "\n")
}
