// Package pickle reads Python's pickles as data: numbers, text, bytes, lists, tuples, sets and
// dictionaries, of protocols 2 to 5. A pickle can also name functions that the reader is to call; such
// a pickle is an error here.
package pickle

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"
)

// A container is a list or a dictionary, which may change after it was stored in another one.
type container struct {
	dict  bool
	items []any // keys and values in turn, of a dictionary
}

type tuple []any

// mark is on the stack where the items of a container begin.
type mark struct{}

type reader struct {
	b     []byte
	at    int
	stack []any
	memo  map[uint64]any
}

// Limits of what a file may make its reader allocate, and how deep it may go.
const (
	maxDepth = 100
	maxItems = 50_000_000
)

// ErrCode: the pickle is more than data.
var ErrCode = errors.New("it names functions to be called, which are not called here")

var errEnd = errors.New("it ends too early")

// Decode returns the value of a pickle in terms of encoding/json: a dictionary is a map[string]any,
// with keys as fmt.Sprint prints them, lists, tuples and sets are []any, and numbers are int64,
// *big.Int or float64. Infinities and NaN are nil.
func Decode(b []byte) (v any, err error) {
	r := &reader{b: b, memo: map[uint64]any{}}
	if v, err = r.run(); err == nil {
		items := 0
		v, err = plain(v, maxDepth, &items)
	}
	if err != nil {
		return nil, fmt.Errorf("pickle, byte %d: %w", r.at, err)
	}
	return v, nil
}

func (r *reader) run() (any, error) {
	for {
		op, err := r.take(1)
		if err != nil {
			return nil, err
		}
		if op[0] == '.' {
			return r.pop()
		}
		if err := r.do(op[0]); err != nil {
			return nil, err
		}
	}
}

func (r *reader) take(n uint64) ([]byte, error) {
	if n > uint64(len(r.b)-r.at) {
		return nil, errEnd
	}
	p := r.b[r.at:][:n]
	r.at += int(n)
	return p, nil
}

// number reads an unsigned number of so many bytes.
func (r *reader) number(bytes uint64) (uint64, error) {
	p, err := r.take(bytes)
	if err != nil {
		return 0, err
	}
	var all [8]byte
	copy(all[:], p)
	return binary.LittleEndian.Uint64(all[:]), nil
}

// sized reads as many bytes as a number of so many bytes before them says.
func (r *reader) sized(bytes uint64) ([]byte, error) {
	n, err := r.number(bytes)
	if err != nil {
		return nil, err
	}
	return r.take(n)
}

func (r *reader) push(v any) { r.stack = append(r.stack, v) }

func (r *reader) pop() (any, error) {
	if len(r.stack) == 0 {
		return nil, errors.New("it takes more than it has")
	}
	v := r.stack[len(r.stack)-1]
	r.stack = r.stack[:len(r.stack)-1]
	return v, nil
}

// marked returns the values above the last mark, without it.
func (r *reader) marked() ([]any, error) {
	for i := len(r.stack) - 1; i >= 0; i-- {
		if _, ok := r.stack[i].(mark); ok {
			items := slices.Clone(r.stack[i+1:])
			r.stack = r.stack[:i]
			return items, nil
		}
	}
	return nil, errors.New("it takes items of nothing")
}

// last returns the n values on top.
func (r *reader) last(n int) ([]any, error) {
	if len(r.stack) < n {
		return nil, errors.New("it takes more than it has")
	}
	items := slices.Clone(r.stack[len(r.stack)-n:])
	r.stack = r.stack[:len(r.stack)-n]
	return items, nil
}

// add adds items to the container on top.
func (r *reader) add(items []any, err error) error {
	if err != nil {
		return err
	}
	if len(r.stack) > 0 {
		if c, ok := r.stack[len(r.stack)-1].(*container); ok && (!c.dict || len(items)%2 == 0) {
			c.items = append(c.items, items...)
			return nil
		}
	}
	return errors.New("it adds items to something else than a list or a dictionary")
}

