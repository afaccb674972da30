import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.function.Function;
// Releases from 4.4 have the class Exit in the second package, older ones in the first.
import org.apache.kafka.common.utils.*;
import org.apache.kafka.common.utils.internals.*;

/**
 * Runs the main methods of many tools in one virtual machine.
 *
 * A request on standard input is a count and that many strings (main class first); an answer on the
 * original standard output is the exit code and what the tool wrote to its two streams. Strings are
 * a 4-byte length and UTF-8.
 *
 * Each tool runs in a thread group of its own, which the threads that it starts inherit: a client
 * that a tool leaves open goes on logging, and none of that belongs to the answers of later tools.
 */
public final class ToolServer {
    private static final class ExitRequested extends Error {
        final int code;

        ExitRequested(int code) {
            super("exit " + code, null, false, false);
            this.code = code;
        }
    }

    /** One tool that runs or has run, and what its threads write. */
    private static final class Run extends ThreadGroup {
        final ByteArrayOutputStream out = new ByteArrayOutputStream();
        final ByteArrayOutputStream err = new ByteArrayOutputStream();
        volatile Integer exitCode;

        Run() {
            super("run");
        }

        void stop(int code) {
            if (exitCode == null) {
                exitCode = code;
            }
            throw new ExitRequested(code);
        }
    }

    /** A stream of the process: each write goes to the run of the thread that writes. */
    private static final class RoutedStream extends OutputStream {
        private final Function<Run, OutputStream> streamOfRun;

        RoutedStream(Function<Run, OutputStream> streamOfRun) {
            this.streamOfRun = streamOfRun;
        }

        @Override
        public void write(int value) throws IOException {
            streamOfRun.apply(runOfThisThread()).write(value);
        }

        @Override
        public void write(byte[] bytes, int offset, int length) throws IOException {
            streamOfRun.apply(runOfThisThread()).write(bytes, offset, length);
        }
    }

    private static volatile Run latestRun;

    /** Threads of pools that the process shares belong to no run: they work for the latest one. */
    private static Run runOfThisThread() {
        ThreadGroup group = Thread.currentThread().getThreadGroup();
        while (group != null) {
            if (group instanceof Run run) {
                return run;
            }
            group = group.getParent();
        }
        return latestRun;
    }

    public static void main(String[] arguments) throws Exception {
        DataInputStream requests = new DataInputStream(System.in);
        DataOutputStream answers = new DataOutputStream(new java.io.FileOutputStream(java.io.FileDescriptor.out));
        System.setIn(InputStream.nullInputStream());
        Exit.setExitProcedure((code, message) -> runOfThisThread().stop(code));
        Exit.setHaltProcedure((code, message) -> runOfThisThread().stop(code));
        System.setOut(new PrintStream(new RoutedStream(run -> run.out), true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(new RoutedStream(run -> run.err), true, StandardCharsets.UTF_8));
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
        Run run = new Run();
        latestRun = run;
        int[] code = new int[1];
        Thread tool = new Thread(run, () -> code[0] = call(words), "main");
        tool.start();
        tool.join();
        System.out.flush();
        System.err.flush();
        answers.writeInt(run.exitCode == null ? code[0] : run.exitCode);
        for (byte[] bytes : new byte[][] {run.out.toByteArray(), run.err.toByteArray()}) {
            answers.writeInt(bytes.length);
            answers.write(bytes);
        }
        answers.flush();
    }

    private static int call(String[] words) {
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
            System.err.print(text);
            return 1;
        } catch (ReflectiveOperationException failure) {
            System.err.println(failure);
            return 127;
        }
    }
}
