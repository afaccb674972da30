import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.InputStream;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs the main methods of many tools in one virtual machine.
 *
 * A request on standard input is a count and that many strings (main class first); an answer on the
 * original standard output is the exit code and what the tool wrote to its two streams. Strings are
 * a 4-byte length and UTF-8.
 */
public final class ToolServer {
    private static final class ExitRequested extends Error {
        final int code;

        ExitRequested(int code) {
            super("exit " + code, null, false, false);
            this.code = code;
        }
    }

    private static volatile Integer exitCode;

    private static void stop(int code) {
        if (exitCode == null) {
            exitCode = code;
        }
        throw new ExitRequested(code);
    }

    public static void main(String[] arguments) throws Exception {
        DataInputStream requests = new DataInputStream(System.in);
        DataOutputStream answers = new DataOutputStream(new java.io.FileOutputStream(java.io.FileDescriptor.out));
        System.setIn(InputStream.nullInputStream());
        Exit.setExitProcedure((code, message) -> stop(code));
        Exit.setHaltProcedure((code, message) -> stop(code));
        while (true) {
            int count;
            try {
                count = requests.readInt();
            } catch (java.io.EOFException end) {
                Runtime.getRuntime().halt(0);
                return;
            }
            String[] words = new String[count];
            for (int i = 0; i < count; i++) {
                byte[] bytes = new byte[requests.readInt()];
                requests.readFully(bytes);
                words[i] = new String(bytes, StandardCharsets.UTF_8);
            }
            answer(words, answers);
        }
    }

    private static void answer(String[] words, DataOutputStream answers) throws Exception {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        ByteArrayOutputStream err = new ByteArrayOutputStream();
        PrintStream outStream = new PrintStream(out, true, StandardCharsets.UTF_8);
        PrintStream errStream = new PrintStream(err, true, StandardCharsets.UTF_8);
        System.setOut(outStream);
        System.setErr(errStream);
        exitCode = null;
        int code = call(words, errStream);
        outStream.flush();
        errStream.flush();
        answers.writeInt(exitCode == null ? code : exitCode);
        for (byte[] bytes : new byte[][] {out.toByteArray(), err.toByteArray()}) {
            answers.writeInt(bytes.length);
            answers.write(bytes);
        }
        answers.flush();
    }

    private static int call(String[] words, PrintStream err) {
        try {
            Class<?> tool = Class.forName(words[0]);
            String[] rest = java.util.Arrays.copyOfRange(words, 1, words.length);
            tool.getMethod("main", String[].class).invoke(null, (Object) rest);
            return 0;
        } catch (InvocationTargetException failure) {
            if (failure.getCause() instanceof ExitRequested exit) {
                return exit.code;
            }
            StringWriter text = new StringWriter();
            failure.getCause().printStackTrace(new PrintWriter(text));
            err.print(text);
            return 1;
        } catch (ReflectiveOperationException failure) {
            err.println(failure);
            return 127;
        }
    }
}
