// The clients of the sample of Kafka 4.4: java -cp 'JARS/*:CLASSES' NewestClients BOOTSTRAP
//
// An admin client, a producer, consumers of both group protocols and a transactional one use the new versions by
// themselves. kafka-clients has no streams application, so a member of a streams group sends its messages by itself.

import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.DescribeStreamsGroupsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.message.ApiVersionsRequestData;
import org.apache.kafka.common.message.ApiVersionsResponseData;
import org.apache.kafka.common.message.RequestHeaderData;
import org.apache.kafka.common.message.ResponseHeaderData;
import org.apache.kafka.common.message.StreamsGroupHeartbeatRequestData;
import org.apache.kafka.common.message.StreamsGroupHeartbeatResponseData;
import org.apache.kafka.common.message.StreamsGroupTopologyDescriptionUpdateRequestData;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.coordinator.group.api.streams.StreamsGroupTopologyDescription;
import org.apache.kafka.coordinator.group.api.streams.StreamsGroupTopologyDescriptionPlugin;

public class NewestClients {
    static String bootstrap;

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        try (Admin admin = Admin.create(settings("ops-admin"))) {
            wait(admin.createTopics(List.of(
                new NewTopic("orders", 3, (short) 1), new NewTopic("refunds", 1, (short) 1))).all());
            String cluster = admin.describeCluster().clusterId().get(20, TimeUnit.SECONDS);
            produce();
            transact(admin);
            readCommitted();
            stream(admin, cluster);
            wait(admin.deleteConsumerGroups(List.of("billing", "nobody")).all());
            wait(admin.unregisterController(7).all());
            wait(admin.listGroups().all());
        }
    }

    static void produce() {
        Map<String, Object> options = settings("checkout");
        options.put("compression.type", "zstd");
        options.put("linger.ms", 20);
        try (var producer = new KafkaProducer<>(options, new StringSerializer(), new StringSerializer())) {
            for (int n = 0; n < 60; n++) {
                var record = new ProducerRecord<>("orders", n % 3, "order-" + n, "{\"order\": " + n + ", \"items\": 3}");
                record.headers().add("source", "checkout".getBytes(StandardCharsets.UTF_8));
                producer.send(record);
            }
        }
    }

    /** Reads orders and commits them in transactions: one is committed, one aborted, one refused. */
    static void transact(Admin admin) throws Exception {
        Map<String, Object> reading = settings("billing-1");
        reading.putAll(Map.of("group.id", "billing", "group.protocol", "consumer", "auto.offset.reset", "earliest", "enable.auto.commit", false));
        Map<String, Object> writing = settings("settlement");
        writing.put("transactional.id", "settlement");
        ConsumerGroupMetadata left;
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        try (var producer = new KafkaProducer<>(writing, new StringSerializer(), new StringSerializer())) {
            producer.initTransactions();
            try (var consumer = new KafkaConsumer<>(reading, new StringDeserializer(), new StringDeserializer())) {
                consumer.subscribe(List.of("orders"));
                int read = 0;
                for (long end = System.nanoTime() + 20_000_000_000L; read < 60 && System.nanoTime() < end; )
                    for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(500))) {
                        offsets.put(new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
                        read++;
                    }
                for (boolean good : new boolean[] {true, false}) {
                    producer.beginTransaction();
                    producer.send(new ProducerRecord<>("refunds", "order-1", good ? "12.50" : "99.00"));
                    producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                    if (good) producer.commitTransaction();
                    else producer.abortTransaction();
                }
                left = consumer.groupMetadata();
                wait(admin.deleteConsumerGroups(List.of("billing")).all()); // it has a member
            }
            producer.beginTransaction();
            try {
                producer.sendOffsetsToTransaction(offsets, left); // of a member that left the group
                producer.commitTransaction();
            } catch (KafkaException refused) {
                System.out.println("settlement: " + refused.getMessage());
                producer.abortTransaction();
            }
        }
    }

    static void readCommitted() {
        Map<String, Object> options = settings("audit");
        options.putAll(Map.of("isolation.level", "read_committed", "auto.offset.reset", "earliest", "group.id", "audit"));
        try (var consumer = new KafkaConsumer<>(options, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of("refunds"));
            int read = 0;
            for (long end = System.nanoTime() + 15_000_000_000L; read == 0 && System.nanoTime() < end; )
                read += consumer.poll(Duration.ofMillis(500)).count();
            consumer.commitSync();
            System.out.println("audit: " + read + " records");
        }
    }

    // ------------------------------------------------------------ a member of a streams group

    static void stream(Admin admin, String cluster) throws Exception {
        try (Connection wrong = new Connection("streams-lost"); Connection member = new Connection("streams-1")) {
            var refused = (ApiVersionsResponseData) wrong.call(ApiMessageType.API_VERSIONS, 5, versions().setClusterId("another").setNodeId(1));
            System.out.println("streams-lost: error " + refused.errorCode());
            member.call(ApiMessageType.API_VERSIONS, 5, versions().setClusterId(cluster).setNodeId(1));
            int epoch = 0;
            boolean described = false;
            for (int n = 0; n < 8; n++) {
                var beat = new StreamsGroupHeartbeatRequestData().setGroupId("enrichment").setMemberId("member-1").setMemberEpoch(epoch);
                if (epoch == 0) join(beat);
                var answer = (StreamsGroupHeartbeatResponseData) member.call(ApiMessageType.STREAMS_GROUP_HEARTBEAT, 1, beat);
                System.out.println("streams-1: " + answer);
                if (answer.errorCode() == 0) epoch = answer.memberEpoch();
                if (answer.topologyDescriptionRequired() && !described) {
                    System.out.println("streams-1: " + member.call(ApiMessageType.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE, 0, description()));
                    described = true;
                }
                Thread.sleep(400);
            }
            for (boolean whole : new boolean[] {false, true}) {
                var options = new DescribeStreamsGroupsOptions().includeTopologyDescription(whole).includeAuthorizedOperations(whole);
                wait(admin.describeStreamsGroups(List.of("enrichment"), options).all());
            }
            wait(admin.describeStreamsGroups(List.of("nothing")).all());
            member.call(ApiMessageType.STREAMS_GROUP_HEARTBEAT, 1, new StreamsGroupHeartbeatRequestData()
                .setGroupId("enrichment").setMemberId("member-1").setMemberEpoch(-1));
        }
        wait(admin.deleteStreamsGroups(List.of("enrichment")).all());
    }

    static ApiVersionsRequestData versions() {
        return new ApiVersionsRequestData().setClientSoftwareName("sample").setClientSoftwareVersion("1");
    }

    static void join(StreamsGroupHeartbeatRequestData beat) {
        var changelog = new StreamsGroupHeartbeatRequestData.TopicInfo().setName("enrichment-store-changelog").setReplicationFactor((short) 1);
        changelog.setTopicConfigs(List.of(new StreamsGroupHeartbeatRequestData.KeyValue().setKey("cleanup.policy").setValue("compact")));
        var subtopology = new StreamsGroupHeartbeatRequestData.Subtopology().setSubtopologyId("0")
            .setSourceTopics(List.of("orders")).setStateChangelogTopics(List.of(changelog));
        beat.setTopology(new StreamsGroupHeartbeatRequestData.Topology().setEpoch(1).setSubtopologies(List.of(subtopology)));
        beat.setActiveTasks(List.of()).setStandbyTasks(List.of()).setWarmupTasks(List.of());
        beat.setRebalanceTimeoutMs(20_000).setProcessId("process-1").setRackId("rack-a");
        beat.setUserEndpoint(new StreamsGroupHeartbeatRequestData.Endpoint().setHost("127.0.0.1").setPort(7070));
        beat.setClientTags(List.of(new StreamsGroupHeartbeatRequestData.KeyValue().setKey("zone").setValue("a")));
    }

    static StreamsGroupTopologyDescriptionUpdateRequestData description() {
        var source = node("KSTREAM-SOURCE-0000000000", 1).setSourceTopics(List.of("orders")).setSuccessors(List.of("KSTREAM-AGGREGATE-0000000001"));
        var work = node("KSTREAM-AGGREGATE-0000000001", 2).setStores(List.of("store")).setSuccessors(List.of("KSTREAM-SINK-0000000002"));
        var sink = node("KSTREAM-SINK-0000000002", 3).setSinkTopic("refunds");
        var subtopology = new StreamsGroupTopologyDescriptionUpdateRequestData.TopologyDescriptionSubtopology()
            .setSubtopologyId("0").setNodes(List.of(source, work, sink));
        return new StreamsGroupTopologyDescriptionUpdateRequestData().setGroupId("enrichment").setMemberId("member-1").setTopologyEpoch(1)
            .setTopologyDescription(new StreamsGroupTopologyDescriptionUpdateRequestData.TopologyDescription().setSubtopologies(List.of(subtopology)));
    }

    static StreamsGroupTopologyDescriptionUpdateRequestData.TopologyDescriptionNode node(String name, int type) {
        return new StreamsGroupTopologyDescriptionUpdateRequestData.TopologyDescriptionNode().setName(name).setNodeType((byte) type);
    }

    /** One connection that sends a request and waits for its response. */
    static class Connection implements AutoCloseable {
        final Socket socket = new Socket();
        final String clientId;
        int correlation = 0;

        Connection(String clientId) throws Exception {
            this.clientId = clientId;
            String[] parts = bootstrap.split(":");
            socket.connect(new InetSocketAddress(parts[0], Integer.parseInt(parts[1])), 5000);
            socket.setSoTimeout(20_000);
        }

        ApiMessage call(ApiMessageType api, int version, ApiMessage body) throws Exception {
            var header = new RequestHeaderData().setRequestApiKey(api.apiKey()).setRequestApiVersion((short) version)
                .setCorrelationId(++correlation).setClientId(clientId);
            short headerVersion = api.requestHeaderVersion((short) version);
            var cache = new ObjectSerializationCache();
            int size = header.size(cache, headerVersion) + body.size(cache, (short) version);
            var to = new ByteBufferAccessor(ByteBuffer.allocate(4 + size));
            to.writeInt(size);
            header.write(to, cache, headerVersion);
            body.write(to, cache, (short) version);
            new DataOutputStream(socket.getOutputStream()).write(to.buffer().array());
            var input = new DataInputStream(socket.getInputStream());
            byte[] frame = new byte[input.readInt()];
            input.readFully(frame);
            var from = new ByteBufferAccessor(ByteBuffer.wrap(frame));
            new ResponseHeaderData(from, api.responseHeaderVersion((short) version));
            ApiMessage answer = api.newResponse();
            answer.read(from, (short) version);
            return answer;
        }

        @Override
        public void close() throws Exception {
            socket.close();
        }
    }

    // ------------------------------------------------------------ common

    static Map<String, Object> settings(String clientId) {
        return new HashMap<>(Map.of("bootstrap.servers", bootstrap, "client.id", clientId, "metrics.recording.level", "INFO"));
    }

    static void wait(KafkaFuture<?> future) throws Exception {
        try {
            future.get(30, TimeUnit.SECONDS);
        } catch (ExecutionException error) {
            System.out.println("ops-admin: " + error.getCause());
        }
    }

    /** The broker's place for the topologies of streams groups: in memory. */
    public static class TopologyStore implements StreamsGroupTopologyDescriptionPlugin {
        final Map<String, StreamsGroupTopologyDescription> kept = new ConcurrentHashMap<>();

        @Override
        public CompletableFuture<Void> setTopology(String group, int epoch, StreamsGroupTopologyDescription topology) {
            kept.put(group, topology);
            return CompletableFuture.completedFuture(null);
        }

        @Override
        public CompletableFuture<Void> deleteTopology(String group) {
            kept.remove(group);
            return CompletableFuture.completedFuture(null);
        }

        @Override
        public CompletableFuture<StreamsGroupTopologyDescription> getTopology(String group, int epoch) {
            return CompletableFuture.completedFuture(kept.get(group));
        }

        @Override
        public void configure(Map<String, ?> settings) {}

        @Override
        public void close() {}
    }
}
