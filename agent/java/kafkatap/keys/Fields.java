package kafkatap.keys;

import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.util.ArrayList;
import java.util.List;

/** Private fields of objects. */
final class Fields {
    private Fields() {}

    /** The value at a path of fields, such as `conContext.transport`. */
    static Object get(Object object, String path) throws ReflectiveOperationException {
        for (String name : path.split("\\.")) {
            object = object == null ? null : find(object.getClass(), name).get(object);
        }
        return object;
    }

    /** A field of a class or of what it extends. */
    static Field find(Class<?> type, String name) throws NoSuchFieldException {
        for (Class<?> each = type; each != null; each = each.getSuperclass()) {
            for (Field field : each.getDeclaredFields()) {
                if (field.getName().equals(name)) {
                    field.setAccessible(true);
                    return field;
                }
            }
        }
        throw new NoSuchFieldException(type.getName() + "." + name);
    }

    /** All fields of a class and of what it extends that refer to objects. */
    static List<Field> references(Class<?> type) {
        List<Field> found = new ArrayList<>();
        for (Class<?> each = type; each != null && each != Object.class; each = each.getSuperclass()) {
            for (Field field : each.getDeclaredFields()) {
                if (!Modifier.isStatic(field.getModifiers()) && !field.getType().isPrimitive()) {
                    try {
                        field.setAccessible(true);
                        found.add(field);
                    } catch (RuntimeException closed) {
                        // a package that is not opened holds nothing that is looked for
                    }
                }
            }
        }
        return found;
    }
}
