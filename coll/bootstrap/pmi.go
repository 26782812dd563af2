package bootstrap

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// PMI is the protocol between MPI processes and the launcher that started them, over a
// socket with the descriptor PMI_FD. Both versions begin with
//
//	cmd=init pmi_version=V pmi_subversion=S\n
//	cmd=response_to_init pmi_version=V pmi_subversion=S rc=0\n
//
// After that, version 1 continues with such lines, and version 2 with messages of
// "key=value;", each after its length in six characters.

// pmiSpec is PMI's descriptor, and the version to request.
type pmiSpec struct{ fd, version int }

// A pmi is a session with the launcher. A process has at most one in its lifetime: the
// launcher treats a second one as an error.
type pmi struct {
	mu      sync.Mutex // held for a whole request and its answer
	conn    net.Conn
	r       *bufio.Reader
	version int
	kvs     string // version 1: the job's key-value space
	jobid   string // version 2
}

const (
	// pmiMaxMessage bounds the messages that are read from the launcher.
	pmiMaxMessage = 64 << 10
	// pmiMaxValue is the length of values that every launcher accepts.
	pmiMaxValue = 256
)

var pmiSessions = struct {
	sync.Mutex
	byFD map[int]*pmi
}{byFD: map[int]*pmi{}}

// openPMI returns the process's session.
func openPMI(ctx context.Context, s pmiSpec) (*pmi, error) {
	pmiSessions.Lock()
	defer pmiSessions.Unlock()
	if p := pmiSessions.byFD[s.fd]; p != nil {
		return p, nil
	}
	conn, err := inherited(s.fd)
	if err != nil {
		return nil, fmt.Errorf("PMI_FD=%d: %w", s.fd, err)
	}
	p, err := newPMI(ctx, conn, s.version)
	if err != nil {
		conn.Close()
		return nil, err
	}
	pmiSessions.byFD[s.fd] = p
	return p, nil
}

// closePMI says goodbye to the launcher, which otherwise treats the process's exit as a
// crash.
func closePMI(ctx context.Context, s pmiSpec) error {
	pmiSessions.Lock()
	defer pmiSessions.Unlock()
	p := pmiSessions.byFD[s.fd]
	if p == nil {
		return nil
	}
	delete(pmiSessions.byFD, s.fd)
	_, err := p.ask(ctx, "finalize", "finalize_ack", "finalize-response")
	p.conn.Close()
	return err
}

// inherited returns the connection of a descriptor that was inherited from the parent.
func inherited(fd int) (net.Conn, error) {
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(dup), "PMI_FD")
	defer f.Close()
	return net.FileConn(f)
}

func newPMI(ctx context.Context, conn net.Conn, version int) (*pmi, error) {
	p := &pmi{conn: conn, r: bufio.NewReader(conn), version: 1}
	sub := version % 2 // 1.1 and 2.0
	a, err := p.ask(ctx, "init", "response_to_init", "", "pmi_version", strconv.Itoa(version), "pmi_subversion", strconv.Itoa(sub))
	if err != nil {
		return nil, err
	}
	switch a["pmi_version"] {
	case "1":
		a, err = p.ask(ctx, "get_my_kvsname", "my_kvsname", "")
		p.kvs = a["kvsname"]
	case "2":
		p.version = 2
		_, err = p.ask(ctx, "fullinit", "", "fullinit-response", "pmijobid", os.Getenv("PMI_JOBID"), "pmirank", os.Getenv("PMI_RANK"), "threaded", "FALSE")
		if err == nil {
			a, err = p.ask(ctx, "job-getid", "", "job-getid-response")
			p.jobid = a["jobid"]
		}
	default:
		err = fmt.Errorf("PMI: the launcher speaks version %q; 1 and 2 are known here", a["pmi_version"])
	}
	return p, err
}

// put publishes a value, which get returns in all processes after fence. The value must
// not contain a space, ';', '=' or line end.
func (p *pmi) put(ctx context.Context, key, value string) (err error) {
	if len(value) > pmiMaxValue {
		return fmt.Errorf("PMI: value of %d bytes; at most %d are possible", len(value), pmiMaxValue)
	}
	if p.version == 2 {
		_, err = p.ask(ctx, "kvs-put", "", "kvs-put-response", "key", key, "value", value)
	} else {
		_, err = p.ask(ctx, "put", "put_result", "", "kvsname", p.kvs, "key", key, "value", value)
	}
	return err
}

