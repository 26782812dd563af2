package jobs

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

// A shell is what a script does, as far as its text tells without running it.
type shell struct {
	commands []command
	comments []command // of one word each
	exports  []variable
	vars     map[string]string // constants; of an array by "NAME[@]"
	open     int               // the line of a quote that nothing closes; 0: none
}

// A command is one simple command. What only a running shell knows remains in its words,
// with its "$" or "`".
type command struct {
	line  int // counts from 1
	words []string
}

// A variable is one of a command's environment.
type variable struct {
	name, value string
	line        int
	maybe       bool   // set on a condition
	after       string // the variable before it that "NAME= WORD" makes empty
}

// maxWord limits what expansions can make of a small script.
const maxWord = 64 << 10

var (
	token = regexp.MustCompile("(?s)^(?:" + strings.Join([]string{
		`(\\\n|[ \t\r]+)`,                // 1 space
		`'([^']*)'`,                      // 2 literal
		`"((?:\\.|[^"\\])*)"`,            // 3 quoted
		`(\$\{[^}${]*\}|\$[A-Za-z_]\w*)`, // 4 expansion
		`(\$\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)|` + "`[^`]*`" + `|\$.?)`, // 5 unknown
		`<<-?[ \t]*["']?([\w.-]+)["']?`,                                       // 6 here-document
		`([0-9]*[<>]+[&|]?)`,                                                  // 7 redirection
		`([;&|()\n]+)`,                                                        // 8 end of a command
		`([^\s'"\\$` + "`" + `;&|()<>]+|\\?.)`,                                // 9 text
	}, "|") + ")")
	list         = regexp.MustCompile(`^\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)`)
	expansion    = regexp.MustCompile(`\\[\\"$` + "`\n" + `]|\$(\w+)|\$\{(\w+(?:\[[@*]\])?)(?::?-[^}${]*)?\}`)
	substitution = regexp.MustCompile(`\$\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)|` + "`[^`]*`") // what it becomes, only a running shell knows
	assignment   = regexp.MustCompile(`^([A-Za-z_]\w*)(\+?=)(?s:(.*))$`)
	setting      = []string{"export", "declare", "typeset", "readonly", "local"}
	keywords     = strings.Fields("if then elif else while until do ! time { for select case function")
)

// parseShell reads a script. It knows quoting, comments, here-documents, and variables with
// constant values, and evaluates no condition. vars are the values of variables at its start.
func parseShell(text string, vars map[string]string) *shell {
	sh := &shell{vars: vars}
	if vars == nil {
		sh.vars = map[string]string{}
	}
	line, cmd, word, inWord, drop, indented := 1, command{}, "", false, false, false
	var here []string
	endWord := func() {
		if inWord && !drop {
			cmd.words = append(cmd.words, word)
		}
		drop = drop && !inWord
		word, inWord = "", false
	}
	for text != "" {
		m := token.FindStringSubmatch(text)
		t, array := m[0], ""
		if strings.HasSuffix(word, "=") {
			array = list.FindString(text)
		}
		if cmd.line == 0 && m[1] == "" && m[8] == "" {
			cmd.line = line
		}
		if len(word) > maxWord {
			word = "$"
		}
		switch {
		case m[1] != "":
			indented = indented || len(cmd.words) == 0 && !inWord && t[0] != '\\'
			if t[0] != '\\' {
				endWord()
			}
		case t[0] == '#' && !inWord:
			t, _, _ = strings.Cut(text, "\n")
			sh.comments = append(sh.comments, command{line, []string{t}})
		case array != "":
			var words []string
			for _, c := range parseShell(array[1:len(array)-1], maps.Clone(sh.vars)).commands {
				words = append(words, c.words...)
			}
			word, t = word+"("+strings.Join(words, " "), array
		case m[6] != "":
			here = append(here, m[6])
		case m[7] != "":
			endWord()
			drop = true
		case m[8] != "":
			endWord()
			sh.end(cmd, indented)
			cmd, drop, indented = command{}, false, false
			if strings.Contains(t, "\n") {
				for _, end := range here {
					t += throughLine(text[len(t):], end)
				}
				here = nil
			}
		case m[4] != "":
			value := sh.expand(t)
			if strings.Contains(value, "$(") || strings.Contains(value, "`") { // what it becomes, only a running shell knows
				word, inWord = word+"$", true
				break
			}
			for i, f := range strings.Fields(value) { // the shell splits it into words
				if i > 0 {
					endWord()
				}
				word, inWord = word+f, true
			}
		case t[0] == '"' && m[9] == "" && strings.HasSuffix(m[3], "[@]}") && m[3][0] == '$':
			for i, f := range strings.Fields(sh.expand(m[3])) {
				if i > 0 {
					endWord()
				}
				word, inWord = word+f, true
			}
		case t[0] == '"' && m[9] == "":
			word, inWord = word+sh.expand(m[3]), true
		case t[0] == '\'' && m[9] == "":
			word, inWord = word+m[2], true
		default:
			if sh.open == 0 && (t == `"` || t == "'") {
				sh.open = line
			}
			word, inWord = word+strings.TrimPrefix(t, "\\"), true
		}
		line, text = line+strings.Count(t, "\n"), text[len(t):]
	}
	endWord()
	sh.end(cmd, indented)
	return sh
}

