package kafkatap.keys;

import java.lang.instrument.Instrumentation;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * What the JVM calls when kafkatap attaches, with the arguments `FOLDER SECONDS [NET/BITS ...]`: begin to write secrets to
 * the named pipe in a folder, for so many seconds at most. It ends earlier when the pipe's name is gone.
 */
public final class Agent {
    private static Recorder recorder;

    private Agent() {}

    public static synchronized void agentmain(String arguments, Instrumentation instrumentation) throws Exception {
        List<String> words = List.of(arguments.split(" "));
        try (Pipe pipe = new Pipe(Path.of(words.get(0)))) {
            try {
                if (recorder != null && recorder.isOn()) {
                    throw new IllegalStateException("another kafkatap takes the keys of this JVM");
                }
                open(instrumentation, Object.class, "sun.security.ssl", "java.lang");
                open(instrumentation, javax.management.MBeanServer.class, "com.sun.jmx.mbeanserver", "com.sun.jmx.interceptor");
                Peers peers = new Peers(words.subList(2, words.size()));
                Recorder started = new Recorder(pipe, Long.parseLong(words.get(1)), peers);
                started.start();
                recorder = started;
                pipe.keep();
            } catch (Throwable problem) {
                pipe.write("# error " + problem.toString().replace('\n', ' '));
                throw problem;
            }
        }
    }

    /** Forget a recorder that has ended, so that nothing of it stays in memory. */
    static synchronized void forget(Recorder ended) {
        if (recorder == ended) {
            recorder = null;
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
