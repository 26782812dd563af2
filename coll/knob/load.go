package knob

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/assay-hpc/assay/coll/debug"
	"github.com/assay-hpc/assay/internal/nearest"
)

// An Error is a variable with a value that is wrong, or cannot be obeyed.
type Error struct {
	Setting
	Refused bool
	Reason  string
	Remedy  string
}

func (e *Error) Error() string {
	what := ""
	if e.Refused {
		what = "refused: "
	}
	return fmt.Sprintf("%s=%s (%s): %s%s; %s", e.Name, Quote(e.Value), e.From, what, debug.Short(e.Reason, reasonBytes), e.Remedy)
}

// How much is shown of a value, and of the reason why it is wrong, which may quote part of it: a
// variable may have 100 KB, which does not fit in a line of a log.
const (
	valueBytes  = 100
	reasonBytes = 400
)

// Quote returns a value for an error, shortened and quoted.
func Quote(s string) string { return strconv.Quote(debug.Short(s, valueBytes)) }

// A Warning is something about the variables that the user who set them should know. It is for
// the log, once for each process: see News.
type Warning struct {
	Level   debug.Level // Warn for what is probably a mistake, Info for what has no effect
	Name    string      // the variable
	Message string      // a whole sentence, with the name
}

// String is the message.
func (w Warning) String() string { return w.Message }

var said sync.Map // set of messages

// News returns those of the warnings that it has not returned before in this process: many
// communicators load the same variables, and only one of them should log a warning. It may be
// called concurrently.
func News(all []Warning) []Warning {
	return slices.DeleteFunc(slices.Clone(all), func(w Warning) bool {
		_, again := said.LoadOrStore(w.Message, nil)
		return again
	})
}

// Load reads the variables. environ is as os.Environ returns it; read reads a configuration file,
// and may be nil for the file system. The error joins one *Error for each variable that is wrong,
// and an error for each bad line of a file. In that case the knobs are nil, but the warnings are
// returned.
func Load(environ []string, read func(name string) ([]byte, error)) (*Knobs, []Warning, error) {
	if read == nil {
		read = readFile
	}
	k := Default()
	k.environ, k.settings = map[string]string{}, map[string]Setting{}
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		if _, twice := k.environ[name]; !twice { // getenv takes the first
			k.environ[name] = value
		}
	}
	for name, value := range k.environ {
		if ours(name) {
			k.settings[name] = Setting{name, value, "environment"}
		}
	}
	conf, err := confSettings(k.environ, read)
	warnings := k.merge(conf)
	errs := []error{err}
	for _, s := range k.all() {
		w, err := k.apply(s)
		warnings, errs = append(warnings, w...), append(errs, err)
	}
	w, err := k.resolve()
	warnings, errs = append(warnings, w...), append(errs, err)
	if err := errors.Join(errs...); err != nil {
		return nil, warnings, err
	}
	return k, warnings, nil
}

// ours reports whether this package reads a variable.
func ours(name string) bool {
	return strings.HasPrefix(name, "NCCL_") || strings.HasPrefix(name, "ASSAY_")
}

// merge adds the settings from the files that nothing stronger has set.
func (k *Knobs) merge(conf []Setting) (warnings []Warning) {
	for _, s := range conf {
		name := debug.Short(s.Name, valueBytes)
		switch {
		case s.Name == confFile:
			warnings = append(warnings, Warning{debug.Warn, s.Name, fmt.Sprintf("%s: %s counts in the environment only", s.From, name)})
		case !ours(s.Name):
			w := Warning{debug.Info, s.Name, fmt.Sprintf("%s: %s is left alone: it is not a variable of NCCL", s.From, name)}
			if near := nearest.To(name, names()); nearest.Distance(name, near) <= 2 { // other libraries' variables are there on purpose
				w.Level, w.Message = debug.Warn, w.Message+"; did you mean "+near+"?"
			}
			warnings = append(warnings, w)
		default:
			first, ok := k.settings[s.Name]
			if !ok {
				k.settings[s.Name] = s
			} else if file(first) == file(s) {
				warnings = append(warnings, Warning{debug.Warn, s.Name, fmt.Sprintf("%s: %s is set at %s already, and the first counts", s.From, name, first.From)})
			}
		}
	}
	return warnings
}

