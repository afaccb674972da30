package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// topicIDs sends requests by topic id before and after the topic is deleted and made again.
func topicIDs(p play) {
	admin := p.admin()
	defer admin.Close()
	client := p.client()
	defer client.Close()
	first := p.create(admin, p.topic, 1)
	p.record(client, "before")
	byID := func(title string, id kadm.TopicID) {
		fmt.Println(title)
		p.produceByID(client, id)
		p.fetchByID(client, id, 0, 0)
	}
	byID("new topic", first)
	byID("zero id", kadm.TopicID{})
	byID("unknown id", kadm.TopicID{1, 2, 3})
	p.metadataByID(client, first)

	session := p.openSession(client, first)
	p.continueSession(client, session, 1)
	waiting := make(chan struct{})
	go func() {
		defer close(waiting)
		fmt.Println("a fetch that waits while the topic is deleted")
		p.fetchByID(client, first, 2, 10*time.Second)
	}()
	time.Sleep(200 * time.Millisecond)
	removed, err := admin.DeleteTopics(p.ctx, p.topic)
	check(err)
	<-waiting
	fmt.Println("delete:", word(removed[p.topic].Err))
	p.gone(admin, p.topic)
	byID("deleted", first)
	p.metadataByID(client, first)

	p.continueSession(client, session, 2)
	second := p.create(admin, p.topic, 1)
	fmt.Println("another id", second != first)
	p.continueSession(client, session, 3)
	byID("old id", first)
	byID("new id", second)
	p.fetchByID(client, second, 1, 0)
	p.deleteByID(client, first)
	p.deleteByID(client, second)
}

func (p play) record(client *kgo.Client, value string) {
	record := kgo.StringRecord(value)
	record.Topic = p.topic
	check(client.ProduceSync(p.ctx, record).FirstErr())
}

// oneBatch is a batch of format 2 with one record and no producer id.
func oneBatch() []byte {
	record := kmsg.Record{Value: []byte("by id")}
	// The length counts what follows it; as zero it takes one byte itself.
	record.Length = int32(len(record.AppendTo(nil)) - 1)
	batch := kmsg.RecordBatch{
		PartitionLeaderEpoch: -1,
		Magic:                2,
		FirstTimestamp:       time.Now().UnixMilli(),
		ProducerID:           -1,
		ProducerEpoch:        -1,
		FirstSequence:        -1,
		NumRecords:           1,
		Records:              record.AppendTo(nil),
	}
	batch.MaxTimestamp = batch.FirstTimestamp
	data := batch.AppendTo(nil)
	binary.BigEndian.PutUint32(data[8:], uint32(len(data)-12))
	sum := crc32.Checksum(data[21:], crc32.MakeTable(crc32.Castagnoli))
	binary.BigEndian.PutUint32(data[17:], sum)
	return data
}

func (p play) produceByID(client *kgo.Client, id kadm.TopicID) {
	request := kmsg.NewPtrProduceRequest()
	request.Acks, request.TimeoutMillis = -1, 5000
	topic := kmsg.NewProduceRequestTopic()
	topic.TopicID = id
	partition := kmsg.NewProduceRequestTopicPartition()
	partition.Records = oneBatch()
	topic.Partitions = append(topic.Partitions, partition)
	request.Topics = append(request.Topics, topic)
	response, err := request.RequestWith(p.ctx, leader(client))
	check(err)
	for _, topic := range response.Topics {
		for _, one := range topic.Partitions {
			fmt.Println("  produce version", response.Version, code(one.ErrorCode),
				"offset", one.BaseOffset, "start", one.LogStartOffset,
				"message", optional(one.ErrorMessage), "same id", kadm.TopicID(topic.TopicID) == id)
		}
	}
}

func (p play) fetchByID(client *kgo.Client, id kadm.TopicID, offset int64,
	wait time.Duration) {
	request := fetchRequest(id, offset)
	request.MaxWaitMillis, request.SessionEpoch = int32(wait.Milliseconds()), -1
	p.fetch(client, request)
}

// openSession starts a fetch session with one partition.
func (p play) openSession(client *kgo.Client, id kadm.TopicID) int32 {
	fmt.Println("new session")
	request := fetchRequest(id, 2)
	request.SessionEpoch = 0
	return p.fetch(client, request)
}

// continueSession fetches without naming a partition: the node remembers them.
func (p play) continueSession(client *kgo.Client, session, epoch int32) {
	fmt.Println("session epoch", epoch)
	request := fetchRequest(kadm.TopicID{}, 0)
	request.Topics, request.SessionID, request.SessionEpoch = nil, session, epoch
	p.fetch(client, request)
}

