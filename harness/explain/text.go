package explain

import (
	"bytes"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/internal/words"
)

// A File is an input: a name for messages, and its text.
type File struct {
	Name string
	Text []byte
}

// maxLine is how many bytes of a line are read.
const maxLine = 4096

// Unescape returns a log that stands in strings of JSON as what it was: the lines of a container's log as Docker keeps
// them, and a text whose line breaks are written \n. Of a whole document the strings of several lines follow it.
func Unescape(text []byte) []byte {
	head := text[:min(len(text), 64<<10)]
	if bytes.HasPrefix(bytes.TrimLeft(head, " \t\r\n"), []byte(`{"log":"`)) {
		var out bytes.Buffer
		for l := range bytes.Lines(text) {
			var entry struct{ Log *string }
			if json.Unmarshal(l, &entry) == nil && entry.Log != nil {
				l = append(bytes.TrimRight([]byte(*entry.Log), "\r\n"), '\n')
			}
			out.Write(l)
		}
		return out.Bytes()
	}
	if n := bytes.Count(head, []byte(`\n`)); n < 4 || n < bytes.Count(head, []byte{'\n'}) || len(text) > 16<<20 {
		return text
	}
	var doc any
	if json.Unmarshal(text, &doc) != nil {
		return []byte(jsonEscapes.Replace(string(text)))
	}
	out := bytes.Clone(text)
	var strs func(v any)
	strs = func(v any) {
		switch v := v.(type) {
		case string:
			if strings.Count(v, "\n") > 1 {
				out = append(append(append(out, '\n'), v...), '\n')
			}
		case []any:
			for _, e := range v {
				strs(e)
			}
		case map[string]any:
			for _, k := range slices.Sorted(maps.Keys(v)) {
				strs(v[k])
			}
		}
	}
	strs(doc)
	return out
}

var jsonEscapes = strings.NewReplacer(`\\`, `\`, `\n`, "\n", `\r`, "", `\t`, "\t", `\"`, `"`)

// A Line is where something stands, and what.
type Line struct {
	File   string `json:"file"`
	Number int    `json:"line"`
	Text   string `json:"text"` // without escape sequences and secrets

	at    place
	match string // what of it a pattern matched; "": not known
}

// A place is a position in the inputs: lines of an earlier file come first.
type place struct{ file, offset int }

func (p place) before(q place) bool {
	return p.file < q.file || p.file == q.file && p.offset < q.offset
}

// line returns the line around an offset, and where it begins. Of a line that is longer than maxLine it returns a window
// of that length around the offset, which is the same for offsets that are close to each other.
func line(text []byte, offset int) (start int, l []byte) {
	low := max(0, offset-offset%(maxLine/2)-maxLine/4)
	start = low
	if i := bytes.LastIndexByte(text[low:offset], '\n'); i >= 0 || low == 0 {
		start = low + i + 1
	}
	end := min(len(text), low+maxLine)
	if i := bytes.IndexByte(text[offset:max(offset, end)], '\n'); i >= 0 {
		end = offset + i
	}
	return start, Clean(text[start:end])
}

// wrapped matches the begin of what continues a warning of NCCL about verbs.
var wrapped = regexp.MustCompile(`^[ \t]*(?:Got completion|local ?G[iI][dD]|remote ?G[iI][dD]|\d*, vendor err|on dev |(?:No data available|Connection timed out|Network is unreachable|No route to host|Invalid argument|No such device)\b)`)

// unwrap returns a text in which the lines of such warnings, which mails and web pages break, are whole again, with
// blanks at their ends, so that all other offsets stay the same.
func unwrap(text []byte) []byte {
	const warning = "NCCL WARN "
	copied := false
	for at := 0; ; {
		i := bytes.Index(text[at:], []byte(warning))
		if i < 0 {
			return text
		}
		start := at + i
		at = endOfLine(text, start)
		whole := text[start:at]
		for range 4 {
			next := text[min(len(text), at+1):]
			if !wrapped.Match(next[:min(len(next), 64)]) {
				break
			}
			end := endOfLine(next, 0)
			whole = slices.Concat(bytes.TrimRight(whole, " \t\r"), []byte{' '}, bytes.TrimSpace(next[:end]))
			at += 1 + end
		}
		if at-start > len(text[start:endOfLine(text, start)]) { // lines were joined
			if !copied {
				text, copied = bytes.Clone(text), true
			}
			copy(text[start:], whole)
			copy(text[start+len(whole):at], bytes.Repeat([]byte{' '}, at-start-len(whole)))
		}
	}
}

// endOfLine is where the line of an offset ends.
func endOfLine(text []byte, offset int) int {
	if i := bytes.IndexByte(text[offset:], '\n'); i >= 0 {
		return offset + i
	}
	return len(text)
}

var escapes = regexp.MustCompile(`\x1b(?:\[[0-9;:?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])|\r$`)

// Clean removes what colours a line on a terminal.
func Clean(l []byte) []byte {
	if bytes.IndexByte(l, 0x1b) < 0 && !bytes.HasSuffix(l, []byte("\r")) {
		return l
	}
	return escapes.ReplaceAll(l, nil)
}

// secret is what no report repeats: values of variables and options that are called a secret, and tokens by their form.
var secret = regexp.MustCompile(`(?i)((?:pass(?:word|wd|phrase)?|secret|token|api[_-]?key|access[_-]?key|credential|authorization|cookie)[\w-]*["']?\s*[:=]\s*["']?(?:bearer |basic )?)[^\s"',;&]+` +
	`|(\b(?:bearer|basic) )[\w.~+/=-]{8,}` +
	`|(://[^\s:/@]+:)[^\s@/]+(?:@)` +
	`|\b(?:hf_|gh[pousr]_|github_pat_|glpat-|xox[baprs]-|sk-|nvapi-|AKIA|ASIA|eyJ)[\w.-]{10,}`)

// noSecret matches names that begin like one of a password and count tests: "Passed: 28".
var noSecret = regexp.MustCompile(`(?i)^pass(?:ed|es|ing|ive)\b`)

// Shown returns a text from an input as it may be printed: without secrets, and with control characters visible.
func Shown(s string) string {
	s = secret.ReplaceAllStringFunc(s, func(m string) string {
		f := secret.FindStringSubmatch(m)
		if noSecret.MatchString(f[1]) {
			return m
		}
		at := ""
		if f[3] != "" {
			at = "@"
		}
		return f[1] + f[2] + f[3] + "***" + at
	})
	return words.Line(strings.ReplaceAll(strings.TrimSpace(s), "\t", " "))
}
