/**
 * A tool that leaves a thread behind, as tools do that fail before they close their client.
 *
 * The first call starts the thread; the second lets it write to standard error, waits for its end,
 * and writes a line of its own.
 */
public final class LateWriter {
    private static Thread leftBehind;

    public static void main(String[] arguments) throws InterruptedException {
        if (leftBehind == null) {
            leftBehind = new Thread(LateWriter::writeLate, "left-behind");
            leftBehind.start();
            return;
        }
        leftBehind.interrupt();
        leftBehind.join();
        System.err.println("of the second call");
    }

    private static void writeLate() {
        try {
            Thread.sleep(Long.MAX_VALUE);
        } catch (InterruptedException allowed) {
            System.err.println("of the thread that the first call left behind");
        }
    }
}
