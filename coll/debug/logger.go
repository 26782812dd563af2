package debug

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
)

// Options say where a log goes and what is in it. Only Level has no useful
// zero value.
type Options struct {
	Level      Level
	Subsystems Subsystems // of INFO and TRACE; 0 stands for none
	File       string     // NCCL_DEBUG_FILE: %h is the host, %p the process, %% a percent sign; "" is standard error
	Host       string     // up to the first dot; "" asks the system
	PID        int        // 0 asks the system
	Stderr     io.Writer  // where the log goes without a File; nil is os.Stderr
}

// A Logger writes lines of one rank. The zero value and nil are silent.
type Logger struct {
	level  Level
	set    Subsystems
	out    *sink
	host   string // "host:pid:"
	prefix string // "host:pid:rank [n] "
	close  func() error
}

// Open returns the process's logger, or nil when nothing is to be logged. The
// file is created and truncated by the first Open of a process and shared by
// the others; as with NCCL it is only made when there may be lines in it, that
// is above VERSION. Whoever opens closes.
func Open(o Options) (*Logger, error) {
	if o.Level == None {
		return nil, nil
	}
	if o.PID == 0 {
		o.PID = os.Getpid()
	}
	if o.Host == "" {
		o.Host, _ = os.Hostname() // a host without a name logs without one
	}
	o.Host, _, _ = strings.Cut(o.Host, ".")
	out, err := openSink(o)
	if err != nil {
		return nil, err
	}
	l := &Logger{level: o.Level, set: o.Subsystems, out: out, host: o.Host + ":" + strconv.Itoa(o.PID) + ":", close: sync.OnceValue(out.close)}
	l.prefix = l.host + strconv.Itoa(o.PID) + " [0] "
	return l, nil
}

// ForRank returns a logger for a rank, which is number index on its host. It
// writes where l does and ends with it: only l is closed.
func (l *Logger) ForRank(rank, index int) *Logger {
	if l == nil {
		return nil
	}
	r := *l
	r.prefix = fmt.Sprintf("%s%d [%d] ", l.host, rank, index)
	return &r
}

// Close lets go of the file. Once all who opened it have closed it, lines are
// dropped. To close again does nothing.
func (l *Logger) Close() error {
	if l == nil || l.close == nil {
		return nil
	}
	return l.close()
}

// Enabled reports whether a line would be written. It costs two comparisons:
// where arguments are dear or the path is hot, ask before calling Infof, whose
// arguments are boxed in any case. Subsystems say nothing about WARN and
// VERSION.
func (l *Logger) Enabled(level Level, s Subsystems) bool {
	return l != nil && level <= l.level && level != None && (level <= Warn || s&l.set != 0)
}

// Version writes a line without prefix, as NCCL writes its version.
func (l *Logger) Version(text string) {
	if l.Enabled(Version, 0) {
		l.write("", "", text)
	}
}

// Warnf says what went wrong.
func (l *Logger) Warnf(format string, a ...any) {
	if l.Enabled(Warn, 0) {
		l.write(l.prefix, "NCCL WARN ", fmt.Sprintf(format, a...))
	}
}

// Infof says what a subsystem has chosen or done.
func (l *Logger) Infof(s Subsystems, format string, a ...any) {
	if l.Enabled(Info, s) {
		l.write(l.prefix, "NCCL INFO ", fmt.Sprintf(format, a...))
	}
}

// Tracef follows a subsystem step by step.
func (l *Logger) Tracef(s Subsystems, format string, a ...any) {
	if l.Enabled(Trace, s) {
		l.write(l.prefix, "NCCL TRACE ", fmt.Sprintf(format, a...))
	}
}

// lineBytes is how long a line may be: a variable or a file's name that it
// quotes may have 100 KB.
const lineBytes = 4000

// Short is a text for an error or the log, its middle left out if it has more
// than so many bytes.
func Short(s string, most int) string {
	if len(s) <= most {
		return s
	}
	head, tail := s[:most/2], s[len(s)-most/2:]
	return fmt.Sprintf("%s … %s (%d bytes)", strings.ToValidUTF8(head, ""), strings.ToValidUTF8(tail, ""), len(s))
}

// buffers are of lines on their way out.
var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// write puts out text in one piece. Each of its lines gets the prefix, so that
// none can be taken for another rank's.
func (l *Logger) write(prefix, level, text string) {
	b := buffers.Get().(*bytes.Buffer)
	b.Reset()
	for line := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
		b.WriteString(prefix)
		b.WriteString(level)
		b.WriteString(Short(line, lineBytes))
		b.WriteByte('\n')
	}
	l.out.write(b.Bytes())
	buffers.Put(b)
}
