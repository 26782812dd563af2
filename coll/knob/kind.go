package knob

import (
	"errors"
	"fmt"
	stdnet "net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/assay-hpc/assay/coll/debug"
)

// A kind says how a variable's value is parsed. The error of set says what is wrong with the
// value; Load appends what is allowed.
type kind struct {
	values string // what is allowed, for the documentation and for errors
	set    func(k *Knobs, value string) error
}

// A refusal is the error of a valid value that cannot be obeyed.
type refusal struct{ reason string }

func (r refusal) Error() string { return r.reason }

// anything accepts any value and does not read it.
var anything = kind{"not looked at", func(*Knobs, string) error { return nil }}

func refusing(reason string) kind {
	return kind{"none", func(*Knobs, string) error { return refusal{reason} }}
}

// number parses an integer as C's strtoll does: decimal, 0x… or 0….
func number(s string, lo, hi int64) (int64, error) {
	if strings.Contains(s, "_") { // valid in Go only
		return 0, errors.New("it is not an integer")
	}
	n, err := strconv.ParseInt(s, 0, 64)
	switch {
	case errors.Is(err, strconv.ErrRange), err == nil && (n < lo || n > hi):
		return 0, errors.New("it is out of range")
	case err != nil:
		return 0, errors.New("it is not an integer")
	}
	return n, nil
}

// within parses a number from lo to hi into a field.
func within[T int | int64](values string, lo, hi T, field func(*Knobs) *T) kind {
	return kind{values, func(k *Knobs, s string) error {
		n, err := number(s, int64(lo), int64(hi))
		if err == nil {
			*field(k) = T(n)
		}
		return err
	}}
}

func integer(lo, hi int, field func(*Knobs) *int) kind {
	return within(fmt.Sprintf("%d to %d", lo, hi), lo, hi, field)
}

func bytes(lo, hi int64, field func(*Knobs) *int64) kind {
	return within(fmt.Sprintf("bytes without a unit, %d or more", lo), lo, hi, field)
}

func flag(field func(*Knobs) *bool) kind {
	return kind{"0 or 1", func(k *Knobs, s string) error {
		n, err := number(s, 0, 1)
		if err == nil {
			*field(k) = n == 1
		}
		return err
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

func text(values string, field func(*Knobs) *string) kind {
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

// numbered parses one of a few words, or its number, from 0.
func numbered(field func(*Knobs) *string, words ...string) kind {
	word := oneOf(field, words...)
	return kind{fmt.Sprintf("%s, or 0 to %d", strings.Join(words, ", "), len(words)-1), func(k *Knobs, s string) error {
		if n, err := number(s, 0, int64(len(words)-1)); err == nil {
			s = words[n]
		}
		return word.set(k, s)
	}}
}

// level parses a distance. The numbers are those of the guide, which is older than NVL.
func level(field func(*Knobs) *PathLevel) kind {
	numbers := []PathLevel{LOC, PIX, PXB, PHB, SYS}
	return kind{strings.Join(pathLevels[:], ", ") + ", or 0 to 4", func(k *Knobs, s string) error {
		if i := slices.IndexFunc(pathLevels[:], func(name string) bool { return strings.EqualFold(name, s) }); i >= 0 {
			*field(k) = PathLevel(i)
			return nil
		}
		n, err := number(s, 0, int64(len(numbers)-1))
		if err != nil {
			return errors.New("it is not a distance")
		}
		*field(k) = numbers[n]
		return nil
	}}
}

var debugLevel = kind{strings.Join(debug.LevelNames(), ", "), func(k *Knobs, s string) (err error) {
	k.Debug, err = debug.ParseLevel(s)
	return err
}}

var debugSubsystems = kind{"names with commas between them, after ^ all others: " + strings.Join(debug.SubsystemNames(), ", "), func(k *Knobs, s string) (err error) {
	k.DebugSubsystems, err = debug.ParseSubsystems(s)
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
		if n, err := number(port, 1, 65535); err != nil || strconv.FormatInt(n, 10) != port {
			return fmt.Errorf("%q is no port", port)
		}
		*field(k) = s
		return nil
	}}
}

// list checks prefixes separated by commas, with ^ and = allowed in front.
func list(s string, item func(string) bool) error {
	s = strings.TrimPrefix(s, "^")
	s = strings.TrimPrefix(s, "=")
	for name := range strings.SplitSeq(s, ",") {
		if !item(name) {
			return fmt.Errorf("%q in the list is not a name", name)
		}
	}
	return nil
}

func isName(s string) bool { return s != "" && !strings.ContainsAny(s, "^= \t/") }

func interfaces(field func(*Knobs) *string) kind {
	return kind{"prefixes of names with commas between them, after ^ all others, after = whole names: eth,ib or ^docker or =eth0", func(k *Knobs, s string) error {
		if err := list(s, isName); err != nil {
			return err
		}
		*field(k) = s
		return nil
	}}
}

func adapters(field func(*Knobs) *string) kind {
	return kind{"as NCCL_SOCKET_IFNAME, with a port after a colon: mlx5_0:1,mlx5_1:1", func(k *Knobs, s string) error {
		err := list(s, func(item string) bool {
			name, port, ported := strings.Cut(item, ":")
			if _, err := number(port, 1, 255); ported && err != nil {
				return false
			}
			return isName(name)
		})
		if err == nil {
			*field(k) = s
		}
		return err
	}}
}
