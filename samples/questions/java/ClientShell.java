// Java clients that a script drives by lines: java -cp 'JARS/*:CLASSES' ClientShell BOOTSTRAP
//
// A line of input is ID, client, verb and name=value options, separated by tabs. Each client has a thread, which runs
// its lines in order; lines of different clients run at the same time. The answer to a line is "done ID TEXT" or
// "failed ID TEXT". A consumer polls between its lines and reports its assignments as "event" lines with a time in ms.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.CloseOptions;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class ClientShell {
    static String bootstrap;
    static final Map<String, Client> clients = new ConcurrentHashMap<>();

    record Line(String id, String verb, Map<String, String> options) {
        String take(String name, String otherwise) {
            String value = options.remove(name);
            return value == null ? otherwise : value;
        }

        int number(String name, int otherwise) {
            return Integer.parseInt(take(name, String.valueOf(otherwise)));
        }
    }

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        var input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String text = input.readLine(); text != null; text = input.readLine()) {
            String[] words = text.split("\t");
            Map<String, String> options = new HashMap<>();
            for (int n = 3; n < words.length; n++)
                options.put(words[n].substring(0, words[n].indexOf('=')), words[n].substring(words[n].indexOf('=') + 1));
            var line = new Line(words[0], words[2], options);
            clients.computeIfAbsent(words[1], name -> start(name, line.verb())).lines.add(line);
        }
        System.exit(0);
    }

    static Client start(String name, String verb) {
        Client client = switch (verb) {
            case "consumer" -> new Consumer(name);
            case "share" -> new ShareConsumer(name);
            default -> new Producer(name);
        };
        var thread = new Thread(client, name);
        thread.setDaemon(true);
        thread.start();
        return client;
    }

    static synchronized void print(String text) {
        System.out.println(text);
        System.out.flush();
    }

    /** A client and its lines. `idle` runs while no line waits. */
    abstract static class Client implements Runnable {
        final String name;
        final LinkedBlockingQueue<Line> lines = new LinkedBlockingQueue<>();

        Client(String name) {
            this.name = name;
        }

        abstract String call(Line line) throws Exception;

        abstract boolean idle() throws Exception;

        @Override
        public void run() {
            while (true) {
                Line line = null;
                try {
                    line = lines.poll();
                    if (line == null && !idle())
                        line = lines.take();
                    if (line != null)
                        print("done\t" + line.id() + "\t" + call(line));
                } catch (Exception error) {
                    Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
                    String text = cause.getClass().getSimpleName() + ": " + cause.getMessage();
                    print((line == null ? "event\t" + System.currentTimeMillis() + "\t" + name + "\tfailed" : "failed\t" + line.id())
                        + "\t" + text.replace('\n', ' ').replace('\t', ' '));
                }
            }
        }

        Map<String, Object> settings(Line line) {
            Map<String, Object> settings = new HashMap<>(Map.of(
                "bootstrap.servers", bootstrap, "client.id", name, "enable.metrics.push", "false"));
            settings.putAll(line.options());
            return settings;
        }
    }

    static class Producer extends Client {
        KafkaProducer<String, String> producer;

        Producer(String name) {
            super(name);
        }

        @Override
        boolean idle() {
            return false;
        }

        @Override
        String call(Line line) throws Exception {
            switch (line.verb()) {
                case "producer" -> producer = new KafkaProducer<>(settings(line), new StringSerializer(), new StringSerializer());
                case "send" -> {
                    return send(line);
                }
                case "init" -> producer.initTransactions();
                case "begin" -> producer.beginTransaction();
                case "commit" -> producer.commitTransaction();
                case "abort" -> producer.abortTransaction();
                case "close" -> producer.close(Duration.ofSeconds(line.number("seconds", 10)));
                default -> throw new IllegalArgumentException(line.verb());
            }
            return "";
        }

        /** Sends records one after another, and waits for all: "partition:offset" of each. */
        String send(Line line) throws Exception {
            String topic = line.take("topic", "");
            String partition = line.take("partition", null);
            int bytes = line.number("bytes", 100), pause = line.number("interval_ms", 0), count = line.number("count", 1);
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int n = 0; n < count; n++) {
                Integer where = partition == null ? null : Integer.valueOf(partition);
                String value = String.format("{\"record\": %d, \"filler\": \"", n);
                value += "x".repeat(Math.max(0, bytes - value.length() - 2)) + "\"}";
                sent.add(producer.send(new ProducerRecord<>(topic, where, "key-" + n, value)));
                if (pause > 0)
                    Thread.sleep(pause);
            }
            producer.flush();
            var places = new ArrayList<String>();
            for (Future<RecordMetadata> future : sent) {
                RecordMetadata placed = future.get(60, TimeUnit.SECONDS);
                places.add(placed.partition() + ":" + placed.offset());
            }
            return String.join(" ", places);
        }
    }

    static class Consumer extends Client implements ConsumerRebalanceListener {
        KafkaConsumer<String, String> consumer;
        int processing, read;
        boolean commits;

        Consumer(String name) {
            super(name);
        }

        @Override
        boolean idle() throws Exception {
            if (consumer == null)
                return false;
            for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
                read++;
                if (processing > 0)
                    Thread.sleep(processing);
            }
            if (commits)
                consumer.commitAsync();
            return true;
        }

        @Override
        String call(Line line) throws Exception {
            switch (line.verb()) {
                case "consumer" -> {
                    List<String> topics = List.of(line.take("topics", "").split(","));
                    processing = line.number("processing_ms", 0);
                    Map<String, Object> settings = settings(line);
                    settings.putIfAbsent("auto.offset.reset", "earliest");
                    consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
                    if (settings.containsKey("group.id"))
                        consumer.subscribe(topics, this);
                    else
                        assign(topics);
                }
                case "subscribe" -> consumer.subscribe(List.of(line.take("topics", "").split(",")), this);
                case "process" -> processing = line.number("ms", 0);
                case "commits" -> commits = line.number("on", 1) == 1;
                case "commit" -> consumer.commitSync();
                case "rebalance" -> consumer.enforceRebalance(line.take("reason", ""));
                case "sleep" -> Thread.sleep(line.number("ms", 0)); // no poll meanwhile
                case "positions" -> {
                    return positions();
                }
                case "close" -> {
                    boolean remain = line.take("operation", "").equals("remain");
                    var operation = remain ? CloseOptions.GroupMembershipOperation.REMAIN_IN_GROUP : CloseOptions.GroupMembershipOperation.DEFAULT;
                    var timeout = Duration.ofSeconds(line.number("seconds", 10));
                    consumer.close(CloseOptions.groupMembershipOperation(operation).withTimeout(timeout));
                    consumer = null;
                }
                default -> throw new IllegalArgumentException(line.verb());
            }
            return String.valueOf(read);
        }

        void assign(List<String> topics) {
            var all = new ArrayList<TopicPartition>();
            for (String topic : topics)
                consumer.partitionsFor(topic).forEach(info -> all.add(new TopicPartition(topic, info.partition())));
            consumer.assign(all);
        }

        String positions() {
            var texts = new TreeSet<String>();
            for (TopicPartition partition : consumer.assignment())
                texts.add(partition + "=" + consumer.position(partition));
            return String.join(" ", texts);
        }

        void report(String what, Collection<TopicPartition> partitions) {
            var texts = new TreeSet<String>();
            partitions.forEach(partition -> texts.add(partition.toString()));
            print("event\t" + System.currentTimeMillis() + "\t" + name + "\t" + what + "\t" + String.join(" ", texts));
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            report("assigned", partitions);
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            report("revoked", partitions);
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> partitions) {
            report("lost", partitions);
        }
    }

    static class ShareConsumer extends Client {
        KafkaShareConsumer<String, String> consumer;
        int read;

        ShareConsumer(String name) {
            super(name);
        }

        @Override
        boolean idle() {
            if (consumer == null)
                return false;
            read += consumer.poll(Duration.ofMillis(200)).count();
            return true;
        }

        @Override
        String call(Line line) {
            switch (line.verb()) {
                case "share" -> {
                    List<String> topics = List.of(line.take("topics", "").split(","));
                    consumer = new KafkaShareConsumer<>(settings(line), new StringDeserializer(), new StringDeserializer());
                    consumer.subscribe(topics);
                }
                case "close" -> {
                    consumer.close();
                    consumer = null;
                }
                default -> throw new IllegalArgumentException(line.verb());
            }
            return String.valueOf(read);
        }
    }
}
