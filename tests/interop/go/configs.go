package main

import (
	"fmt"
	"sort"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
)

// configs describes and alters the configuration of a topic, key by key and as a whole.
func configs(p play) {
	admin := p.admin()
	defer admin.Close()
	p.describeConfigs(admin, true, "retention.ms", "")
	change := func(title string, edits ...kadm.AlterConfig) bool {
		answered, err := admin.AlterTopicConfigs(p.ctx, edits, p.topic)
		showAltered(title, answered, err)
		return err == nil
	}
	set := func(key, value string) kadm.AlterConfig {
		return kadm.AlterConfig{Op: kadm.SetConfig, Name: key, Value: &value}
	}
	with := func(how kadm.IncrementalOp, key, value string) kadm.AlterConfig {
		return kadm.AlterConfig{Op: how, Name: key, Value: &value}
	}
	change("set", set("retention.ms", "3600000"), set("max.message.bytes", "2000000"))
	change("append", with(kadm.AppendConfig, "cleanup.policy", "compact"))
	policy := ""
	if change("append again", with(kadm.AppendConfig, "cleanup.policy", "compact")) {
		policy = "delete,compact"
	}
	p.describeConfigs(admin, false, "cleanup.policy", policy)
	change("subtract", with(kadm.SubtractConfig, "cleanup.policy", "delete"))
	change("append to a number", with(kadm.AppendConfig, "retention.ms", "1"))
	change("wrong value", set("retention.ms", "soon"))
	change("out of range", set("min.insync.replicas", "0"))
	change("unknown key", set("no.such.key", "1"))
	change("twice", set("retention.ms", "1"), set("retention.ms", "2"))
	change("null", kadm.AlterConfig{Op: kadm.SetConfig, Name: "retention.ms"})
	change("remove", kadm.AlterConfig{Op: kadm.DeleteConfig, Name: "retention.ms"})
	change("remove what is not set", kadm.AlterConfig{Op: kadm.DeleteConfig, Name: "segment.ms"})
	p.describeConfigs(admin, false, "retention.ms", "")
	edits := []kadm.AlterConfig{set("segment.bytes", "5")}
	answered, err := admin.ValidateAlterTopicConfigs(p.ctx, edits, p.topic)
	showAltered("only validated, wrong", answered, err)
	edits = []kadm.AlterConfig{set("segment.bytes", "5000000")}
	answered, err = admin.ValidateAlterTopicConfigs(p.ctx, edits, p.topic)
	showAltered("only validated", answered, err)
	answered, err = admin.AlterTopicConfigsState(p.ctx, edits, p.topic)
	showAltered("whole", answered, err)
	p.describeConfigs(admin, false, "segment.bytes", "5000000")
	answered, err = admin.AlterTopicConfigsState(p.ctx, append(edits, edits[0]), p.topic)
	showAltered("whole, twice", answered, err)
	empty := []kadm.AlterConfig{{Name: "retention.ms"}, {Name: "segment.ms"}}
	answered, err = admin.AlterTopicConfigsState(p.ctx, empty, p.topic)
	showAltered("whole, null", answered, err)
	change("two nulls", empty...)
	change("two nulls, twice", append(empty, empty...)...)
	change("null and twice", empty[0], set("segment.ms", "1"), set("segment.ms", "2"))
	p.describeConfigs(admin, false, "segment.bytes", "5000000")
	answered, err = admin.AlterTopicConfigs(p.ctx, edits, "no-such-topic")
	showAltered("unknown topic", answered, err)
	described, err := admin.DescribeTopicConfigs(p.ctx, "no-such-topic")
	fmt.Println("describe", word(err), word(described[0].Err, described[0].ErrMessage))
}

func showAltered(title string, answered kadm.AlterConfigsResponses, err error) {
	fmt.Println(title, word(err))
	for _, one := range answered {
		fmt.Println(" ", one.Name, word(one.Err, one.ErrMessage))
	}
}

