package oci

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestStall: a registry that accepts and then is silent, before it answers or
// amid an answer, is given up; one that answers slowly is not.
func TestStall(t *testing.T) {
	for name, silent := range map[string]http.HandlerFunc{
		"before the answer": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"amid the answer": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "100")
			w.Header().Set("Content-Type", "application/vnd.oci.image.index.v1+json")
			_, _ = io.WriteString(w, `{"schemaVersion":2`)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		},
	} {
		t.Run(name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/v2/" {
					return
				}
				silent(w, r)
			}))
			defer srv.Close()
			opts := Options{Stall: 50 * time.Millisecond, Retry: Retry{Attempts: 2, Delay: time.Nanosecond, MaxDelay: time.Microsecond}}
			src, err := OpenSource(strings.TrimPrefix(srv.URL, "http://")+"/a/b:x", opts)
			if err != nil {
				t.Fatal(err)
			}
			_, err = src.Resolve(t.Context())
			var re *remoteError
			if !errors.As(err, &re) || !strings.Contains(err.Error(), "no byte moved for 50ms") || re.Attempts != 2 {
				t.Errorf("Resolve = %v; want a RemoteError that says so after two attempts", err)
			}
		})
	}
}

func TestSlowIsNoStall(t *testing.T) {
	text := strings.Repeat("x", 20)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for _, c := range text {
			_, _ = io.WriteString(w, string(c))
			w.(http.Flusher).Flush()
			time.Sleep(100 * time.Millisecond)
		}
	}))
	defer srv.Close()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	// The whole takes longer than may pass between two bytes.
	resp, err := roundTrip(http.DefaultTransport, req, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, err := io.ReadAll(resp.Body); err != nil || string(b) != text {
		t.Errorf("read %q, %v; want %q", b, err, text)
	}
}

// TestTotal: a registry that wants the client to wait for ever is waited for no
// longer than Total says.
func TestTotal(t *testing.T) {
	n := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v2/" {
			return
		}
		n++
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	defer srv.Close()
	opts := Options{Retry: Retry{Attempts: 1000, Delay: time.Millisecond, MaxDelay: 5 * time.Millisecond, Total: 100 * time.Millisecond}}
	src, err := OpenSource(strings.TrimPrefix(srv.URL, "http://")+"/a/b:x", opts)
	if err != nil {
		t.Fatal(err)
	}
	_, err = src.Resolve(t.Context())
	var re *remoteError
	if !errors.As(err, &re) || re.Status != http.StatusTooManyRequests || !strings.Contains(err.Error(), TotalVariable) || re.Attempts >= 1000 {
		t.Errorf("Resolve = %v after %d requests; want a RemoteError with status 429 and the remedy", err, n)
	}
}
