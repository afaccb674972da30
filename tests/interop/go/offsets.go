package main

import (
	"fmt"
	"sort"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// times lists offsets in every way of ListOffsets. Argument: the samples' first time.
func times(p play) {
	admin := p.admin()
	defer admin.Close()
	first := p.number(0)
	show := func(title string, listed kadm.ListedOffsets, err error) {
		fmt.Println(title, word(err))
		var lines []string
		listed.Each(func(one kadm.ListedOffset) {
			lines = append(lines, fmt.Sprintln(" ", one.Topic, one.Partition, one.Offset,
				one.Timestamp, "epoch", one.LeaderEpoch, word(one.Err)))
		})
		sort.Strings(lines)
		for _, line := range lines {
			fmt.Print(line)
		}
	}
	listed, err := admin.ListStartOffsets(p.ctx, p.topic)
	show("start", listed, err)
	listed, err = admin.ListEndOffsets(p.ctx, p.topic)
	show("end", listed, err)
	listed, err = admin.ListCommittedOffsets(p.ctx, p.topic)
	show("committed", listed, err)
	listed, err = admin.ListMaxTimestampOffsets(p.ctx, p.topic)
	show("largest time", listed, err)
	listed, err = admin.ListLocalLogStartOffsets(p.ctx, p.topic)
	show("local start", listed, err)
	listed, err = admin.ListLatestRemoteOffsets(p.ctx, p.topic)
	show("remote end", listed, err)
	for _, step := range []int64{-99_999, -15_000, 0, 1, 7_000, 50_500, 98_000, 99_000, 99_001} {
		listed, err = admin.ListOffsetsAfterMilli(p.ctx, first+step, p.topic)
		show(fmt.Sprint("after ", step), listed, err)
	}
	listed, err = admin.ListStartOffsets(p.ctx, "no-such-topic")
	show("unknown", listed, err)

	epochs := kadm.OffsetForLeaderEpochRequest{}
	epochs.Add(p.topic, 0, 0)
	epochs.Add(p.topic, 1, 7)
	epochs.Add(p.topic, 9, 0)
	answered, err := admin.OffsetForLeaderEpoch(p.ctx, epochs)
	fmt.Println("epochs", word(err))
	for _, partition := range []int32{0, 1, 9} {
		one := answered[p.topic][partition]
		fmt.Println(" ", partition, one.LeaderEpoch, one.EndOffset, word(one.Err))
	}
}

// deleteRecords moves the start of a topic that holds the samples.
func deleteRecords(p play) {
	admin := p.admin()
	defer admin.Close()
	remove := func(topic string, partition int32, before int64) {
		offsets := kadm.Offsets{}
		offsets.AddOffset(topic, partition, before, -1)
		answered, err := admin.DeleteRecords(p.ctx, offsets)
		one, _ := answered.Lookup(topic, partition)
		fmt.Println("before", topic, partition, before, "low", one.LowWatermark, word(err),
			word(one.Err))
	}
	remove(p.topic, 0, 20)
	remove(p.topic, 0, 10)
	remove(p.topic, 0, 51)
	remove(p.topic, 0, -2)
	remove(p.topic, 1, -1)
	remove(p.topic, 9, 1)
	remove("no-such-topic", 0, 1)
	start := map[int32]kgo.Offset{0: kgo.NewOffset().AtStart()}
	for _, record := range p.read(p.topic, start, 30)[:3] {
		fmt.Println(seen(record))
	}
	listed, err := admin.ListStartOffsets(p.ctx, p.topic)
	check(err)
	fmt.Println("starts", listed[p.topic][0].Offset, listed[p.topic][1].Offset)
}
