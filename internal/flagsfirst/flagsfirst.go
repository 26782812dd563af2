// Package flagsfirst lets people write flags after arguments: the flag package
// stops at the first argument.
package flagsfirst

import "strings"

// Args returns a command's arguments with the flags before the others. What
// follows "--" stays as it is. wantsValue reports whether the flag of that name
// takes its value from the next argument.
func Args(args []string, wantsValue func(name string) bool) []string {
	var flags, rest []string
	for i := 0; i < len(args); i++ {
		a := args[i]
		switch {
		case a == "--":
			rest = append(rest, args[i:]...)
			i = len(args)
		case len(a) < 2 || a[0] != '-':
			rest = append(rest, a)
		default:
			flags = append(flags, a)
			name := strings.TrimLeft(a, "-")
			if !strings.Contains(name, "=") && wantsValue(name) && i+1 < len(args) {
				i++
				flags = append(flags, args[i])
			}
		}
	}
	return append(flags, rest...)
}
