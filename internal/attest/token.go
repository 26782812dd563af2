package attest

import (
	"encoding/json"
	"strings"
)

// next returns the next byte that is not white space, without going past it; 0 at the end.
func (r *reader) next() byte {
	for ; r.i < len(r.b); r.i++ {
		switch c := r.b[r.i]; c {
		case ' ', '\t', '\n', '\r':
		case 0:
			return 1 // no JSON has it here either
		default:
			return c
		}
	}
	return 0
}

// literal goes past a word, if it is there.
func (r *reader) literal(word string) bool {
	if len(r.b)-r.i < len(word) || string(r.b[r.i:r.i+len(word)]) != word {
		return false
	}
	r.i += len(word)
	return true
}

func found(ok bool) error {
	if !ok {
		return errJSON
	}
	return nil
}

// quoted reads a string, and returns its text: a part of the document, if it has no escapes.
func (r *reader) quoted() ([]byte, error) {
	escapes := false
	for i := r.i + 1; i < len(r.b); i++ {
		switch c := r.b[i]; {
		case c > '\\' || c < '\\' && c > '"':
		case c == '"':
			text := r.b[r.i+1 : i : i]
			if escapes {
				var s string
				if json.Unmarshal(r.b[r.i:i+1], &s) != nil {
					return nil, errJSON
				}
				text = []byte(s)
			}
			r.i = i + 1
			return text, nil
		case c == '\\':
			escapes = true
			i++
		case c < ' ':
			return nil, errJSON
		}
	}
	return nil, errJSON
}

// digits goes past a number: -?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?
func (r *reader) digits() bool {
	r.sign("-")
	if zero := r.i < len(r.b) && r.b[r.i] == '0'; zero {
		r.i++
	} else if !r.run() {
		return false
	}
	if r.i < len(r.b) && r.b[r.i] == '.' {
		r.i++
		if !r.run() {
			return false
		}
	}
	if r.sign("eE") {
		r.sign("+-")
		return r.run()
	}
	return true
}

// sign goes past one byte, if it is one of some.
func (r *reader) sign(of string) bool {
	ok := r.i < len(r.b) && strings.IndexByte(of, r.b[r.i]) >= 0
	if ok {
		r.i++
	}
	return ok
}

// run goes past decimal digits, and reports whether there is one.
func (r *reader) run() bool {
	begin := r.i
	for r.i < len(r.b) && '0' <= r.b[r.i] && r.b[r.i] <= '9' {
		r.i++
	}
	return r.i > begin
}
