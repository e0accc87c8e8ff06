package kafkatap.keys;

import java.lang.management.ManagementFactory;
import java.lang.reflect.Field;
import java.net.InetSocketAddress;
import java.nio.channels.SocketChannel;
import java.security.MessageDigest;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.Deque;
import java.util.HashMap;
import java.util.HashSet;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.locks.ReadWriteLock;
import javax.crypto.SecretKey;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLEngineResult.HandshakeStatus;

/**
 * Reads the secrets of the connections that are open: Kafka's Selectors have their channels, a channel its SSLEngine, and
 * Java's engine keeps the secret of each direction for key updates. Selectors are found from the threads that use them
 * and from their metrics.
 */
final class OpenConnections {
    private static final int DEPTH = 8;
    private static final int MOST = 200_000;

    private final Recorder recorder;
    private final Peers peers;
    private final Map<Class<?>, List<Field>> references = new HashMap<>();
    private final Set<String> known = new HashSet<>();

    OpenConnections(Recorder recorder, Peers peers) {
        this.recorder = recorder;
        this.peers = peers;
    }

    /** The lines of one connection. */
    static final class Secrets {
        final List<String> lines = new ArrayList<>();
    }

    /** The secrets of the connections that were not read before. */
    List<Secrets> read() {
        List<Secrets> found = new ArrayList<>();
        for (Object selector : selectors()) {
            for (String name : List.of("channels", "closingChannels")) {
                for (Object channel : channels(selector, name)) {
                    try {
                        Secrets secrets = read(Fields.get(channel, "transportLayer"));
                        if (secrets != null) {
                            found.add(secrets);
                        }
                    } catch (Throwable problem) {
                        recorder.miss(problem);
                    }
                }
            }
        }
        return found;
    }

    /** The channels of a selector, which its thread may change meanwhile. */
    private Collection<?> channels(Object selector, String name) {
        for (int attempt = 0; attempt < 100; attempt++) {
            try {
                return new ArrayList<>(((Map<?, ?>) Fields.get(selector, name)).values());
            } catch (java.util.ConcurrentModificationException again) {
                Thread.yield();
            } catch (ReflectiveOperationException problem) {
                recorder.miss(problem);
                break;
            }
        }
        return List.of();
    }

    private Secrets read(Object layer) throws Exception {
        if (!layer.getClass().getName().endsWith(".SslTransportLayer")) {
            return null;
        }
        SSLEngine engine = (SSLEngine) Fields.get(layer, "sslEngine");
        SocketChannel socket = (SocketChannel) Fields.get(layer, "socketChannel");
        InetSocketAddress local = (InetSocketAddress) socket.getLocalAddress();
        InetSocketAddress remote = (InetSocketAddress) socket.getRemoteAddress();
        // A handshake that is under way is seen by Handshakes, or is over when this is called again.
        if (engine.getHandshakeStatus() != HandshakeStatus.NOT_HANDSHAKING || !peers.has(remote.getAddress())) {
            return null;
        }
        byte[] owner = owner(local, remote);
        if (!known.add(Arrays.toString(owner))) {
            return null;
        }
        Secrets found = new Secrets();
        if (engine.getSession().getProtocol().equals("TLSv1.2")) {
            add(found, "CLIENT_RANDOM", owner, Fields.get(engine, "conContext.conSession.masterSecret"));
        } else {
            boolean isClient = engine.getUseClientMode();
            Object read = Fields.get(engine, "conContext.inputRecord.readCipher.baseSecret");
            Object write = Fields.get(engine, "conContext.outputRecord.writeCipher.baseSecret");
            add(found, "CLIENT_TRAFFIC_SECRET_0", owner, isClient ? write : read);
            add(found, "SERVER_TRAFFIC_SECRET_0", owner, isClient ? read : write);
        }
        return found;
    }

    private void add(Secrets found, String label, byte[] owner, Object secret) {
        byte[] encoded = secret == null ? null : ((SecretKey) secret).getEncoded();
        if (encoded == null) {
            recorder.miss(new IllegalStateException("a secret of an open connection cannot be read"));
        } else {
            found.lines.add(Recorder.line(label, owner, encoded));
        }
    }

