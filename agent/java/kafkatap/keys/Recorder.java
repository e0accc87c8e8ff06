package kafkatap.keys;

import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Writes secrets to a named pipe, as lines of a key log, from a thread of its own: threads of Kafka never wait for it.
 * It ends by `stop`, after its time, or when nobody reads the pipe any more.
 */
final class Recorder implements Runnable {
    private static final int MOST_WAITING = 65_536;

    private final BlockingQueue<String> waiting = new ArrayBlockingQueue<>(MOST_WAITING);
    private final AtomicLong missed = new AtomicLong();
    private final FileOutputStream pipe;
    private final long end;
    private final Peers peers;
    private final Handshakes handshakes;
    private final OpenConnections connections;
    private final Thread thread = new Thread(this, "kafkatap-keys");
    private volatile boolean isOn = true;
    private volatile String problem = "";

    Recorder(String pipe, long seconds, Peers peers) throws ReflectiveOperationException, IOException {
        this.pipe = new FileOutputStream(pipe);
        this.peers = peers;
        end = System.nanoTime() + TimeUnit.SECONDS.toNanos(seconds);
        handshakes = new Handshakes(this);
        connections = new OpenConnections(this, peers);
        thread.setDaemon(true);
    }

    void start() throws ReflectiveOperationException {
        handshakes.begin();
        thread.start();
    }

    /** Whether secrets are wanted. The first call after the end of its time ends all. */
    boolean isOn() {
        if (isOn && System.nanoTime() - end > 0) {
            end();
        }
        return isOn;
    }

    private void end() {
        isOn = false;
        handshakes.end();
    }

    void stop() throws InterruptedException {
        end();
        thread.join(5_000);
    }

    /** Add a line for an owner. `peer`: its connection is with this host; null if that has been looked at. */
    void add(String label, byte[] owner, byte[] secret, String peer) {
        if (secret == null) {
            missed.incrementAndGet();
        } else if (!waiting.offer((peer == null ? "" : peer) + " " + label + " " + hex(owner) + " " + hex(secret))) {
            missed.incrementAndGet();
        }
    }

    void miss(Throwable why) {
        missed.incrementAndGet();
        problem = why.toString();
    }

    @Override
    public void run() {
        try (FileOutputStream out = pipe) {
            write(out, "# open " + connections.write());
            long looked = System.nanoTime();
            boolean hasLookedAgain = false;
            while (isOn() || !waiting.isEmpty()) {
                String line = waiting.poll(isOn ? 500 : 0, TimeUnit.MILLISECONDS);
                if (line == null) {
                    write(out, "");
                } else {
                    int space = line.indexOf(' ');
                    if (space == 0 || peers.has(line.substring(0, space))) {
                        write(out, line.substring(space + 1));
                    }
                }
                if (!hasLookedAgain && System.nanoTime() - looked > 2_000_000_000L) {
                    hasLookedAgain = true;
                    write(out, "# more " + connections.write());
                }
            }
            write(out, "# missed " + missed + " " + problem.replace('\n', ' '));
            write(out, "# end");
        } catch (IOException closed) {
            // nobody reads any more
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        } finally {
            end();
        }
    }

    /** Write why nothing begins. */
    static void tell(String pipe, String problem) throws IOException {
        try (FileOutputStream out = new FileOutputStream(pipe)) {
            write(out, "# error " + problem.replace('\n', ' '));
        }
    }

    private static void write(FileOutputStream out, String line) throws IOException {
        out.write((line + "\n").getBytes(StandardCharsets.US_ASCII));
    }

    private static String hex(byte[] bytes) {
        StringBuilder text = new StringBuilder(2 * bytes.length);
        for (byte each : bytes) {
            text.append(Character.forDigit((each >> 4) & 15, 16)).append(Character.forDigit(each & 15, 16));
        }
        return text.toString();
    }
}
