package grammar

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"
)

// Reference returns a program's reference in Markdown, after head. usage returns the help of
// commands that parse their own flags, and "" for others.
func Reference(app *cli.App, head string, usage func(command string) string) string {
	b := &strings.Builder{}
	b.WriteString(head)
	visible(app, func(parent string, c *cli.Command) { section(b, parent, c, usage(parent+" "+c.Name)) })
	return b.String()
}

func section(b *strings.Builder, parent string, c *cli.Command, usage string) {
	fmt.Fprintf(b, "\n## %s %s\n", parent, strings.TrimSpace(c.Name+" "+c.ArgsUsage))
	fmt.Fprintf(b, "%s.\n", sentence(c.Usage))
	if c.Description != "" {
		fmt.Fprintf(b, "\n%s\n", c.Description)
	}
	if usage != "" {
		fmt.Fprintf(b, "\n```text\n%s\n```\n", strings.TrimSpace(usage))
	}
	flags := flagsOf(c)
	if len(flags) > 0 {
		b.WriteString("\n| flag | what it does | default |\n|---|---|---|\n")
	}
	for _, f := range flags {
		flagRow(b, f)
	}
}

func flagRow(b *strings.Builder, f cli.Flag) {
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
