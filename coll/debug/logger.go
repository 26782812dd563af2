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

// Options say where a log is written and what it contains. Only Level has no useful zero value.
type Options struct {
	Level      Level
	Subsystems Subsystems // of INFO and TRACE; 0: none
	File       string     // NCCL_DEBUG_FILE: %h is the host, %p the process, %% a percent sign; "" is standard error
	Host       string     // up to the first dot; "": the system's
	PID        int        // 0: the system's
	Stderr     io.Writer  // where the log goes without a File; nil is os.Stderr
}

// A Logger writes the log lines of one rank. The zero value and nil write nothing.
type Logger struct {
	level  Level
	set    Subsystems
	out    *sink
	host   string // "host:pid:"
	prefix string // "host:pid:rank [n] "
	close  func() error
}

// Open returns the process's logger, or nil if nothing is to be logged. The first Open of a
// process creates and truncates the file, and the others share it. As with NCCL, it is only
// created if it may get lines, that is, at levels above VERSION. Every caller of Open must call
// Close.
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

// ForRank returns a logger for a rank with the given index on its host. It writes to where l
// does, and ends with l: only l is closed.
func (l *Logger) ForRank(rank, index int) *Logger {
	if l == nil {
		return nil
	}
	r := *l
	r.prefix = fmt.Sprintf("%s%d [%d] ", l.host, rank, index)
	return &r
}

// Close releases the file. When all loggers that have opened it are closed, lines are dropped. A
// second Close does nothing.
func (l *Logger) Close() error {
	if l == nil || l.close == nil {
		return nil
	}
	return l.close()
}

// Enabled reports whether a line would be written. It costs two comparisons: where arguments are
// expensive or the path is hot, call it before Infof, which always boxes its arguments.
// Subsystems do not apply to WARN and VERSION.
func (l *Logger) Enabled(level Level, s Subsystems) bool {
	return l != nil && level <= l.level && level != None && (level <= Warn || s&l.set != 0)
}

// Version writes a line without prefix, as NCCL writes its version.
func (l *Logger) Version(text string) {
	if l.Enabled(Version, 0) {
		l.write("", "", text)
	}
}

// Warnf logs what went wrong.
func (l *Logger) Warnf(format string, a ...any) {
	if l.Enabled(Warn, 0) {
		l.write(l.prefix, "NCCL WARN ", fmt.Sprintf(format, a...))
	}
}

// Infof logs what a subsystem has chosen or done.
func (l *Logger) Infof(s Subsystems, format string, a ...any) {
	if l.Enabled(Info, s) {
		l.write(l.prefix, "NCCL INFO ", fmt.Sprintf(format, a...))
	}
}

// Tracef logs the single steps of a subsystem.
func (l *Logger) Tracef(s Subsystems, format string, a ...any) {
	if l.Enabled(Trace, s) {
		l.write(l.prefix, "NCCL TRACE ", fmt.Sprintf(format, a...))
	}
}

// lineBytes limits the length of a line: a variable or a file name that it quotes may have 100
// KB.
const lineBytes = 4000

// Short returns a text for an error or the log, with its middle left out if it has more than most
// bytes.
func Short(s string, most int) string {
	if len(s) <= most {
		return s
	}
	head, tail := s[:most/2], s[len(s)-most/2:]
	return fmt.Sprintf("%s … %s (%d bytes)", strings.ToValidUTF8(head, ""), strings.ToValidUTF8(tail, ""), len(s))
}

// buffers are for lines that are being written.
var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// write writes text with one call. Each of its lines gets the prefix, so that none can be taken
// for another rank's.
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
