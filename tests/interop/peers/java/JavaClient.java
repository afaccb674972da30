import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListOffsetsResult;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Scripts with the Java client; each prints plain lines. First argument: the script; second: address. */
public final class JavaClient {
    private final String bootstrap;
    private final String topic;
    private String protocol = "classic";

    private JavaClient(String bootstrap, String topic) {
        this.bootstrap = bootstrap;
        this.topic = topic;
    }

    public static void main(String[] arguments) throws Exception {
        JavaClient client = new JavaClient(arguments[1], arguments[2]);
        switch (arguments[0]) {
            case "produce" -> client.produce(arguments[3], arguments[4], Long.parseLong(arguments[5]));
            case "consume" -> client.consume(Integer.parseInt(arguments[3]));
            case "group" -> {
                client.protocol = arguments[4];
                client.group(arguments[3]);
            }
            case "times" -> client.times(Long.parseLong(arguments[3]));
            case "admin" -> client.admin();
            default -> throw new IllegalArgumentException(arguments[0]);
        }
    }

    /** 100 records with headers, nulls and times to partitions 0 and 1; prints offsets. */
    private void produce(String codec, String acks, long firstTime) throws Exception {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("acks", acks);
        config.put("enable.idempotence", acks.equals("all"));
        config.put("compression.type", codec);
        config.put("linger.ms", "20");
        config.put("max.block.ms", "10000");
        List<java.util.concurrent.Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (int i = 0; i < 100; i++) {
                ProducerRecord<byte[], byte[]> one = new ProducerRecord<>(
                    topic, i % 2, firstTime + i * 10L, i % 5 == 0 ? null : bytes("key-" + i),
                    i % 11 == 3 ? null : bytes("value-" + i + " ".repeat(i)));
                if (i % 3 == 0) {
                    one.headers().add("number", bytes("" + i)).add("null", null).add("number", bytes("2"));
                }
                sent.add(producer.send(one));
            }
            producer.flush();
            for (java.util.concurrent.Future<RecordMetadata> future : sent) {
                RecordMetadata at = future.get();
                System.out.println(at.partition() + " " + at.offset() + " " + at.timestamp());
            }
        }
    }

    /** Everything of both partitions, by partition and offset. */
    private void consume(int count) {
        TreeMap<String, String> lines = new TreeMap<>();
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(null)) {
            List<TopicPartition> both = List.of(new TopicPartition(topic, 0), new TopicPartition(topic, 1));
            consumer.assign(both);
            consumer.seekToBeginning(both);
            long limit = System.nanoTime() + 20_000_000_000L;
            while (lines.size() < count && System.nanoTime() < limit) {
                for (ConsumerRecord<byte[], byte[]> one : consumer.poll(Duration.ofMillis(200))) {
                    lines.put(String.format("%d-%06d", one.partition(), one.offset()), describe(one));
                }
            }
        }
        lines.forEach((place, text) -> System.out.println(place + " " + text));
    }

    /** Two members share the topic, one leaves, offsets are committed and resumed. */
    private void group(String name) {
        try (KafkaConsumer<byte[], byte[]> first = consumer(name)) {
            first.subscribe(List.of(topic));
            System.out.println("alone " + assigned(List.of(first), List.of(2)));
            try (KafkaConsumer<byte[], byte[]> second = consumer(name)) {
                second.subscribe(List.of(topic));
                System.out.println("together " + assigned(List.of(first, second), List.of(1, 1)));
            }
            System.out.println("alone again " + assigned(List.of(first), List.of(2)));
            Map<TopicPartition, org.apache.kafka.clients.consumer.OffsetAndMetadata> offsets = new TreeMap<>(
                java.util.Comparator.comparing(TopicPartition::toString));
            offsets.put(new TopicPartition(topic, 0), new org.apache.kafka.clients.consumer.OffsetAndMetadata(7, "note"));
            offsets.put(new TopicPartition(topic, 1), new org.apache.kafka.clients.consumer.OffsetAndMetadata(9));
            first.commitSync(offsets);
        }
        try (KafkaConsumer<byte[], byte[]> again = consumer(name)) {
            Set<TopicPartition> both = new HashSet<>(
                List.of(new TopicPartition(topic, 0), new TopicPartition(topic, 1)));
            new TreeMap<>(Map.of(
                "0", again.committed(both).get(new TopicPartition(topic, 0)).toString(),
                "1", again.committed(both).get(new TopicPartition(topic, 1)).toString()))
                .forEach((partition, at) -> System.out.println("committed " + partition + " " + at));
            again.assign(both);
            System.out.println("positions " + again.position(new TopicPartition(topic, 0)) + " "
                + again.position(new TopicPartition(topic, 1)));
        }
    }

    private List<Integer> assigned(List<KafkaConsumer<byte[], byte[]>> members, List<Integer> wanted) {
        List<Integer> sizes = List.of();
        long limit = System.nanoTime() + 20_000_000_000L;
        while (!sizes.equals(wanted) && System.nanoTime() < limit) {
            List<Integer> now = new ArrayList<>();
            for (KafkaConsumer<byte[], byte[]> member : members) {
                member.poll(Duration.ofMillis(50));
                now.add(member.assignment().size());
            }
            sizes = now;
        }
        return sizes;
    }

    private void times(long firstTime) throws Exception {
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(null)) {
            for (long step : new long[] {-1, 0, 1, 200, 980, 981}) {
                System.out.println(step + " " + consumer.offsetsForTimes(Map.of(partition, firstTime + step)).get(partition));
            }
            System.out.println(consumer.beginningOffsets(List.of(partition)) + " " + consumer.endOffsets(List.of(partition)));
            System.out.println(consumer.partitionsFor(topic).size());
        }
        try (Admin admin = admin(bootstrap)) {
            for (OffsetSpec spec : List.of(OffsetSpec.earliest(), OffsetSpec.latest(), OffsetSpec.maxTimestamp(),
                    OffsetSpec.forTimestamp(firstTime + 500), OffsetSpec.earliestLocal(), OffsetSpec.latestTiered())) {
                ListOffsetsResult.ListOffsetsResultInfo at =
                    admin.listOffsets(Map.of(partition, spec)).partitionResult(partition).get();
                System.out.println(spec.getClass().getSimpleName() + " " + at.offset() + " " + at.timestamp() + " " + at.leaderEpoch());
            }
        }
    }

    private void admin() throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        try (Admin admin = admin(bootstrap)) {
            show("create", admin.createTopics(List.of(new NewTopic(topic, 2, (short) 1))).all());
            show("create again", admin.createTopics(List.of(new NewTopic(topic, 2, (short) 1))).all());
            show("create with 0", admin.createTopics(List.of(new NewTopic(topic + "0", 0, (short) 1))).all());
            show("create wide", admin.createTopics(List.of(new NewTopic(topic + "w", 1, (short) 3))).all());
            show("create on 5", admin.createTopics(List.of(new NewTopic(topic + "5", Map.of(0, List.of(5))))).all());
            show("grow", admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(4))).all());
            show("shrink", admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(1))).all());
            show("set", alter(admin, resource, "retention.ms", "12345", AlterConfigOp.OpType.SET));
            show("append", alter(admin, resource, "cleanup.policy", "compact", AlterConfigOp.OpType.APPEND));
            show("append to a number", alter(admin, resource, "retention.ms", "1", AlterConfigOp.OpType.APPEND));
            show("wrong", alter(admin, resource, "retention.ms", "many", AlterConfigOp.OpType.SET));
            show("unknown", alter(admin, resource, "nosuch", "1", AlterConfigOp.OpType.SET));
            Thread.sleep(200);
            admin.describeConfigs(List.of(resource)).all().get().get(resource).entries().stream()
                .filter(entry -> entry.source() == ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG)
                .map(entry -> entry.name() + "=" + entry.value() + " " + entry.synonyms().size())
                .sorted().forEach(System.out::println);
            show("delete records beyond", admin.deleteRecords(
                Map.of(new TopicPartition(topic, 0), RecordsToDelete.beforeOffset(5))).all());
            show("describe missing", admin.describeTopics(List.of("missing")).allTopicNames());
            show("describe group", admin.describeConsumerGroups(List.of("missing")).all());
            show("delete group", admin.deleteConsumerGroups(List.of("missing")).all());
            show("delete", admin.deleteTopics(List.of(topic)).all());
            show("delete again", admin.deleteTopics(List.of(topic)).all());
        }
    }

    private static KafkaFuture<Void> alter(Admin admin, ConfigResource resource, String key, String value,
            AlterConfigOp.OpType type) {
        AlterConfigOp change = new AlterConfigOp(new ConfigEntry(key, value), type);
        return admin.incrementalAlterConfigs(Map.of(resource, Collections.singletonList(change))).all();
    }

    private static void show(String what, KafkaFuture<?> future) throws InterruptedException {
        try {
            future.get();
            System.out.println(what + ": done");
        } catch (ExecutionException failure) {
            System.out.println(what + ": " + failure.getCause());
        }
    }

    private static Admin admin(String bootstrap) {
        return Admin.create(Map.of("bootstrap.servers", bootstrap));
    }

    private KafkaConsumer<byte[], byte[]> consumer(String group) {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("enable.auto.commit", "false");
        config.put("auto.offset.reset", "earliest");
        if (group != null) {
            config.put("group.id", group);
            config.put("group.protocol", protocol);
        }
        if (group == null || protocol.equals("classic")) {
            config.put("heartbeat.interval.ms", "300");
            config.put("session.timeout.ms", "6000");
        }
        return new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private static String describe(ConsumerRecord<byte[], byte[]> one) {
        StringBuilder text = new StringBuilder();
        text.append(text(one.key())).append('|').append(text(one.value())).append('|').append(one.timestampType())
            .append('|').append(one.timestamp()).append('|').append(one.leaderEpoch());
        for (Header header : one.headers()) {
            text.append('|').append(header.key()).append('=').append(text(header.value()));
        }
        return text.toString();
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static String text(byte[] data) {
        return data == null ? "null" : "'" + new String(data, StandardCharsets.UTF_8) + "'";
    }
}
