// Package grammar contains the common rules for the command lines of assay and harness:
//
//   - -o, --format is a format, and nothing else;
//   - --out is a file or a directory;
//   - --push is a registry;
//   - --hardware is a machine's profile, --platform an OCI platform;
//   - --version works everywhere, and a default is printed once;
//   - flags and arguments come in any order.
//
// [Check] checks a program against these rules.
package grammar

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/assay-hpc/assay/internal/exit"
)

// Configure urfave/cli for both programs.
func init() {
	cli.VersionFlag = &cli.BoolFlag{Name: "version", Usage: "print the version", DisableDefaultText: true}
	cli.FlagStringer = flagText
	cli.AppHelpTemplate = appHelp
	const category = "{{if .Category}}\n\nCATEGORY:\n   {{.Category}}{{end}}"
	cli.CommandHelpTemplate = strings.Replace(cli.CommandHelpTemplate, category, "", 1)
	cli.SubcommandHelpTemplate = strings.Replace(cli.SubcommandHelpTemplate, category, "", 1)
	cli.HelpPrinter = func(w io.Writer, template string, data any) {
		cli.HelpPrinterCustom(w, template, data, map[string]any{"wrapAt": func() int { return 120 }})
	}
}

// appHelp is the template of a program's help, which fits on one screen.
const appHelp = `{{.Name}} - {{.Usage}}
USAGE: {{.HelpName}} COMMAND [OPTIONS] [ARGUMENTS]

COMMANDS:{{template "visibleCommandCategoryTemplate" .}}

{{.HelpName}} COMMAND --help shows a command's options, {{.HelpName}} --version the version.
`

// Format returns the flag -o, --format. The first form is the default.
func Format(dst *string, forms ...string) *cli.StringFlag {
	return &cli.StringFlag{
		Name: "format", Aliases: []string{"o"}, Usage: "`FORMAT` on stdout: " + joinWords(forms), Value: forms[0], Destination: dst,
		Action: func(_ *cli.Context, form string) error {
			if !slices.Contains(forms, form) {
				return exit.Usagef("--format is %s, not %q", joinWords(forms), form)
			}
			return nil
		},
	}
}

// NoArgs refuses arguments to a command that takes none.
func NoArgs(c *cli.Context) error {
	if c.Args().Present() {
		return exit.Usagef("%s takes no argument %q", c.Command.Name, c.Args().First())
	}
	return nil
}

func joinWords(words []string) string {
	if n := len(words); n > 1 {
		return strings.Join(words[:n-1], ", ") + " or " + words[n-1]
	}
	return words[0]
}

// Group puts commands under a heading in the help.
func Group(heading string, commands ...*cli.Command) []*cli.Command {
	for _, c := range commands {
		c.Category = heading
	}
	return commands
}

// Output gives the flag --format of commands the name --output, too, hidden from the help.
func Output(commands []*cli.Command) {
	for _, c := range commands {
		Output(c.Subcommands)
		for _, f := range c.Flags {
			if format, ok := f.(*cli.StringFlag); ok && format.Name == "format" {
				also := *format
				also.Name, also.Aliases, also.EnvVars, also.Hidden = "output", nil, nil, true
				c.Flags = append(c.Flags, &also)
			}
		}
	}
}

// flagText formats a flag for a help text. It shows the default only once.
func flagText(f cli.Flag) string {
	d, ok := f.(cli.DocGenerationFlag)
	if !ok {
		return ""
	}
	placeholder, usage := unquote(d.GetUsage())
	s := strings.Join(names(f), ", ")
	if d.TakesValue() {
		if placeholder == "" {
			placeholder = "VALUE"
		}
		s += " " + placeholder
	}
	if v := Default(f); v != "" {
		usage += " (default: " + v + ")"
	}
	if env := d.GetEnvVars(); len(env) > 0 {
		usage += " [$" + strings.Join(env, ", $") + "]"
	}
	return s + "\n   " + usage
}

// names returns a flag's names with their dashes: "-o", "--format".
func names(f cli.Flag) (all []string) {
	for _, n := range f.Names() {
		all = append(all, "--"[:min(len(n), 2)]+n)
	}
	slices.SortStableFunc(all, func(a, b string) int { return min(len(a), 3) - min(len(b), 3) })
	return all
}

// unquote extracts the placeholder from a usage: "write to `FILE`".
func unquote(usage string) (placeholder, text string) {
	before, rest, ok := strings.Cut(usage, "`")
	name, after, closed := strings.Cut(rest, "`")
	if !ok || !closed {
		return "", usage
	}
	return name, before + name + after
}

// Default returns a flag's default as text; "" if it has none, or if its usage already has it.
func Default(f cli.Flag) string {
	d, ok := f.(cli.DocGenerationFlag)
	if !ok || strings.Contains(d.GetUsage(), "(default") {
		return ""
	}
	switch v := strings.Trim(d.GetDefaultText(), `"`); v {
	case "", "0", "0s", "false":
		return ""
	default:
		return v
	}
}

// Check returns the violations of the rules by a program's flags.
func Check(commands []*cli.Command) (problems []string) {
	var walk func(path string, list []*cli.Command)
	walk = func(path string, list []*cli.Command) {
		for _, c := range list {
			if c.Hidden {
				continue
			}
			at := strings.TrimSpace(path + " " + c.Name)
			walk(at, c.Subcommands)
			for _, f := range c.VisibleFlags() {
				if p := wrong(f); p != "" {
					problems = append(problems, fmt.Sprintf("%s --%s: %s", at, f.Names()[0], p))
				}
			}
		}
	}
	walk("", commands)
	return problems
}

// meanings are the allowed placeholders of flags with a fixed meaning.
var meanings = map[string][]string{
	"format": {"FORMAT"}, "out": {"FILE", "DIR", "PATH", "oci:DIR"}, "push": {"REPO"}, "hardware": {"PROFILE"}, "platform": {"PLATFORM"},
}

func wrong(f cli.Flag) string {
	d, ok := f.(cli.DocGenerationFlag)
	if !ok {
		return ""
	}
	placeholder, _ := unquote(d.GetUsage())
	for _, name := range f.Names() {
		switch want := meanings[name]; {
		case name == "o" && f.Names()[0] != "format":
			return "-o is --format's"
		case name == "output" || name == "json":
			return "say --format for a format, --out for a file or directory"
		case want != nil && !slices.Contains(want, placeholder):
			return fmt.Sprintf("it is a %s, not a %s", joinWords(want), placeholder)
		}
	}
	if d.TakesValue() && placeholder == "" {
		return "its usage names no value"
	}
	if placeholder != "" && !d.TakesValue() {
		return "it takes no value"
	}
	if strings.Count(d.GetUsage(), "(default") > 1 {
		return "it has two defaults"
	}
	return ""
}
