// Messages by Kafka's own classes, as lines of JSON. Runs as a source file with the jars of kafka-clients (3.9 or later)
// and jackson-databind on the class path:
//
//     java -cp 'JARS/*' KafkaMessages.java random SEED COUNT [KEY:VERSION ...]
//         COUNT random requests and responses of each (key, version), or of the named ones
//     java -cp 'JARS/*' KafkaMessages.java read
//         the messages in the lines of standard input: "request HEX" or "response KEY VERSION HEX", a frame without its size
//
// A line has: key, version, direction, hex (the frame without its size), client_id (of requests), header_tags, body (as
// Kafka's JSON converters write it), tags (unknown tags by the path of their struct), records (by the path of their
// field), left (bytes behind the message); or error. A random Envelope also has inner (the line of the message in it)
// and principal.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Array;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.lang.reflect.ParameterizedType;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.message.DefaultPrincipalData;
import org.apache.kafka.common.message.DefaultPrincipalDataJsonConverter;
import org.apache.kafka.common.message.RequestHeaderData;
import org.apache.kafka.common.message.ResponseHeaderData;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.protocol.types.BoundField;
import org.apache.kafka.common.protocol.types.Field;
import org.apache.kafka.common.protocol.types.RawTaggedField;
import org.apache.kafka.common.protocol.types.Schema;
import org.apache.kafka.common.protocol.types.TaggedFields;
import org.apache.kafka.common.protocol.types.Type;

