package kafkatap.keys;

import java.lang.instrument.Instrumentation;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * What the JVM calls when kafkatap attaches. `start PIPE SECONDS [NET/BITS ...]` begins to write secrets to a named pipe,
 * for so many seconds at most; `stop` ends that.
 */
public final class Agent {
    private static Recorder recorder;

    private Agent() {}

    public static synchronized void agentmain(String arguments, Instrumentation instrumentation) throws Exception {
        List<String> words = List.of(arguments.split(" "));
        try {
            begin(words, instrumentation);
        } catch (Exception problem) {
            Recorder.tell(words.get(1), problem.toString());
            throw problem;
        }
    }

    private static void begin(List<String> words, Instrumentation instrumentation) throws Exception {
        if (recorder != null) {
            if (words.get(0).equals("start") && recorder.isOn()) {
                throw new IllegalStateException("another kafkatap takes the keys of this JVM");
            }
            recorder.stop();
            recorder = null;
        }
        if (words.get(0).equals("start")) {
            open(instrumentation, Object.class, "sun.security.ssl", "java.lang");
            open(instrumentation, javax.management.MBeanServer.class, "com.sun.jmx.mbeanserver", "com.sun.jmx.interceptor");
            Peers peers = new Peers(words.subList(3, words.size()));
            recorder = new Recorder(words.get(1), Long.parseLong(words.get(2)), peers);
            recorder.start();
        }
    }

    /** Open packages of the JVM's own modules to this agent, and to nobody else. */
    private static void open(Instrumentation instrumentation, Class<?> ofModule, String... packages) {
        for (String name : packages) {
            instrumentation.redefineModule(
                ofModule.getModule(), Set.of(), Map.of(), Map.of(name, Set.of(Agent.class.getModule())), Set.of(), Map.of());
        }
    }
}
