// Clients that go on until stdin ends: java -cp 'JARS/*:CLASSES' SteadyClients BOOTSTRAP
//
// A producer of `payments`; a member of group `settlement` that reads them and writes to `ledger` in transactions; and a
// reader of committed records of `ledger`, of the group protocol `consumer`.

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class SteadyClients {
    static String bootstrap;
    static volatile boolean ended = false;

    interface Work { void run() throws Exception; }

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        List<Thread> threads = new ArrayList<>();
        for (Work work : List.<Work>of(SteadyClients::write, SteadyClients::transact, SteadyClients::audit)) {
            Thread thread = new Thread(() -> {
                try { work.run(); } catch (Exception failed) { failed.printStackTrace(); }
            });
            thread.start();
            threads.add(thread);
        }
        while (System.in.read() >= 0) { }
        ended = true;
        for (Thread thread : threads) thread.join(20_000);
        System.exit(0);
    }

    static Map<String, Object> settings(String name) {
        return new HashMap<>(Map.of("bootstrap.servers", bootstrap, "client.id", name));
    }

    static void write() throws Exception {
        Map<String, Object> options = settings("payments-writer");
        options.put("linger.ms", 10);
        try (var producer = new KafkaProducer<>(options, new StringSerializer(), new StringSerializer())) {
            for (long n = 0; !ended; n++) {
                producer.send(new ProducerRecord<>("payments", "account-" + n % 97, "v".repeat(200)));
                Thread.sleep(50);
            }
        }
    }

    static void transact() throws Exception {
        Map<String, Object> reading = settings("settlement-reader");
        reading.putAll(Map.of("group.id", "settlement", "auto.offset.reset", "earliest", "enable.auto.commit", false, "isolation.level", "read_committed"));
        Map<String, Object> writing = settings("settlement-writer");
        writing.put("transactional.id", "settlement-1");
        try (var producer = new KafkaProducer<>(writing, new StringSerializer(), new StringSerializer());
             var consumer = new KafkaConsumer<>(reading, new StringDeserializer(), new StringDeserializer())) {
            producer.initTransactions();
            consumer.subscribe(List.of("payments"));
            while (!ended) {
                var records = consumer.poll(Duration.ofMillis(500));
                if (records.isEmpty()) continue;
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                try {
                    producer.beginTransaction();
                    for (ConsumerRecord<String, String> record : records) {
                        producer.send(new ProducerRecord<>("ledger", record.key(), record.value()));
                        offsets.put(new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
                    }
                    producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                    producer.commitTransaction();
                } catch (KafkaException failed) {
                    System.out.println("settlement: " + failed);
                    producer.abortTransaction();
                    consumer.assignment().forEach(partition -> {
                        var committed = consumer.committed(java.util.Set.of(partition)).get(partition);
                        consumer.seek(partition, committed == null ? 0 : committed.offset());
                    });
                }
                Thread.sleep(200);
            }
        }
    }

    static void audit() throws Exception {
        Map<String, Object> options = settings("audit-reader");
        options.putAll(Map.of("group.id", "audit", "group.protocol", "consumer", "auto.offset.reset", "earliest", "isolation.level", "read_committed"));
        try (var consumer = new KafkaConsumer<>(options, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of("ledger"));
            while (!ended) consumer.poll(Duration.ofMillis(500));
        }
    }
}
