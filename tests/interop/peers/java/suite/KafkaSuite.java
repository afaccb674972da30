import java.io.BufferedReader;
import java.io.FileReader;
import java.io.InputStreamReader;
import java.io.Reader;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import kafka.server.KafkaBroker;
import kafka.server.KafkaConfig;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.test.ClusterInstance;

/**
 * Runs one test of an integration test class of Kafka on a cluster that runs elsewhere.
 *
 * Arguments: class, test, addresses of brokers, of controllers, ids of controllers, and for each
 * broker its id and its property file. To stop or start a broker it prints "stop 0" or "start 0"
 * and waits for a line on its standard input. The last line is "passed" or "failed".
 */
public final class KafkaSuite {
    private static final BufferedReader INPUT = new BufferedReader(new InputStreamReader(System.in));

    public static void main(String[] arguments) throws Exception {
        Set<Integer> controllerIds = new TreeSet<>();
        for (String id : arguments[4].split(",")) {
            controllerIds.add(Integer.parseInt(id));
        }
        Map<Integer, KafkaBroker> brokers = new TreeMap<>();
        for (int i = 5; i < arguments.length; i++) {
            String[] parts = arguments[i].split("=", 2);
            int id = Integer.parseInt(parts[0]);
            brokers.put(id, broker(id, parts[1]));
        }
        try {
            Class<?> suite = Class.forName(arguments[0]);
            ClusterInstance cluster = cluster(arguments[2], arguments[3], controllerIds, brokers);
            Object test = suite.getConstructor(ClusterInstance.class).newInstance(cluster);
            suite.getMethod("setup").invoke(test);
            suite.getMethod(arguments[1]).invoke(test);
        } catch (InvocationTargetException failure) {
            failure.getCause().printStackTrace();
            System.out.println("failed");
            System.exit(1);
        }
        System.out.println("passed");
        System.exit(0);
    }

    private static ClusterInstance cluster(
            String servers, String controllers, Set<Integer> controllerIds, Map<Integer, KafkaBroker> brokers) {
        return fake(ClusterInstance.class, (proxy, method, given) -> {
            switch (method.getName()) {
                case "brokers":
                    return brokers;
                case "brokerIds":
                    return brokers.keySet();
                case "controllerIds":
                    return controllerIds;
                case "bootstrapServers":
                    return servers;
                case "bootstrapControllers":
                    return controllers;
                case "admin":
                    boolean direct = given != null && given.length == 2 && (Boolean) given[1];
                    Map<String, Object> settings = new HashMap<>();
                    settings.put(direct ? "bootstrap.controllers" : "bootstrap.servers", direct ? controllers : servers);
                    return Admin.create(settings);
                default:
                    if (method.isDefault()) {
                        return InvocationHandler.invokeDefault(proxy, method, given);
                    }
                    throw new UnsupportedOperationException("cluster: " + method);
            }
        });
    }

    private static KafkaBroker broker(int id, String file) throws Exception {
        Properties properties = new Properties();
        try (Reader reader = new FileReader(file)) {
            properties.load(reader);
        }
        KafkaConfig config = new KafkaConfig(properties, false);
        return fake(KafkaBroker.class, (proxy, method, given) -> {
            switch (method.getName()) {
                case "config":
                    return config;
                case "shutdown":
                    return ask("stop " + id);
                case "startup":
                    return ask("start " + id);
                case "awaitShutdown":
                    return null;
                default:
                    throw new UnsupportedOperationException("broker: " + method);
            }
        });
    }

    private static Object ask(String what) throws Exception {
        System.out.println(what);
        INPUT.readLine();
        return null;
    }

    private static <T> T fake(Class<T> type, InvocationHandler handler) {
        Object made = Proxy.newProxyInstance(KafkaSuite.class.getClassLoader(), new Class<?>[] {type}, handler);
        return type.cast(made);
    }
}
