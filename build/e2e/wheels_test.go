package e2e

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// ownAgent is a component whose program is a wheel that needs another one.
var ownAgent = map[string]string{
	"component.yaml": `version: 1.2.0
license: MIT
sources: {wheels: {wheels: "INDEX/simple", requirements: requirements.txt}}
packages: [python3]
build: {packages: [python3-venv], script: venv.sh}
install: [{from: opt/agent/, to: /opt/agent/}]
path: [/opt/agent/bin]
checks: [{name: version, run: [siteagent], prints: 'siteagent {version:exact} with sitelib 3'}]
`,
	"requirements.txt": "siteagent=={version}\n",
	"venv.sh": `python3 -m venv --without-pip /opt/agent
python3 -m venv /tmp/pip
/tmp/pip/bin/pip --python /opt/agent/bin/python install --no-compile --no-index --no-deps /run/assay/wheels/*.whl
mkdir -p /out/opt
cp -a /opt/agent /out/opt/
`,
}

// writeAgent writes the component, for an index that it serves. Of one wheel the index states
// the SHA-256, of the other it does not. The index has newer ones that do not fit.
func writeAgent(t *testing.T, dir string) {
	t.Helper()
	files := map[string][]byte{
		"siteagent-1.2.0-py3-none-any.whl": wheel(t, "siteagent", "1.2.0", "import sitelib\ndef main():\n    print('siteagent 1.2.0 with sitelib', sitelib.version)\n", "sitelib<4"),
		"siteagent-2.0.0-py3-none-any.whl": wheel(t, "siteagent", "2.0.0", "raise SystemExit('2.0.0')\n", ""),
		"sitelib-3.0-py3-none-any.whl":     wheel(t, "sitelib", "3.0", "version = 3\n", ""),
		"sitelib-4.0-py3-none-any.whl":     wheel(t, "sitelib", "4.0", "version = 4\n", ""),
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if text, is := files[filepath.Base(r.URL.Path)]; is {
			_, _ = w.Write(text)
			return
		}
		for name, text := range files {
			if project, _, _ := strings.Cut(name, "-"); r.URL.Path == "/simple/"+project+"/" {
				sum := ""
				if project == "sitelib" {
					h := sha256.Sum256(text)
					sum = "#sha256=" + hex.EncodeToString(h[:])
				}
				fmt.Fprintf(w, "<a href=\"/files/%s%s\">%[1]s</a>\n", name, sum)
			}
		}
	}))
	t.Cleanup(srv.Close)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range ownAgent {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(strings.ReplaceAll(text, "INDEX", srv.URL)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// wheel returns a wheel of one module, with a program of its name if it has a main.
func wheel(t *testing.T, name, version, code, needs string) []byte {
	t.Helper()
	info := name + "-" + version + ".dist-info/"
	meta := "Metadata-Version: 2.1\nName: " + name + "\nVersion: " + version + "\n"
	if needs != "" {
		meta += "Requires-Dist: " + needs + "\n"
	}
	files := [][2]string{
		{name + ".py", code}, {info + "METADATA", meta},
		{info + "WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"},
	}
	if strings.Contains(code, "def main") {
		files = append(files, [2]string{info + "entry_points.txt", "[console_scripts]\n" + name + " = " + name + ":main\n"})
	}
	record := ""
	for _, f := range files {
		sum := sha256.Sum256([]byte(f[1]))
		record += fmt.Sprintf("%s,sha256=%s,%d\n", f[0], base64.RawURLEncoding.EncodeToString(sum[:]), len(f[1]))
	}
	files = append(files, [2]string{info + "RECORD", record + info + "RECORD,,\n"})
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, f := range files {
		w, err := z.Create(f[0])
		if err == nil {
			_, err = w.Write([]byte(f[1]))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
