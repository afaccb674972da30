package main

import (
	"fmt"
	"sort"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// topics creates, describes, widens and deletes topics, with mistakes in between.
func topics(p play) {
	admin := p.admin()
	defer admin.Close()
	create := func(title string, validate bool, partitions int32, factor int16,
		config map[string]*string, name string) {
		request := admin.CreateTopics
		if validate {
			request = admin.ValidateCreateTopics
		}
		answered, err := request(p.ctx, partitions, factor, config, name)
		one := answered[name]
		fmt.Println(title, word(err), word(one.Err, one.ErrMessage), "id", one.ID != kadm.TopicID{},
			one.NumPartitions, one.ReplicationFactor, len(one.Configs))
		for _, key := range []string{"cleanup.policy", "retention.ms", "segment.bytes"} {
			if config, ok := one.Configs[key]; ok {
				fmt.Println(" ", key, optional(config.Value), config.Source, config.Sensitive)
			}
		}
	}
	config := map[string]*string{
		"cleanup.policy": kadm.StringPtr("compact,delete"), "retention.ms": kadm.StringPtr("86400000"),
	}
	wrong := map[string]*string{"retention.ms": kadm.StringPtr("soon")}
	unknown := map[string]*string{"no.such.key": kadm.StringPtr("1")}
	create("only validated", true, 3, 1, config, p.topic)
	create("create", false, 3, 1, config, p.topic)
	create("again", false, 3, 1, nil, p.topic)
	create("defaults", false, -1, -1, nil, p.topic+"-defaults")
	create("no partitions", false, 0, 1, nil, p.topic+"-none")
	create("two replicas", false, 1, 2, nil, p.topic+"-two")
	create("no replicas", false, 1, 0, nil, p.topic+"-zero")
	create("wrong value", false, 1, 1, wrong, p.topic+"-wrong")
	create("unknown key", false, 1, 1, unknown, p.topic+"-unknown")
	create("bad name", false, 1, 1, nil, "not/a/name")
	create("empty name", false, 1, 1, nil, "")
	create("dots", false, 1, 1, nil, "..")
	p.serving(admin, p.topic, 3)
	p.metadata(admin, p.topic, "no-such-topic")

	widen := func(title string, answered kadm.CreatePartitionsResponses, err error) {
		for _, one := range answered.Sorted() {
			fmt.Println(title, one.Topic, word(err), word(one.Err, one.ErrMessage))
		}
	}
	answered, err := admin.ValidateCreatePartitions(p.ctx, 2, p.topic)
	widen("only validated", answered, err)
	answered, err = admin.CreatePartitions(p.ctx, 2, p.topic)
	widen("two more", answered, err)
	answered, err = admin.UpdatePartitions(p.ctx, 5, p.topic)
	widen("the same", answered, err)
	answered, err = admin.UpdatePartitions(p.ctx, 4, p.topic)
	widen("fewer", answered, err)
	answered, err = admin.UpdatePartitions(p.ctx, 4, "no-such-topic")
	widen("unknown", answered, err)
	p.serving(admin, p.topic, 5)
	p.metadata(admin, p.topic)
	p.partitionPages(admin)

	for range 2 {
		names := []string{p.topic, p.topic + "-defaults"}
		removed, err := admin.DeleteTopics(p.ctx, names...)
		check(err)
		for _, name := range names {
			fmt.Println("delete", name, word(removed[name].Err, removed[name].ErrMessage))
		}
		p.gone(admin, p.topic)
	}
}

func (p play) metadata(admin *kadm.Client, names ...string) {
	found, err := admin.Metadata(p.ctx, names...)
	check(err)
	fmt.Println("cluster", found.Cluster, "controller", found.Controller, "brokers",
		len(found.Brokers), found.Brokers[0].NodeID, found.Brokers[0].Host, found.Brokers[0].Port)
	for _, topic := range found.Topics.Sorted() {
		fmt.Println("topic", topic.Topic, word(topic.Err), "internal", topic.IsInternal, "id",
			topic.ID != kadm.TopicID{})
		for _, one := range topic.Partitions.Sorted() {
			fmt.Println("  partition", one.Partition, "leader", one.Leader, one.LeaderEpoch,
				one.Replicas, one.ISR, one.OfflineReplicas, word(one.Err))
		}
	}
}

// partitionPages reads the topic's five partitions two at a time.
func (p play) partitionPages(admin *kadm.Client) {
	client := p.client()
	defer client.Close()
	request := kmsg.NewPtrDescribeTopicPartitionsRequest()
	request.ResponsePartitionLimit = 2
	topic := kmsg.NewDescribeTopicPartitionsRequestTopic()
	topic.Topic = p.topic
	request.Topics = append(request.Topics, topic)
	for {
		response, err := request.RequestWith(p.ctx, client)
		if err != nil {
			fmt.Println("pages", word(err))
			return
		}
		for _, topic := range response.Topics {
			fmt.Println("page", code(topic.ErrorCode), optional(topic.Topic), topic.IsInternal,
				topic.AuthorizedOperations)
			for _, one := range topic.Partitions {
				fmt.Println(" ", code(one.ErrorCode), one.Partition, one.LeaderID, one.LeaderEpoch,
					one.Replicas, one.ISR, one.EligibleLeaderReplicas, one.LastKnownELR,
					one.OfflineReplicas)
			}
		}
		if response.NextCursor == nil {
			return
		}
		fmt.Println("next", response.NextCursor.Topic, response.NextCursor.Partition)
		cursor := kmsg.NewDescribeTopicPartitionsRequestCursor()
		cursor.Topic, cursor.Partition = response.NextCursor.Topic, response.NextCursor.Partition
		request.Cursor = &cursor
	}
}

// disks describes the log directories that hold the topic's two partitions.
func disks(p play) {
	admin := p.admin()
	defer admin.Close()
	set := kadm.TopicsSet{}
	set.Add(p.topic, 0, 1)
	described, err := admin.DescribeAllLogDirs(p.ctx, set)
	check(err)
	var lines []string
	home := map[int32]string{}
	for _, one := range described.Sorted() {
		fmt.Println("directory", one.Dir, word(one.Err), one.TotalBytes > 0, one.UsableBytes > 0,
			"cordoned", one.IsCordoned)
		one.Topics.Each(func(part kadm.DescribedLogDirPartition) {
			home[part.Partition] = part.Dir
			lines = append(lines, fmt.Sprintln(part.Topic, part.Partition, "bytes", part.Size,
				"lag", part.OffsetLag, "future", part.IsFuture))
		})
	}
	sort.Strings(lines)
	for _, line := range lines {
		fmt.Print(line)
	}
	move := func(title, directory string, topic string, partition int32) {
		request := kadm.AlterReplicaLogDirsReq{}
		place := kadm.TopicsSet{}
		place.Add(topic, partition)
		request.Add(directory, place)
		answered, err := admin.AlterAllReplicaLogDirs(p.ctx, request)
		fmt.Println(title, word(err))
		for _, one := range answered.Sorted() {
			fmt.Println(" ", one.Topic, one.Partition, word(one.Err))
		}
	}
	move("stay", home[0], p.topic, 0)
	move("nowhere", "/no/such/directory", p.topic, 0)
	move("unknown", home[0], "no-such-topic", 0)
	unknown := kadm.TopicsSet{}
	unknown.Add("no-such-topic", 0)
	described, err = admin.DescribeAllLogDirs(p.ctx, unknown)
	fmt.Println("unknown", word(err), len(described[1]))
}
