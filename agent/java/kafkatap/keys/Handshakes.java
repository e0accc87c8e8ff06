package kafkatap.keys;

import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.HashMap;
import java.util.Map;
import javax.crypto.SecretKey;

/**
 * Notes the secrets of handshakes. Java's TLS derives the keys of records from a secret in one place for each version:
 * an object that the enum SSLTrafficKeyDerivation refers to. While this is on, the enum refers to one that notes the
 * secret and calls the first. No class is changed.
 */
final class Handshakes {
    private static final Map<String, String> LABELS = Map.of(
        "TlsClientHandshakeTrafficSecret", "CLIENT_HANDSHAKE_TRAFFIC_SECRET",
        "TlsServerHandshakeTrafficSecret", "SERVER_HANDSHAKE_TRAFFIC_SECRET",
        "TlsClientAppTrafficSecret", "CLIENT_TRAFFIC_SECRET_0",
        "TlsServerAppTrafficSecret", "SERVER_TRAFFIC_SECRET_0");

    private final Recorder recorder;
    private final Field field;
    private final Map<Object, Object> originals = new HashMap<>();
    private final Map<Object, Object> ours = new HashMap<>();

    Handshakes(Recorder recorder) throws ReflectiveOperationException {
        this.recorder = recorder;
        field = Fields.find(Class.forName("sun.security.ssl.SSLTrafficKeyDerivation"), "keyDerivationGenerator");
    }

    void begin() throws ReflectiveOperationException {
        for (Object version : field.getDeclaringClass().getEnumConstants()) {
            String name = version.toString();
            if (name.equals("TLS12") || name.equals("TLS13")) {
                Object original = field.get(version);
                Method derive = field.getType().getMethods()[0];
                derive.setAccessible(true);
                Object mine = Proxy.newProxyInstance(null, new Class<?>[] {field.getType()}, (self, method, arguments) -> {
                    if (method.getDeclaringClass() == Object.class) {
                        return method.invoke(original, arguments);
                    }
                    note(name.equals("TLS12"), arguments[0], (SecretKey) arguments[1]);
                    try {
                        return derive.invoke(original, arguments);
                    } catch (InvocationTargetException failed) {
                        throw failed.getCause();
                    }
                });
                originals.put(version, original);
                ours.put(version, mine);
                field.set(version, mine);
            }
        }
    }

    synchronized void end() {
        for (Object version : originals.keySet()) {
            try {
                if (field.get(version) == ours.get(version)) {
                    field.set(version, originals.get(version));
                }
            } catch (IllegalAccessException impossible) {
                throw new IllegalStateException(impossible);
            }
        }
        originals.clear();
    }

    /** Never throws: a connection must not fail by this. */
    private void note(boolean isMaster, Object handshake, SecretKey secret) {
        try {
            String label = isMaster ? "CLIENT_RANDOM" : LABELS.get(secret.getAlgorithm());
            if (label != null && recorder.isOn() && isOfKafka()) {
                Object random = Fields.get(handshake, "clientHelloRandom.randomBytes");
                Object engine = Fields.get(handshake, "conContext.transport");
                String peer = ((javax.net.ssl.SSLEngine) engine).getPeerHost();
                recorder.add(label, (byte[]) random, secret.getEncoded(), peer);
            }
        } catch (Throwable problem) {
            recorder.miss(problem);
        }
    }

    /** Whether this thread shakes hands for Kafka, and not for another library in this JVM. */
    private static boolean isOfKafka() {
        return StackWalker.getInstance().walk(
            frames -> frames.anyMatch(frame -> frame.getClassName().endsWith(".network.SslTransportLayer")));
    }
}
