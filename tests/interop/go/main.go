// Command franz plays scripts with franz-go against one node and prints what it sees, line by line.
//
// Usage: franz [-as VERSION] [-sasl MECHANISM] SCRIPT ADDRESS TOPIC [ARGUMENT...]. With -as the client
// speaks no newer versions of the APIs than that release of Kafka. With -sasl it logs in as the user
// FRANZ_USER with the password FRANZ_PASSWORD, both from the environment. Equal behaviour of two nodes gives equal lines:
// what belongs to one node only (ids, clocks) is checked here and not printed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const limit = 30 * time.Second

// play is what every script gets: where the node is, its own topic, and further arguments.
type play struct {
	ctx       context.Context
	address   string
	topic     string
	arguments []string
	versions  *kversion.Versions
	mechanism sasl.Mechanism
}

var scripts = map[string]func(play){
	"produce":  produce,
	"consume":  consume,
	"seek":     seek,
	"group":    group,
	"static":   staticMember,
	"commits":  commits,
	"times":    times,
	"topics":   topics,
	"configs":  configs,
	"broker":   brokerConfigs,
	"delete":   deleteRecords,
	"disks":    disks,
	"quotas":   quotas,
	"cluster":  cluster,
	"ids":      topicIDs,
	"recreate": recreate,
	"limits":   limits,
	"versions": versions,
}

func main() {
	release := flag.String("as", "v4.4", "newest `release` of Kafka whose API versions are used")
	login := flag.String("sasl", "", "`mechanism` to log in with")
	flag.Parse()
	words, versions := flag.Args(), kversion.FromString(*release)
	if len(words) < 3 || scripts[words[0]] == nil || versions == nil {
		fmt.Fprintln(os.Stderr, "usage: franz [-as VERSION] SCRIPT ADDRESS TOPIC [ARGUMENT...]")
		os.Exit(2)
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	scripts[words[0]](play{ctx, words[1], words[2], words[3:], versions, mechanism(*login)})
}

// check ends the program when a step fails that every node must be able to do.
func check(err error) {
	if err != nil {
		panic(err)
	}
}

// mechanism returns the login of the user in the environment, nil for none.
func mechanism(name string) sasl.Mechanism {
	user, password := os.Getenv("FRANZ_USER"), os.Getenv("FRANZ_PASSWORD")
	switch name {
	case "PLAIN":
		return plain.Auth{User: user, Pass: password}.AsMechanism()
	case "SCRAM-SHA-256":
		return scram.Auth{User: user, Pass: password}.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		return scram.Auth{User: user, Pass: password}.AsSha512Mechanism()
	}
	return nil
}

func (p play) client(options ...kgo.Opt) *kgo.Client {
	if p.mechanism != nil {
		options = append(options, kgo.SASL(p.mechanism))
	}
	client, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(p.address),
		kgo.ClientID("franz"),
		kgo.MaxVersions(p.versions),
		kgo.MetadataMinAge(50 * time.Millisecond),
	}, options...)...)
	check(err)
	return client
}

func (p play) admin() *kadm.Client {
	return kadm.NewClient(p.client())
}

func (p play) number(index int) int64 {
	number, err := strconv.ParseInt(p.arguments[index], 10, 64)
	check(err)
	return number
}

// create makes a topic and waits until every partition is served.
func (p play) create(admin *kadm.Client, topic string, partitions int32) kadm.TopicID {
	created, err := admin.CreateTopic(p.ctx, partitions, 1, nil, topic)
	check(err)
	p.serving(admin, topic, int(partitions))
	return created.ID
}

// serving waits until the leaders of all partitions answer.
func (p play) serving(admin *kadm.Client, topic string, partitions int) {
	for {
		listed, err := admin.ListEndOffsets(p.ctx, topic)
		if err == nil && listed.Error() == nil && len(listed[topic]) == partitions {
			return
		}
		p.pause()
	}
}

// gone waits until the metadata no longer names the topic.
func (p play) gone(admin *kadm.Client, topic string) {
	for {
		listed, err := admin.ListTopics(p.ctx)
		check(err)
		if !listed.Has(topic) {
			return
		}
		p.pause()
	}
}

func (p play) pause() {
	select {
	case <-p.ctx.Done():
		panic("the script takes too long")
	case <-time.After(20 * time.Millisecond):
	}
}

// word names an outcome: Kafka's error name with the node's message where there is one.
func word(err error, message ...string) string {
	text := "done"
	var known *kerr.Error
	if errors.As(err, &known) {
		text = known.Message
	} else if err != nil {
		text = err.Error()
	}
	for _, one := range message {
		if one != "" {
			text += ": " + one
		}
	}
	return text
}

// code names an error code of a raw response.
func code(number int16) string {
	return word(kerr.ErrorForCode(number))
}

func quoted(data []byte) string {
	if data == nil {
		return "null"
	}
	return strconv.Quote(string(data))
}

func optional(text *string) string {
	if text == nil {
		return "null"
	}
	return strconv.Quote(*text)
}
