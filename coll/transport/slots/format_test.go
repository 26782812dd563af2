package slots

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/coll/transport"
	"github.com/assay-hpc/assay/internal/meet"
)

func TestHeader(t *testing.T) {
	slot := make([]byte, HeaderSize+100)
	want := transport.Header{Seq: 3, Sign: 0xffffffff}
	putHeader(slot, message, 7, 100, want)
	if h, n, err := parseHeader(slot, 7); h != want || n != 100 || err != nil {
		t.Errorf("%v %d %v", h, n, err)
	}
	if _, _, err := parseHeader(slot, 8); err == nil {
		t.Error("a message was taken for another one")
	}
	if _, _, err := parseHeader(slot[:HeaderSize+99], 7); err == nil {
		t.Error("a message is longer than its slot")
	}
	putHeader(slot, filler, 7, 0, want)
	if _, _, err := parseHeader(slot, 7); err == nil {
		t.Error("a filler was taken for a message")
	}
}

func TestAnswer(t *testing.T) {
	answer := func(text []byte, failure error) []byte {
		var b bytes.Buffer
		writeAnswer(&b, text, failure)
		return b.Bytes()
	}
	for _, tt := range []struct {
		name    string
		wire    []byte
		text    string
		failure string
	}{
		{"granted", answer([]byte("half"), nil), "half", ""},
		{"nothing to add", answer(nil, nil), "", ""},
		{"refused", answer(nil, errors.New("no memory")), "", "the receiver: no memory"},
		{"a long reason", answer(nil, errors.New(strings.Repeat("x", 2*maxText))), "", "the receiver: " + strings.Repeat("x", maxText)},
		{"another word", []byte{0, 0, 0, 0, 7}, "", "the receiver answers with a frame of kind 7"},
		{"too long", []byte{0, 1, 0, 1, byte(frameGranted)}, "", "the receiver does not answer: a frame of 65537 bytes; at most 65536 are possible"},
		{"hung up", nil, "", "the receiver does not answer: EOF"},
		{"hung up within", answer([]byte("half"), nil)[:7], "", "the receiver does not answer: unexpected EOF"},
	} {
		got, err := readAnswer(bytes.NewReader(tt.wire))
		if string(got) != tt.text && err == nil || (err == nil) != (tt.failure == "") || err != nil && err.Error() != tt.failure {
			t.Errorf("%s: readAnswer = %q, %v; want %q, %.60q", tt.name, got, err, tt.text, tt.failure)
		}
	}
}

// FuzzAsk: what is read was said in the same words, and no more was read.
func FuzzAsk(f *testing.F) {
	said := func(a ask) []byte {
		var b bytes.Buffer
		a.write(&b)
		return b.Bytes()
	}
	f.Add(said(ask{1, 512 << 10, []byte("half")}))
	f.Add(said(ask{}))
	f.Add([]byte{1, 2, 3})
	f.Add([]byte{0, 0, 0, 7, byte(frameAsk), 1, 2, 3, 4, 5, 6, 7})
	f.Fuzz(func(t *testing.T, wire []byte) {
		r := bytes.NewReader(wire)
		a, err := readAsk(r)
		if err != nil {
			return
		}
		rest, _ := io.ReadAll(r)
		if got := append(said(a), rest...); !bytes.Equal(got, wire) {
			t.Errorf("%q is read as %+v, which is %q", wire, a, got)
		}
	})
}

func TestBye(t *testing.T) {
	var good, other, short bytes.Buffer
	meet.WriteFrame(&good, frameBye, []byte{0, 0, 1, 2})
	meet.WriteFrame(&other, frameAsk, []byte{0, 0, 1, 2})
	meet.WriteFrame(&short, frameBye, nil)
	if n, err := readBye(&good); n != 258 || err != nil {
		t.Errorf("readBye = %d, %v; want 258", n, err)
	}
	for _, bad := range []*bytes.Buffer{&other, &short} {
		if _, err := readBye(bad); err == nil || !strings.Contains(err.Error(), "in place of a goodbye") {
			t.Errorf("readBye of nonsense: %v", err)
		}
	}
}
