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

// confSettings returns what the configuration files set, strongest first.
func confSettings(environ map[string]string, read func(string) ([]byte, error)) ([]Setting, error) {
	user, named := environ[confFile], true
	if user == "" {
		named = false
		if home := environ["HOME"]; home != "" {
			user = filepath.Join(home, homeConf)
		}
	}
	var out []Setting
	var errs []error
	for _, name := range []string{user, systemConf} {
		if name == "" {
			continue
		}
		data, err := read(name)
		switch {
		case errors.Is(err, fs.ErrNotExist) && !(named && name == user):
			continue
		case err != nil && named && name == user:
			errs = append(errs, fmt.Errorf("%s=%s: %w; name a file that can be read, or unset it", confFile, Quote(name), why(err)))
			continue
		case err != nil:
			errs = append(errs, fmt.Errorf("%s: %w; make it readable or remove it", debug.Short(name, valueBytes), why(err)))
			continue
		}
		settings, err := parseConf(name, string(data))
		out, errs = append(out, settings...), append(errs, err)
	}
	return out, errors.Join(errs...)
}

var variable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// parseConf parses lines of the form KEY=VALUE. Empty lines and lines that begin with # are
// ignored. Spaces around key and value are removed; a value extends to the end of its line and
// has no quotes.
func parseConf(name, data string) ([]Setting, error) {
	var out []Setting
	var errs []error
	n := 0
	for line := range strings.Lines(data) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		where := fmt.Sprintf("%s:%d", debug.Short(name, valueBytes), n)
		key, value, ok := strings.Cut(line, "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		switch {
		case !ok:
			errs = append(errs, fmt.Errorf("%s: %.60q is not KEY=VALUE; a comment begins with #", where, line))
		case !variable.MatchString(key):
			errs = append(errs, fmt.Errorf("%s: %.60q is not a name of a variable; write KEY=VALUE and nothing before it", where, key))
		case strings.ContainsRune(value, 0):
			errs = append(errs, fmt.Errorf("%s: a zero byte in the value of %s", where, debug.Short(key, valueBytes)))
		case quoted(value):
			errs = append(errs, fmt.Errorf("%s: the quotes would be part of %s; write the value without them", where, debug.Short(key, valueBytes)))
		default:
			out = append(out, Setting{Name: key, Value: value, From: where})
		}
	}
	return out, errors.Join(errs...)
}

func quoted(s string) bool {
	return len(s) >= 2 && (s[0] == '"' || s[0] == '\'') && s[len(s)-1] == s[0]
}
