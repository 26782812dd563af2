package pickle

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
)

// Encode returns the pickle, of protocol 2, of nil, a bool, an int64, a string, or a slice or a
// dictionary of these.
func Encode(v any) ([]byte, error) {
	b, err := encode([]byte{0x80, 2}, v)
	return append(b, '.'), err
}

func encode(b []byte, v any) (_ []byte, err error) {
	switch v := v.(type) {
	case nil:
		b = append(b, 'N')
	case bool:
		b = append(b, 0x89) // and 0x88 is true
		if v {
			b[len(b)-1] = 0x88
		}
	case int64:
		b = binary.LittleEndian.AppendUint64(append(b, 0x8a, 8), uint64(v))
	case string:
		b = binary.LittleEndian.AppendUint32(append(b, 'X'), uint32(len(v)))
		b = append(b, v...)
	case []any:
		b = append(b, ']', '(')
		for _, item := range v {
			if b, err = encode(b, item); err != nil {
				return nil, err
			}
		}
		b = append(b, 'e')
	case map[string]any:
		b = append(b, '}', '(')
		for _, k := range slices.Sorted(maps.Keys(v)) {
			if b, err = encode(b, k); err == nil {
				b, err = encode(b, v[k])
			}
			if err != nil {
				return nil, err
			}
		}
		b = append(b, 'u')
	default:
		return nil, fmt.Errorf("a pickle of %T", v)
	}
	return b, nil
}
