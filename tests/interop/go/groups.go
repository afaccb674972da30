package main

import (
	"context"
	"fmt"
	"regexp"
	"sort"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const groupPartitions = 4

var uuid = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// member is a consumer of a group that remembers which partitions it owns.
type member struct {
	*kgo.Client
	lock  sync.Mutex
	owned map[int32]bool
	taken int
}

func (p play) join(group string, options ...kgo.Opt) *member {
	one := &member{owned: map[int32]bool{}}
	note := func(owns bool) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, changed map[string][]int32) {
			one.lock.Lock()
			defer one.lock.Unlock()
			for _, partition := range changed[p.topic] {
				if owns {
					one.owned[partition] = true
				} else {
					delete(one.owned, partition)
				}
				one.taken++
			}
		}
	}
	one.Client = p.client(append([]kgo.Opt{
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(p.topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.Balancers(kgo.CooperativeStickyBalancer()),
		kgo.HeartbeatInterval(100 * time.Millisecond),
		kgo.FetchMaxWait(200 * time.Millisecond),
		kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(note(true)),
		kgo.OnPartitionsRevoked(note(false)),
		kgo.OnPartitionsLost(note(false)),
	}, options...)...)
	return one
}

func (m *member) partitions() []int {
	m.lock.Lock()
	defer m.lock.Unlock()
	owned := []int{}
	for partition := range m.owned {
		owned = append(owned, int(partition))
	}
	sort.Ints(owned)
	return owned
}

// changes counts the partitions that were assigned or revoked so far.
func (m *member) changes() int {
	m.lock.Lock()
	defer m.lock.Unlock()
	return m.taken
}

// settle waits until every member owns its number of partitions.
func (p play) settle(count int, members ...*member) {
	for _, one := range members {
		for len(one.partitions()) != count {
			p.pause()
		}
	}
}

func (p play) fill(perPartition int) {
	client := p.client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	defer client.Close()
	for i := range perPartition * groupPartitions {
		record := kgo.StringRecord(fmt.Sprint("record ", i))
		record.Topic, record.Partition = p.topic, int32(i%groupPartitions)
		check(client.ProduceSync(p.ctx, record).FirstErr())
	}
}

// group: two members with cooperative-sticky share a topic, one leaves, a third resumes.
// Argument: the group's name.
func group(p play) {
	name := p.arguments[0]
	admin := p.admin()
	defer admin.Close()
	p.fill(3)
	first := p.join(name)
	showRecords("alone", p.take(first.Client, 12))
	fmt.Println("owns", first.partitions())
	check(first.CommitUncommittedOffsets(p.ctx))

	second := p.join(name, kgo.ClientID("franz-second"))
	p.settle(2, first, second)
	all := append(first.partitions(), second.partitions()...)
	sort.Ints(all)
	// Cooperative: the first gives two partitions away and keeps the others without a stop.
	fmt.Println("together", all, "changes", first.changes(), second.changes())
	p.stable(admin, name, 2)
	p.describe(admin, name)
	_, err := admin.DeleteGroup(p.ctx, name)
	fmt.Println("delete with members:", word(err))
	p.fill(1)
	shared := append(p.take(first.Client, 2), p.take(second.Client, 2)...)
	fmt.Println("shared", len(shared))
	check(first.CommitUncommittedOffsets(p.ctx))
	check(second.CommitUncommittedOffsets(p.ctx))
	p.committed(admin, name)

	second.Close()
	p.settle(4, first)
	fmt.Println("alone again", first.partitions(), "changes", first.changes())
	first.Close()
	p.describe(admin, name)

	p.fill(1)
	third := p.join(name, kgo.Balancers(kgo.RangeBalancer()))
	showRecords("resumed", p.take(third.Client, 4))
	p.stable(admin, name, 1)
	p.describe(admin, name)
	p.lag(admin, name)
	third.Close()
	for _, title := range []string{"delete:", "delete again:"} {
		_, err = admin.DeleteGroup(p.ctx, name)
		fmt.Println(title, word(err))
	}
	p.describe(admin, name)
}

// staticMember: a member with an instance id comes back without a rebalance. Argument: the group.
func staticMember(p play) {
	name := p.arguments[0]
	admin := p.admin()
	defer admin.Close()
	first := p.join(name, kgo.InstanceID("one"))
	p.settle(4, first)
	p.stable(admin, name, 1)
	p.describe(admin, name)
	first.Close()
	p.describe(admin, name)
	again := p.join(name, kgo.InstanceID("one"))
	p.settle(4, again)
	left, err := admin.LeaveGroup(p.ctx, kadm.LeaveGroup(name).InstanceIDs("one", "other"))
	check(err)
	for _, one := range left.Sorted() {
		fmt.Println("leave", one.InstanceID, word(one.Err))
	}
	again.Close()
	p.describe(admin, name)
}