public class KafkaMessages {
    static final ObjectMapper JSON = new ObjectMapper();
    static final HexFormat HEX = HexFormat.of();
    static final int PRODUCE = 0, FETCH = 1, API_VERSIONS = 18;
    static final String[] WORDS = {
        "", "orders", "größe-ñ", "主题", "🦜 tape", "a\"b\\c", "x\u001b[31my\n\t", "=1+1", "<b>&amp;", "-", "y".repeat(126),
        "y".repeat(127), "z".repeat(128), "w".repeat(300),
    };

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        if (arguments[0].equals("read")) read(out);
        else {
            List<String> only = Arrays.asList(arguments).subList(3, arguments.length);
            random(out, Long.parseLong(arguments[1]), Integer.parseInt(arguments[2]), only);
        }
        out.flush();
    }

    // ------------------------------------------------------------ random messages

    static void random(PrintStream out, long seed, int count, List<String> only) throws Exception {
        for (ApiMessageType api : ApiMessageType.values()) {
            for (int v = api.lowestSupportedVersion(); v <= api.highestSupportedVersion(true); v++) {
                if (!only.isEmpty() && !only.contains(api.apiKey() + ":" + v)) continue;
                for (int number = 0; number < count; number++)
                    for (boolean response : new boolean[] {false, true}) {
                        long pair = ((seed * 1000 + api.apiKey()) * 100 + v) * 1000 + number;
                        out.println(JSON.writeValueAsString(new Filler(pair, api, (short) v, response).line(number)));
                    }
            }
        }
    }

    /** Makes one random message. */
    static class Filler {
        final long pair; // the same for a request and its response
        final Random chance;
        final ApiMessageType api;
        final short version;
        final boolean response;
        int budget = 400; // elements of arrays of structs
        ObjectNode inner, principal; // in an Envelope

        Filler(long pair, ApiMessageType api, short version, boolean response) {
            this.pair = pair;
            this.chance = new Random(pair * 2 + (response ? 1 : 0));
            this.api = api;
            this.version = version;
            this.response = response;
        }

        ObjectNode line(int number) throws Exception {
            ApiMessage body = response ? api.newResponse() : api.newRequest();
            fill(body, (response ? api.responseSchemas() : api.requestSchemas())[version], "");
            ApiMessage header;
            short headerVersion;
            if (response) {
                header = new ResponseHeaderData().setCorrelationId(number);
                headerVersion = api.responseHeaderVersion(version);
            } else {
                headerVersion = api.requestHeaderVersion(version);
                RequestHeaderData data = new RequestHeaderData().setRequestApiKey(api.apiKey()).setRequestApiVersion(version);
                data.setCorrelationId(number);
                if (headerVersion > 0) data.setClientId(chance.nextInt(10) == 0 ? null : "random-" + chance.nextInt(5));
                header = data;
            }
            if (headerVersion == (response ? 1 : 2)) unknownTags(header, -1);
            byte[] frame = written(header, headerVersion, body, version);
            ObjectNode line = parse(ByteBuffer.wrap(frame), response, api, version);
            if (!line.has("error") && !again.equals(body)) line.put("error", "it was not read as it was written");
            line.put("hex", HEX.formatHex(frame));
            if (inner != null) line.set("inner", inner);
            if (principal != null) line.set("principal", principal);
            return line;
        }

        /** Fill the fields that the schema has. `path` is that of the struct. */
        void fill(Message message, Schema schema, String path) throws Exception {
            int highest = -1;
            boolean flexible = false;
            for (BoundField bound : schema.fields()) {
                if (!(bound.def.type instanceof TaggedFields)) {
                    set(message, bound.def, path);
                    continue;
                }
                flexible = true;
                highest = 19; // a tag of another version is refused
                for (Map.Entry<Integer, Field> tagged : fieldsOf((TaggedFields) bound.def.type).entrySet()) {
                    highest = Math.max(highest, tagged.getKey());
                    if (chance.nextInt(3) > 0) set(message, tagged.getValue(), path);
                }
            }
            if (flexible) unknownTags(message, highest);
        }

        void unknownTags(Message message, int highest) {
            if (chance.nextInt(6) > 0) return;
            int tag = highest;
            for (int n = 1 + chance.nextInt(2); n > 0; n--) {
                tag += 1 + chance.nextInt(chance.nextInt(4) == 0 ? 100_000 : 40);
                message.unknownTaggedFields().add(new RawTaggedField(tag, bytes()));
            }
        }

        void set(Message message, Field field, String path) throws Exception {
            java.lang.reflect.Field place = place(message, field.name);
            place.set(message, value(place.getGenericType(), field.type, path + "." + field.name));
        }

        Object value(java.lang.reflect.Type java, Type type, String path) throws Exception {
            // The schema says that all records can be null, but the class does not write these.
            if (type.isNullable() && chance.nextInt(5) == 0 && !path.endsWith("unaligned_records")) return null;
            if (type.isArray()) return array(java, type.arrayElementType().get(), path);
            Class<?> kind = (Class<?>) java;
            if (Message.class.isAssignableFrom(kind)) {
                Message struct = (Message) kind.getDeclaredConstructor().newInstance();
                fill(struct, (Schema) type, path);
                return struct;
            }
            if (kind == boolean.class || kind == Boolean.class) return chance.nextBoolean();
            if (kind == byte.class || kind == Byte.class) return (byte) number(8);
            if (kind == short.class || kind == Short.class) return small(path);
            if (kind == int.class || kind == Integer.class)
                return type == Type.UINT16 ? (int) (number(16) & 0xffff) : (int) number(32);
            if (kind == long.class || kind == Long.class)
                return type == Type.UNSIGNED_INT32 ? number(32) & 0xffffffffL : number(64);
            if (kind == double.class || kind == Double.class) return chance.nextInt(4) == 0 ? 0.0 : chance.nextGaussian() * 1e6;
            if (kind == Uuid.class) return uuid();
            if (kind == String.class) return text();
            byte[] envelope = api == ApiMessageType.ENVELOPE ? enveloped(path) : null;
            if (kind == byte[].class) return envelope != null ? envelope : bytes();
            if (kind == ByteBuffer.class) return ByteBuffer.wrap(envelope != null ? envelope : bytes());
            return records(); // any other is a kind of BaseRecords
        }

        /** What lies in a field of an Envelope, or null. */
        byte[] enveloped(String path) throws Exception {
            if (path.endsWith("_principal")) {
                DefaultPrincipalData data = new DefaultPrincipalData().setType("User").setName(text());
                data.setTokenAuthenticated(chance.nextBoolean());
                principal = (ObjectNode) DefaultPrincipalDataJsonConverter.write(data, (short) 0);
                ObjectSerializationCache cache = new ObjectSerializationCache();
                ByteBufferAccessor to = new ByteBufferAccessor(ByteBuffer.allocate(2 + data.size(cache, (short) 0)));
                to.writeShort((short) 0);
                data.write(to, cache, (short) 0);
                return to.buffer().array();
            }
            if (!path.endsWith("_data")) return null;
            Random choice = new Random(pair);
            ApiMessageType[] apis = ApiMessageType.values();
            ApiMessageType other = api;
            while (other == api || other.lowestSupportedVersion() > other.highestSupportedVersion(true))
                other = apis[choice.nextInt(apis.length)];
            int versions = other.highestSupportedVersion(true) - other.lowestSupportedVersion() + 1;
            short chosen = (short) (other.lowestSupportedVersion() + choice.nextInt(versions));
            inner = new Filler(pair + 500, other, chosen, response).line(choice.nextInt(1000));
            return HEX.parseHex(inner.get("hex").asText());
        }

        Object array(java.lang.reflect.Type java, Type element, String path) throws Exception {
            int size = chance.nextInt(4);
            boolean simple = !(element instanceof Schema);
            if (chance.nextInt(25) == 0) size = simple ? 120 + chance.nextInt(300) : 127 + chance.nextInt(4);
            if (!simple) {
                size = Math.min(size, Math.max(budget, 0));
                budget -= size;
            }
            Collection<Object> found;
            java.lang.reflect.Type inner;
            if (java instanceof ParameterizedType) {
                inner = ((ParameterizedType) java).getActualTypeArguments()[0];
                found = new ArrayList<>();
            } else { // a collection with keys, of a class of its own
                Class<?> kind = (Class<?>) java;
                inner = ((ParameterizedType) kind.getGenericSuperclass()).getActualTypeArguments()[0];
                @SuppressWarnings("unchecked")
                Collection<Object> made = (Collection<Object>) kind.getDeclaredConstructor().newInstance();
                found = made;
            }
            for (int i = 0; i < size; i++) found.add(value(inner, element, path));
            return found;
        }

        long number(int bits) {
            switch (chance.nextInt(6)) {
                case 0: return 0;
                case 1: return -1;
                case 2: return chance.nextBoolean() ? -(1L << (bits - 1)) : (1L << (bits - 1)) - 1;
                case 3: return chance.nextLong() >> (64 - bits);
                default: return chance.nextInt(100);
            }
        }

        short small(String path) {
            if (path.endsWith("error_code")) {
                int code = chance.nextInt(3) == 0 ? 0 : chance.nextInt(10) == 0 ? 5120 : chance.nextInt(138) - 1;
                // A refused version would be answered in version 0.
                return (short) (api.apiKey() == API_VERSIONS && code == 35 ? 0 : code);
            }
            // Without acknowledgements there would be no response.
            if (api.apiKey() == PRODUCE && path.endsWith("acks")) return (short) (chance.nextBoolean() ? 1 : -1);
            return (short) number(16);
        }

        Uuid uuid() {
            return chance.nextInt(8) == 0 ? Uuid.ZERO_UUID : new Uuid(chance.nextLong(), chance.nextLong());
        }

        String text() {
            return chance.nextInt(3) > 0 ? "name-" + chance.nextInt(1000) : WORDS[chance.nextInt(WORDS.length)];
        }

        byte[] bytes() {
            int[] sizes = {0, 1, 2, 16, 126, 127, 128, 200};
            byte[] data = new byte[chance.nextInt(3) > 0 ? chance.nextInt(30) : sizes[chance.nextInt(sizes.length)]];
            chance.nextBytes(data);
            return data;
        }

        /** Record batches, or message sets where the version has them. */
        Object records() throws Exception {
            int key = api.apiKey();
            int magic = key == PRODUCE ? Math.min(2, Math.max(0, version - 1)) : key == FETCH ? Math.min(2, version / 2) : 2;
            java.io.ByteArrayOutputStream all = new java.io.ByteArrayOutputStream();
            long offset = chance.nextInt(3) == 0 ? 0 : chance.nextInt(1 << 30);
            int batches = magic == 2 ? chance.nextInt(3) : 1;
            for (int n = 0; n < batches; n++) {
                int count = 1 + chance.nextInt(chance.nextInt(8) == 0 ? 60 : 4);
                Object made = Array.newInstance(recordClass("SimpleRecord"), count);
                for (int i = 0; i < count; i++) Array.set(made, i, record(magic));
                Object built = recordClass("MemoryRecords")
                    .getMethod("withRecords", byte.class, long.class, Compression.class, made.getClass())
                    .invoke(null, (byte) magic, offset, compression(magic), made);
                ByteBuffer data = (ByteBuffer) built.getClass().getMethod("buffer").invoke(built);
                byte[] copy = new byte[data.remaining()];
                data.duplicate().get(copy);
                all.write(copy);
                offset += count;
            }
            return recordClass("MemoryRecords").getMethod("readableRecords", ByteBuffer.class).invoke(null, ByteBuffer.wrap(all.toByteArray()));
        }

        Object record(int magic) throws Exception {
            long time = magic == 0 ? -1 : 1_790_000_000_000L + chance.nextInt(1 << 30);
            byte[] key = chance.nextInt(3) == 0 ? null : bytes();
            byte[] value = chance.nextInt(8) == 0 ? null : bytes();
            Header[] headers = new Header[magic == 2 ? chance.nextInt(3) : 0];
            for (int i = 0; i < headers.length; i++)
                headers[i] = new RecordHeader(text(), chance.nextInt(4) == 0 ? null : bytes());
            return recordClass("SimpleRecord").getConstructor(long.class, byte[].class, byte[].class, Header[].class)
                .newInstance(time, key, value, headers);
        }

        Compression compression(int magic) {
            switch (chance.nextInt(magic == 2 ? 6 : 5)) {
                case 1: return Compression.gzip().build();
                case 2: return Compression.snappy().build();
                case 3: return Compression.lz4().build();
                case 5: return Compression.zstd().build();
                default: return Compression.NONE;
            }
        }
    }

    // ------------------------------------------------------------ reading

    static void read(PrintStream out) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            boolean response = words[0].equals("response");
            ByteBuffer frame = ByteBuffer.wrap(HEX.parseHex(words[words.length - 1]));
            short key = response ? Short.parseShort(words[1]) : frame.getShort(0);
            short version = response ? Short.parseShort(words[2]) : frame.getShort(2);
            out.println(JSON.writeValueAsString(parse(frame, response, ApiMessageType.fromApiKey(key), version)));
        }
    }

    /** The body that `parse` read last. */
    static ApiMessage again;

    static ObjectNode parse(ByteBuffer frame, boolean response, ApiMessageType api, short version) throws Exception {
        ObjectNode line = JSON.createObjectNode();
        line.put("key", api.apiKey()).put("version", version).put("direction", response ? "response" : "request");
        try {
            ByteBufferAccessor from = new ByteBufferAccessor(frame);
            ApiMessage header = response
                ? new ResponseHeaderData(from, api.responseHeaderVersion(version))
                : new RequestHeaderData(from, api.requestHeaderVersion(version));
            // The oldest header has no client id.
            boolean named = !response && api.requestHeaderVersion(version) > 0;
            if (!response) line.put("client_id", named ? ((RequestHeaderData) header).clientId() : null);
            line.set("header_tags", tags(header));
            again = response ? api.newResponse() : api.newRequest();
            again.read(from, version);
            line.put("left", frame.remaining());
            line.set("body", converted(again, version));
            ObjectNode unknown = line.putObject("tags"), records = line.putObject("records");
            walk(again, "", unknown, records);
        } catch (InvocationTargetException error) {
            line.put("error", String.valueOf(error.getCause()));
        } catch (RuntimeException error) {
            line.put("error", String.valueOf(error));
        }
        return line;
    }

    static JsonNode converted(ApiMessage message, short version) throws Exception {
        Class<?> converter = Class.forName(message.getClass().getName() + "JsonConverter");
        try {
            return (JsonNode) converter.getMethod("write", message.getClass(), short.class, boolean.class).invoke(null, message, version, true);
        } catch (NoSuchMethodException none) {
            return (JsonNode) converter.getMethod("write", message.getClass(), short.class).invoke(null, message, version);
        }
    }

    static ArrayNode tags(Message message) {
        ArrayNode found = JSON.createArrayNode();
        for (RawTaggedField tag : message.unknownTaggedFields())
            found.addObject().put("tag", tag.tag()).put("base64", tag.data());
        return found;
    }

    /** Unknown tags and records of a struct and those inside of it, by path: names of fields and numbers of elements. */
    static void walk(Message message, String path, ObjectNode unknown, ObjectNode records) throws Exception {
        if (!message.unknownTaggedFields().isEmpty()) unknown.set(path, tags(message));
        for (java.lang.reflect.Field place : message.getClass().getDeclaredFields()) {
            if (Modifier.isStatic(place.getModifiers()) || place.getName().startsWith("_")) continue;
            place.setAccessible(true);
            Object value = place.get(message);
            String at = path + "." + place.getName();
            if (value instanceof Message) walk((Message) value, at, unknown, records);
            else if (value instanceof Collection) {
                int number = 0;
                for (Object element : (Collection<?>) value) {
                    if (element instanceof Message) walk((Message) element, at + "." + number, unknown, records);
                    number++;
                }
            } else if (value != null && recordClass("MemoryRecords").isInstance(value)) records.set(at, recordsOf(value));
        }
    }

    static ObjectNode recordsOf(Object records) throws Exception {
        ObjectNode found = JSON.createObjectNode();
        found.put("size", (Integer) call(records, "sizeInBytes"));
        ArrayNode batches = found.putArray("batches");
        for (Object batch : (Iterable<?>) call(records, "batches")) {
            ArrayNode inner = batches.addArray();
            for (Object record : (Iterable<?>) batch) {
                ObjectNode one = inner.addObject();
                one.put("offset", (Long) call(record, "offset")).put("timestamp", (Long) call(record, "timestamp"));
                one.put("key", copy((ByteBuffer) call(record, "key"))).put("value", copy((ByteBuffer) call(record, "value")));
                ArrayNode headers = one.putArray("headers");
                for (Header header : (Header[]) call(record, "headers"))
                    headers.addObject().put("key", header.key()).put("value", header.value());
            }
        }
        return found;
    }

    // ------------------------------------------------------------ Kafka's classes

    static byte[] written(ApiMessage header, short headerVersion, ApiMessage body, short version) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        int size = header.size(cache, headerVersion) + body.size(cache, version);
        ByteBufferAccessor to = new ByteBufferAccessor(ByteBuffer.allocate(size));
        header.write(to, cache, headerVersion);
        body.write(to, cache, version);
        if (to.buffer().hasRemaining()) throw new IllegalStateException("the size is not that of the message");
        return to.buffer().array();
    }

    static final Map<String, java.lang.reflect.Field> PLACES = new TreeMap<>();

    /** The Java field of a field in a schema ("topic_id" is topicId). */
    static java.lang.reflect.Field place(Message message, String name) {
        return PLACES.computeIfAbsent(message.getClass().getName() + " " + name, unused -> {
            String plain = name.replace("_", "");
            for (java.lang.reflect.Field place : message.getClass().getDeclaredFields())
                if (place.getName().equalsIgnoreCase(plain)) {
                    place.setAccessible(true);
                    return place;
                }
            throw new IllegalStateException(message.getClass().getName() + " has no field " + name);
        });
    }

    @SuppressWarnings("unchecked")
    static Map<Integer, Field> fieldsOf(TaggedFields type) throws Exception {
        java.lang.reflect.Field fields = TaggedFields.class.getDeclaredField("fields");
        fields.setAccessible(true);
        return new TreeMap<>((Map<Integer, Field>) fields.get(type));
    }

    /** A class of records. Kafka 4.4 moved them. */
    static Class<?> recordClass(String name) throws ClassNotFoundException {
        try {
            return Class.forName("org.apache.kafka.common.record.internal." + name);
        } catch (ClassNotFoundException older) {
            return Class.forName("org.apache.kafka.common.record." + name);
        }
    }

    static Object call(Object object, String name) throws Exception {
        for (Class<?> kind = object.getClass(); kind != null; kind = kind.getSuperclass())
            for (Method method : kind.getDeclaredMethods())
                if (method.getName().equals(name) && method.getParameterCount() == 0) {
                    method.setAccessible(true);
                    return method.invoke(object);
                }
        throw new NoSuchMethodException(name);
    }

    static byte[] copy(ByteBuffer data) {
        if (data == null) return null;
        byte[] found = new byte[data.remaining()];
        data.duplicate().get(found);
        return found;
    }
}
