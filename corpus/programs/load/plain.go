package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// A connection of redis, memcached, or of turns: a line "LENGTH\n" that is answered by as many bytes.
type plain struct {
	connection *net.TCPConn
	reader     *bufio.Reader
}

func newPlain() (exchanger, error) {
	connection, failure := dial()
	if failure != nil {
		return nil, failure
	}
	p := &plain{connection, bufio.NewReaderSize(connection, *readBytes)}
	if *protocol == "redis" && !*write {
		// The value that is read exists before the first request of interest.
		_ = p.send(command("SET", "key", strings.Repeat("v", *size)))
		if failure := p.redisAnswer(); failure != nil {
			return nil, failure
		}
	}
	if *protocol == "memcached" && !*write {
		value := strings.Repeat("v", *size)
		_ = p.send([]byte(fmt.Sprintf("set key 0 0 %d\r\n%s\r\n", *size, value)))
		if _, failure := p.reader.ReadString('\n'); failure != nil {
			return nil, failure
		}
	}
	return p, nil
}

func command(words ...string) []byte {
	var text bytes.Buffer
	fmt.Fprintf(&text, "*%d\r\n", len(words))
	for _, word := range words {
		fmt.Fprintf(&text, "$%d\r\n%s\r\n", len(word), word)
	}
	return text.Bytes()
}

func (p *plain) request(i int) []byte {
	switch *protocol {
	case "redis":
		if strings.HasPrefix(*path, "eval ") {
			return command("EVAL", strings.TrimPrefix(*path, "eval "), "0")
		}
		if *write {
			return command("SET", "key"+strconv.Itoa(i%16), strings.Repeat("v", *body))
		}
		return command("GET", "key")
	case "memcached":
		if *write {
			return []byte(fmt.Sprintf("set key%d 0 0 %d\r\n%s\r\n", i%16, *body, strings.Repeat("v", *body)))
		}
		return []byte("get key\r\n")
	}
	return []byte(fmt.Sprintf("%0*d\n", max(1, *body-1), *size))
}

func max(a, b int) int {
	if a > b {
		return a
	}
	return b
}

// Sends a request, in two writes if asked to.
func (p *plain) send(request []byte) error {
	_ = p.connection.SetDeadline(time.Now().Add(*timeout))
	if *split > 0 && *split < len(request) {
		if _, failure := p.connection.Write(request[:*split]); failure != nil {
			return failure
		}
		request = request[*split:]
	}
	_, failure := p.connection.Write(request)
	return failure
}

func (p *plain) exchange(i int) (first time.Time, failure error) {
	if *protocol == "connect" {
		return time.Now(), nil
	}
	for k := 0; k < *depth; k++ {
		if failure = p.send(p.request(i + k)); failure != nil {
			return first, failure
		}
	}
	for k := 0; k < *depth; k++ {
		time.Sleep(*readEvery)
		if _, failure = p.reader.Peek(1); failure != nil {
			return first, failure
		}
		if k == 0 {
			first = time.Now()
		}
		if failure = p.answer(); failure != nil {
			return first, failure
		}
	}
	return first, nil
}

func (p *plain) answer() error {
	switch *protocol {
	case "redis":
		return p.redisAnswer()
	case "memcached":
		line, failure := p.reader.ReadString('\n')
		if failure != nil || *write || !strings.HasPrefix(line, "VALUE") {
			return failure
		}
		_, failure = io.CopyN(io.Discard, p.reader, int64(*size+2+len("END\r\n")))
		return failure
	}
	_, failure := io.CopyN(io.Discard, p.reader, int64(*size))
	return failure
}

func (p *plain) redisAnswer() error {
	line, failure := p.reader.ReadString('\n')
	if failure != nil || line[0] != '$' {
		return failure
	}
	length, failure := strconv.Atoi(strings.TrimSpace(line[1:]))
	if failure == nil && length >= 0 {
		_, failure = io.CopyN(io.Discard, p.reader, int64(length+2))
	}
	return failure
}

func (p *plain) close() {
	if *abort {
		_ = p.connection.SetLinger(0)
	}
	_ = p.connection.Close()
}