func fetchRequest(id kadm.TopicID, offset int64) *kmsg.FetchRequest {
	request := kmsg.NewPtrFetchRequest()
	request.MinBytes, request.MaxBytes = 1, 1<<20
	topic := kmsg.NewFetchRequestTopic()
	topic.TopicID = id
	partition := kmsg.NewFetchRequestTopicPartition()
	partition.FetchOffset, partition.PartitionMaxBytes = offset, 1<<20
	topic.Partitions = append(topic.Partitions, partition)
	request.Topics = append(request.Topics, topic)
	return request
}

// fetch prints what a fetch is answered and returns the session's id.
func (p play) fetch(client *kgo.Client, request *kmsg.FetchRequest) int32 {
	response, err := request.RequestWith(p.ctx, leader(client))
	check(err)
	fmt.Println("  fetch version", response.Version, code(response.ErrorCode))
	for _, topic := range response.Topics {
		for _, one := range topic.Partitions {
			fmt.Println("  fetch", code(one.ErrorCode), "high watermark", one.HighWatermark,
				"stable", one.LastStableOffset, "start", one.LogStartOffset,
				"data", len(one.RecordBatches) > 0, "known id",
				topic.TopicID != kadm.TopicID{} && topic.TopicID != kadm.TopicID{1, 2, 3})
		}
	}
	return response.SessionID
}

func (p play) metadataByID(client *kgo.Client, id kadm.TopicID) {
	request := kmsg.NewPtrMetadataRequest()
	topic := kmsg.NewMetadataRequestTopic()
	topic.TopicID = id
	request.Topics = append(request.Topics, topic)
	response, err := request.RequestWith(p.ctx, client)
	check(err)
	for _, one := range response.Topics {
		fmt.Println("  metadata", code(one.ErrorCode), optional(one.Topic), len(one.Partitions),
			"same id", kadm.TopicID(one.TopicID) == id)
	}
}

func (p play) deleteByID(client *kgo.Client, id kadm.TopicID) {
	request := kmsg.NewPtrDeleteTopicsRequest()
	request.TimeoutMillis = 5000
	topic := kmsg.NewDeleteTopicsRequestTopic()
	topic.TopicID = id
	request.Topics = append(request.Topics, topic)
	response, err := request.RequestWith(p.ctx, client)
	check(err)
	for _, one := range response.Topics {
		fmt.Println("delete by id:", word(kerr.ErrorForCode(one.ErrorCode)), optional(one.Topic),
			optional(one.ErrorMessage), "same id", kadm.TopicID(one.TopicID) == id)
	}
}

// recreate: a producer and a consumer that know the old topic meet the new one of the same name.
func recreate(p play) {
	admin := p.admin()
	defer admin.Close()
	p.create(admin, p.topic, 1)
	producer := p.client()
	defer producer.Close()
	consumer := p.client(
		kgo.ConsumeTopics(p.topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxWait(100*time.Millisecond),
		kgo.KeepRetryableFetchErrors(),
	)
	defer consumer.Close()
	p.record(producer, "old 0")
	p.record(producer, "old 1")
	showRecords("old topic", p.take(consumer, 2))

	_, err := admin.DeleteTopics(p.ctx, p.topic)
	check(err)
	p.gone(admin, p.topic)
	p.create(admin, p.topic, 1)

	record := kgo.StringRecord("lost")
	record.Topic = p.topic
	fmt.Println("produce with the old id:", word(producer.ProduceSync(p.ctx, record).FirstErr()))
	// Between the two topics the name alone is unknown for a moment.
	for !errors.Is(p.fetchError(consumer), kerr.UnknownTopicID) {
		p.pause()
	}
	fmt.Println("consume with the old id:", word(kerr.UnknownTopicID))
	for _, client := range []*kgo.Client{producer, consumer} {
		client.PurgeTopicsFromClient(p.topic)
	}
	consumer.AddConsumeTopics(p.topic)
	p.record(producer, "new 0")
	showRecords("new topic", p.take(consumer, 1))
}

// fetchError polls until a fetch fails and returns why.
func (p play) fetchError(client *kgo.Client) error {
	for {
		fetches := client.PollFetches(p.ctx)
		check(p.ctx.Err())
		for _, one := range fetches.Errors() {
			return one.Err
		}
	}
}

// leader is the only broker; requests by id cannot be routed by name.
func leader(client *kgo.Client) *kgo.Broker {
	return client.Broker(1)
}