// fence waits until all processes of the job have called it.
func (p *pmi) fence(ctx context.Context) error {
	_, err := p.ask(ctx, [3]string{1: "barrier_in", 2: "kvs-fence"}[p.version], "barrier_out", "kvs-fence-response")
	return err
}

func (p *pmi) get(ctx context.Context, key string) (string, error) {
	var a map[string]string
	var err error
	if p.version == 2 {
		a, err = p.ask(ctx, "kvs-get", "", "kvs-get-response", "jobid", p.jobid, "srcid", "-1", "key", key)
		if err == nil && a["flag"] == "FALSE" {
			err = fmt.Errorf("PMI: no rank has put %q", key)
		}
	} else {
		a, err = p.ask(ctx, "get", "get_result", "", "kvsname", p.kvs, "key", key)
	}
	return a["value"], err
}

// ask sends a command with its arguments, and returns the answer, which must be
// want1 or want2 by version.
func (p *pmi) ask(ctx context.Context, cmd, want1, want2 string, args ...string) (map[string]string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	stop := context.AfterFunc(ctx, func() { p.conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	encode, read, want := encodePMI1, readPMI1, want1
	if p.version == 2 {
		encode, read, want = encodePMI2, readPMI2, want2
	}
	if _, err := io.WriteString(p.conn, encode(append([]string{"cmd", cmd}, args...))); err != nil {
		return nil, fmt.Errorf("PMI %s: %w", cmd, because(ctx, err))
	}
	a, err := read(p.r)
	switch {
	case err != nil:
		err = fmt.Errorf("PMI %s: %w", cmd, because(ctx, err))
	case a["cmd"] != want:
		err = fmt.Errorf("PMI %s: the launcher answers %q; want %q", cmd, a["cmd"], want)
	case a["rc"] != "" && a["rc"] != "0":
		err = fmt.Errorf("PMI %s: the launcher answers rc=%s %s%s", cmd, a["rc"], a["msg"], a["errmsg"])
	}
	return a, err
}

// because returns the cause of ctx if ctx is done, otherwise err.
func because(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

func encodePMI1(kv []string) string {
	var b strings.Builder
	for i := 0; i < len(kv); i += 2 {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(kv[i] + "=" + kv[i+1])
	}
	return b.String() + "\n"
}

func encodePMI2(kv []string) string {
	var b strings.Builder
	for i := 0; i < len(kv); i += 2 {
		if kv[i+1] == "" {
			continue // unknown arguments are omitted
		}
		b.WriteString(kv[i] + "=" + strings.ReplaceAll(kv[i+1], ";", ";;") + ";")
	}
	return fmt.Sprintf("%6d%s", b.Len(), b.String())
}

// readPMI1 reads a line of key=value words. A msg may contain spaces.
func readPMI1(r *bufio.Reader) (map[string]string, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		if err == nil {
			break
		}
		if err != bufio.ErrBufferFull || len(line) > pmiMaxMessage {
			return nil, fmt.Errorf("reading an answer: %w", err)
		}
	}
	out := map[string]string{}
	var last string
	for word := range strings.FieldsSeq(string(line)) {
		k, v, ok := strings.Cut(word, "=")
		switch {
		case ok:
			out[k], last = v, k
		case last == "":
			return nil, fmt.Errorf("answer %q has no key", line)
		default:
			out[last] += " " + word
		}
	}
	return out, nil
}

// readPMI2 reads a length and that many bytes of "key=value;", where ";;" is a semicolon
// in a value.
func readPMI2(r *bufio.Reader) (map[string]string, error) {
	var head [6]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(head[:])), 10, 32)
	if err != nil || n > pmiMaxMessage {
		return nil, fmt.Errorf("answer of length %q", head[:])
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return nil, err
	}
	return parsePMI2(string(body))
}

func parsePMI2(s string) (map[string]string, error) {
	out := map[string]string{}
	for len(s) > 0 {
		k, rest, ok := strings.Cut(s, "=")
		if !ok || k == "" || strings.Contains(k, ";") {
			return nil, errors.New("an answer without key=value")
		}
		var v strings.Builder
		for {
			part, after, ok := strings.Cut(rest, ";")
			if !ok {
				return nil, errors.New("an answer without ; at its end")
			}
			v.WriteString(part)
			if rest = after; !strings.HasPrefix(rest, ";") {
				break
			}
			v.WriteByte(';')
			rest = rest[1:]
		}
		out[k], s = v.String(), rest
	}
	return out, nil
}
