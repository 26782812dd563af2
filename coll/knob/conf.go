package knob

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/assay-hpc/assay/coll/debug"
	"github.com/assay-hpc/assay/internal/infile"
)

const (
	confFile   = "NCCL_CONF_FILE"
	systemConf = "/etc/nccl.conf"
	homeConf   = ".nccl.conf"
)

// maxConf bounds the size of a configuration file, so that reading a name such as /dev/zero ends.
const maxConf = 1 << 20

// readFile is os.ReadFile with a limit.
func readFile(name string) ([]byte, error) {
	data, err := infile.Read(name, maxConf)
	if long := (*infile.SizeError)(nil); errors.As(err, &long) {
		err = fmt.Errorf("more than %d bytes are no configuration", maxConf)
	}
	if kind := (*infile.KindError)(nil); errors.As(err, &kind) {
		err = fmt.Errorf("a %s is no configuration", infile.Kind(kind.Mode)) // without the name, which the caller tells
	}
	return data, err
}

// why returns an error without the file's name.
func why(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}

// confSettings returns what the configuration files set, strongest first. As in NCCL, a file that
// cannot be read is left out, and a line that cannot be used is left out alone.
func confSettings(environ map[string]string, read func(string) ([]byte, error)) (out []Setting, warnings []Warning) {
	user, named := environ[confFile], true
	if user == "" {
		named = false
		if home := environ["HOME"]; home != "" {
			user = filepath.Join(home, homeConf)
		}
	}
	for _, name := range []string{user, systemConf} {
		if name == "" {
			continue
		}
		data, err := read(name)
		switch {
		case errors.Is(err, fs.ErrNotExist) && !(named && name == user):
			continue
		case err != nil && named && name == user:
			warnings = append(warnings, Warning{Level: debug.Warn, Name: confFile, From: "environment", Message: fmt.Sprintf("%s=%s: %v; it is left out, as by NCCL: name a file that can be read, or unset it", confFile, Quote(name), why(err))})
			continue
		case err != nil:
			warnings = append(warnings, Warning{Level: debug.Warn, From: name, Message: fmt.Sprintf("%s: %v; it is left out, as by NCCL: make it readable or remove it", debug.Short(name, valueBytes), why(err))})
			continue
		}
		settings, w := parseConf(name, string(data))
		out, warnings = append(out, settings...), append(warnings, w...)
	}
	return out, warnings
}

// Limits of NCCL's reader, in bytes without the zero at the end.
const (
	confLine = 4095
	confWord = 1023 // of a name, and of a value
)

// parseConf parses lines of the form KEY=VALUE as NCCL does, which takes everything before the first
// = for the name and everything after it for the value, with spaces and quotes. Empty lines and those
// that begin with # are comments. Each other line is in one of the results: a setting, or a warning
// that names it. A line from which NCCL reads nothing, such as "export NAME=VALUE", is a setting with
// Unread if it is plain what was meant.
func parseConf(name, data string) (out []Setting, warnings []Warning) {
	n := 0
	for line := range strings.Lines(data) {
		n++
		where := fmt.Sprintf("%s:%d", debug.Short(name, valueBytes), n)
		leave := func(format string, a ...any) {
			warnings = append(warnings, Warning{Level: debug.Warn, From: where, Message: where + ": " + fmt.Sprintf(format, a...)})
		}
		line = strings.TrimSuffix(line, "\n")
		if blank := strings.TrimSpace(line); blank == "" || blank[0] == '#' {
			continue
		}
		cut := ""
		if len(line) > confLine {
			line, cut = line[:confLine], fmt.Sprintf("NCCL reads %d bytes of a line", confLine)
		}
		if zero := strings.IndexByte(line, 0); zero >= 0 {
			line, cut = line[:zero], "a zero byte ends the line"
		}
		line = strings.TrimSuffix(line, "\r")
		key, value, ok := strings.Cut(line, "=")
		switch s := meant(line); {
		case ok && variable.MatchString(key) && len(key) <= confWord:
			if len(value) > confWord {
				value, cut = value[:confWord], fmt.Sprintf("NCCL reads %d bytes of a value", confWord)
			}
			out = append(out, Setting{Name: key, Value: value, From: where, Cut: cut})
		case s.Name != "":
			s.From = where
			out = append(out, s)
		case !ok:
			leave("%.60q is not KEY=VALUE and is left out, as by NCCL; a comment begins with #", line)
		default:
			leave("%.60q is not the name of a variable, and the line is left out; write KEY=VALUE and nothing before it", key)
		}
	}
	return out, warnings
}

var (
	variable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	// assigned is a line that sets a variable for a reader other than NCCL's: of a shell, of YAML, or
	// of one that takes spaces away. A ; or / in front makes it a comment there.
	assigned = regexp.MustCompile(`^[^\w-]*(?:(?:export|setenv|set|env|declare|typeset|local|readonly)\s+)*(?:-\w*\s+)*["']?([A-Za-z_][A-Za-z0-9_]*)["']?\s*([:+]?=|:|\s)\s*(.*)$`)
)

// meant returns what a line would set for a reader that is more lenient than NCCL's, without From.
func meant(line string) Setting {
	m := assigned.FindStringSubmatch(line)
	if m == nil || strings.ContainsAny(strings.TrimSpace(line)[:1], ";/") || len(m[1]) > confWord {
		return Setting{}
	}
	assigns := strings.Contains(line, "=")
	if assigns != strings.HasSuffix(m[2], "=") || !assigns && !readsVariable(m[1]) { // any sentence would be one
		return Setting{}
	}
	value := strings.TrimSpace(m[3])
	if quoted(value) {
		value = value[1 : len(value)-1]
	}
	value = value[:min(len(value), confWord)]
	unread := "NCCL takes everything before the = for the name"
	if !assigns {
		unread = "NCCL reads no line without ="
	}
	return Setting{Name: m[1], Value: value, Unread: unread}
}

func quoted(s string) bool {
	return len(s) >= 2 && (s[0] == '"' || s[0] == '\'') && s[len(s)-1] == s[0]
}

// oddValue says what NCCL takes for a part of a value that its author hardly meant to be one, or "".
func oddValue(s string) string {
	switch {
	case quoted(strings.TrimSpace(s)):
		return "the quotes are a part of the value for NCCL: write it without them"
	case s != strings.TrimSpace(s):
		return "the spaces around it are a part of the value for NCCL: write it without them"
	}
	return ""
}