    /**
     * What stands in place of the client random, which the JVM has forgotten: "kafkatap", then the beginning of the
     * SHA-256 of both ends, the lower one first; an end is an address of 16 bytes (IPv4 as ::ffff:a.b.c.d) and a port.
     */
    private static byte[] owner(InetSocketAddress local, InetSocketAddress remote) throws Exception {
        byte[] a = end(local);
        byte[] b = end(remote);
        boolean isLower = Arrays.compareUnsigned(a, b) <= 0;
        MessageDigest digest = MessageDigest.getInstance("SHA-256");
        digest.update(isLower ? a : b);
        byte[] hash = digest.digest(isLower ? b : a);
        byte[] owner = Arrays.copyOf("kafkatap".getBytes("US-ASCII"), 32);
        System.arraycopy(hash, 0, owner, 8, 24);
        return owner;
    }

    private static byte[] end(InetSocketAddress socket) {
        byte[] address = socket.getAddress().getAddress();
        byte[] end = new byte[18];
        System.arraycopy(address, 0, end, 16 - address.length, address.length);
        if (address.length == 4) {
            end[10] = end[11] = (byte) 0xff;
        }
        end[16] = (byte) (socket.getPort() >> 8);
        end[17] = (byte) socket.getPort();
        return end;
    }

    /** Kafka's Selectors that threads and metrics lead to. */
    private Collection<Object> selectors() {
        Set<Object> seen = Collections.newSetFromMap(new IdentityHashMap<>());
        Set<Object> found = Collections.newSetFromMap(new IdentityHashMap<>());
        Collection<Object> near = roots();
        for (int depth = 0; depth < DEPTH && seen.size() < MOST; depth++) {
            Deque<Object> next = new ArrayDeque<>();
            for (Object object : near) {
                if (!seen.add(object)) {
                    continue;
                }
                if (object.getClass().getName().endsWith(".common.network.Selector")) {
                    found.add(object);
                    continue;
                }
                for (Field field : references.computeIfAbsent(object.getClass(), Fields::references)) {
                    try {
                        Object value = field.get(object);
                        if (value != null && isFollowed(value)) {
                            next.add(value);
                        }
                    } catch (IllegalAccessException closed) {
                        // holds nothing that is looked for
                    }
                }
            }
            near = next;
        }
        return found;
    }

    private static boolean isFollowed(Object value) {
        String name = value.getClass().getName();
        return !value.getClass().isEnum() && !value.getClass().isArray()
            && (name.contains("kafka") || name.startsWith("java.lang.Thread$"));
    }

    private Collection<Object> roots() {
        List<Object> found = new ArrayList<>();
        ThreadGroup group = Thread.currentThread().getThreadGroup();
        while (group.getParent() != null) {
            group = group.getParent();
        }
        Thread[] threads = new Thread[2 * group.activeCount() + 64];
        Collections.addAll(found, Arrays.copyOf(threads, group.enumerate(threads)));
        try {
            found.addAll(connectionMetrics());
        } catch (Throwable problem) {
            recorder.miss(problem);
        }
        return found;
    }

    /** The metrics that count the connections of Selectors, as registered for JMX. Each leads to its Selector. */
    private List<Object> connectionMetrics() throws ReflectiveOperationException {
        Object repository = Fields.get(ManagementFactory.getPlatformMBeanServer(), "mbsInterceptor.repository");
        ReadWriteLock lock = (ReadWriteLock) Fields.get(repository, "lock");
        List<Object> beans = new ArrayList<>();
        lock.readLock().lock();
        try {
            for (Object domain : ((Map<?, ?>) Fields.get(repository, "domainTb")).values()) {
                for (Object named : ((Map<?, ?>) domain).values()) {
                    beans.add(Fields.get(named, "object"));
                }
            }
        } finally {
            lock.readLock().unlock();
        }
        List<Object> found = new ArrayList<>();
        for (Object bean : beans) {
            if (bean != null && bean.getClass().getName().endsWith(".JmxReporter$KafkaMbean")) {
                Object metric = ((Map<?, ?>) Fields.get(bean, "metrics")).get("connection-count");
                if (metric != null) {
                    found.add(metric);
                }
            }
        }
        return found;
    }
}
