// A producer and a consumer with nothing newer than Kafka 0.10: java -cp JARS:CLASSES OldClient BOOTSTRAP NAME TOPIC COUNT [SETTING=VALUE]...
//
// It is compiled against kafka-clients 0.10.2, and runs with any release up to 3.9. It prints what it sent and read.

import java.util.Collections;
import java.util.Properties;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;

public class OldClient {
    static final String SERIALIZATION = "org.apache.kafka.common.serialization.String";

    public static void main(String[] arguments) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("client.id", arguments[1]);
        settings.put("request.timeout.ms", "11000");
        for (int n = 4; n < arguments.length; n++) {
            int end = arguments[n].indexOf('=');
            settings.put(arguments[n].substring(0, end), arguments[n].substring(end + 1));
        }
        int count = Integer.parseInt(arguments[3]);
        System.out.println("sent " + produce(settings, arguments[2], count));
        System.out.println("read " + consume(settings, arguments[1], arguments[2], count));
        System.exit(0);
    }

    static int produce(Properties settings, String topic, int count) {
        Properties all = new Properties();
        all.putAll(settings);
        all.put("key.serializer", SERIALIZATION + "Serializer");
        all.put("value.serializer", SERIALIZATION + "Serializer");
        all.put("max.block.ms", "3000");
        int sent = 0;
        KafkaProducer<String, String> producer = new KafkaProducer<>(all);
        try {
            for (int number = 0; number < count; number++) {
                Future<RecordMetadata> answer = producer.send(new ProducerRecord<>(topic, "k" + number, "generated"));
                answer.get(3, TimeUnit.SECONDS);
                sent++;
            }
        } catch (Exception error) {
            System.out.println("produce: " + error);
        }
        producer.close(1, TimeUnit.SECONDS);
        return sent;
    }

    @SuppressWarnings("deprecation")
    static int consume(Properties settings, String name, String topic, int count) {
        Properties all = new Properties();
        all.putAll(settings);
        all.put("key.deserializer", SERIALIZATION + "Deserializer");
        all.put("value.deserializer", SERIALIZATION + "Deserializer");
        all.put("group.id", name + "-group");
        all.put("auto.offset.reset", "earliest");
        all.put("session.timeout.ms", "10000");
        int read = 0;
        KafkaConsumer<String, String> consumer = new KafkaConsumer<>(all);
        // Without an answer to its version, an old consumer waits for ever.
        Thread alarm = new Thread(() -> {
            try {
                Thread.sleep(5000);
                consumer.wakeup();
            } catch (InterruptedException ended) {
                return;
            }
        });
        alarm.setDaemon(true);
        alarm.start();
        try {
            consumer.subscribe(Collections.singletonList(topic));
            while (read < count) {
                read += consumer.poll(500).count();
            }
            consumer.commitSync();
        } catch (Exception error) {
            System.out.println("consume: " + error);
        }
        try {
            consumer.close();
        } catch (Exception error) {
            System.out.println("close: " + error);
        }
        return read;
    }
}
