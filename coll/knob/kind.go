package knob

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	stdnet "net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/assay-hpc/assay/coll/debug"
)

// A kind says how a variable's value is parsed. The error of set says what is wrong with the value,
// which is then left out, and Load appends what is allowed; a note says what was made of it.
type kind struct {
	values string // what is allowed, for the documentation and for errors
	set    func(k *Knobs, value string) error
}

// A note is what was made of a value that is not taken as it is written.
type note struct {
	text string
	ours bool // NCCL takes the value as it is written
}

func (n note) Error() string { return n.text }

// notes joins what was made of a value in several steps; nil if nothing was.
func notes(all ...error) error {
	var out note
	for _, err := range all {
		if n, ok := errors.AsType[note](err); ok {
			out = note{strings.TrimPrefix(out.text+"; "+n.text, "; "), n.ours && (out.ours || out.text == "")}
		}
	}
	if out.text == "" {
		return nil
	}
	return out
}

// anything accepts any value and does not read it.
var anything = kind{"not looked at", func(*Knobs, string) error { return nil }}

// parseNumber parses an integer as NCCL does, by C's strtoll: decimal, 0x… or 0…, of which it reads as
// much as there is. NCCL does not take an integer of more than 64 bits.
func parseNumber(s string) (int64, error) {
	s = strings.TrimSpace(s)
	body := strings.TrimLeft(s, "+-")
	base, digits, end := 10, "0123456789", 0
	start := len(s) - len(body)
	switch {
	case start > 1:
		body = ""
	case len(body) > 2 && strings.EqualFold(body[:2], "0x") && strings.ContainsRune("0123456789abcdefABCDEF", rune(body[2])):
		base, digits, end = 16, "0123456789abcdefABCDEF", 2
	case strings.HasPrefix(body, "0"):
		base, digits = 8, "01234567"
	}
	first := end
	for end < len(body) && strings.IndexByte(digits, body[end]) >= 0 {
		end++
	}
	if end == first {
		return 0, note{text: "it is not an integer, and NCCL reads it as 0"}
	}
	n, err := strconv.ParseInt(s[:start]+body[first:end], base, 64)
	if err != nil {
		return 0, errors.New("it is out of range")
	}
	if rest := body[end:]; rest != "" {
		return n, note{text: fmt.Sprintf("NCCL reads %d of it, and not %q", n, debug.Short(rest, valueBytes))}
	}
	return n, nil
}

// unset is NCCL's default of many integers: that nothing is set.
const unset = -2

// within parses a number into a field. One that is larger than hi is hi, one that is smaller than lo
// is left out.
func within[T int | int64](values string, lo, hi T, field func(*Knobs) *T) kind {
	return kind{values, func(k *Knobs, s string) error {
		n, read := parseNumber(s)
		if read != nil && notes(read) == nil {
			return read
		}
		switch {
		case n == unset && unset < int64(lo):
			return notes(read)
		case n < int64(lo) && read != nil:
			return fmt.Errorf("%v, which is less than %d", read, lo)
		case n < int64(lo):
			return fmt.Errorf("it is less than %d", lo)
		case n > int64(hi):
			read = notes(read, note{text: fmt.Sprintf("it is more than %d, which is taken", hi), ours: true})
		}
		*field(k) = T(min(n, int64(hi)))
		return notes(read)
	}}
}

func integer(lo, hi int, field func(*Knobs) *int) kind {
	return within(fmt.Sprintf("%d to %d", lo, hi), lo, hi, field)
}

// raised is an integer for which what is smaller than lo is taken for another value.
func raised(lo, hi, to int, field func(*Knobs) *int) kind {
	k := integer(lo, hi, field)
	all := integer(math.MinInt32, hi, field)
	return kind{k.values, func(knobs *Knobs, s string) error {
		before := *field(knobs)
		err := all.set(knobs, s)
		if err != nil && notes(err) == nil {
			return err
		}
		if n := field(knobs); *n == unset {
			*n = before
		} else if *n < lo {
			*n, err = to, notes(err, note{text: fmt.Sprintf("it is less than %d, and %d is taken", lo, to)})
		}
		return err
	}}
}

