package kafkatap.keys;

import java.io.FileOutputStream;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;

/**
 * The named pipe that kafkatap reads, in a folder of this JVM's user that nobody else can enter. Anything else is refused:
 * another user may have made it. Opening never waits, also if nobody reads any more; then the first write fails.
 */
final class Pipe implements AutoCloseable {
    private static final int TYPE = 0170000;
    private static final int FIFO = 0010000;
    private static final int FOLDER = 0040000;

    private final Path folder;
    private final Path path;
    private final FileOutputStream out;
    private boolean isKept;

    Pipe(Path folder) throws IOException {
        this.folder = folder;
        path = folder.resolve("pipe");
        Object user = Files.getAttribute(Path.of("/proc/self"), "unix:uid");
        check(folder, FOLDER, user);
        check(path, FIFO, user);
        RandomAccessFile reader = new RandomAccessFile(path.toFile(), "rw"); // with one, opening does not wait
        try {
            out = new FileOutputStream(path.toFile());
        } finally {
            reader.close();
        }
    }

    private static void check(Path path, int type, Object user) throws IOException {
        int mode = (int) Files.getAttribute(path, "unix:mode", LinkOption.NOFOLLOW_LINKS);
        boolean isOwn = Files.getAttribute(path, "unix:uid", LinkOption.NOFOLLOW_LINKS).equals(user);
        if ((mode & TYPE) != type || (mode & 077) != 0 || !isOwn) {
            throw new IOException(path + " is not what kafkatap made");
        }
    }

    /** Whether kafkatap still wants lines: it removes the name of the pipe at the end. */
    boolean isWanted() {
        return Files.exists(path, LinkOption.NOFOLLOW_LINKS);
    }

    void write(String line) throws IOException {
        out.write((line + "\n").getBytes(StandardCharsets.US_ASCII));
    }

    /** Stay open after `close`. */
    void keep() {
        isKept = true;
    }

    @Override
    public void close() throws IOException {
        if (!isKept) {
            out.close();
        }
    }

    /** Close it, and remove what is left of the folder. */
    void end() {
        isKept = false;
        try {
            close();
            for (Path each : new Path[] {path, folder.resolve("agent.jar"), folder}) {
                Files.deleteIfExists(each);
            }
        } catch (IOException left) {
            // kafkatap removes it
        }
    }
}
