package tcp

import (
	"testing"
)

var token = []byte("a token for tests")

func TestMeasure(t *testing.T) {
	s, err := Listen("127.0.0.1:0", token)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, o := range []Options{{}, {Both: true}, {Streams: 1}} {
		r, err := Measure(t.Context(), s.Addr().String(), token, o)
		t.Logf("%+v %v", r, err)
	}
}
