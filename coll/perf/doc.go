// Package perf is the benchmark of collectives: nccl-tests' flags, sweep
// rules, timing, verification, table, JSON and exit statuses, over any engine
// that implements Comm. It knows no engine and no command line library; a
// command parses with Parse, opens a World of Config.PerProcess ranks and
// calls Run.
//
// Every rank runs the same loop in a goroutine of its own (worker.go), and all decisions that
// ranks must share are derived from what they exchanged. Rank 0 of the world passes the results
// to the sinks: the table (table.go), nccl-tests' JSON file (jsonfile.go), our own document
// (document.go) and Go benchmark lines (bench.go).
//
// Ranks may be devices (device.go): then operations are enqueued, and everything that touches
// buffers goes through a medium. With --versus engines are measured alternately (versus.go) and
// compared (ranking.go, versustable.go).
//
// The formats and rules are nccl-tests 2.19.6's; where this package does more
// (percentiles, stragglers, guards around buffers) it says so.
package perf
