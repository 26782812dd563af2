package grammar

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// ManCommand returns the command that prints a program's manual page. usage returns the help of
// commands that parse their own flags, and "" for others.
func ManCommand(w io.Writer, program string, usage func(command string) string) *cli.Command {
	return &cli.Command{
		Name: "man", Usage: "print the manual page",
		Description: "man(1) shows it: " + program + " man | man -l -",
		Action: func(c *cli.Context) error {
			_, err := io.WriteString(w, Man(c.App, usage))
			return err
		},
	}
}

// Man returns a program's manual page, in the macros of man(7).
func Man(app *cli.App, usage func(command string) string) string {
	b := &strings.Builder{}
	fmt.Fprintf(b, ".TH %s 1 \"\" \"%s %s\"\n.SH NAME\n%s \\- %s\n", strings.ToUpper(app.Name), roff(app.Name), roff(app.Version), roff(app.Name), roff(app.Usage))
	fmt.Fprintf(b, ".SH SYNOPSIS\n.B %s\n.I command\n[\\fIflag\\fR]... [\\fIargument\\fR]...\n", roff(app.Name))
	if app.Description != "" {
		fmt.Fprintf(b, ".SH DESCRIPTION\n%s\n", roff(app.Description))
	}
	b.WriteString(".SH COMMANDS\n")
	visible(app, func(parent string, c *cli.Command) {
		name := parent + " " + c.Name
		fmt.Fprintf(b, ".SS %s\n%s.\n", roff(strings.TrimSpace(name+" "+c.ArgsUsage)), roff(sentence(c.Usage)))
		if c.Description != "" {
			fmt.Fprintf(b, ".PP\n%s\n", roff(c.Description))
		}
		if u := strings.TrimSpace(usage(name)); u != "" {
			fmt.Fprintf(b, ".PP\n.nf\n%s\n.fi\n", roff(u))
		}
		for _, f := range flagsOf(c) {
			head, about, _ := strings.Cut(flagText(f), "\n")
			fmt.Fprintf(b, ".TP\n\\fB%s\\fR\n%s\n", roff(head), roff(strings.TrimSpace(about)))
		}
	})
	return b.String()
}

// roff escapes a text so that it contains no requests or escapes.
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(s)
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, ".") || strings.HasPrefix(l, "'") {
			lines[i] = `\&` + l
		}
	}
	var b strings.Builder
	for _, r := range strings.Join(lines, "\n") {
		if r < 0x80 {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, `\[u%04X]`, r)
		}
	}
	return b.String()
}

// visible calls f for all commands that the help shows, each followed by its subcommands.
func visible(app *cli.App, f func(parent string, c *cli.Command)) {
	var walk func(parent string, list []*cli.Command)
	walk = func(parent string, list []*cli.Command) {
		for _, c := range list {
			if !c.Hidden && c.Name != "help" {
				f(parent, c)
				walk(parent+" "+c.Name, c.Subcommands)
			}
		}
	}
	walk(app.Name, app.Commands)
}

// flagsOf returns the flags that the help shows, except help itself.
func flagsOf(c *cli.Command) []cli.Flag {
	return slices.DeleteFunc(slices.Clone(c.VisibleFlags()), func(f cli.Flag) bool { return slices.Contains(f.Names(), "help") })
}

func sentence(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
