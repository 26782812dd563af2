//go:build nvml && cgo

package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/gputest"
	"github.com/assay-hpc/assay/internal/host/nvml"
	"github.com/assay-hpc/assay/internal/result"
)

// healthOf runs harness health and reads its document.
func healthOf(t *testing.T, flags ...string) (result.Report, int) {
	t.Helper()
	var out, errOut strings.Builder
	status := run(append([]string{"harness", "health", "-o", "json"}, flags...), &out, &errOut)
	var r result.Report
	if err := json.Unmarshal([]byte(out.String()), &r); err != nil {
		t.Fatalf("health %v: status %d, %v\n%s%s", flags, status, err, out.String(), errOut.String())
	}
	return r, status
}

// TestHealthGPUs: on real GPUs every check is made, and what they say is what
// nvidia-smi says. What a machine lacks may fail; nothing may be an error.
func TestHealthGPUs(t *testing.T) {
	d, err := openGPUs().Driver()
	gputest.Need(t, 1, d.GPUs, err, nvml.ErrNoBinding, nvml.ErrNoLibrary)
	r, _ := healthOf(t)
	t.Logf("verdict %s, in %.3f s", r.Verdict, r.Seconds)
	for _, res := range r.Results {
		switch res.Verdict {
		case result.Error:
			t.Errorf("%s: %s", res.ID, res.Reason)
		case result.Fail, result.Warn, result.Skip:
			t.Logf("%s %s: %s", res.Verdict, res.ID, res.Reason)
		}
	}
	if gpus, version := r.Of("gpu/answers").Objects, r.Of("driver/version").Reason; len(gpus) != d.GPUs || version != d.Version {
		t.Errorf("%d GPUs of driver %s; want %d of %s", len(gpus), version, d.GPUs, d.Version)
	}
	if wrong, status := healthOf(t, "--only", "gpu/count", "--gpus", fmt.Sprint(d.GPUs+1)); status != exit.Fail || wrong.Verdict != result.Fail {
		t.Errorf("one GPU more than there is: status %d, verdict %s", status, wrong.Verdict)
	}
	agrees(t, r)
}

// smiFields are what nvidia-smi -q -x has, by the check that looks at the same.
var smiFields = []struct {
	check, path string
	value       func(smi string) string // as the check puts it
}{
	{"gpu/persistence", "persistence_mode", smiOnOff},
	{"gpu/ecc/mode", "ecc_mode/current_ecc", smiOnOff},
	{"gpu/mig", "mig_mode/current_mig", smiOnOff},
	{"gpu/compute-mode", "compute_mode", func(s string) string { return s }},
	{"gpu/pcie/width", "pci/pci_gpu_link_info/link_widths/current_link_width", func(s string) string { return "x" + strings.TrimSuffix(s, "x") }},
	{"gpu/row-remap/pending", "remapped_rows/remapped_row_pending", strings.ToLower},
	{"gpu/row-remap/failed", "remapped_rows/remapped_row_failure", strings.ToLower},
	{"gpu/row-remap/uncorrectable", "remapped_rows/remapped_row_unc", func(s string) string { return s + " rows" }},
	{"gpu/power/cap", "gpu_power_readings/current_power_limit", func(s string) string { return strings.Replace(s, ".00 W", " W", 1) }},
}

func smiOnOff(s string) string {
	return map[string]string{"Enabled": "on", "Disabled": "off"}[s]
}

// agrees holds a report against nvidia-smi, where it is installed.
func agrees(t *testing.T, r result.Report) {
	out, err := exec.Command("nvidia-smi", "-q", "-x").Output()
	if err != nil {
		t.Logf("skipped: the comparison with nvidia-smi: %v", err)
		return
	}
	gpus, err := smiGPUs(out)
	if err != nil {
		t.Fatal(err)
	}
	ours := r.Of("gpu/answers").Objects
	if len(gpus) != len(ours) {
		t.Fatalf("nvidia-smi has %d GPUs, the report %d", len(gpus), len(ours))
	}
	compared := 0
	for i, g := range gpus {
		if ours[i].ID != g["uuid"] {
			t.Errorf("GPU %d: %+v; nvidia-smi has %s", i, ours[i], g["uuid"])
		}
		for _, f := range smiFields {
			smi, ok := g[f.path]
			if !ok || smi == "N/A" || smi == "[N/A]" {
				t.Logf("GPU %d: nvidia-smi does not tell %s: %q", i, f.path, smi)
				continue
			}
			o, ok := objectOf(r.Of(f.check), ours[i].ID)
			if !ok || o.Verdict == result.Skip {
				t.Errorf("GPU %d: %s: %q, and nvidia-smi has %s", i, f.check, o.Reason, smi)
				continue
			}
			value := o.Reason
			if o.Measured != nil {
				value = fmt.Sprintf("%v %s", o.Measured.Value, o.Measured.Unit)
			}
			if want := f.value(smi); value != want {
				t.Errorf("GPU %d: %s is %q; nvidia-smi has %q", i, f.check, value, want)
			}
			compared++
		}
	}
	if compared < 3*len(gpus) {
		t.Errorf("only %d values could be compared with nvidia-smi's", compared)
	}
	t.Logf("%d values of %d GPUs are what nvidia-smi says", compared, len(gpus))
}

func objectOf(r result.Result, id string) (result.Object, bool) {
	for _, o := range r.Objects {
		if o.ID == id {
			return o, true
		}
	}
	return result.Object{}, false
}

// smiGPUs reads the leaves of each gpu element by their path below it.
func smiGPUs(doc []byte) ([]map[string]string, error) {
	var out []map[string]string
	var path []string
	for dec := xml.NewDecoder(bytes.NewReader(doc)); ; {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		switch x := token.(type) {
		case xml.StartElement:
			path = append(path, x.Name.Local)
			if len(path) == 2 && x.Name.Local == "gpu" {
				out = append(out, map[string]string{})
			}
		case xml.EndElement:
			path = path[:len(path)-1]
		case xml.CharData:
			if text := strings.TrimSpace(string(x)); text != "" && len(path) > 2 && path[1] == "gpu" {
				out[len(out)-1][strings.Join(path[2:], "/")] = text
			}
		}
	}
}

// TestSMI: the reader of nvidia-smi's document finds leaves by their path.
func TestSMI(t *testing.T) {
	got, err := smiGPUs([]byte(`<?xml version="1.0"?><!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log><driver_version>580</driver_version>
<gpu id="0"><uuid>GPU-1</uuid><ecc_mode><current_ecc>Enabled</current_ecc></ecc_mode></gpu>
<gpu id="1"><uuid>GPU-2</uuid></gpu></nvidia_smi_log>`))
	if err != nil || len(got) != 2 || got[0]["ecc_mode/current_ecc"] != "Enabled" || got[1]["uuid"] != "GPU-2" {
		t.Errorf("smiGPUs = %v, %v", got, err)
	}
}
