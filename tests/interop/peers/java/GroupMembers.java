import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Members of one group, which start and stop on command. Each commits after each poll. Arguments: addresses, topic,
 * group. Commands on the standard input: "start NAME PROTOCOL ASSIGNOR INSTANCE" ("-" for none), "stop NAME".
 *
 * It prints what happens to the partitions, in order: "got NAME P", "lost NAME P", "read NAME P OFFSET",
 * "committed NAME P OFFSET", "refused NAME error", and "stopped NAME".
 */
public final class GroupMembers {
    private static String[] words;

    public static void main(String[] arguments) throws Exception {
        words = arguments;
        Map<String, Member> members = new HashMap<>();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] command = line.split(" ");
            if (command[0].equals("start")) {
                Member member = new Member(command);
                members.put(command[1], member);
                member.start();
            } else {
                Member member = members.remove(command[1]);
                member.consumer.wakeup();
                member.join();
                say("stopped " + command[1]);
            }
        }
        System.exit(0);
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    private static final class Member extends Thread implements ConsumerRebalanceListener {
        private final String name;
        private final KafkaConsumer<byte[], byte[]> consumer;

        Member(String[] command) {
            name = command[1];
            Properties config = new Properties();
            config.put("bootstrap.servers", words[0]);
            config.put("group.id", words[2]);
            config.put("client.id", name);
            config.put("group.protocol", command[2]);
            config.put("enable.auto.commit", "false");
            config.put("auto.offset.reset", "earliest");
            if (command[2].equals("classic")) {
                config.put("heartbeat.interval.ms", "200");
                config.put("session.timeout.ms", "30000");
                config.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer." + command[3]);
            }
            if (!command[4].equals("-")) {
                config.put("group.instance.id", command[4]);
            }
            consumer = new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        }

        @Override
        public void run() {
            consumer.subscribe(List.of(words[1]), this);
            try {
                while (true) {
                    read(consumer.poll(Duration.ofMillis(100)));
                }
            } catch (org.apache.kafka.common.errors.WakeupException stop) {
                consumer.close();
            } catch (RuntimeException error) {
                say("failed " + name + " " + error);
            }
        }

        private void read(ConsumerRecords<byte[], byte[]> records) {
            for (ConsumerRecord<byte[], byte[]> one : records) {
                say("read " + name + " " + one.partition() + " " + one.offset());
            }
            Map<TopicPartition, OffsetAndMetadata> next = new HashMap<>();
            for (TopicPartition partition : records.partitions()) {
                List<ConsumerRecord<byte[], byte[]>> part = records.records(partition);
                next.put(partition, new OffsetAndMetadata(part.get(part.size() - 1).offset() + 1));
            }
            try {
                if (!next.isEmpty()) {
                    consumer.commitSync(next);
                }
            } catch (org.apache.kafka.common.errors.WakeupException stop) {
                throw stop;
            } catch (KafkaException error) {
                say("refused " + name + " " + error);
                return;
            }
            next.forEach((partition, offset) ->
                say("committed " + name + " " + partition.partition() + " " + offset.offset()));
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            tell("got ", partitions);
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            tell("lost ", partitions);
        }

        private void tell(String what, Collection<TopicPartition> partitions) {
            TreeSet<Integer> numbers = new TreeSet<>();
            partitions.forEach(one -> numbers.add(one.partition()));
            numbers.forEach(number -> say(what + name + " " + number));
        }
    }
}
