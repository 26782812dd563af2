package grammar

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/assay-hpc/assay/internal/exit"
)

// The scripts query the program PROG itself, with urfave/cli's hidden flag, so they are never out
// of date.
const (
	bashCompletion = `# PROG completion bash > /etc/bash_completion.d/PROG
_PROG() {
  local cur=${COMP_WORDS[COMP_CWORD]} words=("${COMP_WORDS[@]:0:COMP_CWORD}")
  [[ $cur == -* ]] && words+=("${cur/#--/-}") # a bare "--" would end the flags
  COMPREPLY=($(compgen -W "$("${words[@]}" --generate-bash-completion 2>/dev/null)" -- "$cur"))
}
complete -o bashdefault -o default -F _PROG PROG
`
	zshCompletion = `#compdef PROG
# PROG completion zsh > "${fpath[1]}/_PROG"
_PROG() {
  local -a opts words_before
  words_before=("${(@)words[1,CURRENT-1]}")
  [[ ${words[CURRENT]} == -* ]] && words_before+=("${words[CURRENT]/#--/-}")
  opts=("${(@f)$("${words_before[@]}" --generate-bash-completion 2>/dev/null)}")
  compadd -- "${opts[@]}"
  _files
}
compdef _PROG PROG
`
)

// CompletionCommand prints a script that completes command lines in a shell. fish returns the
// script for that shell.
func CompletionCommand(usage string, fish func(*cli.App) (string, error)) *cli.Command {
	return &cli.Command{
		Name: "completion", Usage: usage, ArgsUsage: "bash|zsh|fish",
		BashComplete: func(c *cli.Context) { fmt.Fprint(c.App.Writer, "bash\nzsh\nfish\n") },
		Action: func(c *cli.Context) error {
			if c.NArg() != 1 {
				return exit.Usagef("completion wants one shell: bash, zsh or fish")
			}
			var script string
			var err error
			switch shell := strings.ToLower(c.Args().First()); shell {
			case "bash":
				script = bashCompletion
			case "zsh":
				script = zshCompletion
			case "fish":
				script, err = fish(c.App)
			default:
				err = exit.Usagef("there is no completion for %q: bash, zsh or fish", shell)
			}
			if err == nil {
				_, err = fmt.Fprint(c.App.Writer, strings.ReplaceAll(script, "PROG", c.App.Name))
			}
			return err
		},
	}
}
