package main

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// A connection of Go's own HTTP client.
type web struct {
	client    *http.Client
	transport *http.Transport
	last      *net.TCPConn
}

func newWeb() (exchanger, error) {
	w := &web{}
	w.transport = &http.Transport{
		DisableKeepAlives: !*keepAlive, DisableCompression: true, MaxConnsPerHost: 1, ExpectContinueTimeout: time.Second,
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			connection, failure := dial()
			w.last = connection
			if failure != nil {
				return nil, failure
			}
			return connection, nil
		},
	}
	w.client = &http.Client{Transport: w.transport, Timeout: *timeout}
	return w, nil
}

// A body that arrives late: the pause begins when the client asks for it, which is after 100 Continue.
type lateBody struct {
	io.Reader
	paused bool
}

func (b *lateBody) Read(p []byte) (int, error) {
	if !b.paused {
		b.paused = true
		time.Sleep(*expect)
	}
	return b.Reader.Read(p)
}

func (w *web) exchange(int) (first time.Time, failure error) {
	var content io.Reader
	if *body > 0 {
		content = strings.NewReader(strings.Repeat("b", *body))
		if *expect > 0 {
			content = &lateBody{Reader: content}
		}
	}
	request, failure := http.NewRequest(*method, "http://"+*address+*path, content)
	if failure != nil {
		return first, failure
	}
	request.ContentLength = int64(*body)
	if *expect >= 0 {
		request.Header.Set("Expect", "100-continue")
	}
	answer, failure := w.client.Do(request)
	if failure != nil {
		return first, failure
	}
	defer answer.Body.Close()
	buffer := make([]byte, *readBytes)
	for {
		time.Sleep(*readEvery)
		got, failure := answer.Body.Read(buffer)
		if got > 0 && first.IsZero() {
			first = time.Now()
		}
		if errors.Is(failure, io.EOF) {
			break
		}
		if failure != nil {
			return first, failure
		}
	}
	if first.IsZero() {
		first = time.Now()
	}
	// An answer with an error is an answer: its rate is in the server's log.
	return first, nil
}

func (w *web) close() {
	if *abort && w.last != nil {
		_ = w.last.SetLinger(0)
	}
	w.transport.CloseIdleConnections()
}
