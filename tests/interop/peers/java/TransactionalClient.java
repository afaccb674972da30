import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Scripts with transactions; each prints plain lines. Arguments: script, address, topic with two partitions.
 *
 * Compiled for the newest client, it also runs with the jars of 2.1: what that client does not have is
 * called by reflection.
 */
public final class TransactionalClient {
    private interface Step {
        void run() throws Exception;
    }

    private final String bootstrap;
    private final String topic;
    private final String id;
    private final List<KafkaProducer<byte[], byte[]>> producers = new ArrayList<>();

    private TransactionalClient(String bootstrap, String topic) {
        this.bootstrap = bootstrap;
        this.topic = topic;
        this.id = topic + "-id";
    }

    public static void main(String[] arguments) throws Exception {
        TransactionalClient client = new TransactionalClient(arguments[1], arguments[2]);
        try {
            switch (arguments[0]) {
                case "outcomes" -> client.outcomes();
                case "offsets" -> client.offsets();
                case "fencing" -> client.fencing();
                case "restart" -> client.restart();
                case "timeout" -> client.timeout();
                case "errors" -> client.errors();
                default -> throw new IllegalArgumentException(arguments[0]);
            }
        } finally {
            for (KafkaProducer<byte[], byte[]> producer : client.producers) {
                closeNow(producer);
            }
        }
    }

    /** Committed, aborted, empty and open transactions, as both isolation levels show them. */
    private void outcomes() throws Exception {
        KafkaProducer<byte[], byte[]> producer = producer(id, 60_000);
        producer.initTransactions();
        for (String[] one : new String[][] {{"first", "commit"}, {"second", "abort"}, {"third", "commit"}}) {
            producer.beginTransaction();
            for (int i = 0; i < 6; i++) {
                send(producer, i % 2, one[0] + i);
            }
            end(producer, one[1]);
        }
        producer.beginTransaction();
        end(producer, "commit");
        producer.beginTransaction();
        end(producer, "abort");
        producer.beginTransaction();
        send(producer, 0, "open").get();
        show("committed", "read_committed");
        show("all", "read_uncommitted");
        try (Consumer<byte[], byte[]> consumer = consumer(null, "read_committed")) {
            System.out.println("stable end " + consumer.endOffsets(List.of(place(0))));
        }
        try (Consumer<byte[], byte[]> consumer = consumer(null, "read_uncommitted")) {
            System.out.println("end " + consumer.endOffsets(List.of(place(0))));
        }
        try (KafkaProducer<byte[], byte[]> plain = producer(null, 0)) {
            send(plain, 0, "plain").get();
        }
        show("blocked by an open transaction", "read_committed");
        end(producer, "commit");
        showStable("all is stable");
    }

    /** Offsets in transactions, with and without a member's generation. */
    private void offsets() throws Exception {
        String group = topic + "-group";
        KafkaProducer<byte[], byte[]> producer = producer(id, 60_000);
        producer.initTransactions();
        for (String outcome : List.of("commit", "abort", "commit")) {
            producer.beginTransaction();
            send(producer, 0, outcome);
            sendOffsets(producer, Map.of(place(0), new OffsetAndMetadata(outcome.length(), outcome)), group);
            end(producer, outcome);
            System.out.println(outcome + " " + committed(group, "6 0"));
        }
        producer.beginTransaction();
        sendOffsets(producer, Map.of(place(0), new OffsetAndMetadata(50), place(1), new OffsetAndMetadata(60)), group);
        end(producer, "commit");
        System.out.println("offsets alone " + committed(group, "50 60"));
        try (Consumer<byte[], byte[]> member = consumer(group, "read_committed")) {
            member.subscribe(List.of(topic));
            while (member.assignment().isEmpty()) {
                member.poll(Duration.ofMillis(100));
            }
            Object metadata = metadata(member);
            producer.beginTransaction();
            attempt("member's offsets", () -> sendOffsets(producer, Map.of(place(0), new OffsetAndMetadata(70)), group, metadata));
            end(producer, "commit");
            System.out.println("of a member " + committed(group, "70 60"));
            if (metadata != null) {
                producer.beginTransaction();
                attempt("stranger's offsets", () -> sendOffsets(producer, Map.of(place(0), new OffsetAndMetadata(80)), group,
                    metadata(group, 77, "nobody")));
                attempt("abort", producer::abortTransaction);
            }
        }
        System.out.println("at last " + committed(group));
    }