// file returns the file of a setting, without the line.
func file(s Setting) string { return s.From[:strings.LastIndex(s.From, ":")+1] }

// apply puts a variable's value into its field.
func (k *Knobs) apply(s Setting) ([]Warning, error) {
	row := find(s.Name)
	if row == nil {
		return unknown(s), nil
	}
	err := row.kind.set(k, s.Value)
	if _, ok := errors.AsType[refusal](err); ok {
		return nil, &Error{s, true, err.Error(), row.Remedy}
	}
	if err != nil {
		return nil, &Error{s, false, err.Error(), "allowed: " + row.Values()}
	}
	if row.Status == Accepted {
		text := fmt.Sprintf("%s=%s (%s) has no effect here: %s", s.Name, debug.Short(s.Value, valueBytes), s.From, row.Effect)
		return []Warning{{debug.Info, s.Name, text}}, nil
	}
	return nil, nil
}

// unknown warns of a variable that is not in the table, unless it belongs to another component.
func unknown(s Setting) []Warning {
	if slices.ContainsFunc(elsewhere, func(p string) bool { return strings.HasPrefix(s.Name, p) }) {
		return nil
	}
	s.Name = debug.Short(s.Name, valueBytes)
	near := nearest.To(s.Name, names())
	if strings.HasPrefix(s.Name, "ASSAY_") && nearest.Distance(s.Name, near) > 2 {
		return nil // other parts of assay have variables, too
	}
	return []Warning{{debug.Warn, s.Name, fmt.Sprintf("%s (%s) is unknown and does nothing; did you mean %s?", s.Name, s.From, near)}}
}

// resolve determines the settings that depend on several variables.
func (k *Knobs) resolve() (warnings []Warning, err error) {
	var minName, maxName string
	k.MinChannels, minName, warnings = k.newest(k.minNames, "NCCL_MIN_NRINGS", "NCCL_MIN_NCHANNELS", "NCCL_MIN_CTAS")
	var w []Warning
	k.MaxChannels, maxName, w = k.newest(k.maxNames, "NCCL_MAX_NRINGS", "NCCL_MAX_NCHANNELS", "NCCL_MAX_CTAS")
	warnings = append(warnings, w...)
	if k.MinChannels > 0 && k.MaxChannels > 0 && k.MinChannels > k.MaxChannels {
		err = &Error{Setting: k.settings[minName], Reason: fmt.Sprintf("it is more than %s=%d", maxName, k.MaxChannels), Remedy: "lower the one or raise the other"}
	}
	const maxSockets = 64 // NCCL's limit for a connection
	if k.SocketThreads*k.SocketsPerThread > maxSockets {
		err = errors.Join(err, &Error{Setting: k.settings["NCCL_NSOCKS_PERTHREAD"],
			Reason: fmt.Sprintf("with NCCL_SOCKET_NTHREADS=%d a connection would have more than %d sockets", k.SocketThreads, maxSockets), Remedy: "lower one of them"})
	}
	return warnings, err
}

// newest returns the value of the newest name that is set, of the names of a limit.
func (k *Knobs) newest(values [3]int, names ...string) (value int, from string, warnings []Warning) {
	for i, v := range values {
		if v == 0 {
			continue
		}
		if value != 0 && value != v {
			warnings = append(warnings, Warning{debug.Warn, from, fmt.Sprintf("%s=%d gives way to %s=%d", from, value, names[i], v)})
		}
		value, from = v, names[i]
	}
	return value, from, warnings
}

// Settings returns the variables of the table that are set, and by what, sorted by name.
func (k *Knobs) Settings() []Setting {
	return slices.DeleteFunc(k.all(), func(s Setting) bool { return find(s.Name) == nil })
}

// all returns all variables that are set, sorted by name. ASSAY_ variables of other components
// may be secret.
func (k *Knobs) all() []Setting {
	var out []Setting
	for _, name := range slices.Sorted(maps.Keys(k.settings)) {
		if s := k.settings[name]; s.Value != "" {
			out = append(out, s)
		}
	}
	return out
}

// Getenv returns a variable as the environment sets it, or else a file. It is for components that
// read further variables and should respect the files.
func (k *Knobs) Getenv(name string) string {
	if s, ok := k.settings[name]; ok {
		return s.Value
	}
	return k.environ[name]
}