// do carries out an instruction. Those of a kind differ in the size of their argument.
func (r *reader) do(op byte) error {
	var v any
	var n uint64
	var p []byte
	var err error
	switch op {
	case 0x80: // PROTO
		n, err = r.number(1)
		if err == nil && n > 5 {
			err = fmt.Errorf("protocol %d, of 0 to 5", n)
		}
		return err
	case 0x95: // FRAME
		_, err = r.take(8)
		return err
	case '(':
		v = mark{}
	case 'N':
		v = nil
	case 0x88, 0x89:
		v = op == 0x88
	case 'J': // BININT
		n, err = r.number(4)
		v = int64(int32(n))
	case 'K', 'M': // BININT1, BININT2
		n, err = r.number(map[byte]uint64{'K': 1, 'M': 2}[op])
		v = int64(n)
	case 0x8a, 0x8b: // LONG1, LONG4
		p, err = r.sized(map[byte]uint64{0x8a: 1, 0x8b: 4}[op])
		v = long(p)
	case 'G': // BINFLOAT
		if p, err = r.take(8); err == nil {
			v = math.Float64frombits(binary.BigEndian.Uint64(p))
		}
	case 'X', 0x8c, 0x8d, 'B', 'C', 0x8e, 0x96, 'T', 'U': // text and bytes
		p, err = r.sized(map[byte]uint64{'X': 4, 0x8c: 1, 0x8d: 8, 'B': 4, 'C': 1, 0x8e: 8, 0x96: 8, 'T': 4, 'U': 1}[op])
		v = string(p)
	case ']', 0x8f: // EMPTY_LIST, EMPTY_SET
		v = &container{}
	case '}':
		v = &container{dict: true}
	case ')':
		v = tuple{}
	case 't', 0x91: // TUPLE, FROZENSET
		p, err := r.marked()
		r.push(tuple(p))
		return err
	case 'l', 'd': // LIST, DICT
		items, err := r.marked()
		if err == nil && op == 'd' && len(items)%2 != 0 {
			err = errors.New("a key without a value")
		}
		r.push(&container{op == 'd', items})
		return err
	case 0x85, 0x86, 0x87: // TUPLE1 to TUPLE3
		p, err := r.last(int(op - 0x84))
		r.push(tuple(p))
		return err
	case 'a': // APPEND
		return r.add(r.last(1))
	case 's': // SETITEM
		return r.add(r.last(2))
	case 'e', 'u', 0x90: // APPENDS, SETITEMS, ADDITEMS
		return r.add(r.marked())
	case 'q', 'r', 0x94: // BINPUT, LONG_BINPUT, MEMOIZE
		if n = uint64(len(r.memo)); op != 0x94 {
			n, err = r.number(map[byte]uint64{'q': 1, 'r': 4}[op])
		}
		if err == nil && len(r.stack) == 0 {
			err = errors.New("it stores nothing")
		}
		if err == nil {
			r.memo[n] = r.stack[len(r.stack)-1]
		}
		return err
	case 'h', 'j': // BINGET, LONG_BINGET
		n, err = r.number(map[byte]uint64{'h': 1, 'j': 4}[op])
		stored, ok := r.memo[n]
		if err == nil && !ok {
			err = fmt.Errorf("it stored nothing as %d", n)
		}
		v = stored
	case '0': // POP
		_, err = r.pop()
		return err
	case '2': // DUP
		if v, err = r.pop(); err == nil {
			r.push(v)
		}
	case 'c', 'R', 'b', 'i', 'o', 0x81, 0x92, 0x93, 'P', 'Q', 0x82, 0x83, 0x84: // GLOBAL, REDUCE, …
		return ErrCode
	default:
		return fmt.Errorf("%#x is no instruction of protocols 2 to 5", op)
	}
	if err == nil {
		r.push(v)
	}
	return err
}

// long is a number of any length, in two's complement.
func long(p []byte) any {
	if len(p) <= 8 {
		var n int64
		for i := len(p) - 1; i >= 0; i-- {
			n = n<<8 | int64(p[i])
		}
		if len(p) > 0 && len(p) < 8 && p[len(p)-1] >= 0x80 {
			n -= 1 << (8 * len(p))
		}
		return n
	}
	b := slices.Clone(p)
	slices.Reverse(b)
	n := new(big.Int).SetBytes(b)
	if b[0] >= 0x80 {
		n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))))
	}
	return n
}

// plain returns a value without what the reader needs only.
func plain(v any, depth int, items *int) (any, error) {
	if *items++; depth == 0 || *items > maxItems {
		return nil, errors.New("it is too deep or too large, or contains itself")
	}
	list := func(all []any) (any, error) {
		out := make([]any, len(all))
		for i, v := range all {
			var err error
			if out[i], err = plain(v, depth-1, items); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	switch v := v.(type) {
	case mark:
		return nil, errors.New("items of nothing are left")
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, nil
		}
	case tuple:
		return list(v)
	case *container:
		if !v.dict {
			return list(v.items)
		}
		out := map[string]any{}
		for i := 0; i < len(v.items); i += 2 {
			key, err := plain(v.items[i], depth-1, items)
			if err != nil {
				return nil, err
			}
			if out[fmt.Sprint(key)], err = plain(v.items[i+1], depth-1, items); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	return v, nil
}
