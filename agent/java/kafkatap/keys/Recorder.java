package kafkatap.keys;

import java.io.IOException;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Writes secrets to a pipe, as lines of a key log, from a thread of its own: threads of Kafka never wait for it. It ends
 * after its time, when kafkatap removes the pipe's name, and when nobody reads the pipe any more.
 */
final class Recorder implements Runnable {
    private static final int MOST_WAITING = 65_536;
    private static final long OFTEN = TimeUnit.MILLISECONDS.toNanos(400);
    private static final long AGAIN = TimeUnit.SECONDS.toNanos(2);

    private final BlockingQueue<String> waiting = new ArrayBlockingQueue<>(MOST_WAITING);
    private final AtomicLong missed = new AtomicLong();
    private final Pipe pipe;
    private final long end;
    private final Peers peers;
    private final Handshakes handshakes;
    private final OpenConnections connections;
    private final Thread thread = new Thread(this, "kafkatap-keys");
    private volatile boolean isOn = true;
    private volatile String problem = "";

    Recorder(Pipe pipe, long seconds, Peers peers) throws ReflectiveOperationException {
        this.pipe = pipe;
        this.peers = peers;
        end = System.nanoTime() + TimeUnit.SECONDS.toNanos(seconds);
        handshakes = new Handshakes(this);
        connections = new OpenConnections(this, peers);
        thread.setDaemon(true);
    }

    void start() throws ReflectiveOperationException {
        try {
            handshakes.begin();
            thread.start();
        } catch (Throwable impossible) {
            end();
            throw impossible;
        }
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

    /** Add a line of a new connection with a peer. */
    void add(String label, byte[] random, byte[] secret, String peer) {
        if (secret == null || !waiting.offer(peer + " " + line(label, random, secret))) {
            missed.incrementAndGet();
        }
    }

    static String line(String label, byte[] owner, byte[] secret) {
        return label + " " + hex(owner) + " " + hex(secret);
    }

    void miss(Throwable why) {
        missed.incrementAndGet();
        problem = why.toString();
    }

    @Override
    public void run() {
        try {
            writeOpen("open");
            long began = System.nanoTime();
            long looked = began;
            boolean hasReadAgain = false;
            while (isOn() || !waiting.isEmpty()) {
                String line = waiting.poll(isOn ? 500 : 0, TimeUnit.MILLISECONDS);
                if (line != null) {
                    int space = line.indexOf(' ');
                    if (peers.has(line.substring(0, space))) {
                        pipe.write(line.substring(space + 1));
                    }
                }
                long now = System.nanoTime();
                if (now - looked >= OFTEN) {
                    looked = now;
                    pipe.write("");
                    if (!pipe.isWanted()) {
                        end();
                    }
                }
                if (!hasReadAgain && now - began > AGAIN) {
                    hasReadAgain = true;
                    writeOpen("more");
                }
            }
            pipe.write("# missed " + missed + " " + problem.replace('\n', ' '));
            pipe.write("# end");
        } catch (IOException closed) {
            // nobody reads any more
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        } finally {
            end();
            waiting.clear();
            Agent.forget(this);
            pipe.end();
        }
    }

    private void writeOpen(String word) throws IOException {
        int count = 0;
        for (OpenConnections.Secrets found : connections.read()) {
            for (String line : found.lines) {
                pipe.write(line);
            }
            count++;
        }
        pipe.write("# " + word + " " + count);
    }

    private static String hex(byte[] bytes) {
        StringBuilder text = new StringBuilder(2 * bytes.length);
        for (byte each : bytes) {
            text.append(Character.forDigit((each >> 4) & 15, 16)).append(Character.forDigit(each & 15, 16));
        }
        return text.toString();
    }
}
