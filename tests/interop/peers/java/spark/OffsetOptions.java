import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import org.apache.spark.sql.catalyst.util.CaseInsensitiveMap;
import org.apache.spark.sql.kafka010.EarliestOffsetRangeLimit$;
import org.apache.spark.sql.kafka010.KafkaSourceProvider$;
import scala.collection.immutable.Map;
import scala.collection.immutable.Map$;

/** Reads lines "option value" and prints how Spark's kafka source understands each, or "refused". */
public class OffsetOptions {
    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        BufferedReader in =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            int blank = line.indexOf(' ');
            out.println(limit(line.substring(0, blank), line.substring(blank + 1)));
        }
    }

    private static String limit(String option, String value) {
        Map<String, String> options = Map$.MODULE$.<String, String>empty().updated(option, value);
        try {
            return KafkaSourceProvider$.MODULE$
                    .getKafkaOffsetRangeLimit(
                            new CaseInsensitiveMap<String>(options),
                            "startingtimestamp",
                            "startingoffsetsbytimestamp",
                            "startingoffsets",
                            EarliestOffsetRangeLimit$.MODULE$)
                    .toString();
        } catch (IllegalArgumentException refused) {
            return "refused";
        }
    }
}
