// Package doctest extracts the command lines of documents and examples, for tests that check them
// against the programs. bash itself runs them, with a stand-in for each program that only records
// its arguments.
package doctest

import (
	"bytes"
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// A Command is a program call in a document.
type Command struct {
	Where string   // file and line
	Args  []string // with the program's name first
}

func (c Command) String() string { return c.Where + ": " + strings.Join(c.Args, " ") }

// A script is shell text in a document: a fenced block, or a file.
type script struct {
	file string
	line int
	text string
	name string // its $0; "" for none of its own
}

// Documents returns the commands in the Markdown files below a directory: those in fenced blocks
// without a language. Other blocks (output, configuration) must name one: ```text.
func Documents(t testing.TB, root string) []Command {
	t.Helper()
	bin := standIns(t)
	var out []Command
	n := 0
	for _, pattern := range []string{"README.md", "docs/*.md", "docs/*/*.md", "examples/*/README.md"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			rel, _ := filepath.Rel(root, file)
			scripts, err := blocks(rel, string(text))
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range scripts {
				n++
				out = append(out, s.commands(t, bin)...)
			}
		}
	}
	if n < 20 {
		t.Fatalf("%d blocks of commands in documents; want 20 and more", n)
	}
	return out
}

func blocks(file, text string) ([]script, error) {
	var out []script
	open := false
	var s *script
	n := 0
	for line := range strings.Lines(text) {
		n++
		language, fence := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case fence && !open:
			open = true
			if language == "" {
				s = &script{file: file, line: n + 1}
			}
		case fence:
			if s != nil {
				out = append(out, *s)
			}
			open, s = false, nil
		case s != nil:
			s.text += line
		}
	}
	if open {
		return nil, fmt.Errorf("%s: a block does not end", file)
	}
	return out, nil
}

