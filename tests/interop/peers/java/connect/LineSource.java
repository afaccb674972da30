import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.connect.connector.Task;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.source.ExactlyOnceSupport;
import org.apache.kafka.connect.source.SourceConnector;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.source.SourceTask;

/** Sends the whole lines of a file that grows; the offset of a record is the number of its line. */
public final class LineSource extends SourceConnector {
    private static final int MOST_LINES = 20;
    private Map<String, String> config;

    @Override
    public void start(Map<String, String> properties) {
        config = properties;
    }

    @Override
    public Class<? extends Task> taskClass() {
        return Reader.class;
    }

    @Override
    public List<Map<String, String>> taskConfigs(int most) {
        return List.of(config);
    }

    @Override
    public void stop() {
    }

    @Override
    public ConfigDef config() {
        return definition();
    }

    @Override
    public ExactlyOnceSupport exactlyOnceSupport(Map<String, String> properties) {
        return ExactlyOnceSupport.SUPPORTED;
    }

    @Override
    public String version() {
        return "1";
    }

    static ConfigDef definition() {
        return new ConfigDef()
            .define("file", ConfigDef.Type.STRING, ConfigDef.Importance.HIGH, "the file of lines")
            .define("topic", ConfigDef.Type.STRING, "", ConfigDef.Importance.HIGH, "the topic of the lines");
    }

    /** The task. */
    public static final class Reader extends SourceTask {
        private Path file;
        private String topic;
        private long sent;

        @Override
        public void start(Map<String, String> properties) {
            file = Path.of(properties.get("file"));
            topic = properties.get("topic");
            Map<String, Object> stored = context.offsetStorageReader().offset(Map.of("file", file.toString()));
            sent = stored == null ? 0 : (Long) stored.get("line");
            System.out.println("begins after line " + sent);
        }

        @Override
        public List<SourceRecord> poll() throws InterruptedException {
            List<String> lines = lines();
            if (lines.size() <= sent) {
                Thread.sleep(20);
                return null;
            }
            List<SourceRecord> records = new ArrayList<>();
            while (sent < lines.size() && records.size() < MOST_LINES) {
                String line = lines.get((int) sent++);
                records.add(new SourceRecord(Map.of("file", file.toString()), Map.of("line", sent), topic, null,
                    Schema.STRING_SCHEMA, line));
            }
            return records;
        }

        private List<String> lines() {
            try {
                String text = Files.readString(file, StandardCharsets.UTF_8);
                return text.substring(0, text.lastIndexOf('\n') + 1).lines().toList();
            } catch (IOException absent) {
                return List.of();
            }
        }

        @Override
        public void stop() {
        }

        @Override
        public String version() {
            return "1";
        }
    }
}