func bytes(lo, hi int64, field func(*Knobs) *int64) kind {
	return within(fmt.Sprintf("bytes without a unit, %d or more", lo), lo, hi, field)
}

// flag is a variable of which NCCL takes any number but 0 for 1.
func flag(field func(*Knobs) *bool) kind { return truth(field, func(n int64) bool { return n != 0 }) }

// one is a variable of which NCCL takes any number but 1 for 0.
func one(field func(*Knobs) *bool) kind { return truth(field, func(n int64) bool { return n == 1 }) }

func truth(field func(*Knobs) *bool, is func(n int64) bool) kind {
	return kind{"0 or 1", func(k *Knobs, s string) error {
		n, read := parseNumber(s)
		if read != nil && notes(read) == nil {
			return read
		}
		if n == unset {
			return notes(read)
		}
		*field(k) = is(n)
		switch {
		case n == 0 || n == 1:
		case is(n):
			read = notes(read, note{text: "NCCL takes it for 1"})
		default:
			read = notes(read, note{text: "NCCL takes it for 0"})
		}
		return notes(read)
	}}
}

// maxSeconds is 31 years.
const maxSeconds = 1e9

func seconds(field func(*Knobs) *time.Duration) kind {
	return kind{"seconds without a unit, such as 30 or 0.5", func(k *Knobs, s string) error {
		f, err := strconv.ParseFloat(s, 64)
		if err != nil {
			return errors.New("it is not a number")
		}
		if !(f >= 0 && f <= maxSeconds) {
			return errors.New("it is out of range")
		}
		*field(k) = time.Duration(f * float64(time.Second))
		return nil
	}}
}

func textKind(values string, field func(*Knobs) *string) kind {
	return kind{values, func(k *Knobs, s string) error {
		*field(k) = s
		return nil
	}}
}

// oneOf parses one of a few words, in any case.
func oneOf(field func(*Knobs) *string, words ...string) kind {
	return kind{strings.Join(words, " or "), func(k *Knobs, s string) error {
		i := slices.IndexFunc(words, func(w string) bool { return strings.EqualFold(w, s) })
		if i < 0 {
			return errors.New("it is not one of the words")
		}
		*field(k) = words[i]
		return nil
	}}
}

// ctaPolicy parses a number of one digit, or words with | between them, of which the last in this
// order contains the others.
func ctaPolicy(field func(*Knobs) *string, words ...string) kind {
	return kind{fmt.Sprintf("%s, with | between them, or 0 to %d", strings.Join(words, ", "), len(words)-1), func(k *Knobs, s string) error {
		if s[0] >= '0' && s[0] <= '9' {
			n := int(s[0] - '0')
			if n >= len(words) {
				return errors.New("there is no such policy")
			}
			*field(k) = words[n]
			if len(s) > 1 {
				return note{text: fmt.Sprintf("NCCL reads %d of it", n)}
			}
			return nil
		}
		best := -1
		var unknown []string
		for word := range strings.SplitSeq(s, "|") {
			i := slices.IndexFunc(words, func(w string) bool { return strings.EqualFold(w, word) })
			if i < 0 && word != "" {
				unknown = append(unknown, strconv.Quote(debug.Short(word, valueBytes)))
			}
			best = max(best, i)
		}
		if best < 0 {
			return errors.New("there is no such policy")
		}
		*field(k) = words[best]
		if unknown != nil {
			return note{text: "there is no policy " + strings.Join(unknown, ", ")}
		}
		return nil
	}}
}

// levelNames are NCCL's names of distances, and what is meant by them here: the next one of those
// that there are which is not farther.
var levelNames = []struct {
	name  string
	level PathLevel
}{
	{"LOC", LOC}, {"NVL", NVL}, {"NVB", NVL}, {"C2C", NVL}, {"PIX", PIX}, {"PXB", PXB}, {"P2C", PXB}, {"PXN", PXB}, {"PHB", PHB}, {"SYS", SYS},
}

