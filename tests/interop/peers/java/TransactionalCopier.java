import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Copies a topic, partition by partition, with one transaction for each batch that it polls; some of the
 * transactions are aborted. Runs until it is killed. Arguments: addresses, input, output, group, group protocol,
 * transactional id, seed, records in a transaction, share of aborted transactions.
 *
 * It prints "copied N" after a commit, and the error when it starts again with new clients.
 */
public final class TransactionalCopier {
    private final String[] words;
    private final Random random;
    private KafkaConsumer<byte[], byte[]> consumer;
    private KafkaProducer<byte[], byte[]> producer;

    private TransactionalCopier(String[] words) {
        this.words = words;
        this.random = new Random(Long.parseLong(words[6]));
    }

    public static void main(String[] words) throws Exception {
        TransactionalCopier copier = new TransactionalCopier(words);
        while (true) {
            try {
                copier.run();
            } catch (KafkaException error) {
                System.out.println("again " + error);
                Thread.sleep(200);
            } finally {
                copier.close();
            }
        }
    }

    private void run() {
        consumer = consumer();
        producer = producer();
        producer.initTransactions();
        consumer.subscribe(List.of(words[1]));
        while (true) {
            ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(200));
            if (records.isEmpty()) {
                continue;
            }
            try {
                copy(records);
            } catch (KafkaException error) {
                System.out.println("failed " + error);
                // Throws again if the producer cannot go on.
                producer.abortTransaction();
                rewind();
            }
        }
    }

    private void copy(ConsumerRecords<byte[], byte[]> records) {
        producer.beginTransaction();
        for (ConsumerRecord<byte[], byte[]> one : records) {
            producer.send(new ProducerRecord<>(words[2], one.partition(), one.key(), one.value()));
        }
        Map<TopicPartition, OffsetAndMetadata> next = new HashMap<>();
        for (TopicPartition partition : records.partitions()) {
            List<ConsumerRecord<byte[], byte[]>> part = records.records(partition);
            next.put(partition, new OffsetAndMetadata(part.get(part.size() - 1).offset() + 1));
        }
        producer.sendOffsetsToTransaction(next, consumer.groupMetadata());
        if (random.nextDouble() < Double.parseDouble(words[8])) {
            producer.abortTransaction();
            rewind();
        } else {
            producer.commitTransaction();
            System.out.println("copied " + records.count());
        }
    }

    /** Go back to the committed offsets, which the aborted transaction has not moved. */
    private void rewind() {
        Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(consumer.assignment());
        for (TopicPartition partition : consumer.assignment()) {
            OffsetAndMetadata offset = committed.get(partition);
            if (offset == null) {
                consumer.seekToBeginning(List.of(partition));
            } else {
                consumer.seek(partition, offset.offset());
            }
        }
    }

    private void close() {
        try {
            if (producer != null) {
                producer.close(Duration.ZERO);
            }
            if (consumer != null) {
                consumer.close();
            }
        } catch (KafkaException error) {
            System.out.println("close " + error);
        }
        producer = null;
        consumer = null;
    }

    private KafkaProducer<byte[], byte[]> producer() {
        Properties config = new Properties();
        config.put("bootstrap.servers", words[0]);
        config.put("transactional.id", words[5]);
        config.put("transaction.timeout.ms", "10000");
        config.put("delivery.timeout.ms", "20000");
        config.put("request.timeout.ms", "5000");
        config.put("max.block.ms", "20000");
        return new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private KafkaConsumer<byte[], byte[]> consumer() {
        Properties config = new Properties();
        config.put("bootstrap.servers", words[0]);
        config.put("group.id", words[3]);
        config.put("group.protocol", words[4]);
        config.put("enable.auto.commit", "false");
        config.put("auto.offset.reset", "earliest");
        config.put("isolation.level", "read_committed");
        config.put("max.poll.records", words[7]);
        if (words[4].equals("classic")) {
            config.put("session.timeout.ms", "6000");
        }
        return new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }
}
