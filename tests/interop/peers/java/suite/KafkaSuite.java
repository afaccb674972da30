import java.io.BufferedReader;
import java.io.FileReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.Reader;
import java.lang.annotation.Annotation;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Parameter;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.Collection;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.stream.Collectors;
import kafka.network.SocketServer;
import kafka.server.KafkaBroker;
import kafka.server.KafkaConfig;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.GroupProtocol;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.test.ClusterInstance;
import org.apache.kafka.common.test.api.ClusterConfigProperty;
import org.apache.kafka.common.test.api.ClusterTest;
import org.apache.kafka.common.test.api.ClusterTestDefaults;
import org.apache.kafka.test.TestUtils;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import sun.misc.Unsafe;

/**
 * Runs tests of Kafka's integration test classes on clusters that run elsewhere.
 *
 * Every line of the standard input is a command, with tabs between its words:
 * "list CLASS" prints each test with a cluster, its number of brokers and its broker keys
 * (with "ID:" before the key if it is for one broker);
 * "run CLASS TEST BROKERS CONTROLLERS CONTROLLER_IDS ID=FILE..." runs one test, with the addresses
 * of brokers and controllers and the property file of each broker. To stop or start a broker it
 * prints "stop 0" or "start 0" and waits for a line. The last line of an answer is "passed",
 * "failed" or "listed".
 */
public final class KafkaSuite {
    private static final BufferedReader INPUT = new BufferedReader(new InputStreamReader(System.in));
    /** Some tests replace System.out for a while. */
    private static final PrintStream OUTPUT = System.out;

    public static void main(String[] arguments) throws Exception {
        String line;
        while ((line = INPUT.readLine()) != null) {
            String[] words = line.split("\t");
            OUTPUT.println(words[0].equals("list") ? list(words[1]) : run(words));
            OUTPUT.flush();
        }
        System.exit(0);
    }

    private static String list(String name) throws Exception {
        Class<?> suite = Class.forName(name);
        ClusterTestDefaults defaults = suite.getAnnotation(ClusterTestDefaults.class);
        for (Method method : suite.getDeclaredMethods()) {
            ClusterTest test = method.getAnnotation(ClusterTest.class);
            if (test == null) {
                continue;
            }
            Map<String, String> keys = new LinkedHashMap<>();
            if (defaults != null) {
                add(keys, defaults.serverProperties());
            }
            add(keys, test.serverProperties());
            int brokers = Math.max(test.brokers(), defaults == null ? 1 : defaults.brokers());
            StringBuilder text = new StringBuilder(method.getName() + "\t" + Math.max(1, brokers));
            keys.forEach((key, value) -> text.append('\t').append(key).append('=').append(value));
            OUTPUT.println(text);
        }
        return "listed";
    }

    private static void add(Map<String, String> keys, ClusterConfigProperty[] properties) {
        for (ClusterConfigProperty each : properties) {
            keys.put(each.id() < 0 ? each.key() : each.id() + ":" + each.key(), each.value());
        }
    }

    private static String run(String[] words) throws Exception {
        Set<Integer> controllerIds = new TreeSet<>();
        for (String id : words[5].split(",")) {
            controllerIds.add(Integer.parseInt(id));
        }
        Map<Integer, KafkaBroker> brokers = new TreeMap<>();
        Set<Integer> alive = new TreeSet<>();
        for (int i = 6; i < words.length; i++) {
            String[] parts = words[i].split("=", 2);
            int id = Integer.parseInt(parts[0]);
            brokers.put(id, broker(id, parts[1], alive));
        }
        try {
            Class<?> suite = Class.forName(words[1]);
            alive.addAll(brokers.keySet());
            ClusterInstance cluster = cluster(words[3], words[4], controllerIds, brokers, alive);
            Constructor<?> constructor = suite.getDeclaredConstructors()[0];
            constructor.setAccessible(true);
            Object test = constructor.newInstance(given(constructor.getParameters(), cluster));
            try {
                callAnnotated(test, BeforeEach.class, cluster);
                call(test, method(suite, words[2]), cluster);
            } finally {
                callAnnotated(test, AfterEach.class, cluster);
            }
        } catch (InvocationTargetException failure) {
            failure.getCause().printStackTrace(OUTPUT);
            return "failed";
        }
        return "passed";
    }

    private static void callAnnotated(Object test, Class<? extends Annotation> annotation, ClusterInstance cluster)
            throws Exception {
        for (Method method : test.getClass().getDeclaredMethods()) {
            if (method.isAnnotationPresent(annotation)) {
                call(test, method, cluster);
            }
        }
    }

