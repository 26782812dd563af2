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
	"github.com/assay-hpc/assay/internal/words"
)

// An Error is a variable with a value that NCCL refuses, too, or one of ours with a wrong value.
type Error struct {
	Setting
	Reason string
	Remedy string
}

func (e *Error) Error() string {
	return fmt.Sprintf("%v: %s; %s", e.Setting.text(), debug.Short(e.Reason, reasonBytes), e.Remedy)
}

// text is NAME="value" (where it was set), shortened.
func (s Setting) text() string {
	return fmt.Sprintf("%s=%s (%s)", debug.Short(s.Name, valueBytes), Quote(s.Value), s.From)
}

// How much is shown of a value, and of the reason why it is wrong, which may quote part of it: a
// variable may have 100 KB, which does not fit in a line of a log.
const (
	valueBytes  = 100
	reasonBytes = 300
)

// Quote returns a value for an error, shortened and quoted.
func Quote(s string) string { return strconv.Quote(debug.Short(s, valueBytes)) }

// A Warning is something about the variables that the user who set them should know. It is for
// the log, once for each process: see News.
type Warning struct {
	Level   debug.Level // Warn for what is probably a mistake, Info for what has no effect
	Name    string      // the variable
	From    string      // where it stands: "environment", file:line, or a file; "" if it is about several
	Message string      // a whole sentence, with the name and the place
	Ours    bool        // it is about this engine: NCCL itself takes the setting as it is
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
// and may be nil for the file system. The error joins one *Error for each variable that is wrong; the
// knobs are then those of the other variables.
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
		if readsVariable(name) {
			k.settings[name] = Setting{Name: name, Value: value, From: "environment"}
		}
	}
	conf, warnings := confSettings(k.environ, read)
	warnings = append(warnings, k.merge(conf)...)
	warnings = append(warnings, k.misspelt()...)
	var errs []error
	for _, s := range k.all() {
		w, err := k.apply(s)
		warnings, errs = append(warnings, w...), append(errs, err)
	}
	return k, append(warnings, k.resolve()...), errors.Join(errs...)
}

// readsVariable reports whether this package reads a variable.
func readsVariable(name string) bool {
	return strings.HasPrefix(name, "NCCL_") || strings.HasPrefix(name, "ASSAY_")
}

// misspelt warns of variables of the environment whose names are one of NCCL's but for the first
// letters' order or case.
func (k *Knobs) misspelt() (warnings []Warning) {
	for _, name := range slices.Sorted(maps.Keys(k.environ)) {
		begin, rest, ok := strings.Cut(name, "_")
		if !ok || k.environ[name] == "" || isNCCLs(name) || !strings.EqualFold(begin, "NCCL") && !slices.Contains(typos, strings.ToUpper(begin)) {
			continue
		}
		if meant := "NCCL_" + strings.ToUpper(rest); knobNamed(meant) != nil {
			warnings = append(warnings, Warning{debug.Warn, name, "environment", fmt.Sprintf("%s (environment) is unknown and does nothing; did you mean %s?", debug.Short(name, valueBytes), meant), false})
		}
	}
	return warnings
}

// typos are what NCCL is written as by mistake, and no library is called.
var typos = []string{"NCLL", "NCC", "NCL", "NCCLL", "NCCCL", "NNCCL"}

// merge adds the settings from the files that nothing stronger has set. A line that NCCL does not
// read counts as nothing, except for FromFiles.
func (k *Knobs) merge(conf []Setting) (warnings []Warning) {
	say := func(l debug.Level, s Setting, format string, a ...any) {
		warnings = append(warnings, Warning{Level: l, Name: s.Name, From: s.From, Message: s.From + ": " + fmt.Sprintf(format, a...)})
	}
	first := map[string]Setting{}
	for _, s := range conf {
		name := debug.Short(s.Name, valueBytes)
		value, stronger := k.environ[s.Name]
		before, again := first[s.Name]
		if s.Unread == "" && (stronger && value != s.Value || again && before.Value != s.Value) {
			k.hidden = append(k.hidden, s)
		}
		switch {
		case s.Unread != "":
			say(debug.Warn, s, "%s is not set: %s; write %s=%s", name, s.Unread, name, debug.Short(s.Value, valueBytes))
			continue
		case s.Name == confFile:
			say(debug.Warn, s, "%s counts in the environment only", name)
			continue
		case again && settingFile(before) == settingFile(s):
			say(debug.Warn, s, "%s is set at %s already, and the first counts", name, before.From)
			continue
		case again:
			say(debug.Info, s, "%s is left out: %s sets it", name, before.From)
			continue
		case stronger:
			say(debug.Info, s, "%s is left out: the environment sets it", name)
			continue
		}
		first[s.Name] = s
		k.files = append(k.files, s)
		if s.Cut != "" {
			say(debug.Warn, s, "%s is only the beginning of what the line says: %s", name, s.Cut)
		}
		if readsVariable(s.Name) {
			k.settings[s.Name] = s
			continue
		}
		text, level := name+" is left alone: it is not a variable of NCCL", debug.Info
		if near := words.Nearest(name, names()); words.Distance(name, near) <= 2 { // other libraries' variables are there on purpose
			text, level = text+"; did you mean "+near+"?", debug.Warn
		}
		if odd := oddValue(s.Value); odd != "" {
			text, level = text+"; "+odd, debug.Warn
		}
		say(level, s, "%s", text)
	}
	for _, s := range conf {
		_, set := first[s.Name]
		if _, stronger := k.environ[s.Name]; s.Unread != "" && !set && !stronger {
			first[s.Name] = s
			k.files = append(k.files, s)
		}
	}
	return warnings
}

// settingFile returns the file of a setting, without the line.
func settingFile(s Setting) string { return s.From[:strings.LastIndex(s.From, ":")+1] }

