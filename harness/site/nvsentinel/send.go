package nvsentinel

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// Times of one attempt to send, and between attempts.
var (
	attempts = 5
	limit    = 30 * time.Second
	pause    = 2 * time.Second
)

// Send sends an event to the platform connector, whose address is the path of a Unix socket, also
// written as unix:PATH. It is a gRPC call of one message, for which HTTP/2 is enough: a library
// of gRPC would make the harness larger by a tenth.
func Send(ctx context.Context, socket string, e Event) error {
	path := strings.TrimPrefix(strings.TrimPrefix(socket, "unix:"), "//")
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: &protocols, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}
	defer transport.CloseIdleConnections()
	message := e.marshal()
	frame := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)
	var err error
	for i := range attempts {
		if i > 0 {
			select {
			case <-time.After(pause << (i - 1)):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if err = call(ctx, transport, frame); err == nil {
			return nil
		}
	}
	return fmt.Errorf("the platform connector at %s: %w", path, err)
}

// call makes one attempt.
func call(ctx context.Context, transport http.RoundTripper, frame []byte) error {
	ctx, stop := context.WithTimeout(ctx, limit)
	defer stop()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://localhost/datamodels.PlatformConnector/HealthEventOccurredV1", bytes.NewReader(frame))
	if err != nil {
		return err
	}
	request.Header = http.Header{"Content-Type": {"application/grpc"}, "Te": {"trailers"}}
	answer, err := transport.RoundTrip(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if _, err := io.Copy(io.Discard, io.LimitReader(answer.Body, 1<<20)); err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("HTTP status %s", answer.Status)
	}
	status, text := answer.Trailer.Get("Grpc-Status"), answer.Trailer.Get("Grpc-Message")
	if status == "" { // an answer without a message has them among the headers
		status, text = answer.Header.Get("Grpc-Status"), answer.Header.Get("Grpc-Message")
	}
	if status != "0" {
		return fmt.Errorf("gRPC status %q: %s", status, text)
	}
	return nil
}