// describeConfigs prints all keys of the topic, or those that were set for it, as soon as the node
// has learnt that key has the value; "" is one that is not set. It may have answered before that.
func (p play) describeConfigs(admin *kadm.Client, all bool, key, value string) {
	described, err := admin.DescribeTopicConfigs(p.ctx, p.topic)
	check(err)
	for !isSet(described, key, value) {
		p.pause()
		described, err = admin.DescribeTopicConfigs(p.ctx, p.topic)
		check(err)
	}
	for _, resource := range described {
		fmt.Println("configuration of", resource.Name, word(resource.Err, resource.ErrMessage))
		showConfigs(resource.Configs, all)
	}
}

func isSet(described kadm.ResourceConfigs, key, value string) bool {
	found := ""
	for _, resource := range described {
		for _, one := range resource.Configs {
			if one.Key == key && one.Source.String() == "DYNAMIC_TOPIC_CONFIG" {
				found = *one.Value
			}
		}
	}
	return found == value
}

func showConfigs(entries []kadm.Config, all bool) {
	sort.Slice(entries, func(i, j int) bool { return entries[i].Key < entries[j].Key })
	for _, one := range entries {
		if !all && one.Source.String() != "DYNAMIC_TOPIC_CONFIG" {
			continue
		}
		line := fmt.Sprint("  ", one.Key, "=", optional(one.Value), " ", one.Source, " ",
			one.Sensitive)
		for _, other := range one.Synonyms {
			line += fmt.Sprint(" <- ", other.Key, "=", optional(other.Value), " ", other.Source)
		}
		fmt.Println(line)
	}
}

// brokerConfigs alters what a broker can change while it runs, and tries what it cannot.
func brokerConfigs(p play) {
	admin := p.admin()
	defer admin.Close()
	show := func(title string, brokers ...int32) {
		described, err := admin.DescribeBrokerConfigs(p.ctx, brokers...)
		check(err)
		for _, resource := range described {
			fmt.Printf("%s %q %s\n", title, resource.Name, word(resource.Err, resource.ErrMessage))
			var some []kadm.Config
			for _, one := range resource.Configs {
				switch one.Key {
				case "log.retention.ms", "log.cleaner.threads", "node.id", "message.max.bytes",
					"ssl.keystore.password", "compression.type", "log.dirs", "no.such.key":
					some = append(some, one)
				}
			}
			showConfigs(some, true)
		}
	}
	change := func(title, key, value string, brokers ...int32) {
		edits := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: key, Value: &value}}
		answered, err := admin.AlterBrokerConfigs(p.ctx, edits, brokers...)
		showAltered(title, answered, err)
	}
	show("at first", 1)
	change("everywhere", "message.max.bytes", "1500000")
	change("here", "log.retention.ms", "7200000", 1)
	change("read only", "node.id", "5", 1)
	change("wrong value", "message.max.bytes", "many", 1)
	change("unknown key", "no.such.key", "1", 1)
	change("no such broker", "log.retention.ms", "1", 77)
	for _, key := range []string{"message.max.bytes", "log.retention.ms", "no.such.key"} {
		for {
			described, err := admin.DescribeBrokerConfigs(p.ctx, 1)
			check(err)
			if strings.HasPrefix(source(described[0].Configs, key), "DYNAMIC_") {
				break
			}
			p.pause()
		}
	}
	show("changed", 1)
	show("all brokers")
	remove := []kadm.AlterConfig{
		{Op: kadm.DeleteConfig, Name: "message.max.bytes"},
		{Op: kadm.DeleteConfig, Name: "log.retention.ms"},
	}
	answered, err := admin.AlterBrokerConfigs(p.ctx, remove[:1])
	showAltered("remove everywhere", answered, err)
	answered, err = admin.AlterBrokerConfigs(p.ctx, remove[1:], 1)
	showAltered("remove here", answered, err)
}

