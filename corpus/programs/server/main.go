// Server is an HTTP server with one planted cause for each path, for causes that the services themselves cannot have.
package main

import (
	"flag"
	"fmt"
	"io"
	"log"
	"math/rand"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

var (
	address    = flag.String("address", ":8080", "listen here")
	nagle      = flag.Bool("nagle", false, "leave Nagle's algorithm on")
	sendBuffer = flag.Int("send-buffer", 0, "SO_SNDBUF of connections, bytes")
	pause      = flag.Duration("pause", 0, "the whole server stands still this long, ...")
	pauseEvery = flag.Duration("pause-every", 2*time.Second, "... at these intervals")
	keepAlive  = flag.Bool("keep-alive", true, "keep connections")
)

type listener struct{ net.Listener }

func (l listener) Accept() (net.Conn, error) {
	connection, failure := l.Listener.Accept()
	if failure != nil {
		return nil, failure
	}
	tcp := connection.(*net.TCPConn)
	if *nagle {
		_ = tcp.SetNoDelay(false)
	}
	if *sendBuffer > 0 {
		_ = tcp.SetWriteBuffer(*sendBuffer)
	}
	return tcp, nil
}

var (
	lock    sync.Mutex   // one request at a time
	world   sync.RWMutex // held while the whole server stands still
	counter atomic.Int64
	random  = rand.New(rand.NewSource(7))
	dice    sync.Mutex
)

func number(request *http.Request, key string, otherwise int) int {
	value, failure := strconv.Atoi(request.URL.Query().Get(key))
	if failure != nil {
		return otherwise
	}
	return value
}

func milliseconds(request *http.Request, key string) time.Duration {
	value, _ := strconv.ParseFloat(request.URL.Query().Get(key), 64)
	return time.Duration(value * float64(time.Millisecond))
}

func percent(share float64) bool {
	dice.Lock()
	defer dice.Unlock()
	return random.Float64()*100 < share
}

func share(request *http.Request) float64 {
	value, _ := strconv.ParseFloat(request.URL.Query().Get("percent"), 64)
	return value
}

func spin(duration time.Duration) {
	for until := time.Now().Add(duration); time.Now().Before(until); {
	}
}

func answer(writer http.ResponseWriter, bytes int) {
	writer.Header().Set("Content-Length", strconv.Itoa(bytes))
	_, _ = io.WriteString(writer, strings.Repeat("x", bytes))
}

// Flushes the header before the body is written.
func twoWrites(writer http.ResponseWriter, request *http.Request) {
	bytes := number(request, "n", 200)
	writer.Header().Set("Content-Length", strconv.Itoa(bytes))
	writer.WriteHeader(http.StatusOK)
	writer.(http.Flusher).Flush()
	_, _ = io.WriteString(writer, strings.Repeat("x", bytes))
}

// A stream of server-sent events, or of tokens.
func events(writer http.ResponseWriter, request *http.Request) {
	writer.Header().Set("Content-Type", "text/event-stream")
	gap := milliseconds(request, "gap")
	time.Sleep(milliseconds(request, "first"))
	for i := 0; i < number(request, "n", 20); i++ {
		if i > 0 {
			time.Sleep(gap)
		}
		fmt.Fprintf(writer, "data: %s\n\n", strings.Repeat("t", number(request, "size", 12)))
		writer.(http.Flusher).Flush()
	}
}

func reset(writer http.ResponseWriter, request *http.Request) {
	if !percent(share(request)) {
		answer(writer, 300)
		return
	}
	connection, _, failure := writer.(http.Hijacker).Hijack()
	if failure == nil {
		_ = connection.(*net.TCPConn).SetLinger(0)
		_ = connection.Close()
	}
}

func hang(writer http.ResponseWriter, request *http.Request) {
	if percent(share(request)) {
		<-request.Context().Done()
		return
	}
	answer(writer, 300)
}

func main() {
	flag.Parse()
	handle := func(path string, handler http.HandlerFunc) {
		http.HandleFunc(path, func(writer http.ResponseWriter, request *http.Request) {
			world.RLock()
			world.RUnlock()
			counter.Add(1)
			handler(writer, request)
		})
	}
	handle("/bytes", func(w http.ResponseWriter, r *http.Request) { answer(w, number(r, "n", 200)) })
	handle("/sleep", func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(milliseconds(r, "ms"))
		answer(w, number(r, "n", 200))
	})
	handle("/cpu", func(w http.ResponseWriter, r *http.Request) {
		spin(milliseconds(r, "ms"))
		answer(w, number(r, "n", 200))
	})
	handle("/lock", func(w http.ResponseWriter, r *http.Request) {
		lock.Lock()
		time.Sleep(milliseconds(r, "ms"))
		lock.Unlock()
		answer(w, number(r, "n", 200))
	})
	handle("/sometimes", func(w http.ResponseWriter, r *http.Request) {
		if percent(share(r)) {
			time.Sleep(milliseconds(r, "ms"))
		}
		answer(w, number(r, "n", 200))
	})
	handle("/error", func(w http.ResponseWriter, r *http.Request) {
		if percent(share(r)) {
			http.Error(w, "overloaded", number(r, "status", 503))
			return
		}
		answer(w, 300)
	})
	// Work is looked for by a timer, as by a loop that polls a queue.
	handle("/tick", func(w http.ResponseWriter, r *http.Request) {
		tick := milliseconds(r, "ms")
		now := time.Now()
		time.Sleep(time.Until(now.Truncate(tick).Add(tick)))
		answer(w, number(r, "n", 200))
	})
	handle("/upload", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		answer(w, 20)
	})
	handle("/two", twoWrites)
	handle("/events", events)
	handle("/reset", reset)
	handle("/hang", hang)
	if *pause > 0 {
		go func() {
			for range time.Tick(*pauseEvery) {
				world.Lock()
				time.Sleep(*pause)
				world.Unlock()
			}
		}()
	}
	plain, failure := net.Listen("tcp", *address)
	if failure != nil {
		log.Fatal(failure)
	}
	server := &http.Server{}
	server.SetKeepAlivesEnabled(*keepAlive)
	log.Fatal(server.Serve(listener{plain}))
}
