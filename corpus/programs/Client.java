import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.BufferedOutputStream;
import java.io.OutputStream;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.Arrays;

/**
 * Java clients: "http" uses java.net.http with keep-alive; "fields" writes a request for server.py --turns field by field through
 * an unbuffered stream ("buffered": the remedy), with Nagle's algorithm off ("nagle": on).
 * Arguments: MODE REQUESTS THINK_MS SIZE [buffered] [nagle]. Prints one line of JSON about what it measured.
 */
public class Client {
    public static void main(String[] arguments) throws Exception {
        int requests = Integer.parseInt(arguments[1]);
        double think = Double.parseDouble(arguments[2]);
        int size = Integer.parseInt(arguments[3]);
        boolean buffered = Arrays.asList(arguments).contains("buffered");
        boolean nagle = Arrays.asList(arguments).contains("nagle");
        double[] times = new double[requests];
        long begin;
        if (arguments[0].equals("http")) {
            HttpClient client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
            HttpRequest request = HttpRequest.newBuilder(URI.create("http://10.77.0.2:8080/bytes?n=" + size)).build();
            begin = System.nanoTime();
            for (int i = 0; i < requests; i++) {
                pause(i, think);
                long start = System.nanoTime();
                client.send(request, HttpResponse.BodyHandlers.ofByteArray());
                times[i] = (System.nanoTime() - start) / 1e3;
            }
        } else {
            Socket socket = new Socket();
            socket.setTcpNoDelay(!nagle);
            socket.connect(new InetSocketAddress("10.77.0.2", 8080));
            OutputStream plain = socket.getOutputStream();
            DataOutputStream out = new DataOutputStream(buffered ? new BufferedOutputStream(plain) : plain);
            DataInputStream in = new DataInputStream(socket.getInputStream());
            byte[] answer = new byte[size];
            // The number, padded: each character is written by its own call, as by writeByte() of a record's fields.
            String text = String.format("%063d\n", size);
            begin = System.nanoTime();
            for (int i = 0; i < requests; i++) {
                pause(i, think);
                long start = System.nanoTime();
                for (int c = 0; c < text.length(); c += 4) {
                    out.writeInt(text.charAt(c) << 24 | text.charAt(c + 1) << 16 | text.charAt(c + 2) << 8 | text.charAt(c + 3));
                }
                out.flush();
                in.readFully(answer);
                times[i] = (System.nanoTime() - start) / 1e3;
            }
            socket.close();
        }
        double seconds = (System.nanoTime() - begin) / 1e9;
        double mean = Arrays.stream(times).average().orElse(0);
        Arrays.sort(times);
        System.out.printf("{\"operations\": %d, \"failed\": 0, \"seconds\": %f, \"rate\": %f, \"mean_us\": %f, \"p50_us\": %f, \"p99_us\": %f, \"first_us\": 0}%n",
            requests, seconds, requests / seconds, mean, times[requests / 2], times[(int) (requests * 0.99)]);
    }

    private static void pause(int i, double think) throws InterruptedException {
        if (i > 0 && think > 0) {
            Thread.sleep((long) think);
        }
    }
}
