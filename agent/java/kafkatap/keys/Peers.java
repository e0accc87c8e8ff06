package kafkatap.keys;

import java.net.InetAddress;
import java.net.UnknownHostException;
import java.util.ArrayList;
import java.util.List;

/** The addresses whose connections are wanted: networks such as 10.1.0.0/16. None: all. */
final class Peers {
    private final List<byte[]> networks = new ArrayList<>();
    private final List<Integer> lengths = new ArrayList<>();

    Peers(List<String> words) throws UnknownHostException {
        for (String word : words) {
            String[] parts = word.split("/");
            networks.add(InetAddress.getByName(parts[0]).getAddress());
            lengths.add(Integer.parseInt(parts[1]));
        }
    }

    /** Whether the connections of an address, or of any address of a name, are wanted. */
    boolean has(String host) {
        if (networks.isEmpty()) {
            return true;
        }
        try {
            for (InetAddress address : InetAddress.getAllByName(host)) {
                if (has(address)) {
                    return true;
                }
            }
        } catch (UnknownHostException unknown) {
            // not among them
        }
        return false;
    }

    boolean has(InetAddress address) {
        boolean isWanted = networks.isEmpty();
        for (int i = 0; i < networks.size(); i++) {
            isWanted |= begins(address.getAddress(), networks.get(i), lengths.get(i));
        }
        return isWanted;
    }

    private static boolean begins(byte[] address, byte[] network, int length) {
        boolean isEqual = address.length == network.length;
        for (int bit = 0; isEqual && bit < length; bit++) {
            isEqual = ((address[bit >> 3] ^ network[bit >> 3]) & (0x80 >> (bit & 7))) == 0;
        }
        return isEqual;
    }
}