func source(entries []kadm.Config, key string) string {
	for _, one := range entries {
		if one.Key == key {
			return one.Source.String()
		}
	}
	return ""
}

// quotas sets, describes and removes client quotas, and describes SCRAM credentials.
func quotas(p play) {
	admin := p.admin()
	defer admin.Close()
	user, client := p.topic+"-user", p.topic+"-client"
	entity := kadm.ClientQuotaEntity{
		{Type: "client-id", Name: &client}, {Type: "user", Name: &user},
	}
	rate := kadm.AlterClientQuotaOp{Key: "producer_byte_rate", Value: 123456}
	share := kadm.AlterClientQuotaOp{Key: "request_percentage", Value: 75}
	change := func(title string, validate bool, entity kadm.ClientQuotaEntity,
		edits ...kadm.AlterClientQuotaOp) {
		request := admin.AlterClientQuotas
		if validate {
			request = admin.ValidateAlterClientQuotas
		}
		answered, err := request(p.ctx, []kadm.AlterClientQuotaEntry{{Entity: entity, Ops: edits}})
		fmt.Println(title, word(err))
		for _, one := range answered {
			fmt.Println(" ", one.Entity, word(one.Err, one.ErrMessage))
		}
	}
	describe := func(wanted int) {
		component := []kadm.DescribeClientQuotaComponent{{Type: "user", MatchName: &user}}
		for {
			found, err := admin.DescribeClientQuotas(p.ctx, false, component)
			check(err)
			if len(found) == wanted {
				for _, one := range found {
					sort.Slice(one.Values, func(i, j int) bool {
						return one.Values[i].Key < one.Values[j].Key
					})
					sort.Slice(one.Entity, func(i, j int) bool {
						return one.Entity[i].Type < one.Entity[j].Type
					})
					fmt.Println("quota", one.Entity, one.Values)
				}
				fmt.Println("quotas", len(found))
				return
			}
			p.pause()
		}
	}
	describe(0)
	change("only validated", true, entity, rate)
	change("set", false, entity, rate, share)
	describe(1)
	change("fraction", false, entity,
		kadm.AlterClientQuotaOp{Key: "producer_byte_rate", Value: 123456.5})
	change("unknown key", false, entity, kadm.AlterClientQuotaOp{Key: "no_such_rate", Value: 1})
	change("unknown entity", false, kadm.ClientQuotaEntity{{Type: "planet", Name: &user}}, rate)
	change("negative", false, entity, kadm.AlterClientQuotaOp{Key: "consumer_byte_rate", Value: -1})
	change("very large", false, entity,
		kadm.AlterClientQuotaOp{Key: "consumer_byte_rate", Value: 1e30})
	address := "127.0.0.9"
	change("large for an address", false, kadm.ClientQuotaEntity{{Type: "ip", Name: &address}},
		kadm.AlterClientQuotaOp{Key: "connection_creation_rate", Value: 1e10})
	change("no entity", false, nil, rate)
	empty := ""
	change("no name", false, kadm.ClientQuotaEntity{{Type: "user", Name: &empty}}, rate)
	change("key of another entity", false, kadm.ClientQuotaEntity{{Type: "ip", Name: &address}}, rate)
	change("remove what is not set", false, entity,
		kadm.AlterClientQuotaOp{Key: "controller_mutation_rate", Remove: true})
	change("remove", false, entity,
		kadm.AlterClientQuotaOp{Key: "producer_byte_rate", Remove: true},
		kadm.AlterClientQuotaOp{Key: "request_percentage", Remove: true})
	describe(0)

	described, err := admin.DescribeUserSCRAMs(p.ctx, user)
	fmt.Println("credentials", word(err))
	for _, one := range described.Sorted() {
		fmt.Println(" ", one.User, word(one.Err, one.ErrMessage), len(one.CredInfos))
	}
}