    /** A second producer with the same id fences the first one, in each of its states. */
    private void fencing() throws Exception {
        for (String state : List.of("at rest", "with a batch", "committing")) {
            KafkaProducer<byte[], byte[]> first = producer(id, 60_000);
            first.initTransactions();
            first.beginTransaction();
            if (!state.equals("at rest")) {
                send(first, 0, state).get();
            }
            KafkaProducer<byte[], byte[]> second = producer(id, 60_000);
            second.initTransactions();
            if (!state.equals("committing")) {
                attempt(state + ": send", () -> send(first, 0, "late").get());
            }
            attempt(state + ": commit", first::commitTransaction);
            attempt(state + ": abort", first::abortTransaction);
            second.beginTransaction();
            send(second, 1, "second " + state);
            end(second, "commit");
        }
        showStable("fenced ones are aborted");
    }

    /** A producer that went away in a transaction: its heir aborts that one first. */
    private void restart() throws Exception {
        for (int turn = 0; turn < 3; turn++) {
            KafkaProducer<byte[], byte[]> producer = producer(id, 60_000);
            producer.initTransactions();
            producer.beginTransaction();
            send(producer, 0, "whole " + turn);
            producer.commitTransaction();
            producer.beginTransaction();
            send(producer, 0, "left open " + turn).get();
            closeNow(producer);
        }
        producer(id, 60_000).initTransactions();
        showStable("of all turns");
    }

    /** A transaction that takes longer than it may is aborted by the coordinator. */
    private void timeout() throws Exception {
        KafkaProducer<byte[], byte[]> slow = producer(id, 500);
        slow.initTransactions();
        slow.beginTransaction();
        send(slow, 0, "slow").get();
        try (Consumer<byte[], byte[]> consumer = consumer(null, "read_committed")) {
            // The stable end passes the batch and its marker once the transaction is aborted.
            while (consumer.endOffsets(List.of(place(0))).get(place(0)) < 2) {
                Thread.sleep(50);
            }
        }
        attempt("commit after the timeout", slow::commitTransaction);
        attempt("abort after the timeout", slow::abortTransaction);
        KafkaProducer<byte[], byte[]> other = producer(id, 60_000);
        other.initTransactions();
        other.beginTransaction();
        send(other, 0, "quick");
        end(other, "commit");
        showStable("after a timeout");
        attempt("timeout beyond the limit", () -> producer(id + "-long", 2_000_000_000).initTransactions());
    }

    /** Errors from which a producer recovers by an abort, and wrong use. */
    private void errors() throws Exception {
        KafkaProducer<byte[], byte[]> producer = producer(id, 60_000);
        attempt("begin before init", producer::beginTransaction);
        producer.initTransactions();
        attempt("commit without begin", producer::commitTransaction);
        producer.beginTransaction();
        attempt("begin twice", producer::beginTransaction);
        Future<RecordMetadata> large = producer.send(new ProducerRecord<>(topic, 0, null, new byte[1_048_000]));
        attempt("too large for the topic", large::get);
        attempt("commit", producer::commitTransaction);
        attempt("abort", producer::abortTransaction);
        producer.beginTransaction();
        send(producer, 0, "after the error");
        end(producer, "commit");
        showStable("at last");
    }

    /** Without an abort, as if the process had ended. */
    private static void closeNow(KafkaProducer<byte[], byte[]> producer) throws Exception {
        try {
            KafkaProducer.class.getMethod("close", Duration.class).invoke(producer, Duration.ZERO);
        } catch (NoSuchMethodException old) {
            KafkaProducer.class.getMethod("close", long.class, TimeUnit.class).invoke(producer, 0L, TimeUnit.MILLISECONDS);
        }
    }

    private void attempt(String what, Step step) {
        try {
            step.run();
            System.out.println(what + ": done");
        } catch (Exception failure) {
            Throwable cause = failure;
            while ((cause instanceof ExecutionException || cause instanceof InvocationTargetException) && cause.getCause() != null) {
                cause = cause.getCause();
            }
            String reason = cause.getCause() == null ? "" : " because of " + cause.getCause().getClass().getSimpleName();
            System.out.println(what + ": " + cause.getClass().getSimpleName() + reason);
        }
    }

    private void end(KafkaProducer<byte[], byte[]> producer, String outcome) {
        if (outcome.equals("commit")) {
            producer.commitTransaction();
        } else {
            producer.flush();
            producer.abortTransaction();
        }
    }

    private Future<RecordMetadata> send(KafkaProducer<byte[], byte[]> producer, int partition, String value) {
        return producer.send(new ProducerRecord<>(topic, partition, null, value.getBytes(StandardCharsets.UTF_8)));
    }

    private void sendOffsets(KafkaProducer<byte[], byte[]> producer, Map<TopicPartition, OffsetAndMetadata> offsets, String group)
            throws Exception {
        sendOffsets(producer, offsets, group, metadata(group, -1, ""));
    }

