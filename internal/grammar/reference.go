package grammar

import (
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// Reference is a program's reference in Markdown, behind head. usage is the help of commands
// that read flags of their own; others have "".
func Reference(app *cli.App, head string, usage func(command string) string) string {
	b := &strings.Builder{}
	b.WriteString(head)
	var walk func(parent string, list []*cli.Command)
	walk = func(parent string, list []*cli.Command) {
		for _, c := range list {
			if c.Hidden || c.Name == "help" {
				continue
			}
			name := parent + " " + c.Name
			section(b, parent, c, usage(name))
			walk(name, c.Subcommands)
		}
	}
	walk(app.Name, app.Commands)
	return b.String()
}

func section(b *strings.Builder, parent string, c *cli.Command, usage string) {
	fmt.Fprintf(b, "\n## %s %s\n", parent, strings.TrimSpace(c.Name+" "+c.ArgsUsage))
	fmt.Fprintf(b, "%s.\n", strings.ToUpper(c.Usage[:1])+c.Usage[1:])
	if c.Description != "" {
		fmt.Fprintf(b, "\n%s\n", c.Description)
	}
	if usage != "" {
		fmt.Fprintf(b, "\n```text\n%s\n```\n", strings.TrimSpace(usage))
	}
	flags := slices.DeleteFunc(slices.Clone(c.VisibleFlags()), func(f cli.Flag) bool { return slices.Contains(f.Names(), "help") })
	if len(flags) > 0 {
		b.WriteString("\n| flag | what it does | default |\n|---|---|---|\n")
	}
	for _, f := range flags {
		row(b, f)
	}
}

func row(b *strings.Builder, f cli.Flag) {
	d, ok := f.(cli.DocGenerationFlag)
	if !ok {
		return
	}
	names := names(f)
	for i, n := range names {
		names[i] = "`" + n + "`"
	}
	value, text := unquote(d.GetUsage())
	if value != "" {
		value = " `" + value + "`"
	}
	if env := d.GetEnvVars(); len(env) > 0 {
		text += " [`" + strings.Join(env, "`, `") + "`]"
	}
	def := Default(f)
	if def != "" && def != "[]" {
		def = "`" + def + "`"
	}
	fmt.Fprintf(b, "| %s%s | %s | %s |\n", strings.Join(names, ", "), value, strings.ReplaceAll(text, "|", `\|`), def)
}