// siblings copies the files of a directory, which scripts in it read, and fills in what users must.
func siblings(t testing.TB, dir string) string {
	t.Helper()
	to := t.TempDir()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !f.Type().IsRegular() {
			continue
		}
		b, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err == nil && f.Name() == "assay.conf" {
			b = append(b, "\nASSAY_GPUS=8\n"...)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(to, f.Name()), b, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return to
}

// Examples returns the commands in the files below a directory: in scripts, systemd's ExecStart
// lines, and containers of Kubernetes objects.
func Examples(t testing.TB, root, dir string) []Command {
	t.Helper()
	bin := standIns(t)
	var out []Command
	err := filepath.WalkDir(filepath.Join(root, dir), func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, file)
		text := string(b)
		switch {
		case strings.HasPrefix(text, "#!"):
			s := script{file: rel, line: 1, text: text, name: filepath.Join(siblings(t, filepath.Dir(file)), filepath.Base(file))}
			out = append(out, s.commands(t, bin)...)
		case path.Ext(file) == ".service":
			for i, line := range strings.Split(text, "\n") {
				if line, ok := strings.CutPrefix(line, "ExecStart="); ok {
					line = strings.ReplaceAll(line, "${GPUS}", "8")
					args := slices.DeleteFunc(strings.Fields(line), func(w string) bool { return strings.HasPrefix(w, "$") })
					out = append(out, Command{fmt.Sprintf("%s:%d", rel, i+1), args})
				}
			}
		case path.Ext(file) == ".yaml":
			for dec := yaml.NewDecoder(bytes.NewReader(b)); ; {
				var doc yaml.Node
				if dec.Decode(&doc) != nil {
					return nil
				}
				out = append(out, containers(t, bin, rel, &doc)...)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// containers returns the container commands in a YAML document.
func containers(t testing.TB, bin, file string, n *yaml.Node) []Command {
	t.Helper()
	var out []Command
	if n.Kind == yaml.MappingNode {
		var words []string
		line := 0
		for _, key := range []string{"command", "args"} {
			for i := 0; i+1 < len(n.Content); i += 2 {
				if v := n.Content[i+1]; n.Content[i].Value == key && v.Kind == yaml.SequenceNode {
					line = v.Line
					for _, w := range v.Content {
						words = append(words, w.Value)
					}
				}
			}
		}
		if len(words) == 3 && words[1] == "-c" {
			out = append(out, script{file: file, line: line, text: words[2]}.commands(t, bin)...)
		} else if len(words) > 0 {
			out = append(out, Command{fmt.Sprintf("%s:%d", file, line), words})
		}
	}
	for _, c := range n.Content {
		out = append(out, containers(t, bin, file, c)...)
	}
	return out
}

var (
	prompt = regexp.MustCompile(`(?m)^[a-z0-9]*\$ `)
	digest = "sha256:" + strings.Repeat("0123456789abcdef", 4)
)

// placeholders are words in documents that the reader replaces.
var placeholders = map[string]string{"OWNER": "owner", "DIR": "dir", "FILE": "file", "NAME": "hgx-h200", "TAG": "tag", "N": "2"}

var upper = regexp.MustCompile(`\b[A-Z]+\b`)

// fill replaces placeholders, as a reader would.
func fill(text string) string {
	text = prompt.ReplaceAllString(text, "")
	text = strings.NewReplacer("sha256:…", digest, " ...", "", "...", "", "/opt/assay/bin/", "").Replace(text)
	var out strings.Builder
	for line := range strings.Lines(text) {
		words := strings.Split(line, " ")
		for i, w := range words {
			if !strings.Contains(w, "=") || strings.HasPrefix(w, "--") {
				words[i] = upper.ReplaceAllStringFunc(w, func(p string) string {
					if v, ok := placeholders[p]; ok {
						return v
					}
					return p
				})
			}
		}
		out.WriteString(strings.Join(words, " "))
	}
	return out.String()
}

// known are the programs that documents and examples may call. Each has a stand-in.
var known = strings.Fields(`assay harness all_reduce_perf all_gather_perf alltoall_perf ib_write_bw ib_send_lat
	make go git gh openssl docker python enroot kubectl sbatch srun scontrol mpirun torchrun systemctl cp mkdir rm cat head hostname date sleep seq sort tr id sed awk grep tee touch mv ssh env sh bash nvidia-smi timeout`)

// standIn writes its name and arguments as one line: \x01 separates them, \x02 is a
// line feed inside one. bash writes at each line feed, and the programs of a
// pipeline run at once: records of two lines would get mixed up.
const standIn = `#!/bin/bash
IFS=$'\1'; line=${0##*/}${*:+$IFS$*}; unset IFS
printf '%s\n' "${line//$'\n'/$'\2'}" >>"$DOCTEST_CALLS"
`

// shell is bash code that runs the shell command (sh -c …) in the arguments of another program, or
// of sh itself.
const shell = `
while [ $# -gt 0 ]; do
  case ${shell:-$1} in
  sh | bash | */sh | */bash)
    [ -n "$shell" ] || shift
    while [ "$#" -gt 1 ] && case $1 in -*c) false ;; -*) true ;; *) false ;; esac do shift; done
    case $1 in -*c) shift; exec /bin/bash -c "$@" ;; esac ;;
  esac
  shell=
  shift
done
`

// standIns creates a directory with the stand-ins.
func standIns(t testing.TB) string {
	t.Helper()
	bin := t.TempDir()
	for _, name := range known {
		text := standIn
		switch name {
		case "sleep": // it does not wait, and the third call ends an endless loop
			text = "#!/bin/bash\necho >>$DOCTEST_CALLS.sleeps\nmapfile -t n <$DOCTEST_CALLS.sleeps\n[ ${#n[@]} -lt 3 ] || kill $PPID\n"
		case "git": // what is cloned is a directory, for cd
			text += "[ \"$1\" != clone ] || /bin/mkdir -p \"${2##*/}\"\n"
		case "sh", "bash":
			text += "shell=sh\n" + shell
		case "srun", "mpirun", "docker", "torchrun", "enroot", "env", "timeout":
			text += "shell=\n" + shell
		}
		if err := os.WriteFile(filepath.Join(bin, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return bin
}

// commands runs a script in bash and returns its program calls.
func (s script) commands(t testing.TB, bin string) []Command {
	t.Helper()
	dir := t.TempDir()
	work := filepath.Join(dir, "work")
	if err := os.Mkdir(work, 0o755); err != nil {
		t.Fatal(err)
	}
	calls := filepath.Join(dir, "calls")
	if err := os.WriteFile(calls, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/bin/bash", "-c", fill(s.text), cmp.Or(s.name, "bash"))
	cmd.Dir = work
	cmd.Env = []string{
		"PATH=" + bin, "HOME=" + work, "DOCTEST_CALLS=" + calls, "SLURM_SUBMIT_DIR=" + work, "SLURM_JOB_ID=7", "SLURM_JOB_NODELIST=n[1-2]", "SLURM_NNODES=2",
		"SLURMD_NODENAME=n1", "NODE_NAME=n1",
	}
	out, err := cmd.CombinedOutput()
	if _, ended := os.Stat(calls + ".sleeps"); ended == nil {
		err = nil
	}
	if err != nil || bytes.Contains(out, []byte("command not found")) || bytes.Contains(out, []byte("No such file")) {
		t.Errorf("%s:%d: bash: %v\n%s\nof\n%s", s.file, s.line, err, out, fill(s.text))
	}
	b, err := os.ReadFile(calls)
	if err != nil {
		t.Fatal(err)
	}
	var list []Command
	for line := range strings.Lines(string(b)) {
		c := Command{Where: fmt.Sprintf("%s:%d", s.file, s.line)}
		for word := range strings.SplitSeq(strings.TrimSuffix(line, "\n"), "\x01") {
			c.Args = append(c.Args, strings.ReplaceAll(word, "\x02", "\n"))
		}
		list = append(list, c)
	}
	return list
}

// Calls returns the calls of a program in a command, including those that another program (srun,
// mpirun, docker) starts.
func (c Command) Calls(program string) []Command {
	var out []Command
	if len(c.Args) > 1 && path.Base(c.Args[0]) == "docker" && c.Args[1] != "run" {
		return nil
	}
	for i, w := range c.Args {
		if w != program && !strings.HasSuffix(w, "/bin/"+program) || i > 0 && c.Args[i-1] == "--name" {
			continue
		}
		out = append(out, Command{c.Where, append([]string{program}, c.Args[i+1:]...)})
	}
	return out
}
