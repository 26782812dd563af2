package main

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/assay-hpc/assay/build/dockerfile"
	"github.com/assay-hpc/assay/build/matrix"
	"github.com/assay-hpc/assay/build/recipe"
	"github.com/assay-hpc/assay/harness/version"
)

func schemaCommand() *cli.Command {
	return &cli.Command{
		Name: "schema", Usage: "print the JSON Schema of matrix.yaml, for editors",
		Action: func(c *cli.Context) error {
			_, err := c.App.Writer.Write(append(matrix.Schema(), '\n'))
			return err
		},
	}
}

func versionCommand() *cli.Command {
	var form string
	return &cli.Command{
		Name: "version", Usage: "print version, commit and build date",
		Flags: []cli.Flag{outputFlag(&form, "text", "json")},
		Action: func(c *cli.Context) error {
			if form == "json" {
				return writeJSON(c.App.Writer, version.Get())
			}
			_, err := fmt.Fprintln(c.App.Writer, "assay "+version.Get().String())
			return err
		},
	}
}

func dockerfileCommand() *cli.Command {
	o := &common{}
	var platform string
	return &cli.Command{
		Name: "dockerfile", Usage: "print a target's recipe as a Dockerfile, to use as a template",
		ArgsUsage: "TARGET",
		Flags: o.flags(
			&cli.StringFlag{Name: "platform", Usage: "`PLATFORM` to write it for", Value: "linux/amd64", Destination: &platform},
		),
		Action: func(c *cli.Context) error {
			p, err := recipe.ParsePlatform(platform)
			if err != nil {
				return &usageError{err}
			}
			if c.NArg() != 1 {
				return usagef("dockerfile wants one TARGET; \"assay plan\" lists them")
			}
			w, err := o.open(c)
			if err != nil {
				return err
			}
			ts, err := w.Select(c.Args().Slice())
			if err != nil {
				return err
			}
			res, err := w.Recipe(ts[0], p, p)
			if err != nil {
				return err
			}
			text, err := dockerfile.Write(res.Recipe, dockerfile.Env{Epoch: w.Epoch(), URL: w.Mirror.URL, Image: w.Mirror.Image})
			if err != nil {
				return err
			}
			_, err = c.App.Writer.Write([]byte(text))
			return err
		},
	}
}

// completions are the scripts that make a shell ask the program itself.
var completions = map[string]string{
	"bash": `_assay() { COMPREPLY=($(compgen -W "$("${COMP_WORDS[@]:0:$COMP_CWORD}" --generate-bash-completion 2>/dev/null)" -- "${COMP_WORDS[COMP_CWORD]}")); }
complete -o default -F _assay assay
`,
	"zsh": `#compdef assay
_assay() { local -a opts; opts=("${(@f)$(${words[@]:0:#words[@]-1} --generate-bash-completion 2>/dev/null)}"); _describe 'values' opts; }
compdef _assay assay
`,
	"fish": `complete -c assay -f -a '(eval (commandline -opc) --generate-bash-completion 2>/dev/null)'
`,
}

func completionCommand() *cli.Command {
	return &cli.Command{
		Name: "completion", Usage: "print the completion script for bash, zsh or fish",
		ArgsUsage: "SHELL",
		Action: func(c *cli.Context) error {
			text, ok := completions[strings.ToLower(c.Args().First())]
			if !ok {
				return usagef("completion wants bash, zsh or fish")
			}
			_, err := fmt.Fprint(c.App.Writer, text)
			return err
		},
	}
}