    /** By the group's name alone if the client knows no metadata of members. */
    private void sendOffsets(KafkaProducer<byte[], byte[]> producer, Map<TopicPartition, OffsetAndMetadata> offsets, String group,
            Object metadata) throws Exception {
        if (metadata == null) {
            KafkaProducer.class.getMethod("sendOffsetsToTransaction", Map.class, String.class).invoke(producer, offsets, group);
        } else {
            KafkaProducer.class.getMethod("sendOffsetsToTransaction", Map.class, metadataClass())
                .invoke(producer, offsets, metadata);
        }
    }

    private static Class<?> metadataClass() {
        try {
            return Class.forName("org.apache.kafka.clients.consumer.ConsumerGroupMetadata");
        } catch (ClassNotFoundException old) {
            return null;
        }
    }

    private static Object metadata(String group, int generation, String member) throws Exception {
        Class<?> of = metadataClass();
        return of == null ? null : of.getConstructor(String.class, int.class, String.class, java.util.Optional.class)
            .newInstance(group, generation, member, java.util.Optional.empty());
    }

    private static Object metadata(Consumer<byte[], byte[]> consumer) throws Exception {
        return metadataClass() == null ? null : Consumer.class.getMethod("groupMetadata").invoke(consumer);
    }

    /** The positions once they are the expected ones: clients before 2.5 do not wait for the markers of a commit. */
    private String committed(String group, String expected) {
        long deadline = System.currentTimeMillis() + 10_000;
        String found;
        do {
            found = committed(group);
        } while (!found.equals(expected) && System.currentTimeMillis() < deadline);
        return found;
    }

    private String committed(String group) {
        StringBuilder text = new StringBuilder();
        try (Consumer<byte[], byte[]> consumer = consumer(group, "read_committed")) {
            consumer.assign(List.of(place(0), place(1)));
            for (int partition = 0; partition < 2; partition++) {
                // position() waits until no transaction holds the offset.
                text.append(consumer.position(place(partition), Duration.ofSeconds(30))).append(' ');
            }
        }
        return text.toString().trim();
    }

    /** Print what a reader sees up to the end that it is shown. */
    /** What committed transactions have left, once the markers of all are written. */
    private void showStable(String what) throws Exception {
        List<TopicPartition> both = List.of(place(0), place(1));
        try (Consumer<byte[], byte[]> all = consumer(null, "read_uncommitted");
                Consumer<byte[], byte[]> committed = consumer(null, "read_committed")) {
            long limit = System.nanoTime() + 20_000_000_000L;
            while (!all.endOffsets(both).equals(committed.endOffsets(both))) {
                if (System.nanoTime() > limit) {
                    throw new IllegalStateException("a transaction stays open");
                }
                Thread.sleep(50);
            }
        }
        show(what, "read_committed");
    }

    private void show(String what, String isolation) {
        List<String> lines = new ArrayList<>();
        try (Consumer<byte[], byte[]> consumer = consumer(null, isolation)) {
            List<TopicPartition> both = List.of(place(0), place(1));
            consumer.assign(both);
            consumer.seekToBeginning(both);
            Map<TopicPartition, Long> ends = new HashMap<>(consumer.endOffsets(both));
            long limit = System.nanoTime() + 20_000_000_000L;
            while (both.stream().anyMatch(one -> consumer.position(one) < ends.get(one))) {
                for (ConsumerRecord<byte[], byte[]> one : consumer.poll(Duration.ofMillis(100))) {
                    lines.add(one.partition() + " " + one.offset() + " " + new String(one.value(), StandardCharsets.UTF_8));
                }
                if (System.nanoTime() > limit) {
                    lines.add("not all within the time");
                    break;
                }
            }
        }
        lines.sort(null);
        System.out.println(what + " " + lines.size());
        lines.forEach(System.out::println);
    }

    private TopicPartition place(int partition) {
        return new TopicPartition(topic, partition);
    }

    private KafkaProducer<byte[], byte[]> producer(String transactionalId, int timeoutMs) {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("max.block.ms", "30000");
        config.put("retry.backoff.ms", "20");
        config.put("acks", "all");
        if (transactionalId != null) {
            config.put("transactional.id", transactionalId);
            config.put("transaction.timeout.ms", timeoutMs);
        }
        KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
        producers.add(producer);
        return producer;
    }

    private Consumer<byte[], byte[]> consumer(String group, String isolation) {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("enable.auto.commit", "false");
        config.put("auto.offset.reset", "earliest");
        config.put("isolation.level", isolation);
        if (group != null) {
            config.put("group.id", group);
            config.put("session.timeout.ms", "6000");
        }
        return new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }
}
