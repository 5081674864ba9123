// Load sends requests of one protocol over several connections and prints one line of JSON about what it measured.
// Its figures are independent of any capture: the corpus compares predictions with them.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand"
	"net"
	"os"
	"sort"
	"sync"
	"syscall"
	"time"
)

var (
	protocol    = flag.String("protocol", "http", "http, redis, memcached, turns or connect")
	address     = flag.String("address", "10.77.0.2:80", "server")
	connections = flag.Int("connections", 1, "connections, each with a loop of its own")
	requests    = flag.Int("requests", 200, "requests of each connection")
	think       = flag.Duration("think", 0, "pause between an answer and the next request")
	spread      = flag.Float64("spread", 0, "the pause varies by this share")
	poll        = flag.Duration("poll", 0, "one request at each tick of a fixed clock (open loop)")
	poisson     = flag.Float64("poisson", 0, "requests per second of each connection at random times (open loop)")
	busy        = flag.Duration("busy", 0, "processor time that the client spends on each answer")
	depth       = flag.Int("depth", 1, "requests outstanding on a connection (redis and turns)")
	nagle       = flag.Bool("nagle", false, "leave Nagle's algorithm on")
	split       = flag.Int("split", 0, "write each request in pieces: the first has this many bytes")
	receive     = flag.Int("receive-buffer", 0, "SO_RCVBUF in bytes")
	readEvery   = flag.Duration("read-every", 0, "slow reader: pause before each read of an answer")
	readBytes   = flag.Int("read-bytes", 65536, "bytes of each read of an answer")
	path        = flag.String("path", "/", "HTTP: path")
	method      = flag.String("method", "GET", "HTTP: method")
	body        = flag.Int("body", 0, "bytes of the body or value of a request")
	size        = flag.Int("size", 100, "bytes of the value read or the answer (redis, memcached, turns)")
	keepAlive   = flag.Bool("keep-alive", true, "keep connections open between requests")
	expect      = flag.Duration("expect", -1, "HTTP: Expect: 100-continue, and this pause before the body")
	timeout     = flag.Duration("timeout", 20*time.Second, "an operation is given up after this time")
	stagger     = flag.Duration("stagger", 0, "pause between the starts of connections")
	write       = flag.Bool("write", false, "redis and memcached: set instead of get")
	abort       = flag.Bool("abort", false, "close by RST after the last answer")
	seed        = flag.Int64("seed", 1, "seed of random times")
	hold        = flag.Duration("hold", 0, "stay connected and idle after the last answer")
)

// One operation: when it was due or sent, its first byte, and its end.
type operation struct {
	start, first, end time.Time
	failed            bool
}

// A client of one protocol: does one operation, or `depth` operations that overlap.
type exchanger interface {
	exchange(i int) (first time.Time, failure error)
	close()
}

func dial() (*net.TCPConn, error) {
	dialer := net.Dialer{Timeout: *timeout, KeepAlive: -1}
	if *receive > 0 {
		dialer.Control = func(_, _ string, raw syscall.RawConn) error {
			return raw.Control(func(fd uintptr) {
				_ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, *receive)
			})
		}
	}
	connection, failure := dialer.Dial("tcp", *address)
	if failure != nil {
		return nil, failure
	}
	tcp := connection.(*net.TCPConn)
	return tcp, tcp.SetNoDelay(!*nagle)
}

func wait(random *rand.Rand, started time.Time, i int, due *time.Time) time.Time {
	switch {
	case *poll > 0:
		*due = started.Add(time.Duration(i) * *poll)
	case *poisson > 0:
		*due = due.Add(time.Duration(random.ExpFloat64() / *poisson * 1e9))
	default:
		if i > 0 {
			pause := float64(*think) * (1 + *spread*(2*random.Float64()-1))
			time.Sleep(time.Duration(pause))
			for until := time.Now().Add(*busy); time.Now().Before(until); {
			}
		}
		return time.Now()
	}
	time.Sleep(time.Until(*due))
	// Not `due`: a timer that is late is no part of the operation, and a capture does not see it.
	return time.Now()
}

func loop(number int) (done []operation) {
	random := rand.New(rand.NewSource(*seed + int64(number)))
	var client exchanger
	started := time.Now()
	due := started
	for i := 0; i < *requests; i += *depth {
		start := wait(random, started, i, &due)
		if client == nil {
			fresh, failure := open()
			if failure != nil {
				done = append(done, operation{start, time.Now(), time.Now(), true})
				continue
			}
			client = fresh
		}
		first, failure := client.exchange(i)
		end := time.Now()
		for k := 0; k < *depth; k++ {
			done = append(done, operation{start, first, end, failure != nil})
		}
		if failure != nil || !*keepAlive {
			client.close()
			client = nil
		}
	}
	time.Sleep(*hold)
	if client != nil {
		client.close()
	}
	return done
}

func open() (exchanger, error) {
	switch *protocol {
	case "http":
		return newWeb()
	case "redis", "memcached", "turns", "connect":
		return newPlain()
	}
	return nil, fmt.Errorf("unknown protocol %s", *protocol)
}

func main() {
	flag.Parse()
	var group sync.WaitGroup
	results := make([][]operation, *connections)
	begin := time.Now()
	for c := 0; c < *connections; c++ {
		group.Add(1)
		go func(c int) {
			defer group.Done()
			time.Sleep(time.Duration(c) * *stagger)
			results[c] = loop(c)
		}(c)
	}
	group.Wait()
	report(results, time.Since(begin)-*hold)
}

func report(results [][]operation, elapsed time.Duration) {
	var whole, first []float64
	failed := 0
	for _, loop := range results {
		for _, one := range loop {
			if one.failed {
				failed++
				continue
			}
			whole = append(whole, float64(one.end.Sub(one.start).Nanoseconds())/1e3)
			first = append(first, float64(one.first.Sub(one.start).Nanoseconds())/1e3)
		}
	}
	_ = json.NewEncoder(os.Stdout).Encode(map[string]any{
		"operations": len(whole), "failed": failed, "seconds": elapsed.Seconds(),
		"rate": float64(len(whole)) / elapsed.Seconds(), "mean_us": mean(whole), "p50_us": quantile(whole, 0.5),
		"p99_us": quantile(whole, 0.99), "first_us": mean(first),
	})
}

func mean(values []float64) float64 {
	sum := 0.0
	for _, value := range values {
		sum += value
	}
	if len(values) == 0 {
		return 0
	}
	return sum / float64(len(values))
}

func quantile(values []float64, share float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sort.Float64s(values)
	return values[int(share*float64(len(values)-1))]
}
