import java.io.*;
import java.net.*;
import java.util.*;
import java.util.concurrent.*;

/** A server with a pool of threads, a map that grows, and enough garbage for its collector. */
public class Heap {
    static final ConcurrentHashMap<Integer, String> kept = new ConcurrentHashMap<>();
    static final ExecutorService pool = Executors.newFixedThreadPool(4);

    static String step(int n) throws Exception {
        List<Future<Long>> all = new ArrayList<>();
        for (int i = 0; i < 8; i++) {
            all.add(pool.submit(() -> {
                long sum = 0;
                for (int k = 0; k < 2000; k++) {
                    byte[] fresh = new byte[10000];
                    for (byte b : fresh) sum += b;
                    fresh[k % 10000] = 1;
                }
                return sum;
            }));
        }
        for (Future<Long> one : all) if (one.get() != 0) return "failed: fresh memory is not zero";
        for (int i = 0; i < 1000; i++) kept.put(n * 1000 + i, "v" + (n * 1000 + i));
        System.gc();
        for (Map.Entry<Integer, String> e : kept.entrySet())
            if (!e.getValue().equals("v" + e.getKey())) return "failed: " + e;
        return n + " " + kept.size();
    }

    public static void main(String[] args) throws Exception {
        ServerSocket server = new ServerSocket(7000, 50, InetAddress.getByName("127.0.0.1"));
        for (int n = 1; ; n++) {
            try (Socket s = server.accept()) {
                new BufferedReader(new InputStreamReader(s.getInputStream())).readLine();
                s.getOutputStream().write((step(n) + "\n").getBytes());
            }
        }
    }
}