// level parses a distance. The numbers are those of the guide, which is older than NVL; one above 4
// is SYS.
func level(field func(*Knobs) *PathLevel) kind {
	numbers := []PathLevel{LOC, PIX, PXB, PHB, SYS}
	var all []string
	for _, l := range levelNames {
		all = append(all, l.name)
	}
	return kind{strings.Join(all, ", ") + ", or 0 to 4 and above", func(k *Knobs, s string) error {
		for _, l := range levelNames {
			if strings.EqualFold(l.name, s) {
				*field(k) = l.level
				return nil
			}
		}
		if s[0] < '0' || s[0] > '9' {
			return errors.New("it is not a distance")
		}
		n, err := parseNumber(s)
		if err != nil && notes(err) == nil { // too long a number is one above 4
			n, err = int64(len(numbers)), nil
		}
		*field(k) = numbers[min(n, int64(len(numbers)-1))]
		return notes(err)
	}}
}

var debugLevel = kind{strings.Join(debug.LevelNames(), ", "), func(k *Knobs, s string) error {
	l, err := debug.ParseLevel(strings.TrimSpace(s))
	if err == nil {
		k.Debug = l
	}
	return err
}}

var debugSubsystems = kind{"names with commas between them, after ^ all others: " + strings.Join(debug.SubsystemNames(), ", "), func(k *Knobs, s string) error {
	set, err := debug.ParseSubsystems(s)
	if err == nil {
		k.DebugSubsystems = set
	}
	return err
}}

// net is NCCL_NET. The valid names are known only when plugins are loaded.
var net = kind{"Socket, or the name of a plugin's network", func(k *Knobs, s string) error {
	k.Net = s
	if strings.EqualFold(s, "Socket") {
		k.Net = "Socket"
	}
	return nil
}}

func hostPort(field func(*Knobs) *string) kind {
	return kind{"host:port, with an IPv6 address as [address]:port", func(k *Knobs, s string) error {
		host, port, err := stdnet.SplitHostPort(s)
		if err != nil || host == "" {
			return errors.New("it is not host:port")
		}
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return fmt.Errorf("%q is no port", port)
		}
		*field(k) = s
		return nil
	}}
}

// listValues splits a list of names with commas between them, with ^ and = allowed in front. Empty names
// are left out, as NCCL leaves them out.
func listValues(s string) (front string, items []string) {
	rest := strings.TrimPrefix(s, "^")
	rest = strings.TrimPrefix(rest, "=")
	for item := range strings.SplitSeq(rest, ",") {
		if name, _, _ := strings.Cut(item, ":"); name != "" {
			items = append(items, item)
		}
	}
	return s[:len(s)-len(rest)], items
}

// strange notes a name that none has.
func strange(what, name string) error {
	if strings.ContainsAny(name, "^= \t/") {
		return note{text: fmt.Sprintf("no %s has the name %q", what, debug.Short(name, valueBytes))}
	}
	return nil
}

var errNoNames = errors.New("it names nothing")

func interfaces(field func(*Knobs) *string) kind {
	return kind{"prefixes of names with commas between them, after ^ all others, after = whole names: eth,ib or ^docker or =eth0", func(k *Knobs, s string) error {
		front, items := listValues(s)
		if items == nil {
			return errNoNames
		}
		var read error
		for i, item := range items {
			items[i], _, _ = strings.Cut(item, ":")
			read = cmp.Or(read, strange("interface", items[i]))
		}
		*field(k) = front + strings.Join(items, ",")
		return read
	}}
}

// adapters parses NCCL_IB_HCA. What stands behind a port, which NCCL takes for rail and plane, does
// not say which devices are used.
func adapters(field func(*Knobs) *string) kind {
	return kind{"as NCCL_SOCKET_IFNAME, with a port after a colon: mlx5_0:1,mlx5_1:1", func(k *Knobs, s string) error {
		front, items := listValues(s)
		if items == nil {
			return errNoNames
		}
		var read error
		for i, item := range items {
			parts := strings.Split(item, ":")
			read = cmp.Or(read, strange("device", parts[0]))
			items[i] = parts[0]
			if len(parts) > 1 && parts[1] != "" {
				port, err := parseNumber(parts[1])
				if err != nil || port < 1 || port > 255 {
					read = cmp.Or(read, error(note{text: fmt.Sprintf("no device has the port %q", debug.Short(parts[1], valueBytes))}))
				}
				if port != -1 { // any
					items[i] += ":" + strconv.FormatInt(port, 10)
				}
			}
		}
		*field(k) = front + strings.Join(items, ",")
		return read
	}}
}