// commits: committed offsets of a group without members. Argument: the group.
func commits(p play) {
	name := p.arguments[0]
	admin := p.admin()
	defer admin.Close()
	offsets := kadm.Offsets{}
	for partition := range int32(3) {
		offsets.Add(kadm.Offset{
			Topic: p.topic, Partition: partition, At: int64(partition) * 10, LeaderEpoch: 0,
			Metadata: fmt.Sprint("note ünï ", partition),
		})
	}
	offsets.AddOffset(p.topic, 99, 1, -1)
	offsets.AddOffset("no-such-topic", 0, 1, -1)
	answered, err := admin.CommitOffsets(p.ctx, name, offsets)
	check(err)
	for _, one := range answered.Sorted() {
		fmt.Println("commit", one.Topic, one.Partition, word(one.Err))
	}
	p.committed(admin, name)
	p.describe(admin, name)
	p.lag(admin, name)
	forgotten := kadm.TopicsSet{}
	forgotten.Add(p.topic, 1, 3)
	forgotten.Add("no-such-topic", 0)
	gone, err := admin.DeleteOffsets(p.ctx, name, forgotten)
	check(err)
	for _, place := range forgotten.Sorted() {
		for _, partition := range place.Partitions {
			failure, _ := gone.Lookup(place.Topic, partition)
			fmt.Println("delete", place.Topic, partition, word(failure))
		}
	}
	p.committed(admin, name)
	groups, err := admin.ListGroups(p.ctx, "Empty")
	check(err)
	fmt.Println("listed", groups[name].State, groups[name].ProtocolType)
	groups, err = admin.ListGroups(p.ctx, "Stable")
	check(err)
	fmt.Println("stable", groups[name])
	for _, one := range []string{"no-such-group", ""} {
		_, err = admin.CommitOffsets(p.ctx, one, offsets)
		fmt.Println("commit of", one, word(err))
	}
}

func showRecords(title string, records []*kgo.Record) {
	fmt.Println(title)
	for _, record := range records {
		fmt.Println(" ", record.Partition, record.Offset, string(record.Value))
	}
}

// stable waits until the group has settled with `members` members.
func (p play) stable(admin *kadm.Client, name string, members int) {
	for {
		described, err := admin.DescribeGroups(p.ctx, name)
		check(err)
		if described[name].State == "Stable" && len(described[name].Members) == members {
			return
		}
		p.pause()
	}
}

func (p play) describe(admin *kadm.Client, name string) {
	described, err := admin.DescribeGroups(p.ctx, name)
	check(err)
	one := described[name]
	fmt.Printf("group %q %q %q %s node %d\n", one.State, one.ProtocolType, one.Protocol,
		word(one.Err, one.ErrMessage), one.Coordinator.NodeID)
	var lines []string
	for _, member := range one.Members {
		joined, _ := member.Join.AsConsumer()
		assigned, _ := member.Assigned.AsConsumer()
		count := 0
		for _, topic := range assigned.Topics {
			count += len(topic.Partitions)
		}
		lines = append(lines, fmt.Sprint("  member ", member.ClientID, " ", member.ClientHost, " ",
			optional(member.InstanceID), " ", joined.Topics, " partitions ", count))
	}
	sort.Strings(lines)
	for _, line := range lines {
		fmt.Println(line)
	}
}

func (p play) committed(admin *kadm.Client, name string) {
	offsets, err := admin.FetchOffsets(p.ctx, name)
	check(err)
	for _, one := range offsets.Sorted() {
		// A member notes its id, of which the part after the client id is random.
		note := uuid.ReplaceAllString(one.Metadata, "<id>")
		fmt.Printf("committed %s %d %d epoch %d %q %s\n", one.Topic, one.Partition, one.At,
			one.LeaderEpoch, note, word(one.Err))
	}
}

func (p play) lag(admin *kadm.Client, name string) {
	lags, err := admin.Lag(p.ctx, name)
	check(err)
	for _, one := range lags[name].Lag.Sorted() {
		fmt.Println("lag", one.Topic, one.Partition, one.Start.Offset, one.End.Offset, one.Lag,
			word(one.Err))
	}
}