    private static void call(Object test, Method method, ClusterInstance cluster) throws Exception {
        method.setAccessible(true);
        method.invoke(test, given(method.getParameters(), cluster));
    }

    /** Return the test of that name; a suite may have another method of the same name. */
    private static Method method(Class<?> suite, String name) {
        for (Method method : suite.getDeclaredMethods()) {
            boolean isTest = true;
            for (Class<?> type : method.getParameterTypes()) {
                isTest &= type == ClusterInstance.class;
            }
            if (isTest && method.getName().equals(name)) {
                return method;
            }
        }
        throw new IllegalArgumentException(suite + " has no test " + name);
    }

    private static Object[] given(Parameter[] parameters, ClusterInstance cluster) {
        List<Object> values = new ArrayList<>();
        for (Parameter parameter : parameters) {
            if (parameter.getType() != ClusterInstance.class) {
                throw new IllegalArgumentException("parameter: " + parameter);
            }
            values.add(cluster);
        }
        return values.toArray();
    }

    @SuppressWarnings("unchecked")
    private static ClusterInstance cluster(
            String servers,
            String controllers,
            Set<Integer> controllerIds,
            Map<Integer, KafkaBroker> brokers,
            Set<Integer> alive) {
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
                case "supportedGroupProtocols":
                    return EnumSet.allOf(GroupProtocol.class);
                case "firstFatalException":
                case "firstNonFatalException":
                    return Optional.empty();
                case "setClientSaslConfig":
                    return given[0];
                case "shutdownBroker":
                    return stop((Integer) given[0], alive);
                case "startBroker":
                    return start((Integer) given[0], alive);
                case "brokerBoundPorts":
                    return ports(servers);
                case "controllerBoundPorts":
                    return ports(controllers);
                case "clientListener":
                    return new ListenerName("PLAINTEXT");
                case "controllerListenerName":
                    return new ListenerName("CONTROLLER");
                case "clusterId":
                    try (Admin admin = Admin.create(Map.of("bootstrap.servers", servers))) {
                        return admin.describeCluster().clusterId().get();
                    }
                case "waitForReadyBrokers":
                    waitForBrokers(servers, alive);
                    return null;
                case "ensureConsistentMetadata":
                    waitForBrokers(servers, alive);
                    return null;
                case "admin":
                    boolean direct = given != null && given.length == 2 && (Boolean) given[1];
                    Map<String, Object> settings = new HashMap<>();
                    if (given != null) {
                        settings.putAll((Map<String, Object>) given[0]);
                    }
                    settings.put(direct ? "bootstrap.controllers" : "bootstrap.servers", direct ? controllers : servers);
                    return Admin.create(settings);
                case "createTopic":
                    createTopic(servers, alive, given);
                    return null;
                case "createTopicWithAssignment":
                    String name = (String) given[0];
                    Map<Integer, List<Integer>> places = (Map<Integer, List<Integer>>) given[1];
                    try (Admin admin = Admin.create(Map.of("bootstrap.servers", servers))) {
                        admin.createTopics(List.of(new NewTopic(name, places))).all().get();
                    }
                    waitForTopic(servers, alive, name, places.size());
                    return null;
                case "waitTopicDeletion":
                    waitForNoTopic(servers, alive, (String) given[0]);
                    return null;
                case "waitTopicCreation":
                    waitForTopic(servers, alive, (String) given[0], (Integer) given[1]);
                    return null;
                case "waitAcls":
                    AclBindingFilter filter = (AclBindingFilter) given[0];
                    Set<AccessControlEntry> wanted = Set.copyOf((Collection<AccessControlEntry>) given[1]);
                    waitForAcls(Map.of("bootstrap.servers", servers), filter, wanted);
                    waitForAcls(Map.of("bootstrap.controllers", controllers), filter, wanted);
                    return null;
                default:
                    if (method.isDefault()) {
                        return InvocationHandler.invokeDefault(proxy, method, given);
                    }
                    throw new UnsupportedOperationException("cluster: " + method);
            }
        });
    }

    @SuppressWarnings("unchecked")
    private static void createTopic(String servers, Set<Integer> alive, Object[] given) throws Exception {
        NewTopic topic = new NewTopic((String) given[0], (Integer) given[1], (Short) given[2]);
        if (given.length == 4) {
            topic.configs((Map<String, String>) given[3]);
        }
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", servers))) {
            admin.createTopics(List.of(topic)).all().get();
        }
        waitForTopic(servers, alive, topic.name(), topic.numPartitions());
    }

    /** Waits until every broker that runs knows the topic; the addresses are in the order of ids. */
    private static void waitForTopic(String servers, Set<Integer> alive, String name, int partitions) throws Exception {
        String[] addresses = servers.split(",");
        for (int id : alive) {
            if (id >= addresses.length) {
                continue;
            }
            try (Admin admin = Admin.create(Map.of("bootstrap.servers", addresses[id]))) {
                TestUtils.waitForCondition(() -> {
                    try {
                        TopicDescription found = admin.describeTopics(List.of(name)).allTopicNames().get().get(name);
                        return found.partitions().size() == partitions
                            && found.partitions().stream().allMatch(p -> p.leader() != null);
                    } catch (java.util.concurrent.ExecutionException notYet) {
                        return false;
                    }
                }, "broker " + id + " does not know " + name);
            }
        }
    }

    /** Waits until the asked node has these entries, and no others. */
    private static void waitForAcls(Map<String, Object> where, AclBindingFilter filter, Set<AccessControlEntry> wanted)
            throws Exception {
        try (Admin admin = Admin.create(where)) {
            TestUtils.waitForCondition(() -> {
                try {
                    return wanted.equals(admin.describeAcls(filter).values().get().stream()
                        .map(AclBinding::entry)
                        .collect(Collectors.toSet()));
                } catch (java.util.concurrent.ExecutionException notYet) {
                    return false;
                }
            }, where + " has not the ACLs " + wanted);
        }
    }

    private static KafkaBroker broker(int id, String file, Set<Integer> alive) throws Exception {
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
                    return stop(id, alive);
                case "startup":
                    return start(id, alive);
                case "isShutdown":
                    return !alive.contains(id);
                case "boundPort":
                    return port(config.getList("listeners").get(0).toString());
                case "socketServer":
                    return BoundPort.of(port(config.getList("listeners").get(0).toString()));
                case "awaitShutdown":
                    return null;
                default:
                    throw new UnsupportedOperationException("broker: " + method);
            }
        });
    }

    /** A server of which only the port is asked. It is made without its constructor, which would open sockets. */
    private static final class BoundPort extends SocketServer {
        private int port;

        private BoundPort() {
            super(null, null, null, null, null, null, null);
        }

        @Override
        public int boundPort(ListenerName listener) {
            return port;
        }

        static SocketServer of(int port) throws Exception {
            Field unsafe = Unsafe.class.getDeclaredField("theUnsafe");
            unsafe.setAccessible(true);
            BoundPort server = (BoundPort) ((Unsafe) unsafe.get(null)).allocateInstance(BoundPort.class);
            server.port = port;
            return server;
        }
    }

    private static Object stop(int id, Set<Integer> alive) throws Exception {
        alive.remove(id);
        return ask("stop " + id);
    }

    private static Object start(int id, Set<Integer> alive) throws Exception {
        alive.add(id);
        return ask("start " + id);
    }

    /** Return the port of the first address. */
    private static int port(String addresses) {
        String first = addresses.split(",")[0];
        return Integer.parseInt(first.substring(first.lastIndexOf(':') + 1));
    }

    private static List<Integer> ports(String addresses) {
        List<Integer> found = new ArrayList<>();
        for (String each : addresses.split(",")) {
            found.add(port(each));
        }
        return found;
    }

    /** Waits until every broker that runs knows all that run, and no others. */
    private static void waitForBrokers(String servers, Set<Integer> alive) throws Exception {
        String[] addresses = servers.split(",");
        for (int id : alive) {
            try (Admin admin = Admin.create(Map.of("bootstrap.servers", addresses[id]))) {
                TestUtils.waitForCondition(() -> alive.equals(admin.describeCluster().nodes().get().stream()
                    .map(Node::id)
                    .collect(Collectors.toSet())), "broker " + id + " does not know the brokers " + alive);
            }
        }
    }

    /** Waits until no broker that runs knows the topic. */
    private static void waitForNoTopic(String servers, Set<Integer> alive, String name) throws Exception {
        String[] addresses = servers.split(",");
        for (int id : alive) {
            try (Admin admin = Admin.create(Map.of("bootstrap.servers", addresses[id]))) {
                TestUtils.waitForCondition(
                    () -> !admin.listTopics().names().get().contains(name), "broker " + id + " still knows " + name);
            }
        }
    }

    private static Object ask(String what) throws Exception {
        OUTPUT.println(what);
        OUTPUT.flush();
        INPUT.readLine();
        return null;
    }

    private static <T> T fake(Class<T> type, InvocationHandler handler) {
        Object made = Proxy.newProxyInstance(KafkaSuite.class.getClassLoader(), new Class<?>[] {type}, handler);
        return type.cast(made);
    }
}
