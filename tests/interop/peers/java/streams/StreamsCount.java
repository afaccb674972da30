import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.KeyValueStore;

/**
 * Counts the records of each key with exactly_once_v2, in a store with a changelog; every record puts the key's new
 * count into the output. Arguments: addresses, input, output, application id, folder of its state; group
 * protocol; any word to send the records through a repartition topic.
 */
public final class StreamsCount {
    public static void main(String[] words) {
        Properties config = new Properties();
        config.put("bootstrap.servers", words[0]);
        config.put("application.id", words[3]);
        config.put("state.dir", words[4]);
        config.put("processing.guarantee", "exactly_once_v2");
        config.put("replication.factor", "3");
        config.put("commit.interval.ms", "100");
        config.put("statestore.cache.max.bytes", "0");
        config.put("num.stream.threads", "1");
        String protocol = words.length > 5 ? words[5] : "classic";
        config.put("group.protocol", protocol);
        if (protocol.equals("classic")) {
            config.put("consumer.session.timeout.ms", "6000");
        }
        config.put("consumer.auto.offset.reset", "earliest");
        config.put("producer.transaction.timeout.ms", "10000");
        config.put("default.key.serde", Serdes.StringSerde.class.getName());
        config.put("default.value.serde", Serdes.StringSerde.class.getName());
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> input = builder.stream(words[1]);
        boolean regroups = words.length > 6;
        (regroups ? input.groupBy((key, value) -> key) : input.groupByKey())
            .count(Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as("counts"))
            .toStream()
            .mapValues(String::valueOf)
            .to(words[2], Produced.with(Serdes.String(), Serdes.String()));
        KafkaStreams streams = new KafkaStreams(builder.build(), config);
        streams.setUncaughtExceptionHandler(failure -> {
            System.out.println("replaced " + failure);
            return StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        streams.setStateListener((now, before) -> System.out.println("state " + now));
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(20))));
        streams.start();
    }
}
