import java.nio.ByteBuffer;
import java.util.HexFormat;
import java.util.TreeMap;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.types.BoundField;
import org.apache.kafka.common.protocol.types.Schema;
import org.apache.kafka.common.protocol.types.Struct;
import org.apache.kafka.common.protocol.types.TaggedFields;
import org.apache.kafka.common.protocol.types.Type;

/**
 * Writes messages.txt: a request and an answer of each kind and version that Apache Kafka 4.1.1 has, by its own classes, without headers.
 * Arrays have one element, strings are the names of their fields, and errors are 42: java -cp 'lib/*' Messages.java > messages.txt
 */
public class Messages {
    static Object value(Type type, String name) {
        if (type instanceof Schema schema) {
            return struct(schema);
        }
        if (type.isArray()) {
            return new Object[] {value(type.arrayElementType().get(), name)};
        }
        String kind = type.toString();
        return switch (kind) {
            case "INT8" -> (byte) 7;
            case "INT16" -> (short) (name.endsWith("error_code") ? 42 : 7);
            case "UINT16", "INT32" -> 7;
            case "INT64", "UINT32" -> 7L;
            case "FLOAT64" -> 7.0;
            case "BOOLEAN" -> true;
            case "UUID" -> new Uuid(7, 7);
            default -> kind.contains("STRING") ? name : kind.contains("RECORDS") ? null : ByteBuffer.wrap(new byte[3]);
        };
    }

    static Struct struct(Schema schema) {
        Struct struct = new Struct(schema);
        for (BoundField field : schema.fields()) {
            boolean isTags = field.def.type instanceof TaggedFields;
            struct.set(field, isTags ? new TreeMap<Integer, Object>() : value(field.def.type, field.def.name));
        }
        return struct;
    }

    static String bytes(Schema schema) {
        Struct struct = struct(schema);
        ByteBuffer buffer = ByteBuffer.allocate(schema.sizeOf(struct));
        schema.write(buffer, struct);
        return HexFormat.of().formatHex(buffer.array());
    }

    public static void main(String[] arguments) {
        for (ApiKeys key : ApiKeys.values()) {
            var kind = key.messageType;
            for (short version = kind.lowestSupportedVersion(); version <= kind.highestSupportedVersion(true); version++) {
                String request = bytes(kind.requestSchemas()[version]);
                System.out.println(key.id + " " + version + " " + request + " " + bytes(kind.responseSchemas()[version]));
            }
        }
    }
}
