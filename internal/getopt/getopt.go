// Package getopt parses command lines as C's getopt_long does, for commands that must take the flags
// of nccl-tests and perftest: -b8, -b 8, bundles such as -aF, --size=8, --size 8, unambiguous prefixes
// of long names, operands anywhere, and "--" in front of operands that begin with a minus. A value may
// begin with a minus.
package getopt

import (
	"errors"
	"fmt"
	"strings"

	"github.com/assay-hpc/assay/internal/words"
)

// ErrHelp and ErrVersion are for flags that ask for a text instead of the command's work.
var (
	ErrHelp    = errors.New("help was asked for")
	ErrVersion = errors.New("the version was asked for")
)

// Value says whether a flag has a value.
type Value uint8

// The kinds of flags.
const (
	None Value = iota
	Required
	Ignored // of a flag that is refused: its own error comes first
)

// A Flag is a flag, with a name at least.
type Flag struct {
	Short byte   // 0: none
	Long  string // "": none
	Also  string // another long name, without prefixes; "": none
	Value Value
}

// An Error is a command line that cannot be parsed: a flag that does not exist, is ambiguous, lacks its
// value, or has one that it does not take. The text is getopt_long's, with the nearest name where there
// is no such flag.
type Error struct{ text string }

func (e *Error) Error() string { return e.text }

// Errorf returns an [*Error], also for what is wrong with operands.
func Errorf(format string, a ...any) error { return &Error{fmt.Sprintf(format, a...)} }

type parser struct {
	flags []Flag
	rest  []string
	set   func(flag int, typed, value string) error
}

// Parse calls set for each flag in args, in their order, with its index in flags, what was typed ("-b",
// "--size") and its value. It returns the operands. The error is an [*Error], or what set returned.
func Parse(args []string, flags []Flag, set func(flag int, typed, value string) error) (operands []string, err error) {
	p := &parser{flags, args, set}
	for len(p.rest) > 0 && err == nil {
		a := p.rest[0]
		p.rest = p.rest[1:]
		switch {
		case a == "--":
			return append(operands, p.rest...), nil
		case strings.HasPrefix(a, "--"):
			err = p.long(a[2:])
		case len(a) > 1 && a[0] == '-':
			err = p.short(a[1:])
		default:
			operands = append(operands, a)
		}
	}
	return operands, err
}

// short parses a bundle: flags without values, except that the last may have one.
func (p *parser) short(bundle string) error {
	for i := range len(bundle) {
		n := p.index(func(f Flag) bool { return f.Short == bundle[i] })
		if n < 0 {
			return Errorf("invalid option -- '%c'", bundle[i])
		}
		value := bundle[i+1:]
		if p.flags[n].Value == Required {
			if value == "" && len(p.rest) == 0 {
				return Errorf("option requires an argument -- '%c'", bundle[i])
			}
			if value == "" {
				value, p.rest = p.rest[0], p.rest[1:]
			}
			return p.set(n, "-"+bundle[i:i+1], value)
		}
		if err := p.set(n, "-"+bundle[i:i+1], ""); err != nil {
			return err
		}
	}
	return nil
}

func (p *parser) long(a string) error {
	name, value, has := strings.Cut(a, "=")
	n, err := p.lookup(name)
	if err != nil {
		return err
	}
	f := p.flags[n]
	switch {
	case f.Value == None && has:
		return Errorf("option '--%s' doesn't allow an argument", f.Long)
	case f.Value == Required && !has:
		if len(p.rest) == 0 {
			return Errorf("option '--%s' requires an argument", f.Long)
		}
		value, p.rest = p.rest[0], p.rest[1:]
	}
	return p.set(n, "--"+f.Long, value)
}

// lookup finds a flag by its long name, or by a prefix of it.
func (p *parser) lookup(name string) (int, error) {
	if n := p.index(func(f Flag) bool { return name != "" && (f.Long == name || f.Also == name) }); n >= 0 {
		return n, nil
	}
	var names []string
	var found []int
	for i, f := range p.flags {
		if f.Long == "" {
			continue
		}
		names = append(names, f.Long)
		if strings.HasPrefix(f.Long, name) {
			found = append(found, i)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return 0, Errorf("unrecognized option '--%s'; did you mean '--%s'?", name, words.Nearest(name, names))
	}
	return 0, Errorf("option '--%s' is ambiguous: '--%s' or '--%s'?", name, p.flags[found[0]].Long, p.flags[found[1]].Long)
}

func (p *parser) index(is func(Flag) bool) int {
	for i, f := range p.flags {
		if is(f) {
			return i
		}
	}
	return -1
}