// apply puts a variable's value into its field.
func (k *Knobs) apply(s Setting) ([]Warning, error) {
	row := knobNamed(s.Name)
	if row == nil {
		return unknown(s), nil
	}
	err := row.kind.set(k, s.Value)
	made, noted := errors.AsType[note](err)
	allowed := "allowed: " + row.Values()
	switch odd := oddValue(s.Value); {
	case err != nil && (!isNCCLs(s.Name) || row.NCCLRefuses && !noted):
		return nil, &Error{s, err.Error(), allowed}
	case noted:
		return []Warning{{debug.Warn, s.Name, s.From, s.text() + ": " + debug.Short(after(odd, made.text), reasonBytes) + "; " + allowed, made.ours}}, nil
	case err != nil:
		return []Warning{{debug.Warn, s.Name, s.From, s.text() + ": " + debug.Short(after(odd, err.Error()), reasonBytes) + ", and it is left out; " + allowed, false}}, nil
	case odd != "" && (quoted(strings.TrimSpace(s.Value)) || row.Values() != anything.values) && row.kind.set(Default(), "\x01") == nil: // it takes any text
		return []Warning{{debug.Warn, s.Name, s.From, s.text() + ": " + odd, false}}, nil
	case row.Status == Accepted:
		text := fmt.Sprintf("%s=%s (%s) has no effect here: %s", s.Name, debug.Short(s.Value, valueBytes), s.From, row.Effect)
		return []Warning{{debug.Info, s.Name, s.From, text, true}}, nil
	}
	return nil, nil
}

// after puts a text after another one, which may be empty.
func after(first, then string) string { return strings.TrimPrefix(first+": "+then, ": ") }

// isNCCLs reports whether a variable is NCCL's.
func isNCCLs(name string) bool { return strings.HasPrefix(name, "NCCL_") }

// unknown warns of a variable that is not in the table, unless it belongs to another component.
func unknown(s Setting) []Warning {
	if slices.ContainsFunc(elsewhere, func(p string) bool { return strings.HasPrefix(s.Name, p) }) {
		return nil
	}
	name := debug.Short(s.Name, valueBytes)
	near := words.Nearest(name, names())
	close := words.Distance(name, near) <= 2
	if !isNCCLs(s.Name) && !close {
		return nil // other parts of assay have variables, too
	}
	text := fmt.Sprintf("%s (%s) is unknown and does nothing", name, s.From)
	if close {
		text += "; did you mean " + near + "?"
	}
	return []Warning{{debug.Warn, s.Name, s.From, text, false}}
}

// resolve determines the settings that depend on several variables.
func (k *Knobs) resolve() (warnings []Warning) {
	var minName, maxName string
	k.MinChannels, minName, warnings = k.newest(k.minNames, "NCCL_MIN_NRINGS", "NCCL_MIN_NCHANNELS", "NCCL_MIN_CTAS")
	var w []Warning
	k.MaxChannels, maxName, w = k.newest(k.maxNames, "NCCL_MAX_NRINGS", "NCCL_MAX_NCHANNELS", "NCCL_MAX_CTAS")
	warnings = append(warnings, w...)
	if k.MaxChannels > 0 && k.MinChannels > k.MaxChannels {
		warnings = append(warnings, Warning{debug.Warn, minName, k.settings[minName].From, fmt.Sprintf("%v: it is more than %s=%d, which is taken", k.settings[minName].text(), maxName, k.MaxChannels), false})
		k.MinChannels = k.MaxChannels
	}
	const maxSockets = 64 // NCCL's limit for a connection
	if k.SocketThreads > 0 && k.SocketThreads*k.SocketsPerThread > maxSockets {
		k.SocketsPerThread = maxSockets / k.SocketThreads
		s := k.settings["NCCL_NSOCKS_PERTHREAD"]
		warnings = append(warnings, Warning{debug.Warn, s.Name, s.From,
			fmt.Sprintf("%v: with NCCL_SOCKET_NTHREADS=%d a connection would have more than %d sockets, and %d is taken", s.text(), k.SocketThreads, maxSockets, k.SocketsPerThread), false})
	}
	return warnings
}

// newest returns the value of the newest name that is set, of the names of a limit.
func (k *Knobs) newest(values [3]int, names ...string) (value int, from string, warnings []Warning) {
	for i, v := range values {
		if v == 0 {
			continue
		}
		if value != 0 && value != v {
			warnings = append(warnings, Warning{debug.Warn, from, k.settings[from].From, fmt.Sprintf("%s=%d gives way to %s=%d", from, value, names[i], v), false})
		}
		value, from = v, names[i]
	}
	return value, from, warnings
}

// OpenLog opens the log that the variables ask for: see debug.Open. Where its file cannot be created,
// the log goes to standard error and says so.
func (k *Knobs) OpenLog() *debug.Logger {
	o := debug.Options{Level: k.Debug, Subsystems: k.DebugSubsystems, File: k.DebugFile}
	l, err := debug.Open(o)
	if err == nil {
		return l
	}
	o.File = ""
	l, _ = debug.Open(o) // only a file can be an error
	for _, w := range News([]Warning{{Message: err.Error()}}) {
		l.Warnf("%v; the log goes to standard error", w)
	}
	return l
}

// Settings returns the variables of the table that are set, and by what, sorted by name.
func (k *Knobs) Settings() []Setting {
	return slices.DeleteFunc(k.all(), func(s Setting) bool { return knobNamed(s.Name) == nil })
}

// FromFiles returns all variables that NCCL's configuration files add to the environment, also other
// libraries' and those that this package does not know. What a line means that NCCL does not read is
// there with Unread, unless another line sets it.
func (k *Knobs) FromFiles() []Setting { return slices.Clone(k.files) }

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
