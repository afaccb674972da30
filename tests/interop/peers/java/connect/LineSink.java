import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.connect.connector.Task;
import org.apache.kafka.connect.sink.SinkConnector;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.sink.SinkTask;

/** Appends the values of records to a file, one a line. */
public final class LineSink extends SinkConnector {
    private Map<String, String> config;

    @Override
    public void start(Map<String, String> properties) {
        config = properties;
    }

    @Override
    public Class<? extends Task> taskClass() {
        return Writer.class;
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
        return LineSource.definition();
    }

    @Override
    public String version() {
        return "1";
    }

    /** The task. */
    public static final class Writer extends SinkTask {
        private Path file;

        @Override
        public void start(Map<String, String> properties) {
            file = Path.of(properties.get("file"));
        }

        @Override
        public void put(Collection<SinkRecord> records) {
            List<String> lines = records.stream().map(record -> (String) record.value()).toList();
            try {
                Files.write(file, lines, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
            } catch (IOException failure) {
                throw new UncheckedIOException(failure);
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
