import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.coordinator.group.GroupConfig;
import org.apache.kafka.server.config.AbstractKafkaConfig;
import org.apache.kafka.server.config.DynamicBrokerConfig;
import org.apache.kafka.server.metrics.ClientMetricsConfigs;
import org.apache.kafka.storage.internals.log.LogConfig;

/**
 * Prints the keys of Kafka's configurations, one key a line, separated by tabs: kind, name, type,
 * default, permitted values, how a running broker takes over a new value, and whether the key is
 * internal. tests/config/recorded/ has the lines of a release:
 *
 *     java -cp "build/kafka/4.4.0/libs/*" tools/kafka/ConfigKeys.java > tests/config/recorded/config-keys-4.4.0.tsv
 */
public final class ConfigKeys {
    public static void main(String[] arguments) {
        print("broker", AbstractKafkaConfig.CONFIG_DEF, DynamicBrokerConfig.dynamicConfigUpdateModes());
        print("topic", LogConfig.configDefCopy(), Map.of());
        print("group", GroupConfig.CONFIG_DEF, Map.of());
        print("client-metrics", ClientMetricsConfigs.configDef(), Map.of());
        print("producer", ProducerConfig.configDef(), Map.of());
        print("consumer", ConsumerConfig.configDef(), Map.of());
        print("admin", AdminClientConfig.configDef(), Map.of());
    }

    private static void print(String kind, ConfigDef definition, Map<String, String> modes) {
        for (ConfigDef.ConfigKey key : new TreeMap<>(definition.configKeys()).values()) {
            String mode = modes.getOrDefault(key.name, kind.equals("broker") ? "read-only" : "");
            System.out.println(String.join("\t",
                kind,
                key.name,
                key.type.toString().toLowerCase(),
                key.hasDefault() ? ConfigDef.convertToString(key.defaultValue, key.type) + "" : "(none)",
                // Some validators have no text but that of an object.
                key.validator == null || key.validator.toString().contains("@") ? "" : key.validator.toString(),
                mode,
                key.internalConfig ? "internal" : ""));
        }
    }
}
