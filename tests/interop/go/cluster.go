package main

import (
	"fmt"
	"sort"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// versions prints the API versions and features that the client negotiates with.
func versions(p play) {
	admin := p.admin()
	defer admin.Close()
	answered, err := admin.ApiVersions(p.ctx)
	check(err)
	for _, broker := range answered.Sorted() {
		fmt.Println("broker", broker.NodeID, word(broker.Err))
		broker.EachKeySorted(func(key, min, max int16) {
			fmt.Println("api", key, kmsg.NameForKey(key), min, max)
		})
		raw := broker.Raw()
		sort.Slice(raw.SupportedFeatures, func(i, j int) bool {
			return raw.SupportedFeatures[i].Name < raw.SupportedFeatures[j].Name
		})
		for _, one := range raw.SupportedFeatures {
			fmt.Println("feature", one.Name, one.MinVersion, one.MaxVersion)
		}
		sort.Slice(raw.FinalizedFeatures, func(i, j int) bool {
			return raw.FinalizedFeatures[i].Name < raw.FinalizedFeatures[j].Name
		})
		for _, one := range raw.FinalizedFeatures {
			fmt.Println("final", one.Name, one.MinVersionLevel, one.MaxVersionLevel)
		}
	}
}

// cluster asks one node what only several nodes can change: elections, reassignments, producers.
func cluster(p play) {
	admin := p.admin()
	defer admin.Close()
	place := kadm.TopicsSet{}
	place.Add(p.topic, 0)
	for _, how := range []kadm.ElectLeadersHow{
		kadm.ElectPreferredReplica, kadm.ElectLiveReplica,
	} {
		elected, err := admin.ElectLeaders(p.ctx, how, place)
		one := elected[p.topic][0]
		fmt.Println("elect", how, word(err), word(one.Err, one.ErrMessage))
	}
	assign := func(title string, topic string, replicas []int32) {
		request := kadm.AlterPartitionAssignmentsReq{}
		request.Assign(topic, 0, replicas)
		answered, err := admin.AlterPartitionAssignments(p.ctx, request)
		fmt.Println(title, word(err))
		for _, one := range answered.Sorted() {
			fmt.Println(" ", one.Topic, one.Partition, word(one.Err, one.ErrMessage))
		}
	}
	assign("stay", p.topic, []int32{1})
	assign("elsewhere", p.topic, []int32{1, 2})
	assign("cancel", p.topic, nil)
	assign("unknown", "no-such-topic", []int32{1})
	moving, err := admin.ListPartitionReassignments(p.ctx, place)
	fmt.Println("moving", word(err), len(moving))

	producers, err := admin.DescribeProducers(p.ctx, place)
	fmt.Println("producers", word(err))
	for _, one := range producers.SortedProducers() {
		fmt.Println(" ", one.Topic, one.Partition, "id", one.ProducerID >= 0, "epoch",
			one.ProducerEpoch, "sequence", one.LastSequence, one.LastTimestamp > 0,
			one.CoordinatorEpoch, one.CurrentTxnStartOffset)
	}
	operations, err := admin.Metadata(p.ctx, p.topic)
	check(err)
	fmt.Println("controller", operations.Controller, operations.Cluster)
	update := kadm.FeatureUpdate{Feature: "no.such.feature", MaxVersionLevel: 3, UpgradeType: 1}
	updated, err := admin.UpdateFeatures(p.ctx, true, update)
	fmt.Println("update", word(err))
	for _, one := range updated.Sorted() {
		fmt.Println(" ", one.Feature, word(one.Err))
	}
	resources, err := admin.ListConfigResources(p.ctx, kadm.ConfigResourceBroker)
	fmt.Println("resources", word(err), resources.Names())
}
