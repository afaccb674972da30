package main

import (
	"fmt"
	"hash/crc32"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const flowCount = 1500

// limits: many small batches, fetches that hold a few of them, and a record that is too large.
func limits(p play) {
	admin := p.admin()
	defer admin.Close()
	producer := p.client(
		kgo.DefaultProduceTopic(p.topic),
		kgo.AllowAutoTopicCreation(),
		kgo.ProducerBatchMaxBytes(4096),
		kgo.ProducerBatchCompression(kgo.NoCompression()),
	)
	defer producer.Close()
	// Nobody made the topic: the first record does.
	check(producer.ProduceSync(p.ctx, kgo.StringRecord("first")).FirstErr())
	p.metadata(admin, p.topic)
	records := make([]*kgo.Record, flowCount)
	for i := range records {
		records[i] = kgo.StringRecord(fmt.Sprint(i, strings.Repeat(".", i%700)))
	}
	check(producer.ProduceSync(p.ctx, records...).FirstErr())

	p.flow("small fetches", kgo.FetchMaxBytes(10_000), kgo.FetchMaxPartitionBytes(1))
	p.flow("no session", kgo.DisableFetchSessions(), kgo.FetchMaxPartitionBytes(6_000))
	p.flow("committed", kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	p.flow("patient", kgo.FetchMinBytes(1<<20), kgo.FetchMaxWait(300*time.Millisecond))

	small := kadm.AlterConfig{Name: "max.message.bytes", Value: kadm.StringPtr("1000")}
	_, err := admin.AlterTopicConfigs(p.ctx, []kadm.AlterConfig{small}, p.topic)
	check(err)
	for {
		large := kgo.StringRecord(strings.Repeat("large", 300))
		err := producer.ProduceSync(p.ctx, large).FirstErr()
		if err != nil {
			fmt.Println("too large:", word(err))
			break
		}
		p.pause()
	}
	check(producer.ProduceSync(p.ctx, kgo.StringRecord("small again")).FirstErr())
}

// flow reads the topic by a pattern of its name and prints a checksum of the values in order.
func (p play) flow(title string, options ...kgo.Opt) {
	consumer := p.client(append([]kgo.Opt{
		kgo.ConsumeRegex(),
		kgo.ConsumeTopics("^" + p.topic[:len(p.topic)-1] + ".$"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxWait(100 * time.Millisecond),
	}, options...)...)
	defer consumer.Close()
	sum := crc32.NewIEEE()
	for _, record := range p.take(consumer, flowCount+1) {
		fmt.Fprintln(sum, record.Offset, string(record.Value))
	}
	fmt.Println(title, flowCount+1, sum.Sum32())
}
