package socket

import (
	"fmt"
	"io"
)

// An inbound is a stream of an Rx. The caller or the helper that reads from it owns it.
type inbound struct {
	fd    int
	ahead []byte // read-ahead; its data is in ahead[r:w]
	r, w  int
	body  []byte // destination of the rest of the current piece
	stall stall
}

// need reads until n bytes are in the read-ahead, and reports whether they are. If
// greedy, it also reads further available data.
func (s *inbound) need(n int, greedy bool) (bool, error) {
	if s.w-s.r >= n && s.r%align == 0 {
		return true, nil
	}
	if s.r == s.w {
		s.r, s.w = 0, 0
	} else if s.r%align != 0 || s.r+n > len(s.ahead) {
		s.w = copy(s.ahead, s.ahead[s.r:s.w])
		s.r = 0
	}
	for s.w-s.r < n {
		limit := s.r + n
		if greedy {
			limit = len(s.ahead)
		}
		got, err := arrived(receive(s.fd, s.ahead[s.w:limit], nil))
		if got == 0 {
			return false, err
		}
		s.w += got
	}
	return true, nil
}

// arrived interprets the result of a read: the end of the stream is an error, a lack of
// data is not.
func arrived(n int, err error) (int, error) {
	if err == errAgain {
		return 0, nil
	}
	if n == 0 && err == nil {
		return 0, io.EOF
	}
	return n, err
}

// drain moves the available data of message number to its destination, at most limit
// bytes, and returns how much it moved. It reads target only once it has a piece of this
// message: target does not change until the bytes of that piece are counted.
func (s *inbound) drain(number uint32, target *[]byte, limit int) (moved int, err error) {
	for moved < limit {
		if len(s.body) == 0 {
			if more, err := s.piece(number, target); !more {
				return moved, err
			}
			continue
		}
		if n := copy(s.body, s.ahead[s.r:s.w]); n > 0 {
			s.r += n
			s.body = s.body[n:]
			moved += n
			continue
		}
		s.r, s.w = 0, 0
		n, err := arrived(receive(s.fd, s.body, s.ahead[:headerSize]))
		if n == 0 {
			return moved, err
		}
		s.w = n - min(n, len(s.body))
		n -= s.w
		s.body = s.body[n:]
		moved += n
	}
	return moved, nil
}

// piece begins the message's next piece on this stream, if there is one.
func (s *inbound) piece(number uint32, target *[]byte) (bool, error) {
	if ok, err := s.need(headerSize, false); !ok {
		return false, err
	}
	h := parseHeader(s.ahead[s.r:])
	if h.number != number {
		return false, nil // of the next message: it waits
	}
	if err := h.check(len(*target)); err != nil || int(h.total) != len(*target) || h.length == 0 {
		return false, &wireError{fmt.Sprintf("no piece of message %d (%v)", number, err)}
	}
	s.r += headerSize
	s.body = (*target)[h.offset:][:h.length]
	return true, nil
}

// A wireError reports bytes that violate the protocol.
type wireError struct{ what string }

func (e *wireError) Error() string { return "it sent " + e.what }
