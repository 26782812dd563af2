package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/internal/nearest"
	"github.com/assay-hpc/assay/perftest/probe"
)

// errIBHelp and errIBVersion request a text instead of a test.
var (
	errIBHelp    = errors.New("help was asked for")
	errIBVersion = errors.New("the version was asked for")
)

// An ibUsageError is a command line that cannot be parsed.
type ibUsageError struct{ text string }

func (e *ibUsageError) Error() string { return e.text }

func ibUsagef(format string, a ...any) error { return &ibUsageError{fmt.Sprintf(format, a...)} }

// An ibParser parses a command line as getopt_long does: -s65536, -s 65536, bundles such
// as -aF, --size=65536, --size 65536, unambiguous prefixes of long names, operands
// anywhere, "--" before operands that begin with a minus.
type ibParser struct {
	tool     probe.Tool
	config   probe.Config
	rest     []string
	operands []string
}

// parseIB parses a tool's arguments and checks them. Its errors are errIBHelp,
// errIBVersion, *ibUsageError and *probe.FlagError.
func parseIB(t probe.Tool, args []string) (probe.Config, error) {
	p := &ibParser{tool: t, config: probe.Default(t.Operation, t.Measure), rest: args}
	for len(p.rest) > 0 {
		if err := p.next(); err != nil {
			return p.config, err
		}
	}
	switch len(p.operands) {
	case 0:
	case 1:
		p.config.Host = p.operands[0]
	default:
		return p.config, ibUsagef("%q and %q: there is one server to connect to", p.operands[0], p.operands[1])
	}
	if p.config.Host == "" && len(p.operands) == 1 {
		return p.config, ibUsagef("the server's name is empty")
	}
	return p.config, p.config.Check()
}

// next consumes an argument, and the following one if that is its value.
func (p *ibParser) next() error {
	a := p.rest[0]
	p.rest = p.rest[1:]
	switch {
	case a == "--":
		p.operands, p.rest = append(p.operands, p.rest...), nil
		return nil
	case strings.HasPrefix(a, "--"):
		return p.long(a[2:])
	case len(a) > 1 && a[0] == '-':
		return p.short(a[1:])
	}
	p.operands = append(p.operands, a)
	return nil
}

// short parses a bundle: flags without values, except that the last may have one.
func (p *ibParser) short(bundle string) error {
	for i := 0; i < len(bundle); i++ {
		name := "-" + bundle[i:i+1]
		f, err := p.find(name, func(f ibFlag) bool { return f.short == bundle[i] })
		if err != nil {
			return err
		}
		if f.arg == "" {
			if err := f.apply(&p.config, name, ""); err != nil {
				return err
			}
			continue
		}
		value := bundle[i+1:]
		if value == "" {
			if value, err = p.value(name); err != nil {
				return err
			}
		}
		return f.apply(&p.config, name, value)
	}
	return nil
}

func (p *ibParser) long(a string) error {
	name, value, has := strings.Cut(a, "=")
	name, err := p.complete(name)
	if err != nil {
		return err
	}
	typed := "--" + name
	f, err := p.find(typed, func(f ibFlag) bool { return f.long == name })
	switch {
	case err != nil:
		return err
	case f.arg == "" && has:
		return ibUsagef("%s takes no value", typed)
	case f.arg != "" && !has:
		if value, err = p.value(typed); err != nil {
			return err
		}
	}
	return f.apply(&p.config, typed, value)
}

// value consumes the next argument and returns it.
func (p *ibParser) value(flag string) (string, error) {
	if len(p.rest) == 0 {
		return "", ibUsagef("%s needs a value", flag)
	}
	v := p.rest[0]
	p.rest = p.rest[1:]
	return v, nil
}

// complete finds a long name by its prefix.
func (p *ibParser) complete(name string) (string, error) {
	var names, found []string
	for _, f := range ibFlags {
		names = append(names, f.long)
	}
	for _, u := range ibUnsupported {
		names = append(names, u.long)
	}
	for _, n := range names {
		if n == name && n != "" {
			return n, nil
		}
		if n != "" && strings.HasPrefix(n, name) {
			found = append(found, n)
		}
	}
	switch len(found) {
	case 0:
		return "", ibUsagef("there is no flag --%s; did you mean --%s?", name, nearest.To(name, slices.DeleteFunc(names, func(n string) bool { return n == "" })))
	case 1:
		return found[0], nil
	}
	return "", ibUsagef("--%s may be --%s or --%s", name, found[0], found[1])
}

// find looks up a flag. The error for a flag that only perftest supports gives the reason.
func (p *ibParser) find(typed string, is func(ibFlag) bool) (ibFlag, error) {
	if i := slices.IndexFunc(ibFlags, is); i >= 0 {
		return ibFlags[i], nil
	}
	for _, u := range ibUnsupported {
		if is(ibFlag{short: u.short, long: u.long}) {
			return ibFlag{}, &probe.FlagError{Flag: typed, Text: "not supported: " + u.why}
		}
	}
	var names []string
	for _, f := range ibFlags {
		if f.short != 0 && f.offered(p.tool) {
			names = append(names, string(f.short))
		}
	}
	slices.Sort(names)
	return ibFlag{}, ibUsagef("there is no flag %s; there are -%s", typed, strings.Join(names, ""))
}

// apply sets a flag's value; an error names the flag as it was typed.
func (f ibFlag) apply(c *probe.Config, typed, value string) error {
	err := f.set(c, value)
	if err == nil || errors.Is(err, errIBHelp) || errors.Is(err, errIBVersion) {
		return err
	}
	return &probe.FlagError{Flag: typed, Text: err.Error()}
}

// ibFlagNames returns a tool's flags as users type them.
func ibFlagNames(t probe.Tool) (out []string) {
	for _, f := range ibFlags {
		if !f.offered(t) {
			continue
		}
		if f.short != 0 {
			out = append(out, "-"+string(f.short))
		}
		if f.long != "" {
			out = append(out, "--"+f.long)
		}
	}
	return out
}

// ibUsage is the text of --help.
func ibUsage(t probe.Tool, name string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Usage: %s [FLAG...]        start a server and wait for a client\n       %s [FLAG...] HOST   connect to the server at HOST\n", name, name)
	group := ""
	for _, f := range ibFlags {
		if !f.offered(t) {
			continue
		}
		if f.group != group {
			group = f.group
			fmt.Fprintf(&b, "\n%s\n", group)
		}
		head := "      --" + f.long
		if f.short != 0 {
			head = fmt.Sprintf("  -%c, --%s", f.short, f.long)
		}
		if f.arg != "" {
			head += " " + f.arg
		}
		fmt.Fprintf(&b, "%-34s  %s\n", head, f.help)
	}
	b.WriteString("\nBoth sides need the same test, sizes, iterations and queue pairs. Exit status: 0 passed, 1 failed or below a limit,\n2 wrong usage, 3 could not run.\n")
	return b.String()
}
