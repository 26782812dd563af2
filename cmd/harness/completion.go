package main

import (
	"fmt"
	"io"

	"github.com/urfave/cli/v2"

	"github.com/assay-hpc/assay/internal/exit"
)

// The scripts query the program itself, with urfave/cli's hidden flag, so they are never
// out of date.
const (
	bashCompletion = `# harness completion bash > /etc/bash_completion.d/harness
_harness() {
  local cur=${COMP_WORDS[COMP_CWORD]} words=("${COMP_WORDS[@]:0:COMP_CWORD}")
  [[ $cur == -* ]] && words+=("${cur/#--/-}") # a bare "--" would end the flags
  COMPREPLY=($(compgen -W "$("${words[@]}" --generate-bash-completion 2>/dev/null)" -- "$cur"))
}
complete -o bashdefault -o default -F _harness harness
`
	zshCompletion = `#compdef harness
# harness completion zsh > "${fpath[1]}/_harness"
_harness() {
  local -a opts words_before
  words_before=("${(@)words[1,CURRENT-1]}")
  [[ ${words[CURRENT]} == -* ]] && words_before+=("${words[CURRENT]/#--/-}")
  opts=("${(@f)$("${words_before[@]}" --generate-bash-completion 2>/dev/null)}")
  compadd -- "${opts[@]}"
  _files
}
compdef _harness harness
`
)

func completionCommand(out io.Writer) *cli.Command {
	return &cli.Command{
		Name: "completion", Usage: "print a completion script for a shell", ArgsUsage: "bash|zsh|fish",
		BashComplete: func(*cli.Context) { fmt.Fprint(out, "bash\nzsh\nfish\n") },
		Action: func(c *cli.Context) error {
			script, err := completion(c)
			if err != nil {
				return err
			}
			_, err = io.WriteString(out, script)
			return err
		},
	}
}

func completion(c *cli.Context) (string, error) {
	if c.NArg() != 1 {
		return "", exit.Usagef("completion wants one shell: bash, zsh or fish")
	}
	switch c.Args().First() {
	case "bash":
		return bashCompletion, nil
	case "zsh":
		return zshCompletion, nil
	case "fish":
		return c.App.ToFishCompletion()
	}
	return "", exit.Usagef("there is no completion for %q: bash, zsh or fish", c.Args().First())
}