// throughLine returns the text up to a line, and this.
func throughLine(text, end string) string {
	n := 0
	for _, line := range strings.SplitAfter(text, "\n") {
		if n += len(line); strings.TrimSpace(line) == end {
			break
		}
	}
	return text[:n]
}

// expand puts values in the place of variables that are known.
func (sh *shell) expand(text string) string {
	return expansion.ReplaceAllStringFunc(text, func(s string) string {
		m := expansion.FindStringSubmatch(s)
		if s[0] == '\\' {
			return strings.TrimPrefix(s[1:], "\n")
		}
		if value, ok := sh.vars[strings.Replace(m[1]+m[2], "[*]", "[@]", 1)]; ok {
			return value
		}
		return s
	})
}

// end records a command, and the variables that it sets.
func (sh *shell) end(cmd command, maybe bool) {
	for len(cmd.words) > 0 && slices.Contains(keywords, cmd.words[0]) {
		if w := cmd.words[0]; w == "for" || w == "select" || w == "case" || w == "function" {
			delete(sh.vars, cmd.words[min(1, len(cmd.words)-1)])
			return
		}
		cmd.words, maybe = cmd.words[1:], true
	}
	n := 0
	for n < len(cmd.words) && assignment.MatchString(cmd.words[n]) {
		n++
	}
	set, rest := cmd.words[:n], cmd.words[n:]
	exported := len(rest) > 0
	if exported && slices.Contains(setting, rest[0]) {
		exported = rest[0] == "export" || slices.Contains(rest, "-x")
		set, rest = rest[1:], nil
	}
	for i, w := range set {
		m := assignment.FindStringSubmatch(w)
		if m == nil { // "export NAME", "declare -x"
			m = []string{"", w, "", sh.vars[w]}
		}
		if exported && w != "" && w[0] != '-' {
			v := variable{name: m[1], value: m[3], line: cmd.line, maybe: maybe}
			if i > 0 && m[2] == "" && strings.HasSuffix(set[i-1], "=") {
				v.after = strings.TrimSuffix(set[i-1], "=")
			}
			sh.exports = append(sh.exports, v)
		}
		if m[2] == "" || len(rest) > 0 {
			continue
		}
		delete(sh.vars, m[1])
		delete(sh.vars, m[1]+"[@]")
		m[3] = substitution.ReplaceAllString(m[3], "$$?")
		if value, array := strings.CutPrefix(m[3], "("); m[2] == "=" && !maybe && array {
			sh.vars[m[1]+"[@]"] = value
		} else if m[2] == "=" && !maybe {
			sh.vars[m[1]] = value
		}
	}
	if len(rest) > 0 {
		sh.commands = append(sh.commands, command{cmd.line, rest})
	}
}
